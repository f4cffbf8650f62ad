"""Changing what a registered region covers, its domain, or its rights."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from softhca.verbs.checks import unsigned
from softhca.verbs.enums import Access
from softhca.verbs.errors import VerbsError
from softhca.verbs.lifetime import alive
from softhca.verbs.mr import MR, WRITING, exported

if TYPE_CHECKING:
    from softhca.verbs.pd import PD

TRANSLATION, CHANGE_PD, CHANGE_ACCESS = 1, 2, 4  # enum ibv_rereg_mr_flags.


def rereg(
    mr: MR,
    obj: object = None,
    access: int | None = None,
    *,
    pd: PD | None = None,
    addr: int | None = None,
    length: int | None = None,
    iova: int | None = None,
) -> None:
    """See `MR.rereg`."""
    from softhca.verbs.pd import PD

    mr._demand_open()
    flags = (CHANGE_PD if pd is not None else 0) | (CHANGE_ACCESS if access is not None else 0)
    rights = int(mr.access) if access is None else unsigned("access", access, 32)
    if obj is not None and (addr, length, iova) != (None, None, None):
        raise TypeError("addr=, length= and iova= go without a buffer")
    if (addr is None) != (length is None) or (addr is None and iova is not None):
        raise TypeError("addr= and length= go together, and iova= with them")
    export, start, size, read_only = None, mr._address or 0, mr.length, mr._read_only
    first = mr.addr
    if obj is not None:
        export, start, size, read_only = exported(obj)
    elif addr is not None and length is not None:
        start, size, read_only = unsigned("addr", addr, 64), unsigned("length", length, 64), False
    try:
        if obj is not None or addr is not None:
            flags |= TRANSLATION
            named = start if obj is None else mr._address_for(start, size)
            first = named if iova is None else unsigned("iova", iova, 64)
            first = 0 if rights & Access.ZERO_BASED else first
        if read_only and rights & WRITING:
            raise VerbsError(
                errno.EACCES, "access", Access(rights), "gives a right to write a read-only buffer"
            )
        if not flags & TRANSLATION and rights & Access.ZERO_BASED and first:
            rule = "ZERO_BASED calls the first byte 0: give the buffer, or addr=, too"
            raise VerbsError(errno.EINVAL, "access", Access(rights), rule)
        domain = alive("pd", pd, PD, mr._hca) if pd is not None else None
        if not flags:
            raise VerbsError(errno.EINVAL, "", None, "takes a buffer, an address, access or pd")
        if flags & TRANSLATION and mr._watch is not None:
            raise VerbsError(
                errno.EOPNOTSUPP,
                "addr" if obj is None else "obj",
                None,
                "a region with notices keeps its memory: register the other memory anew",
            )
        info = mr._hca.rereg_mr(
            mr.handle, flags, domain.handle if domain is not None else 0, start, size, first, rights
        )
    except BaseException:
        if export is not None:
            export.release()
        raise
    mr.lkey, mr.rkey, mr.access = info.lkey, info.rkey, Access(rights)
    if flags & TRANSLATION:
        before, mr._export = mr._export, export
        mr.obj, mr._address, mr.addr, mr.length, mr._read_only = obj, start, first, size, read_only
        if before is not None:
            before.release()
    if domain is not None:
        mr._adopt(domain)
