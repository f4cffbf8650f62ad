"""What a registration cache lends."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from softhca.verbs.errors import VerbsError
from softhca.verbs.mr import Registered
from softhca.verbs.remote_memory import RemoteMemory, bounds_of

if TYPE_CHECKING:
    from softhca.invalidation.cache import RegistrationCache
    from softhca.verbs.mr import MR, Sge


class CachedRegion(Registered):
    """A buffer's registration, lent by a `RegistrationCache` until it is put back.

    It names the buffer as a memory region would, though the region under it may be larger and lent
    to others as well. As a context manager it is put back at the end of the block.

    Attributes:
        mr: The region under it.
        addr: What the keys call the first byte of the buffer: its address, but in a fabric.
        length: Bytes of the buffer.
    """

    __slots__ = (
        "_address",
        "_cache",
        "_cookie",
        "_dropped",
        "_keys",
        "_owner",
        "_users",
        "addr",
        "length",
        "mr",
    )

    def __init__(
        self,
        cache: RegistrationCache,
        mr: MR,
        address: int,
        length: int,
        owner: CachedRegion | None = None,
    ) -> None:
        self._cache = cache
        self._address = address  # In this process.
        self.mr: MR = mr
        self.addr: int = mr.addr + (address - (address if owner is None else owner._address))
        self.length: int = length
        # The one that counts users: of a part, the whole.
        self._owner = self if owner is None else owner
        self._users = 0
        self._cookie = 0
        self._dropped = False
        self._keys: list[tuple[int, int, int]] = []

    def __enter__(self) -> CachedRegion:
        return self

    def __exit__(self, kind: object, value: object, traceback: object) -> None:
        self._cache.put(self)

    @property
    def lkey(self) -> int:
        """Local key."""
        return self.mr.lkey

    @property
    def rkey(self) -> int:
        """Remote key; 0 if the registration gives no remote right."""
        return self.mr.rkey

    def __getitem__(self, part: slice) -> Sge:
        """Returns bytes `part` of the buffer as a scatter/gather entry.

        Raises:
            VerbsError: EINVAL, if the part leaves the buffer, has a step, or is longer than an
                entry's 32 bits of length.
        """
        start, stop = bounds_of(part, self.length)
        offset = self.addr - self.mr.addr
        return self.mr[offset + start : offset + stop]

    def __len__(self) -> int:
        return self.length

    def __bool__(self) -> bool:
        return True

    def remote(self) -> RemoteMemory:
        """The buffer as peers name it.

        Raises:
            VerbsError: EINVAL, if the registration gives no remote right.
        """
        if not self.mr.rkey:
            raise VerbsError(errno.EINVAL, "access", self.mr.access, "has no remote right")
        return RemoteMemory(self.addr, self.mr.rkey, self.length)

    def __reduce__(self) -> str | tuple[object, ...]:
        # A copy would be put back for the original.
        raise TypeError("cannot pickle or copy CachedRegion: it is put back once")

    def __repr__(self) -> str:
        return f"<CachedRegion lkey={self.mr.lkey:#x} addr={self.addr:#x} length={self.length}>"
