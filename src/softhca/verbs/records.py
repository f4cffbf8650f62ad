"""Work requests and completions as records: arrays without an object for each.

The three layouts are what `numpy.dtype` takes: `numpy.zeros(64, softhca.WC_DTYPE)`. Without NumPy,
a record is the bytes of its fields in their order, without padding, in the byte order of the
machine; `struct` reads it with `WC_FORMAT`.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any, SupportsIndex, TypeAlias

from softhca import _adapter
from softhca.verbs.checks import integer, unsigned
from softhca.verbs.errors import VerbsError
from softhca.verbs.wc import RECORD_BYTES as _WC_BYTES
from softhca.verbs.wc import WC
from softhca.verbs.wr import Recv

# An array of records, or bytes. Up to Python 3.11 type checkers do not know that NumPy's arrays
# have a buffer.
Records: TypeAlias = Any
# Numbers of work requests: the first, or one each, as a sequence or an array.
WrIds: TypeAlias = "SupportsIndex | Sequence[int] | Any"

SEND_DTYPE: list[tuple[str, str]] = [
    ("wr_id", "u8"),
    ("addr", "u8"),
    ("remote_addr", "u8"),
    ("compare_add", "u8"),
    ("swap", "u8"),
    ("length", "u4"),
    ("lkey", "u4"),
    ("rkey", "u4"),
    ("opcode", "u4"),
    ("send_flags", "u4"),
    ("imm", "u4"),
    ("ah", "u4"),
    ("remote_qpn", "u4"),
    ("remote_qkey", "u4"),
    ("srqn", "u4"),
]
"""A work request for a send queue: 80 bytes.

`opcode` is a `WrOpcode`: SEND, with immediate or invalidate, RDMA WRITE, with immediate, RDMA READ,
CMP_SWP, FETCH_ADD or ATOMIC_WRITE. `addr`, `length` and `lkey` are its one buffer, none if `length`
is 0; `imm` is the immediate or the key to invalidate; `ah` the handle of an AH.
"""

RECV_DTYPE: list[tuple[str, str]] = [
    ("wr_id", "u8"),
    ("addr", "u8"),
    ("length", "u4"),
    ("lkey", "u4"),
]
"""A receive: 24 bytes, one buffer; none if `length` is 0."""

WC_DTYPE: list[tuple[str, str]] = [
    ("wr_id", "u8"),
    ("timestamp_ns", "u8"),
    ("address", "u8"),
    ("length", "u8"),
    ("byte_len", "u4"),
    ("immediate_or_rkey", "u4"),
    ("qp_num", "u4"),
    ("src_qp", "u4"),
    ("wc_flags", "u4"),
    ("psn", "u4"),
    ("key", "u4"),
    ("pkey_index", "u2"),
    ("status", "u1"),
    ("opcode", "u1"),
    ("reason", "u1"),
    ("sl", "u1"),
    ("port", "u1"),
    ("ip_version", "u1"),
    ("is_receive", "?"),
    ("solicited", "?"),
    ("by_peer", "?"),
    ("reserved", "u1"),
]
"""A completion: 72 bytes, the fields of `WC` under its names, but `cqe`.

