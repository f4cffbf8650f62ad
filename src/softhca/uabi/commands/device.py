"""Devices, ports and GIDs."""

from __future__ import annotations

import errno
from typing import Any

from softhca.uabi.commands.call import NO_DESCRIPTOR, AnswerError, Call, demand_flags, refused
from softhca.uabi.events import AsyncPipe
from softhca.uabi.layout import Fields
from softhca.uabi.structures import EX_QUERY_DEVICE_RESP, GID_ENTRY
from softhca.verbs.enums import DeviceCap

# Of struct ib_uverbs_query_device_resp: the capabilities that the older structure has room for.
_OLD_CAPS = 0xFFFFFFFF
# Any page size that is a power of two and not below 4 KiB.
_PAGE_SIZES = 0xFFFFFFFFFFFFF000
_ROCE_V2 = 2
_ETHERNET = 2
_PHYS_LINK_UP, _PHYS_DISABLED = 5, 3
_WIDTH_4X, _SPEED_SDR = 2, 1
_VIRTUAL_LANES = 1
# IB_PORT_CM_SUP: there is a communication manager; and ports have no LID but an IP address.
_PORT_CAPS = 1 << 16
_NODE_GUID_BYTES = 8
# IB_ATOMIC_HCA: atomic among what goes through the adapter, not towards the program's processors.
_ATOMIC_HCA = 1
# Counters of bad keys, a system image's GUID, NAKs for receivers that are not ready.
_CAPS_OF_ALL = 1 << 1 | 1 << 2 | 1 << 11 | 1 << 12


def _completion_vectors(call: Call) -> int:
    return call.context.device.adapter.num_comp_vectors


def get_context_and_events(call: Call, request: Fields) -> dict[str, Any]:
    """The oldest way: the context and the descriptor of its events at once."""
    vectors = {"num_comp_vectors": _completion_vectors(call)}
    call.respond({"async_fd": NO_DESCRIPTOR, **vectors})
    if call.context.is_initialized:
        raise refused(errno.EINVAL, "it has a context")
    answer = {"async_fd": _give_async_events(call), **vectors}
    call.context.is_initialized = True
    return answer


def get_context(call: Call, request: Fields) -> dict[str, Any]:
    """The context alone."""
    answer = query_context(call, request)
    call.respond(answer)
    if call.context.is_initialized:
        raise refused(errno.EINVAL, "it has a context")
    call.context.is_initialized = True
    return answer


def query_context(call: Call, request: Fields) -> dict[str, Any]:
    """What `get_context` said, to whoever imported the context, which Linux's rxe cannot."""
    # IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS: flags that are hints may be passed.
    return {"num_comp_vectors": _completion_vectors(call), "core_support": 1}


def alloc_async_events(call: Call, request: Fields) -> dict[str, Any]:
    """A descriptor of asynchronous events."""
    call.respond({"fd": NO_DESCRIPTOR})
    return {"fd": _give_async_events(call)}


def _give_async_events(call: Call) -> int:
    pipe = AsyncPipe()
    try:
        number = call.give_descriptor(pipe.for_program)
    except OSError:
        pipe.close()
        raise
    pipe.given()
    call.context.add_async_pipe(pipe)
    return number


def query_device(call: Call, request: Fields) -> dict[str, Any]:
    """What the device is, and its limits."""
    device = call.context.device
    attr = device.adapter.query_device()
    reads = min(attr.max_qp_rd_atom * attr.max_qp, (1 << 31) - 1)
    return {
        "fw_ver": _version(attr.fw_ver),
        "node_guid": attr.node_guid.to_bytes(_NODE_GUID_BYTES, "big"),
        "sys_image_guid": attr.sys_image_guid.to_bytes(_NODE_GUID_BYTES, "big"),
        "max_mr_size": attr.max_mr_size,
        "page_size_cap": _PAGE_SIZES,
        "vendor_id": attr.vendor_id,
        "vendor_part_id": attr.vendor_part_id,
        "hw_ver": attr.hw_ver,
        "max_qp": attr.max_qp,
        "max_qp_wr": device.max_qp_wr,
        "device_cap_flags": _caps(call) & _OLD_CAPS,
        "max_sge": attr.max_sge,
        "max_sge_rd": attr.max_sge,
        "max_cq": attr.max_cq,
        "max_cqe": device.max_cqe,
        "max_mr": attr.max_mr,
        "max_pd": attr.max_pd,
        "max_qp_rd_atom": attr.max_qp_rd_atom,
        "max_res_rd_atom": reads,
        "max_qp_init_rd_atom": attr.max_qp_init_rd_atom,
        "atomic_cap": _ATOMIC_HCA,
        "max_mw": attr.max_mw,
        "max_mcast_grp": attr.max_mcast_grp,
        "max_mcast_qp_attach": attr.max_mcast_qp_attach,
        "max_total_mcast_qp_attach": attr.max_mcast_grp * attr.max_mcast_qp_attach,
        "max_ah": attr.max_ah,
        "max_srq": attr.max_srq,
        "max_srq_wr": device.max_srq_wr,
        "max_srq_sge": attr.max_srq_sge,
        "max_pkeys": attr.max_pkeys,
        "phys_port_cnt": attr.phys_port_cnt,
    }


