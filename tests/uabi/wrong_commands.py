"""Commands that are refused, and the errno of each: what Linux's rxe says, which we say too.

`wrong_commands.py [kernel]` gives each to a device of its own, and says which is answered
otherwise.
It needs `/dev/infiniband/uverbs0` alone; `tests/interop/run --script wrong_commands.sh` shows that
the kernel answers so.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from command_fuzz import DRIVER_RXE, EXTENDED, PAGE, RDMA_VERBS_IOCTL, Fuzzer

from softhca.uabi import structures as s
from softhca.uabi.layout import Layout

BEYOND = (1 << 64) - 8
# Handles that the fuzzer has made, and one that it has not.
A_PD, A_CQ, AN_SRQ, A_QP, A_UD_QP, AN_MR = range(6)
NONE = 99


class Giver:
    """Gives commands to one opened device."""

    def __init__(self) -> None:
        fuzzer = Fuzzer(0)
        self.device, self.arena = fuzzer.device, fuzzer.arena
        self.answer = self.arena.start + 32 * PAGE
        self.nowhere = self.arena.nowhere

    def place_of_answer(self) -> bytes:
        """A pointer, as the provider passes one."""
        return self.answer.to_bytes(8, "little")

    def short_destroy(self, handle: int) -> None:
        """Destroys a CQ as releases 18 and 19 of rdma-core do: of 24 bytes, 16 are written."""
        header = s.WRITE_HEADER.pack({"command": 20, "in_words": 4, "out_words": 2})
        body = s.DESTROY_CQ.pack({"response": self.answer, "cq_handle": handle})
        written = ctypes.CDLL(None, use_errno=True).write
        place = ctypes.c_void_p(self.arena.put(0, header + body))
        if written(self.device, place, ctypes.c_size_t(16)) < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def write(
        self,
        number: int,
        layout: Layout,
        fields: dict[str, Any],
        *,
        out_words: int = 64,
        tail: bytes = b"",
        in_words: int | None = None,
    ) -> None:
        """Gives a command in the older form."""
        body = layout.pack({"response": self.answer, **fields}) + tail
        words = (8 + len(body)) // 4 if in_words is None else in_words
        header = {"command": number, "in_words": words, "out_words": out_words}
        os.write(self.device, s.WRITE_HEADER.pack(header) + body)

    def extended(
        self,
        number: int,
        layout: Layout,
        fields: dict[str, Any],
        *,
        out_words: int = 8,
        driver_words: int = 8,
        response: int | None = None,
        tail: bytes = b"",
    ) -> None:
        """A command of the newer kind."""
        body = layout.pack(fields) + tail
        header = {"command": number | EXTENDED, "in_words": len(body) // 8, "out_words": out_words}
        more = {
            "response": self.answer if response is None else response,
            "provider_out_words": driver_words,
        }
        os.write(self.device, s.WRITE_HEADER.pack(header) + s.EXTENDED_HEADER.pack(more) + body)

    def ioctl(self, object_id: int, method_id: int, *attributes: dict[str, int]) -> None:
        """A method, and its attributes."""
        packed = b"".join(map(s.IOCTL_ATTRIBUTE.pack, attributes))
        header = s.IOCTL_HEADER.pack(
            {
                "length": 24 + len(packed),
                "object_id": object_id,
                "method_id": method_id,
                "num_attrs": len(attributes),
                "driver_id": DRIVER_RXE,
            }
        )
        fcntl.ioctl(self.device, RDMA_VERBS_IOCTL, bytearray(header + packed))

    def invoke(
        self,
        number: int,
        body: bytes,
        *,
        length: int | None = None,
        room: int = 0,
        driver_room: int = 0,
        number_length: int = 8,
    ) -> None:
        """A command of write(2) by ioctl(2)."""
        attributes = [
            attr(0, len(body) if length is None else length, self.arena.put(0, body)),
            attr(2, number_length, number),
        ]
        if len(body) <= 8 and length is None:
            attributes[0]["value"] = int.from_bytes(body, "little")
        if room:
            attributes.append(attr(1, room, self.answer))
        if driver_room:
            attributes.append(attr(0x1001, driver_room, self.answer + 512))
        self.ioctl(0, 0, *attributes)


def _to_nobody() -> dict[str, Any]:
    """A path to 0.0.0.0, from an address of IPv4."""
    (gids,) = Path("/sys/class/infiniband").glob("*/ports/1/gids")
    entries = [(gids / str(index)).read_text() for index in range(4)]
    ours = next(index for index, gid in enumerate(entries) if gid.startswith("0000:" * 5 + "ffff"))
    nobody = bytes(10) + b"\xff\xff" + bytes(4)
    route = {"is_global": 1, "port_num": 1, "sgid_index": ours, "dgid": nobody}
    return {"pd_handle": A_PD, "attr": route}


def attr(number: int, length: int, value: int, flags: int = 0, zero: int = 0) -> dict[str, int]:
    """An attribute."""
    return {"id": number, "length": length, "value": value, "flags": flags, "zero": zero}


_CQ = {"cqe": 8, "comp_channel": -1}
_QP = {
    "pd_handle": A_PD,
    "send_cq_handle": A_CQ,
    "recv_cq_handle": A_CQ,
    "max_send_wr": 4,
    "max_recv_wr": 4,
    "qp_type": 2,
}
_RESIZE = {"cq_handle": A_CQ, "cqe": 8}
_ROUTE = {"is_global": 1, "port_num": 1, "sgid_index": 15}
_OTHER_PORT = {"pd_handle": A_PD, "attr": {"is_global": 1, "port_num": 2}}
_FAR = {"pd_handle": A_PD, "attr": _ROUTE}
_ALL, _RATE, _PORT, _AV, _ALT = 1 << 21, 1 << 25, 1 << 5, 1 << 7, 1 << 14
_XSRQ = {"pd_handle": A_PD, "max_wr": 4, "max_sge": 1}
_SIX = s.DEALLOC_PD
_MODERATE = {"cq_handle": A_CQ, "attr_mask": 1}
_SILENT = {"response": 0, "out_words": 0, "driver_words": 0}

OK, EINVAL, ENOENT, ENOSPC, EBADF = 0, errno.EINVAL, errno.ENOENT, errno.ENOSPC, errno.EBADF
EFAULT, ENODATA, EOPNOTSUPP = errno.EFAULT, errno.ENODATA, errno.EOPNOTSUPP
EPROTO = errno.EPROTONOSUPPORT

Row = tuple[str, int, Callable[[Giver], object]]
ROWS: tuple[Row, ...] = (
    # Headers.
    ("a number with other bits", EINVAL, lambda g: g.write(1 << 9, _SIX, {})),
    ("a number that there is not", EOPNOTSUPP, lambda g: g.write(12, _SIX, {})),
    ("the same, ill counted", EINVAL, lambda g: g.write(12, _SIX, {}, in_words=9)),
    ("a number beyond all, ill counted", EOPNOTSUPP, lambda g: g.write(60, _SIX, {}, in_words=9)),
    ("an extended one that there is not", EOPNOTSUPP, lambda g: g.extended(60, s.QUERY_SRQ, {})),
    ("no room for an answer", ENOSPC, lambda g: g.write(3, s.ALLOC_PD, {}, out_words=0)),
    (
        "an answer beyond all addresses",
        EFAULT,
        lambda g: g.extended(18, s.EX_CREATE_CQ, {"comp_mask": 1}, response=BEYOND),
    ),
    (
        "more than is known, and something in it",
        EOPNOTSUPP,
        lambda g: g.write(23, s.REQ_NOTIFY_CQ, {"cq_handle": NONE}, tail=b"\1\0\0\0"),
    ),
    (
        "more than is known, and nothing in it",
        OK,
        lambda g: g.write(23, s.REQ_NOTIFY_CQ, {"cq_handle": A_CQ}, tail=bytes(4)),
    ),
    # Handles.
    ("no CQ to arm", ENOENT, lambda g: g.write(23, s.REQ_NOTIFY_CQ, {"cq_handle": NONE})),
    ("another kind of object", EINVAL, lambda g: g.write(23, s.REQ_NOTIFY_CQ, {"cq_handle": A_PD})),
    ("no CQ to resize", ENOENT, lambda g: g.write(19, s.RESIZE_CQ, {"cq_handle": NONE})),
    ("no QP to query", ENOENT, lambda g: g.write(25, s.QUERY_QP, {"qp_handle": NONE})),
    ("no QP to modify", ENOENT, lambda g: g.write(26, s.MODIFY_QP, {"qp_handle": NONE})),
    ("no QP to join", ENOENT, lambda g: g.write(30, s.MCAST, {"qp_handle": NONE})),
    ("no QP to leave", ENOENT, lambda g: g.write(31, s.MCAST, {"qp_handle": NONE})),
    ("no SRQ to modify", ENOENT, lambda g: g.write(33, s.MODIFY_SRQ, {"srq_handle": NONE})),
    ("no SRQ to query", ENOENT, lambda g: g.write(34, s.QUERY_SRQ, {"srq_handle": NONE})),
    ("no PD for a window", ENOENT, lambda g: g.write(14, s.ALLOC_MW, {"pd_handle": NONE})),
    ("no PD for an SRQ", ENOENT, lambda g: g.write(32, s.CREATE_SRQ, {"pd_handle": NONE})),
    ("no PD for a QP", ENOENT, lambda g: g.write(24, s.CREATE_QP, {**_QP, "pd_handle": NONE})),
    ("no CQ for a QP", ENOENT, lambda g: g.write(24, s.CREATE_QP, {**_QP, "send_cq_handle": NONE})),
    (
        "no PD for an address",
        ENOENT,
        lambda g: g.write(5, s.CREATE_AH, {"pd_handle": NONE, "attr": _ROUTE}),
    ),
    ("no QP to ring", ENOENT, lambda g: g.invoke(28, _post(NONE), room=4)),
    ("a QP that cannot send", EINVAL, lambda g: g.invoke(28, _post(A_QP), room=4)),
    ("requests too short", EINVAL, lambda g: g.invoke(28, _post(NONE, size=55), room=4)),
    ("requests that are not there", ENOSPC, lambda g: g.invoke(28, _post(A_QP, 1), room=4)),
    # Contexts and devices.
    ("a second context", EINVAL, lambda g: g.write(0, s.GET_CONTEXT, {})),
    (
        "the same, told nowhere",
        EFAULT,
        lambda g: g.write(0, s.GET_CONTEXT, {"response": g.nowhere}),
    ),
    ("a second context by ioctl", EINVAL, lambda g: g.ioctl(0, 3)),
    ("the same, told nowhere", EFAULT, lambda g: g.ioctl(0, 3, attr(0, 4, g.nowhere))),
    ("a device's four bytes", OK, lambda g: g.invoke(_ex(1), bytes(4), room=304)),
    ("a device, told nowhere", OK, lambda g: g.invoke(_ex(1), bytes(8))),
    ("its driver", EINVAL, lambda g: g.invoke(_ex(1), bytes(8), room=304, driver_room=8)),
    # Completion queues.
    ("no CQ to destroy, in short", ENOENT, lambda g: g.short_destroy(NONE)),
    ("a CQ that is in use, in short", errno.EBUSY, lambda g: g.short_destroy(A_CQ)),
    (
        "a vector and a channel that are not",
        EINVAL,
        lambda g: g.write(18, s.CREATE_CQ, {**_CQ, "comp_vector": 999, "comp_channel": 0}),
    ),
    ("no channel", EBADF, lambda g: g.write(18, s.CREATE_CQ, {**_CQ, "comp_channel": 0})),
    ("no room for the driver", EINVAL, lambda g: g.write(18, s.CREATE_CQ, _CQ, out_words=2)),
    ("nothing to complete", EINVAL, lambda g: g.write(18, s.CREATE_CQ, {**_CQ, "cqe": 0})),
    (
        "no channel, and flags",
        EBADF,
        lambda g: g.extended(18, s.EX_CREATE_CQ, {**_CQ, "comp_channel": 0, "flags": 1}),
    ),
    (
        "flags that rxe lacks",
        EOPNOTSUPP,
        lambda g: g.extended(18, s.EX_CREATE_CQ, {**_CQ, "flags": 1}),
    ),
    (
        "the same, no room for the driver",
        EINVAL,
        lambda g: g.extended(18, s.EX_CREATE_CQ, {**_CQ, "flags": 1}, driver_words=0),
    ),
    (
        "a mask of nothing",
        EINVAL,
        lambda g: g.extended(18, s.EX_CREATE_CQ, {**_CQ, "comp_mask": 1, "flags": 1}),
    ),
    ("a short answer", OK, lambda g: g.extended(18, s.EX_CREATE_CQ, _CQ, out_words=1)),
    (
        "no room for its handle",
        OK,
        lambda g: g.invoke(_ex(18), s.EX_CREATE_CQ.pack(_CQ), room=4, driver_room=48),
    ),
    (
        "no room at all",
        OK,
        lambda g: g.invoke(_ex(18), s.EX_CREATE_CQ.pack(_CQ), driver_room=48),
    ),
    ("resized for no driver", EINVAL, lambda g: g.write(19, s.RESIZE_CQ, _RESIZE, out_words=2)),
    # Queue pairs.
    ("a type of none", EINVAL, lambda g: g.write(24, s.CREATE_QP, {**_QP, "qp_type": 77})),
    ("XRC, sending", EOPNOTSUPP, lambda g: g.write(24, s.CREATE_QP, {**_QP, "qp_type": 9})),
    ("XRC, receiving", EINVAL, lambda g: g.write(24, s.CREATE_QP, {**_QP, "qp_type": 10})),
    (
        "XRC, sending, without a CQ",
        ENOENT,
        lambda g: g.write(24, s.CREATE_QP, {**_QP, "qp_type": 9, "send_cq_handle": NONE}),
    ),
    ("a QP of no driver", EINVAL, lambda g: g.write(24, s.CREATE_QP, _QP, out_words=8)),
    (
        "a QP with a mask of nothing",
        EINVAL,
        lambda g: g.extended(24, s.EX_CREATE_QP, {**_QP, "comp_mask": 2}),
    ),
    (
        "a QP, told nowhere",
        OK,
        lambda g: g.invoke(_ex(24), s.EX_CREATE_QP.pack(_QP), driver_room=48),
    ),
    (
        "flags of nobody",
        EINVAL,
        lambda g: g.extended(24, s.EX_CREATE_QP, {**_QP, "create_flags": 1 << 20}),
    ),
    (
        "flags that rxe lacks",
        EOPNOTSUPP,
        lambda g: g.extended(24, s.EX_CREATE_QP, {**_QP, "create_flags": 2}),
    ),
    (
        "a mask before a handle",
        EOPNOTSUPP,
        lambda g: g.write(26, s.MODIFY_QP, {"qp_handle": NONE, "attr_mask": _ALL}),
    ),
    (
        "a rate limit of no QP",
        ENOENT,
        lambda g: g.extended(26, s.EX_MODIFY_QP, {"qp_handle": NONE, "attr_mask": _RATE}),
    ),
    (
        "a rate limit",
        EOPNOTSUPP,
        lambda g: g.extended(26, s.EX_MODIFY_QP, {"qp_handle": A_QP, "attr_mask": _RATE}),
    ),
    (
        "a path from no address",
        ENODATA,
        lambda g: g.write(
            26, s.MODIFY_QP, {"qp_handle": A_QP, "attr_mask": _AV, "dest": _ROUTE, "port_num": 1}
        ),
    ),
    (
        "another port",
        EINVAL,
        lambda g: g.write(
            26, s.MODIFY_QP, {"qp_handle": A_QP, "attr_mask": _AV | _PORT, "dest": _ROUTE}
        ),
    ),
    # Groups.
    ("a group of one", EINVAL, lambda g: _groups(g, _join(gid=_ALONE))),
    ("no group of its own", EINVAL, lambda g: _groups(g, _leave())),
    ("a group, left", OK, lambda g: _groups(g, _join(), _leave(), _gone)),
    ("a group of another LID", EINVAL, lambda g: _groups(g, _join(lid=0xC001), _leave())),
    ("a group, not left", errno.EBUSY, lambda g: _groups(g, _join(), _gone)),
    ("a group, joined twice", OK, lambda g: _groups(g, _join(), _join(), _leave(), _gone)),
    (
        "a group of two LIDs, left by one",
        errno.EBUSY,
        lambda g: _groups(g, _join(), _join(lid=0xC001), _leave(), _gone),
    ),
    # Shared receive queues.
    ("modified for no driver", EINVAL, lambda g: g.write(33, s.MODIFY_SRQ, _srq(2, 1))),
    ("a limit too high", EINVAL, lambda g: g.write(33, s.MODIFY_SRQ, _srq(2, 99), tail=bytes(8))),
    ("a limit", OK, lambda g: g.write(33, s.MODIFY_SRQ, _srq(2, 1), tail=bytes(8))),
    ("a limit of all", OK, lambda g: g.write(33, s.MODIFY_SRQ, _srq(2, 15), tail=bytes(8))),
    (
        "a limit of one more",
        EINVAL,
        lambda g: g.write(33, s.MODIFY_SRQ, _srq(2, 16), tail=bytes(8)),
    ),
    ("a high limit", OK, lambda g: g.write(32, s.CREATE_SRQ, {**_XSRQ, "srq_limit": 3000})),
    ("a type of none", EOPNOTSUPP, lambda g: g.write(39, s.CREATE_XSRQ, {**_XSRQ, "srq_type": 5})),
    ("XRC", EINVAL, lambda g: g.write(39, s.CREATE_XSRQ, {**_XSRQ, "srq_type": 1})),
    (
        "tags without a CQ",
        ENOENT,
        lambda g: g.write(39, s.CREATE_XSRQ, {**_XSRQ, "srq_type": 2, "cq_handle": NONE}),
    ),
    # Regions and addresses.
    (
        "rights before memory",
        EINVAL,
        lambda g: g.write(9, s.REG_MR, _missing(g, 2)),
    ),
    ("rights of nobody", EINVAL, lambda g: g.write(9, s.REG_MR, _missing(g, 1 << 15))),
    ("memory that is not", EFAULT, lambda g: g.write(9, s.REG_MR, _missing(g))),
    ("nothing of no page", EINVAL, lambda g: g.write(9, s.REG_MR, _nothing(g, 0))),
    ("nothing of a page", OK, lambda g: g.write(9, s.REG_MR, _nothing(g, 8))),
    ("an entry that is not in use", ENODATA, lambda g: g.write(5, s.CREATE_AH, _FAR)),
    ("a port that is not", EINVAL, lambda g: g.write(5, s.CREATE_AH, _OTHER_PORT)),
    ("an address of nobody", errno.ENODEV, lambda g: g.write(5, s.CREATE_AH, _to_nobody())),
    # Attributes.
    ("nothing written", EINVAL, lambda g: g.invoke(4, b"")),
    ("too little written", ENOSPC, lambda g: g.invoke(23, bytes(4))),
    ("a short number", EINVAL, lambda g: g.invoke(4, bytes(4), number_length=4)),
    (
        "a port's short number",
        EINVAL,
        lambda g: g.ioctl(0, 2, attr(0, 4, 1), attr(1, 48, g.answer)),
    ),
    ("a short port", EINVAL, lambda g: g.ioctl(0, 2, attr(0, 8, 1), attr(1, 40, g.answer))),
    ("a port", OK, lambda g: g.ioctl(0, 2, attr(0, 8, 1), attr(1, 48, g.answer))),
    (
        "a GID of no driver",
        EPROTO,
        lambda g: g.ioctl(0, 2, attr(0x1001, 8, g.answer, flags=1), attr(0, 8, 1)),
    ),
    ("a method of none", EPROTO, lambda g: g.ioctl(1, 5)),
    ("an attribute that must be known", EPROTO, lambda g: g.ioctl(1, 0, attr(7, 0, 0, flags=1))),
    ("one that need not be", EINVAL, lambda g: g.ioctl(1, 0, attr(7, 0, 0))),
    ("one twice", EINVAL, lambda g: g.ioctl(6, 0, attr(0, 0, A_PD), attr(0, 0, A_PD))),
    ("a field that is none", EINVAL, lambda g: g.ioctl(1, 0, attr(0, 0, NONE, zero=1))),
    ("no PD to destroy", ENOENT, lambda g: g.ioctl(1, 0, attr(0, 0, NONE))),
    ("no CQ, and no answer", ENOENT, lambda g: g.ioctl(3, 1, attr(0, 0, NONE))),
    ("a CQ, and no answer", EINVAL, lambda g: g.ioctl(3, 1, attr(0, 0, A_CQ))),
    ("too long an answer", EINVAL, lambda g: g.ioctl(5, 1, attr(1, 5, g.answer), attr(0, 0, NONE))),
    ("no channel, and nothing else", EBADF, lambda g: g.ioctl(3, 0, attr(3, 0, 0))),
    ("no events, and nothing else", EBADF, lambda g: g.ioctl(4, 0, attr(12, 0, 0))),
    ("a channel of no number", EINVAL, lambda g: g.ioctl(3, 0, attr(3, 0, 1 << 40))),
    ("no XRC domains", EINVAL, lambda g: g.ioctl(4, 0, attr(1, 0, 0))),
    ("kinds without a list", EINVAL, lambda g: g.ioctl(0, 1, attr(0, 8, 1))),
    (
        "kinds of none",
        ENOENT,
        lambda g: g.ioctl(0, 1, attr(0, 8, 9), attr(2, 8, g.answer)),
    ),
    (
        "a list, not its length",
        ENOENT,
        lambda g: g.ioctl(0, 1, attr(0, 8, 1), attr(2, 8, g.answer)),
    ),
    (
        "advice",
        EOPNOTSUPP,
        lambda g: g.ioctl(
            7, 2, attr(0, 0, A_PD), attr(1, 8, 0), attr(2, 4, 0), attr(3, 16, g.answer)
        ),
    ),
    (
        "advice on nothing",
        EFAULT,
        lambda g: g.ioctl(7, 2, attr(0, 0, A_PD), attr(3, 16, g.nowhere)),
    ),
)

# What we say, and what Linux 6.1 says: rxe lacks the first of them, later kernels say what we say
# to pages on demand, 6.3 and later know of FLUSH, and our shared receive queues keep their size.
OURS: tuple[tuple[str, int, int, Callable[[Giver], object]], ...] = (
    ("a context to import", OK, EOPNOTSUPP, lambda g: g.ioctl(0, 4)),
    ("moderation", OK, EOPNOTSUPP, lambda g: g.extended(57, s.EX_MODIFY_CQ, _MODERATE, **_SILENT)),
    (
        "moderation of no CQ",
        ENOENT,
        EOPNOTSUPP,
        lambda g: g.extended(57, s.EX_MODIFY_CQ, {**_MODERATE, "cq_handle": NONE}, **_SILENT),
    ),
    (
        "moderation of nothing",
        EINVAL,
        EOPNOTSUPP,
        lambda g: g.extended(57, s.EX_MODIFY_CQ, {"cq_handle": A_CQ}, **_SILENT),
    ),
    (
        "pages on demand",
        EOPNOTSUPP,
        EINVAL,
        lambda g: g.write(9, s.REG_MR, _missing(g, 1 << 6)),
    ),
    ("a region to flush", OK, EINVAL, lambda g: g.write(9, s.REG_MR, _to_flush(g, 1 << 8))),
    (
        "a region to flush for ever",
        EOPNOTSUPP,
        EINVAL,
        lambda g: g.write(9, s.REG_MR, _to_flush(g, 1 << 9)),
    ),
    (
        "another size of an SRQ",
        EOPNOTSUPP,
        OK,
        lambda g: g.write(33, s.MODIFY_SRQ, {**_srq(1, 0), "max_wr": 16}, tail=g.place_of_answer()),
    ),
)


def _ex(number: int) -> int:
    return number | EXTENDED


def _post(handle: int, requests: int = 0, size: int = 128) -> bytes:
    return s.POST_SEND.pack({"qp_handle": handle, "wr_count": requests, "wqe_size": size})


def _srq(mask: int, limit: int) -> dict[str, int]:
    return {"srq_handle": AN_SRQ, "attr_mask": mask, "srq_limit": limit}


def _nothing(giver: Giver, offset: int) -> dict[str, int]:
    """A region without bytes."""
    at = giver.arena.start + PAGE + offset
    return {"start": at, "hca_va": at, "length": 0, "pd_handle": A_PD}


def _missing(giver: Giver, access: int = 0) -> dict[str, int]:
    """A region of a page that may not be reached."""
    at = giver.nowhere
    return {"start": at, "hca_va": at, "length": PAGE, "pd_handle": A_PD, "access_flags": access}


def _to_flush(giver: Giver, access: int) -> dict[str, int]:
    """A region of a page with such a right."""
    at = giver.arena.start + PAGE
    return {"start": at, "hca_va": at, "length": PAGE, "pd_handle": A_PD, "access_flags": access}


_GROUP = bytes(10) + bytes.fromhex("ffffef000001")
_ALONE = bytes(10) + bytes.fromhex("ffff7f000001")
Step = Callable[[Giver], None]


def _join(gid: bytes = _GROUP, lid: int = 0xC000) -> Step:
    return lambda g: g.write(30, s.MCAST, {"qp_handle": A_UD_QP, "gid": gid, "mlid": lid})


def _leave(gid: bytes = _GROUP, lid: int = 0xC000) -> Step:
    return lambda g: g.write(31, s.MCAST, {"qp_handle": A_UD_QP, "gid": gid, "mlid": lid})


def _gone(giver: Giver) -> None:
    giver.write(27, s.DESTROY_QP, {"qp_handle": A_UD_QP})


def _groups(giver: Giver, *steps: Step) -> None:
    """Joins, leaves and destroys, one after another."""
    for step in steps:
        step(giver)


def said_to(command: Callable[[Giver], object]) -> int:
    """The errno of a command; 0, if it is done."""
    giver = Giver()
    try:
        command(giver)
    except OSError as error:
        return error.errno or 0
    finally:
        os.close(giver.device)
    return 0


def main() -> int:
    """Gives all of them; `kernel` expects what Linux says."""
    is_kernel = sys.argv[1:] == ["kernel"]
    own = [(name, kernel if is_kernel else ours, give) for name, ours, kernel, give in OURS]
    wrong = 0
    for name, expected, give in (*ROWS, *own):
        said = said_to(give)
        if said != expected:
            wrong += 1
            names = [errno.errorcode.get(number, "done") for number in (expected, said)]
            print(f"{name}: not {names[0]} but {names[1]}")
    print(f"{len(ROWS) + len(own)} commands, {wrong} answered otherwise")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
