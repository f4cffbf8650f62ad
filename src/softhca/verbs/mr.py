"""Memory regions: buffers that an adapter may read and write."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from softhca import _adapter
from softhca.verbs.enums import Access
from softhca.verbs.errors import VerbsError
from softhca.verbs.lifetime import VerbsObject
from softhca.verbs.remote_memory import RemoteMemory, bounds_of
from softhca.verbs.world import World

if TYPE_CHECKING:
    from softhca.verbs.pd import PD

WRITABLE_ACCESS = (
    Access.LOCAL_WRITE | Access.REMOTE_READ | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC
)
READ_ONLY_ACCESS = Access.REMOTE_READ
WRITING = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC
REFERENCES = "holds references to Python objects, which are not for others to read or write"
_MAX_SGE_BYTES = (1 << 32) - 1
# What DLPack calls kDLCPU, kDLCUDAHost and kDLROCMHost: memory of the host, pinned or not.
_HOST_DEVICES = (1, 3, 11)


@dataclass(frozen=True, slots=True)
class Sge:
    """A scatter/gather entry (struct ibv_sge): a range of a local memory region.

    Holds the region, so that it stays registered as long as somebody may post the entry.
    """

    addr: int
    length: int
    lkey: int
    mr: MR | None = None

    def __repr__(self) -> str:
        return f"Sge(addr={self.addr:#x}, length={self.length}, lkey={self.lkey:#x})"


class Registered:
    """What stands for a buffer that is registered: a region, or what a registration cache lends."""

    __slots__ = ()

    def __getitem__(self, part: slice) -> Sge:
        """Returns bytes `part` of the buffer as a scatter/gather entry."""
        raise NotImplementedError


class _Export(Protocol):
    def release(self) -> None: ...


class MR(VerbsObject, Registered):
    """A memory region (struct ibv_mr). `pd.reg_mr()` makes it.

    `mr[a:b]` is a scatter/gather entry of bytes a to b. The buffer stays exported until the region
    is deregistered: a bytearray cannot be resized meanwhile, a mapping not be closed. Only a region
    with notices holds nothing: its buffer may go away, and that is what it tells.

    Attributes:
        lkey: Local key.
        rkey: Remote key; 0 if the region gives no remote right.
        addr: What the keys call the first byte.
        length: Bytes.
        access: The rights it gives.
        obj: The registered object; None if it was registered by address or with notices.
    """

    __slots__ = (
        "_address",
        "_export",
        "_raised",
        "_read_only",
        "_watch",
        "_world",
        "access",
        "addr",
        "handle",
        "length",
        "lkey",
        "obj",
        "rkey",
    )

    kind = "mr"

    # None: in several places, in none yet, or in the adapter.
    _address: int | None
    _export: _Export | None
    _watch: _adapter.Watch | None
    _world: World | None
    obj: Any

    def __init__(
        self,
        pd: PD,
        obj: object,
        export: _Export | None,
        address: int,
        length: int,
        iova: int,
        access: int,
        watch: _adapter.Watch | None = None,
    ) -> None:
        hca = pd._hca
        if access & Access.ZERO_BASED:
            iova = 0
        if watch is None:
            info = hca.reg_mr(pd.handle, address, length, iova, access)
        else:
            info = hca.reg_watched_mr(pd.handle, address, length, iova, access, watch)
        self._take(info, Access(access), iova, length)
        self._address = address
        self._world = pd.device._world
        self._watch = watch
        self.obj = obj
        self._export = export
        super().__init__(hca, pd)

    def _take(self, info: _adapter.MrInfo, access: Access, addr: int, length: int) -> None:
        """Sets all fields, for a region that holds nothing."""
        self.handle: int = info.handle
        self.lkey: int = info.lkey
        self.rkey: int = info.rkey
        self.addr: int = addr
        self.length: int = length
        self.access: Access = access
        self.obj = self._address = self._export = self._watch = self._world = None
        self._read_only = False
        self._raised = 0

    def _destroy(self) -> None:
        self._hca.dereg_mr(self.handle)

    def _forget(self) -> None:
        super()._forget()
        if self._watch is not None:
            self._raised = self._watch.close()
            self._watch = None
        if self._export is not None:
            self._export.release()
            self._export = None
        self.obj = None

    def _demand_open(self) -> None:
        if self._closed:
            raise VerbsError(errno.EINVAL, self.kind, None, "is closed")

    def _address_for(self, address: int, length: int) -> int:
        world = self._world
        return address if world is None else world.address_for(address, length)

    def dereg(self) -> int:
        """Deregisters the region and lets go of the buffer, as `close()` does (ibv_dereg_mr).

        Returns:
            How many notices were raised for the region, whether they have been read or not: the sum
            of the `count` of its events. 0 without notices.
        """
        self.close()
        return self._raised

    @property
    def raised(self) -> int:
        """Notices that were raised for the region until now."""
        return self._raised if self._watch is None else self._watch.raised

    def rereg(
        self,
        obj: object = None,
        access: int | None = None,
        *,
        pd: PD | None = None,
        addr: int | None = None,
        length: int | None = None,
        iova: int | None = None,
    ) -> None:
        """Changes what the region covers, its rights, its domain, or several (ibv_rereg_mr).

        Work requests that are posted meanwhile use the old region or the new one. `lkey` and `rkey`
        are new ones unless the rights alone change, so that an old key never reaches other memory.

        Args:
            obj: Another buffer; the old one is let go.
            access: Other rights.
            pd: Another protection domain of the device.
            addr: Instead of `obj`, an address of this process.
            length: Bytes, with `addr`.
            iova: What the keys call the first byte; by default `addr`.

        Raises:
            VerbsError: EBUSY, with windows bound to the region; EOPNOTSUPP, for other memory of one
                that has notices; EINVAL, for nothing to change; EINVAL and EACCES as `pd.reg_mr`.
                The region is then what it was.
        """
        from softhca.verbs.mr_rereg import rereg

        rereg(self, obj, access, pd=pd, addr=addr, length=length, iova=iova)

    def __getitem__(self, part: slice) -> Sge:
        """Returns bytes `part` of the region as a scatter/gather entry.

        Raises:
            VerbsError: EINVAL, if the part leaves the region, has a step, or is longer than an
                entry's 32 bits of length; or if the region is closed.
        """
        self._demand_open()
        start, stop = bounds_of(part, self.length)
        if stop - start > _MAX_SGE_BYTES:
            raise VerbsError(
                errno.EINVAL, "length", stop - start, f"must be at most {_MAX_SGE_BYTES}: split it"
            )
        return Sge(self.addr + start, stop - start, self.lkey, self)

    def __len__(self) -> int:
        return self.length

    def __bool__(self) -> bool:
        return self.length > 0  # The whole address space is longer than len() can say.

    def remote(self) -> RemoteMemory:
        """The region as peers name it: send it to them.

        Raises:
            VerbsError: EINVAL, if the region gives no remote right, or is closed.
        """
        self._demand_open()
        if not self.rkey:
            raise VerbsError(
                errno.EINVAL,
                "access",
                self.access,
                "has no remote right: register with Access.REMOTE_READ, REMOTE_WRITE or "
                "REMOTE_ATOMIC",
            )
        return RemoteMemory(self.addr, self.rkey, self.length)

    def __repr__(self) -> str:
        return f"<MR lkey={self.lkey:#x} addr={self.addr:#x} length={self.length}>"


def holds_references(view: memoryview) -> bool:
    """True if the bytes are references to Python objects."""
    dtype = getattr(view.obj, "dtype", None)
    return "O" in view.format and bool(getattr(dtype, "hasobject", True))


def exported(obj: Any) -> tuple[_Export, int, int, bool]:
    """Exports the buffer of `obj`: (export to hold, address, bytes, read-only).

    Raises:
        TypeError: If `obj` has neither the buffer protocol nor DLPack.
        VerbsError: EINVAL, if its bytes are not contiguous, not in the CPU's memory, or references
            to Python objects; or if it refuses to export them.
    """
    try:
        view = memoryview(obj)
    except TypeError:
        return _exported_by_dlpack(obj)
    except (BufferError, ValueError) as refusal:
        raise _no_source(obj, f"gives no buffer: {refusal}") from refusal
    rule = None
    if not view.contiguous:
        rule = "is not contiguous: register the array that it is a view of, or a copy"
    elif holds_references(view):
        rule = REFERENCES
    if rule is not None:
        view.release()
        raise _no_source(obj, rule)
    return view, _adapter.buffer_address(view), view.nbytes, view.readonly


def _exported_by_dlpack(obj: Any) -> tuple[_Export, int, int, bool]:
    if not hasattr(obj, "__dlpack__"):
        raise TypeError(
            f"obj must have the buffer protocol or DLPack, which {type(obj).__name__} has not"
        )
    try:
        device, number = obj.__dlpack_device__()
        if device not in _HOST_DEVICES:
            rule = f"lies on DLPack device {device}:{number}: copy it to the CPU's memory"
            raise _no_source(obj, rule)
        try:
            capsule = obj.__dlpack__(max_version=(1, 0))
        except TypeError:  # Older than the argument.
            capsule = obj.__dlpack__()
    except (BufferError, RuntimeError, TypeError, ValueError) as refusal:
        raise _no_source(obj, f"gives no DLPack: {refusal}") from refusal
    export = _adapter.DlpackExport(capsule)
    if not export.contiguous:
        raise _no_source(obj, "is not contiguous: register a contiguous copy")
    return export, export.address, export.nbytes, export.read_only


def _no_source(obj: object, rule: str) -> VerbsError:
    return VerbsError(errno.EINVAL, "obj", type(obj).__name__, rule)


def register(
    pd: PD,
    obj: object,
    access: int | None,
    channel: _adapter.InvalidationChannel | None = None,
    cookie: int = 0,
) -> MR:
    """Registers a buffer; see `PD.reg_mr`."""
    export, address, length, read_only = exported(obj)
    try:
        if access is None:
            access = READ_ONLY_ACCESS if read_only else WRITABLE_ACCESS
        elif read_only and access & WRITING:
            raise VerbsError(
                errno.EACCES,
                "obj",
                type(obj).__name__,
                "is read-only: register a writable buffer, or without LOCAL_WRITE, REMOTE_WRITE "
                "and REMOTE_ATOMIC",
            )
        first = address_for(pd, address, length)
        if channel is None:
            mr = MR(pd, obj, export, address, length, first, access)
        else:
            mr = register_watched(pd, address, length, first, access, channel, cookie)
    except BaseException:
        export.release()
        raise
    if channel is not None:
        export.release()
    mr._read_only = read_only
    return mr


def address_for(pd: PD, address: int, length: int) -> int:
    """What keys call the first byte of a buffer: its address, but what a fabric says in one."""
    world = pd.device._world
    return address if world is None else world.address_for(address, length)


def register_watched(
    pd: PD,
    address: int,
    length: int,
    iova: int,
    access: int,
    channel: _adapter.InvalidationChannel,
    cookie: int,
) -> MR:
    """Registers memory of this process with notices, and holds nothing of it."""
    watch = _adapter.Watch.open(channel, address, length, cookie)
    try:
        return MR(pd, None, None, address, length, iova, access, watch)
    except BaseException:
        watch.close()
        raise