`ip_version` is there besides: of a datagram on UD 4 or 6, which its header does not tell; else 0.
"""

WC_FORMAT = "=QQQQIIIIIIIHBBBBBB???B"
SEND_FORMAT = "=QQQQQIIIIIIIIII"
RECV_FORMAT = "=QQII"

_NAMES = {80: "SEND_DTYPE", 24: "RECV_DTYPE", _WC_BYTES: "WC_DTYPE"}

# Types of arrays that were found right. They are compared by identity, and kept so that no other
# can take the place of one.
_checked: dict[int, Any] = {}


def _check_dtype(argument: str, dtype: Any, layout: list[tuple[str, str]], itemsize: int) -> None:
    if _checked.get(id(dtype), (None, 0))[1] == itemsize:
        return
    import numpy

    if dtype != numpy.dtype(layout):
        # Plain bytes may be records; so may numbers, but hardly by intent.
        if dtype != numpy.dtype("u1"):
            rule = f"must be numpy.dtype(softhca.{_NAMES[itemsize]}), or bytes"
            raise VerbsError(errno.EINVAL, f"{argument}.dtype", str(dtype), rule)
        return
    if len(_checked) < 64:
        _checked[id(dtype)] = (dtype, itemsize)


def view_of(
    argument: str, array: Any, layout: list[tuple[str, str]], itemsize: int, writable: bool = False
) -> memoryview:
    """The bytes of an array of records.

    Raises:
        TypeError: If it has no buffer.
        VerbsError: EINVAL, if it is of another type, not contiguous, read-only but to be written,
            or no whole number of records.
    """
    try:
        view = memoryview(array)
    except TypeError:
        name = _NAMES[itemsize]
        raise TypeError(
            f"{argument} must be an array of softhca.{name} or bytes, not {type(array).__name__}"
        ) from None
    dtype = getattr(view.obj, "dtype", None)
    if dtype is not None:
        _check_dtype(argument, dtype, layout, itemsize)
    elif view.itemsize != 1:
        rule = f"must be bytes, or an array of softhca.{_NAMES[itemsize]}"
        raise VerbsError(errno.EINVAL, f"{argument}.format", view.format, rule)
    if not view.c_contiguous:
        rule = "must be contiguous: records that follow each other"
        raise VerbsError(errno.EINVAL, argument, type(array).__name__, rule)
    if writable and view.readonly:
        rule = "is read-only: completions are written into it"
        raise VerbsError(errno.EINVAL, argument, type(array).__name__, rule)
    if view.nbytes % itemsize:
        rule = f"must be bytes of records of {itemsize}"
        raise VerbsError(errno.EINVAL, argument, view.nbytes, rule)
    return view


def receives_of(wrs: Recv | Sequence[Recv] | Records) -> Recv | Sequence[Recv] | memoryview:
    """What `post_recv_many` takes, its records checked."""
    if isinstance(wrs, Recv | list | tuple):
        return wrs
    return view_of("wrs", wrs, RECV_DTYPE, 24)


def _room_in(argument: str, array: Records) -> memoryview:
    view = view_of(argument, array, WC_DTYPE, _WC_BYTES, writable=True)
    if not view.nbytes:
        raise VerbsError(errno.EINVAL, argument, 0, "must be for 1 completion or more")
    return view


class CompletionBuffer(_adapter.CompletionRecords):
    """Room for completions, which `cq.poll_into` fills: made once, used again and again.

    It has the buffer protocol: `numpy.frombuffer(buffer, softhca.WC_DTYPE)` is a view of the
    records that shows what was polled last. `buffer[i]` makes a `WC` of one.
    """

    __slots__ = ()

    def __init__(self, room: Any) -> None:
        """Makes room.

        Args:
            room: How many completions fit; or the array, or other writable buffer, to fill. It
                stays exported as long as this object lives.

        Raises:
            VerbsError: EINVAL, if there is room for none, or it is no array of records.
        """
        if hasattr(room, "__index__") and not hasattr(room, "__len__"):
            count = unsigned("room", room, 32)
            if not count:
                raise VerbsError(errno.EINVAL, "room", count, "must be for 1 completion or more")
            super().__init__(count)
            return
        super().__init__(_room_in("room", room))

    @classmethod
    def over(cls, argument: str, array: Records) -> CompletionBuffer:
        """A buffer over an array for one call, of which the array is an argument.

        A number is refused: what was polled into a buffer that nobody has would be lost.
        """
        made = cls.__new__(cls)
        _adapter.CompletionRecords.__init__(made, _room_in(argument, array))
        return made

    def __getitem__(self, index: int) -> WC:
        """Makes a `WC` of a record; its `cqe` is None."""
        number = integer("index", index)
        if not 0 <= number < len(self):
            raise IndexError(f"record {number} of {len(self)}")
        return self.completion(number, WC)

    def wr_ids(self, count: int) -> list[int]:
        """The `wr_id` of the first `count` records; EINVAL if there are not so many."""
        return super().wr_ids(unsigned("count", count, 64))

    def first_error(self, count: int) -> int:
        """Index of the first of `count` records that did not succeed; -1 if all did."""
        return super().first_error(unsigned("count", count, 64))

    def __repr__(self) -> str:
        return f"<CompletionBuffer of {len(self)}>"