def _caps(call: Call) -> int:
    """Capabilities; those that the provider has no calls for are not among them."""
    caps = call.context.device.adapter.query_device().device_cap_flags
    return int(caps & ~DeviceCap.XRC | _CAPS_OF_ALL)


def _version(text: str) -> int:
    """A version of three numbers, sixteen bits each."""
    major, minor, patch = (int(part) for part in text.split("."))
    return major << 32 | minor << 16 | patch


def ex_query_device(call: Call, request: Fields) -> dict[str, Any]:
    """The same and more: capabilities of 64 bits. Of what else is asked there is nothing here."""
    if request.comp_mask or request.zero:
        raise refused(errno.EINVAL, f"comp_mask {request.comp_mask:#x}, or a reserved field")
    if call.driver_in_length or call.driver_out_length:
        raise refused(errno.EINVAL, "the driver has nothing to add")
    return {
        "base": query_device(call, request),
        "response_length": EX_QUERY_DEVICE_RESP.size,
        "device_cap_flags_ex": _caps(call),
    }


def query_port(call: Call, request: Fields) -> dict[str, Any]:
    """State and limits of a port."""
    attr = call.context.device.adapter.query_port(request.port_num)
    is_up = attr.state.name == "ACTIVE"
    return {
        "port_cap_flags": _PORT_CAPS,
        "max_msg_sz": attr.max_msg_sz,
        "bad_pkey_cntr": attr.bad_pkey_cntr,
        "qkey_viol_cntr": attr.qkey_viol_cntr,
        "gid_tbl_len": attr.gid_tbl_len,
        "pkey_tbl_len": attr.pkey_tbl_len,
        "state": attr.state,
        "max_mtu": attr.max_mtu,
        "active_mtu": attr.active_mtu,
        "max_vl_num": _VIRTUAL_LANES,
        "active_width": _WIDTH_4X,
        "active_speed": _SPEED_SDR,
        "phys_state": _PHYS_LINK_UP if is_up else _PHYS_DISABLED,
        "link_layer": _ETHERNET,
        "flags": 1,  # IB_UVERBS_QPF_GRH_REQUIRED
    }


def query_port_and_more(call: Call, request: Fields) -> dict[str, Any]:
    """The same in the structure of ioctl(2)."""
    return {"legacy": query_port(call, request)}


def _gid_entry(call: Call, index: int, raw: bytes) -> dict[str, Any]:
    return {
        "gid": raw,
        "gid_index": index,
        "port_num": 1,
        "gid_type": _ROCE_V2,
        "netdev_ifindex": call.context.device.interface_index,
    }


def query_gid_table(call: Call, request: Fields) -> dict[str, Any]:
    """The entries of all ports that are in use."""
    size, room = request.entry_size, request.room_of_entries
    demand_flags(request.get("flags", 0), 0)
    # Entries may be shorter than ours, or longer.
    if not size or room % size or not room:
        raise refused(errno.EINVAL, f"{room} bytes for entries of {size}")
    used = call.context.device.used_gids()
    if len(used) * size > room:
        raise refused(errno.EINVAL, f"{len(used)} entries of {size} bytes")
    packed = (GID_ENTRY.pack(_gid_entry(call, *entry))[:size].ljust(size, b"\0") for entry in used)
    return {"entries": b"".join(packed), "count": len(used)}


def query_gid_entry(call: Call, request: Fields) -> dict[str, Any]:
    """One entry: EINVAL beyond the table, ENODATA where it is not in use."""
    adapter = call.context.device.adapter
    demand_flags(request.flags, 0)
    raw = adapter.query_gid(request.port_num, request.gid_index).raw
    if not any(raw):
        raise AnswerError(errno.ENODATA, f"entry {request.gid_index} is empty")
    return _gid_entry(call, request.gid_index, raw)
