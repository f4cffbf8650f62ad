"""Keys are taken away, and regions go, while a peer's writes keep coming."""

from __future__ import annotations

import threading
import time

import softhca as hca
from softhca import Access, BindMw, LocalInv, MwType, WcStatus

from .hosts import Host
from .lending import ALL, LENDS

ROUNDS = 40
BYTES = 1 << 14


class Writer(threading.Thread):
    """Writes through a key until it is refused."""

    def __init__(self, host: Host, qp: hca.QP, remote: hca.RemoteMemory) -> None:
        super().__init__(daemon=True)
        self.host, self.qp, self.remote = host, qp, remote
        self.wrote = 0
        self.last = WcStatus.SUCCESS

    def run(self) -> None:
        deadline = time.monotonic() + 60
        while self.last is WcStatus.SUCCESS and time.monotonic() < deadline:
            self.qp.post_send(hca.Write(self.host.mr[0:BYTES], remote=self.remote, signaled=True))
            while not (completions := self.host.cq.poll(1)):
                pass
            self.last = completions[0].status
            self.wrote += self.last is WcStatus.SUCCESS


def lend_once(a: Host, b: Host, number: int) -> None:
    near, far = a.pd.create_qp(hca.QPType.RC, send_cq=a.cq, recv_cq=a.cq), b.qp()
    near.connect(far.info())
    far.connect(near.info())
    memory = bytearray(BYTES)
    mr = b.pd.reg_mr(memory, LENDS | (Access.REMOTE_WRITE if number % 2 else Access(0)))
    mw = b.pd.alloc_mw(MwType.TYPE_2)
    bind = BindMw(mw, mr, rkey=hca.inc_rkey(mw.rkey), access=ALL, signaled=True)
    far.post_send(bind)
    while not (completions := b.cq.poll(1)):  # Until then nobody may be told of the key.
        pass
    assert completions[0].ok, completions[0].why
    by_region = number % 2
    writer = Writer(a, near, mr.remote() if by_region else bind.remote)
    writer.start()
    while not writer.wrote and writer.is_alive():
        time.sleep(0)
    if by_region:
        mw.close()
        mr.dereg()
    else:
        far.post_send(LocalInv(mw.rkey, signaled=True))
        while not (completions := b.cq.poll(8)):
            pass
        assert completions[0].ok, completions[0].why
    # From here on nobody writes: neither what was under way, nor what comes.
    memory[:] = bytes(BYTES)
    writer.join(60)
    assert writer.last is WcStatus.REM_ACCESS_ERR
    assert memory == bytes(BYTES)
    far.close()
    near.close()
    mw.close()
    mr.close()
    while b.cq.poll(64) or a.cq.poll(64):
        pass


def test_a_key_that_is_gone_lets_nothing_through():
    with hca.open() as one, hca.open() as other:
        a, b = Host(one), Host(other)
        a.buffer[:BYTES] = b"\xff" * BYTES
        for number in range(ROUNDS):
            lend_once(a, b, number)
