"""Addresses: of handles, of queue pairs, of multicast groups."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass
from typing import Any

from softhca.uabi.commands.call import Call, refused
from softhca.uabi.commands.pd import OwnedPD
from softhca.uabi.layout import Fields
from softhca.uabi.structures import RXE_CREATE_AH_RESP
from softhca.verbs.ah import AH
from softhca.verbs.attributes import AHAttr
from softhca.verbs.gid import GID

_ROCE_PORT = 4791


@dataclass
class OwnedAH:
    """An address handle of a program."""

    ah: AH

    def destroy(self) -> dict[str, int]:
        """Destroys it."""
        self.ah.close()
        return {}


def ah_attr_of(route: Fields, fields: Fields) -> AHAttr:
    """The attributes of an address: those of its global route, and the others.

    Raises:
        OSError: EINVAL, without a global route, which RoCE cannot do without.
    """
    if not fields.is_global:
        raise refused(errno.EINVAL, "no GRH")
    return AHAttr(
        dgid=route.dgid,
        sgid_index=route.sgid_index,
        flow_label=route.flow_label & 0xFFFFF,
        hop_limit=route.hop_limit,
        traffic_class=route.traffic_class,
        sl=fields.sl & 0xF,
        port_num=fields.port_num,
    )


def demand_path(call: Call, attr: AHAttr) -> None:
    """Refuses a path that no packet can take, as the kernel does that looks for its first hop.

    Raises:
        OSError: EINVAL, beyond the GID table; ENODATA, for an entry of it that is not in use;
            ENODEV, for 0.0.0.0; what connect(2) says, such as ENETUNREACH.
    """
    device = call.context.device
    source = device.adapter.query_gid(1, attr.sgid_index)
    if not any(source.raw):
        raise refused(errno.ENODATA, f"sgid_index {attr.sgid_index}")
    ours, theirs = source.ip, GID(attr.dgid).ip
    if ours.version == theirs.version == 4 and theirs.is_unspecified:
        # The route leads to this host, of whose interfaces none has that address.
        raise refused(errno.ENODEV, "dgid 0.0.0.0")
    if ours.version != theirs.version or theirs.is_multicast or theirs.is_unspecified:
        return
    family = socket.AF_INET if ours.version == 4 else socket.AF_INET6
    scope = () if ours.version == 4 else (0, device.interface_index if theirs.is_link_local else 0)
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((str(theirs), _ROCE_PORT, *scope))


def fields_of(attr: AHAttr | None) -> dict[str, Any]:
    """The other way round, for struct ib_uverbs_qp_dest."""
    if attr is None or not attr.is_global:
        return {}
    return {
        "dgid": GID(attr.dgid).raw,
        "flow_label": attr.flow_label,
        "sgid_index": attr.sgid_index,
        "hop_limit": attr.hop_limit,
        "traffic_class": attr.traffic_class,
        "sl": attr.sl,
        "is_global": 1,
        "port_num": attr.port_num,
    }


def create_ah(call: Call, request: Fields) -> dict[str, Any]:
    """Creates one; the provider writes its number into send requests."""
    if request.attr.port_num != 1:
        raise refused(errno.EINVAL, f"port {request.attr.port_num}")
    pd = call.context.objects.get(request.pd_handle, OwnedPD).pd
    attr = ah_attr_of(request.attr, request.attr)
    demand_path(call, attr)
    ah = pd.create_ah(attr)
    return {
        "ah_handle": call.own(OwnedAH(ah)),
        "driver": RXE_CREATE_AH_RESP.pack({"ah_num": ah.handle}),
    }


def destroy_ah(call: Call, request: Fields) -> dict[str, Any]:
    """Destroys one."""
    return call.context.objects.destroy(request.ah_handle, OwnedAH)
