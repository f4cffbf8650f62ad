"""Device memory: bytes inside the adapter."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from softhca.verbs.checks import unsigned
from softhca.verbs.enums import Access
from softhca.verbs.errors import VerbsError
from softhca.verbs.lifetime import VerbsObject, alive
from softhca.verbs.mr import MR, WRITABLE_ACCESS

if TYPE_CHECKING:
    from softhca.verbs.device import Device
    from softhca.verbs.pd import PD


class DM(VerbsObject):
    """Device memory (struct ibv_dm). `device.alloc_dm()` makes it, filled with zeros.

    It has no address: the host copies in and out, and work requests reach it through
    `pd.reg_dm_mr()`. This adapter keeps it in the host's memory.

    Attributes:
        length: Bytes.
    """

    __slots__ = ("handle", "length")

    kind = "dm"

    def __init__(self, device: Device, length: int, log_align_req: int = 0) -> None:
        hca = device._hca
        self.length: int = unsigned("length", length, 64)
        self.handle: int = hca.alloc_dm(self.length, unsigned("log_align_req", log_align_req, 32))
        super().__init__(hca, device)

    def _destroy(self) -> None:
        self._hca.free_dm(self.handle)

    def memcpy_to(self, dm_offset: int, host_bytes: bytes | bytearray | memoryview) -> None:
        """Copies bytes of the host into it (ibv_memcpy_to_dm).

        Args:
            dm_offset: Where the first goes, in bytes.
            host_bytes: What is copied.

        Raises:
            TypeError: If they are no buffer.
            VerbsError: EINVAL, if they leave it.
        """
        offset = unsigned("dm_offset", dm_offset, 64)
        try:
            # Not bytes(host_bytes), which makes zeros of a number.
            copied = memoryview(host_bytes).tobytes()
        except TypeError:
            kind = type(host_bytes).__name__
            raise TypeError(f"host_bytes must be bytes-like, not {kind}") from None
        self._hca.memcpy_to_dm(self.handle, offset, copied)

    def memcpy_from(self, dm_offset: int, length: int) -> bytes:
        """Returns a copy of a part of it (ibv_memcpy_from_dm).

        Args:
            dm_offset: Where the part begins, in bytes.
            length: How many bytes it has.

        Raises:
            VerbsError: EINVAL, if the part leaves it.
        """
        return self._hca.memcpy_from_dm(
            self.handle, unsigned("dm_offset", dm_offset, 64), unsigned("length", length, 64)
        )

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        return f"<DM {self.handle} length={self.length}>"


class DeviceMR(MR):
    """A region of device memory, whose keys address it from 0. `pd.reg_dm_mr()` makes it.

    Attributes:
        dm: The device memory.
    """

    __slots__ = ("dm",)

    def __init__(
        self,
        pd: PD,
        dm: DM,
        dm_offset: int = 0,
        length: int | None = None,
        access: int | None = None,
    ) -> None:
        hca = pd._hca
        self.dm: DM = alive("dm", dm, DM, hca)
        offset = unsigned("dm_offset", dm_offset, 64)
        if length is None:
            length = max(0, dm.length - offset)
        rights = WRITABLE_ACCESS | Access.ZERO_BASED if access is None else access
        rights = Access(unsigned("access", rights, 32))
        info = hca.reg_dm_mr(
            pd.handle, dm.handle, offset, unsigned("length", length, 64), int(rights)
        )
        self._take(info, rights, 0, length)
        VerbsObject.__init__(self, hca, pd, dm)

    def rereg(self, *_: object, **__: object) -> None:
        """Refused: the region stays where it is."""
        raise VerbsError(errno.EOPNOTSUPP, "mr", None, "lies in device memory, and stays there")
