"""Work requests that change keys and move no bytes: BindMw, RegMr, LocalInv.

They run when their turn in the send queue comes: before the work requests behind them, and, unless
they have a fence, without waiting for the answers of READs and atomics before them.
"""

from __future__ import annotations

import errno
from typing import TypedDict, Unpack

from softhca.completion.cqe import Cqe
from softhca.verbs.checks import instance, rights, unsigned
from softhca.verbs.enums import MwType, WrOpcode
from softhca.verbs.errors import VerbsError
from softhca.verbs.fast_mr import FastMR
from softhca.verbs.lifetime import alive
from softhca.verbs.mr import MR, Registered, Sge
from softhca.verbs.mw import MW, BindInfo
from softhca.verbs.remote_memory import RemoteMemory
from softhca.verbs.wr import SendRequest


class AwaitedLocalOptions(TypedDict, total=False):
    """Keywords of work requests that move no bytes, awaited or not; see `SendRequest`."""

    wr_id: int
    fence: bool


class LocalOptions(AwaitedLocalOptions, total=False):
    """Keywords of work requests that move no bytes; see `SendRequest`."""

    signaled: bool | None
    cqe: Cqe | None


class BindMw(SendRequest):
    """Binds a type 2 window (IBV_WR_BIND_MW; IBTA Vol 1, 10.6.7.2.2, o10-37).

    The window belongs from then on to the queue pair that this is posted to, until it is
    invalidated: by `LocalInv` there, or by a SEND with invalidate that arrives there.

    Completes with MW_BIND_ERR, and takes the queue pair to ERR, if the window is bound already,
    the range empty or outside the region, the region without MW_BIND or (for a window to write
    through) without LOCAL_WRITE, or one of them of another protection domain.

    Attributes:
        mw: The window.
        bind: What it is bound to.
        remote: What the peer needs: send it to them.
    """

    __slots__ = ("bind", "mw", "remote")

    def __init__(
        self,
        mw: MW,
        where: Sge | Registered | BindInfo,
        *,
        rkey: int,
        access: int | None = None,
        **options: Unpack[LocalOptions],
    ) -> None:
        """Makes the work request.

        Args:
            mw: An open window of type 2.
            where: `mr[a:b]`, a whole region, what a registration cache lends, or a `BindInfo`.
            rkey: The key it shall have: `inc_rkey(mw.rkey)`, or another tag of your own.
            access: What it gives; see `BindInfo`.
            **options: wr_id, signaled, fence and cqe, as `SendRequest` explains them.

        Raises:
            VerbsError: EINVAL, if the window or the region is closed, the window of type 1, or
                `access` has bits that are no access flag.
        """
        if instance("mw", mw, MW).closed:
            raise VerbsError(errno.EINVAL, "mw", None, "is closed")
        if mw.type is not MwType.TYPE_2:
            raise VerbsError(errno.EINVAL, "mw", mw, "is of type 1: bind it with qp.bind_mw()")
        bind = BindInfo.of(where, access)
        if bind.mr is not None:
            alive("where.mr", bind.mr, MR, mw._hca)
        rkey = unsigned("rkey", rkey, 32)
        super().__init__(
            WrOpcode.BIND_MW,
            (),
            fields={"memory": (mw.handle, rkey, *bind.native, mw._hca.identity)},
            **options,
        )
        mw._keep(bind.mr)
        self.mw: MW = mw
        self.bind: BindInfo = bind
        self.remote: RemoteMemory = bind.remote(rkey)


class RegMr(SendRequest):
    """Makes a region for fast registration valid (IB_WR_REG_MR; IBTA Vol 1, 10.6.4.8, 10.8.3.4).

    The region covers from then on what `map_mr_sg()` last said; `mr.remote()` and `mr[a:b]` name it
    so, from 0 with ZERO_BASED, as soon as the work request is made. Completes with MW_BIND_ERR, and
    takes the queue pair to ERR, if the region is valid already, not mapped, or of another
    protection domain, or if the rights contradict each other or what was mapped.

    Attributes:
        mr: The region.
    """

    __slots__ = ("mr",)

    def __init__(
        self, mr: FastMR, *, access: int, key: int | None = None, **options: Unpack[LocalOptions]
    ) -> None:
        """Makes the work request.

        Args:
            mr: An open region of `pd.alloc_mr()`.
            access: Its rights.
            key: Its key from then on; by default `mr.rkey`, of which `mr.update_fast_reg_key()`
                chooses the low 8 bits.
            **options: wr_id, signaled, fence and cqe, as `SendRequest` explains them.

        Raises:
            VerbsError: EINVAL, if the region is closed, or `access` has bits that are no access
                flag.
        """
        instance("mr", mr, FastMR)._demand_open()
        flags = rights("access", access)
        key = mr.rkey if key is None else unsigned("key", key, 32)
        super().__init__(
            WrOpcode.REG_MR,
            (),
            fields={"memory": (mr.handle, key, 0, 0, 0, int(flags), mr._hca.identity)},
            **options,
        )
        mr._take_rights(flags)
        self.mr: FastMR = mr


class LocalInv(SendRequest):
    """Invalidates a key: of a type 2 window, or of a region for fast registration.

    It waits for the SENDs and WRITEs before it, which might have to be sent again, but for READs
    and atomics only with `fence=True` (IBTA Vol 1, 10.8.3.3). Completes with MW_BIND_ERR if the
    key is not valid, not of this kind, or of another queue pair or protection domain.
    """

    __slots__ = ()

    def __init__(self, rkey: int, **options: Unpack[LocalOptions]) -> None:
        """Takes wr_id, signaled, fence and cqe besides: see `SendRequest`."""
        super().__init__(WrOpcode.LOCAL_INV, (), operands={"rkey": rkey}, **options)
