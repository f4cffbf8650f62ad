"""Memory regions and windows."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Any

from softhca._adapter import SharedMapping
from softhca.uabi.commands.call import Call, refused
from softhca.uabi.commands.pd import OwnedPD
from softhca.uabi.layout import Fields
from softhca.uabi.processes import demand_mapped
from softhca.uabi.shared_memory import shared_mapping_of
from softhca.verbs.enums import Access, MwType
from softhca.verbs.lifetime import VerbsObject
from softhca.verbs.mw import MW
from softhca.verbs.pd import PD

# Flags that a device may ignore: IB_ACCESS_OPTIONAL_RANGE.
_OPTIONAL = 0x3FF00000
# Flags that there are besides: up to IB_ACCESS_FLUSH_PERSISTENT.
_KNOWN = 0x3FF
_REMOTE_WRITES = Access.REMOTE_WRITE | Access.REMOTE_ATOMIC
# Rights for which memory must be writable: ib_access_writable(). What a window on it may do is not
# known yet.
_WRITES = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC | Access.MW_BIND
_PAGE = 4096


class ProgramMR(VerbsObject):
    """A region of a program's memory."""

    __slots__ = ("handle", "iova", "length", "lkey", "rkey")

    kind = "mr"

    def __init__(self, pd: PD, call: Call, request: Fields, access: int) -> None:
        asked, hca = call.asked, call.context.device.hca
        # What libraries give as the first byte is the memory's address, whatever the rights.
        first = 0 if access & Access.ZERO_BASED else request.hca_va
        where = (request.length, first, access)
        # By the thread that asks: the first one of its process may have ended.
        writes = bool(access & _WRITES)
        shared = shared_mapping_of(asked.task, request.start, request.length, writes)
        processes = call.context.processes
        memory = shared or processes.memory_of(asked.process, asked.task, request.start)
        # What was opened was its memory, if it still waits.
        call.demand_waiting()
        if isinstance(memory, SharedMapping):
            info = hca.reg_mapped_mr(pd.handle, memory, *where)
        else:
            info = hca.reg_process_mr(pd.handle, memory, request.start, *where)
        self.handle = info.handle
        self.lkey = info.lkey
        self.rkey = info.rkey
        self.length = request.length
        self.iova = first
        super().__init__(pd._hca, pd)

    def _destroy(self) -> None:
        self._hca.dereg_mr(self.handle)

    def __repr__(self) -> str:
        return f"<ProgramMR {self.handle}>"


@dataclass
class OwnedMR:
    """A region with its handle."""

    mr: ProgramMR

    def destroy(self) -> dict[str, int]:
        """EBUSY, while a window is bound to it."""
        self.mr.close()
        return {}


@dataclass
class OwnedMW:
    """A window with its handle."""

    mw: MW

    def destroy(self) -> dict[str, int]:
        """Unbinds it."""
        self.mw.close()
        return {}


def reg_mr(call: Call, request: Fields) -> dict[str, Any]:
    """Registers memory of the program; EFAULT where it has none, or may not write it."""
    access = request.access_flags & ~_OPTIONAL
    if (request.start ^ request.hca_va) % _PAGE:
        raise refused(errno.EINVAL, "start and hca_va")
    _demand_rights(access)
    if request.length == 0 and request.start % _PAGE == 0:
        raise refused(errno.EINVAL, "nothing of no page")
    pd = call.context.objects.get(request.pd_handle, OwnedPD).pd
    demand_mapped(call.asked.task, request.start, request.length, bool(access & _WRITES))
    mr = ProgramMR(pd, call, request, access)
    return {"mr_handle": call.own(OwnedMR(mr)), "lkey": mr.lkey, "rkey": mr.rkey}


def _demand_rights(access: int) -> None:
    """Refuses rights that contradict each other, as ib_check_mr_access() does."""
    if access & ~_KNOWN or (access & _REMOTE_WRITES and not access & Access.LOCAL_WRITE):
        raise refused(errno.EINVAL, f"access_flags {access:#x}")
    if access & Access.ON_DEMAND:
        raise refused(errno.EOPNOTSUPP, "no on-demand paging")
    if access & Access.FLUSH_PERSISTENT:
        raise refused(errno.EOPNOTSUPP, "memory that does not persist")


def query_mr(call: Call, request: Fields) -> dict[str, Any]:
    """What whoever imported a region has to know of it."""
    mr = call.context.objects.get(request.mr_handle, OwnedMR).mr
    return {"lkey": mr.lkey, "rkey": mr.rkey, "length": mr.length, "iova": mr.iova}


def no_such_region(call: Call, request: Fields) -> dict[str, Any]:
    """EOPNOTSUPP, for what the provider has no regions of: pages on demand, and dma-buf."""
    raise refused(errno.EOPNOTSUPP, "there are no such regions")


def dereg_mr(call: Call, request: Fields) -> dict[str, Any]:
    """Gives a region up."""
    return call.context.objects.destroy(request.mr_handle, OwnedMR)


def alloc_mw(call: Call, request: Fields) -> dict[str, Any]:
    """Allocates a window; EINVAL for a type that there is not."""
    pd = call.context.objects.get(request.pd_handle, OwnedPD).pd
    mw = pd.alloc_mw(MwType(request.mw_type) if request.mw_type in (1, 2) else request.mw_type)
    return {"mw_handle": call.own(OwnedMW(mw)), "rkey": mw.rkey}


def dealloc_mw(call: Call, request: Fields) -> dict[str, Any]:
    """Gives a window up."""
    return call.context.objects.destroy(request.mw_handle, OwnedMW)
