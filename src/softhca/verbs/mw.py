"""Memory windows: a part of a region, lent to a peer under a key of its own."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING

from softhca.verbs.checks import instance, rights, unsigned
from softhca.verbs.enums import Access, KeyState, MwType
from softhca.verbs.errors import VerbsError
from softhca.verbs.lifetime import VerbsObject
from softhca.verbs.mr import MR, Registered, Sge
from softhca.verbs.remote_memory import RemoteMemory

if TYPE_CHECKING:
    from softhca.verbs.pd import PD


def inc_rkey(rkey: int) -> int:
    """Returns the next key of a window or region: its low 8 bits, counted up (ibv_inc_rkey).

    Args:
        rkey: The key that it has.

    Raises:
        VerbsError: EINVAL, if it has more than 32 bits.
    """
    rkey = unsigned("rkey", rkey, 32)
    return rkey & ~0xFF | (rkey + 1) & 0xFF


@dataclass(frozen=True, slots=True)
class BindInfo:
    """What a window is bound to (struct ibv_mw_bind_info); the same for both types.

    Attributes:
        mr: The region; None, with a length of 0, unbinds a window of type 1.
        addr: First byte, as the region's keys address it.
        length: Bytes.
        access: What the window gives: REMOTE_READ, REMOTE_WRITE, REMOTE_ATOMIC, and for type 2
            ZERO_BASED, which makes its key address from 0.

    Raises:
        VerbsError: EINVAL, if the region is closed, a number out of range, or `access` has bits
            that are no access flag. Flags that no window can give fail when the bind runs.
    """

    mr: MR | None
    addr: int = 0
    length: int = 0
    access: Access = Access(0)  # noqa: RUF009

    def __post_init__(self) -> None:
        if self.mr is not None:
            instance("mr", self.mr, MR)._demand_open()
        elif self.length:
            raise VerbsError(errno.EINVAL, "length", self.length, "must be 0 without a region")
        unsigned("addr", self.addr, 64)
        unsigned("length", self.length, 64)
        object.__setattr__(self, "access", rights("access", self.access))

    @classmethod
    def of(cls, where: Sge | Registered | BindInfo, access: int | None = None) -> BindInfo:
        """Takes `mr[a:b]` or a whole region with rights, or leaves a `BindInfo` as it is.

        What a registration cache lends is taken as a region is.

        Raises:
            TypeError: If `where` is none of these, an entry of no region, or comes without rights.
            VerbsError: EINVAL, as for `BindInfo(...)`.
        """
        if isinstance(where, BindInfo):
            if access is not None:
                raise TypeError("access is in the BindInfo already")
            return where
        if access is None:
            raise TypeError("access must say what the window gives")
        if isinstance(where, MR):
            return cls(where, where.addr, where.length, rights("access", access))
        if isinstance(where, Registered):
            where = where[:]
        mr = instance("where", where, Sge).mr
        return cls(
            instance("where.mr", mr, MR),
            where.addr,
            where.length,
            rights("access", access),
        )

    @property
    def native(self) -> tuple[int, int, int, int]:
        """(lkey, address, length, access), as the adapter takes it."""
        return (self.mr.lkey if self.mr is not None else 0, self.addr, self.length, self.access)

    def remote(self, rkey: int) -> RemoteMemory:
        """What a peer reaches through a window that is bound so and has this key."""
        addr = 0 if self.access & Access.ZERO_BASED else self.addr
        return RemoteMemory(addr, rkey, self.length)


class MW(VerbsObject):
    """A memory window (struct ibv_mw). `pd.alloc_mw()` makes it.

    It gives nothing until it is bound: type 1 by `qp.bind_mw()`, type 2 by a `BindMw` work
    request. Its rights are independent of the region's remote rights. Closing it unbinds it.

    Attributes:
        type: TYPE_1 or TYPE_2.
        handle: Number of the window.
    """

    __slots__ = ("_regions", "_rkey", "handle", "type")

    kind = "mw"

    def __init__(self, pd: PD, mw_type: MwType) -> None:
        try:
            self.type: MwType = MwType(mw_type)
        except ValueError:
            raise VerbsError(errno.EINVAL, "mw_type", mw_type, "must be TYPE_1 or TYPE_2") from None
        hca = pd._hca
        self.handle: int = hca.alloc_mw(pd.handle, self.type)
        self._rkey = self.handle
        # Regions it may be bound to: they stay registered as long as it may be.
        self._regions: dict[int, MR] = {}
        super().__init__(hca, pd)

    def _destroy(self) -> None:
        self._hca.dealloc_mw(self.handle)

    def _forget(self) -> None:
        super()._forget()
        self._regions = {}

    def _keep(self, mr: MR | None) -> None:
        self._regions = {key: kept for key, kept in self._regions.items() if not kept.closed}
        if mr is not None:
            self._regions[mr.handle] = mr

    @property
    def rkey(self) -> int:
        """Its key: of type 1, as the last posted bind makes it; of type 2, as the last one made it.

        A bind of type 2 takes `inc_rkey()` of it, or any key with the same upper 24 bits.
        """
        return self._rkey if self.type is MwType.TYPE_1 else self._hca.query_key(self.handle)[0]

    @property
    def state(self) -> KeyState:
        """VALID while it is bound, else FREE; INVALID once it is closed."""
        return KeyState.INVALID if self._closed else self._hca.query_key(self.handle)[1]

    def __repr__(self) -> str:
        return f"<MW {self.handle >> 8:#x} {self.type.name}>"
