"""Two simulated hosts, one that lends memory and one that uses it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import softhca as hca
from softhca import Access, BindMw, MwType, WcStatus
from softhca.testing import Wire, open_simulated

from .hosts import Host, Pair

ALL = Access.REMOTE_READ | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC
LENDS = Access.LOCAL_WRITE | Access.MW_BIND


@contextmanager
def simulated_pair(windows: str = "2B", **options: Any) -> Iterator[Pair]:
    """Two hosts in virtual time, whose type 2 windows are of the kind that is asked for."""
    with ExitStack() as stack:
        devices = [
            stack.enter_context(open_simulated(f"10.0.0.{n}", seed=n, windows=windows, **options))
            for n in (1, 2)
        ]
        yield Pair(*(Host(device) for device in devices), Wire(*devices))


class Lender:
    """Host a asks, host b lends: connected queue pairs, and a region that windows may cover."""

    def __init__(
        self, pair: Pair, qp_type: hca.QPType = hca.QPType.RC, access: int = LENDS
    ) -> None:
        self.pair = pair
        self.asking, self.lending = pair.connected(
            qp_type, max_send_wr=32, max_send_sge=4, max_recv_sge=4
        )
        self.memory = bytearray(range(256)) * 16
        self.mr = pair.b.keep(pair.b.pd.reg_mr(self.memory, access))

    def window(self, mw_type: MwType = MwType.TYPE_2) -> hca.MW:
        return self.pair.b.keep(self.pair.b.pd.alloc_mw(mw_type))

    def run(self, wr: hca.SendRequest, *, on: str = "lending") -> hca.WC:
        """Posts a work request; returns its completion."""
        (self.lending if on == "lending" else self.asking).post_send(wr)
        return self.pair.completion(self.pair.b if on == "lending" else self.pair.a)

    def lend(self, mw: hca.MW, access: int = ALL, start: int = 64, stop: int = 128):
        """Binds a type 2 window to a part of the region."""
        bind = BindMw(
            mw, self.mr[start:stop], rkey=hca.inc_rkey(mw.rkey), access=access, signaled=True
        )
        wc = self.run(bind)
        assert (wc.status, wc.opcode) == (WcStatus.SUCCESS, hca.WcOpcode.BIND_MW), wc.why
        return bind.remote

    def write(self, remote: hca.RemoteMemory, content: bytes = b"lent") -> WcStatus:
        """Writes through a key that was lent; returns how that ended."""
        self.pair.a.buffer[0 : len(content)] = content
        part = self.pair.a.mr[0 : len(content)]
        return self.run(hca.Write(part, remote=remote, signaled=True), on="asking").status

    def read(self, remote: hca.RemoteMemory, length: int) -> bytes | WcStatus:
        """Reads through a key that was lent; returns the bytes, or how that failed."""
        part = self.pair.a.mr[0:length]
        wc = self.run(hca.Read(part, remote=remote, signaled=True), on="asking")
        return bytes(self.pair.a.buffer[0:length]) if wc.ok else wc.status

    def send_inv(self, rkey: int) -> None:
        """Sends what invalidates a key of the lender; a receive must wait there."""
        self.asking.post_send(hca.SendInv(rkey=rkey, signaled=True))
