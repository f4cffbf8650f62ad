"""Fast registration: a region whose key work requests make valid and invalid."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from softhca.verbs.checks import unsigned
from softhca.verbs.enums import Access, KeyState, MrType
from softhca.verbs.errors import VerbsError
from softhca.verbs.lifetime import VerbsObject
from softhca.verbs.mr import MR, exported

if TYPE_CHECKING:
    from softhca.verbs.pd import PD

PAGE_BYTES = 4096


class FastMR(MR):
    """A region for fast registration (struct ib_mr of ib_alloc_mr). `pd.alloc_mr()` makes it.

    Its key gives nothing until `map_mr_sg()` said what it covers and a `RegMr` work request made it
    valid. `LocalInv`, or a SEND with invalidate of the peer, makes it free again.

    Attributes:
        max_sg: Pages that it can cover; with MrType.SG_GAPS, entries.
    """

    __slots__ = ("_exports", "_start", "max_sg")

    def __init__(self, pd: PD, mr_type: MrType, max_sg: int) -> None:
        hca = pd._hca
        try:
            kind = MrType(mr_type)
        except ValueError:
            raise VerbsError(
                errno.EINVAL, "mr_type", mr_type, "must be MEM_REG or SG_GAPS"
            ) from None
        info = hca.alloc_mr(pd.handle, kind, unsigned("max_sg", max_sg, 32))
        self._take(info, Access(0), 0, 0)
        self._world = pd.device._world
        self.max_sg: int = max_sg
        self._exports: list[Any] = []
        self._start: int = 0  # What was mapped begins there, unless it is registered from 0.
        VerbsObject.__init__(self, hca, pd)

    def _forget(self) -> None:
        super()._forget()
        self._release()

    def _release(self) -> None:
        exports, self._exports = self._exports, []
        for export in exports:
            export.release()

    @property
    def state(self) -> KeyState:
        """VALID while it is registered, else FREE; INVALID once it is closed."""
        return KeyState.INVALID if self._closed else self._hca.query_key(self.handle)[1]

    def map_mr_sg(
        self, sg: Iterable[Any], *, page_size: int = PAGE_BYTES, iova: int | None = None
    ) -> None:
        """Says what the next `RegMr` shall cover (ib_map_mr_sg).

        Args:
            sg: Buffers, or (address, length) pairs of memory that the caller keeps, which follow
                each other in the region. Unless it is of MrType.SG_GAPS, only the first may begin
                and only the last may end inside a page; one that begins where the one before it
                ends is one with that.
            page_size: Bytes of a page: a power of two, 4096 at least.
            iova: What the key calls the first byte; by default its address. With ZERO_BASED, which
                `RegMr` asks for, that is 0 in any case.

        Raises:
            VerbsError: EBUSY, while the region is valid; EINVAL, for gaps, for more than `max_sg`,
                or for nothing at all. What was mapped before stays.
        """
        self._demand_open()
        try:
            entries = iter(sg)
        except TypeError:
            raise TypeError(f"sg must be buffers, not {type(sg).__name__}") from None
        ranges: list[tuple[int, int]] = []
        exports: list[Any] = []
        writable = True
        try:
            for entry in entries:
                if isinstance(entry, tuple):
                    ranges.append(_pair(entry))
                    continue
                export, address, length, read_only = exported(entry)
                exports.append(export)
                ranges.append((address, length))
                writable = writable and not read_only
            used = [(address, length) for address, length in ranges if length]
            total = sum(length for _, length in used)
            start = None if iova is None else unsigned("iova", iova, 64)
            if start is None and used:
                start = self._address_for(used[0][0], total)
            size = unsigned("page_size", page_size, 64)
            self._hca.map_mr_sg(self.handle, ranges, size, start, writable)
        except BaseException:
            for export in exports:
                export.release()
            raise
        # The region is not valid, so nobody reaches what was mapped before.
        self._release()
        self._exports = exports
        self._address = used[0][0] if len(used) == 1 else None
        self._start = start or 0
        self._take_rights(self.access)  # The same `RegMr` may be posted again.
        self.length: int = total

    def update_fast_reg_key(self, tag: int) -> None:
        """Chooses the low 8 bits of the key for the next `RegMr` (ib_update_fast_reg_key).

        `lkey` and `rkey` are the new key at once, which works when the `RegMr` has run.

        Args:
            tag: The 8 bits.

        Raises:
            VerbsError: EINVAL, for more than 8 bits, or if the region is closed.
        """
        self._demand_ours()
        tag = unsigned("tag", tag, 8)
        self.rkey: int = self.lkey & ~0xFF | tag
        self.lkey: int = self.rkey

    def _take_rights(self, access: Access) -> None:
        """A `RegMr` is made: the region names what that will make valid."""
        self.access: Access = access
        self.addr: int = 0 if access & Access.ZERO_BASED else self._start

    def rereg(self, *_: Any, **__: Any) -> None:
        """Not for these regions: invalidate, map and register again."""
        raise VerbsError(
            errno.EINVAL, "mr", self, "is for fast registration: use map_mr_sg() and RegMr"
        )

    def __repr__(self) -> str:
        return f"<FastMR lkey={self.lkey:#x} addr={self.addr:#x} length={self.length}>"


def _pair(entry: tuple[Any, ...]) -> tuple[int, int]:
    """An address and a length that a program gave instead of a buffer."""
    if len(entry) != 2:
        raise TypeError(f"sg must hold buffers, or (address, length), not {entry!r}")
    return unsigned("addr", entry[0], 64), unsigned("length", entry[1], 64)
