"""The peer of `stale`: a process that reads and writes what it is told the keys of."""

from __future__ import annotations

import threading
import time
from typing import Any

import softhca as hca

BUFFER_BYTES = 1 << 15
PATIENCE_S = 120.0
# A second for each try: a busy machine is no error.
TIMEOUT_CODE = 18


def completion(cq: hca.CQ) -> hca.WC:
    """Waits for one completion."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := cq.poll(1)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing completed in {PATIENCE_S:.0f} s")
        time.sleep(0)
    return found[0]


class Line:
    """A queue pair that is connected anew after each error, with a buffer of its own."""

    def __init__(self, pd: hca.PD, cq: hca.CQ) -> None:
        self.pd, self.cq = pd, cq
        self.buffer = bytearray(BUFFER_BYTES)
        self.mr = pd.reg_mr(self.buffer)
        self.qp: hca.QP | None = None

    def renew(self) -> hca.QPInfo:
        if self.qp is not None:
            self.qp.close()
        while self.cq.poll(16):
            pass
        self.qp = self.pd.create_qp(hca.QPType.RC, send_cq=self.cq, recv_cq=self.cq)
        return self.qp.info()

    def run(self, *wrs: hca.SendRequest) -> hca.WC:
        """Posts what ends in one completion if all is well, and one of an error otherwise."""
        assert self.qp is not None
        self.qp.post_send(wrs)
        return completion(self.cq)


def serve(pipe: Any, pd: hca.PD, cq: hca.CQ) -> None:
    """Does what the owner says: a word and its arguments."""
    line = Line(pd, cq)
    while True:
        match pipe.recv():
            case ("connect", far):
                near = line.renew()
                assert line.qp is not None
                line.qp.connect(far, timeout=TIMEOUT_CODE)
                pipe.send((near, line.mr.remote()))
            case ("read", remote):
                line.buffer[: remote.length] = bytes(remote.length)
                wc = line.run(hca.Read(line.mr[: remote.length], remote=remote, signaled=True))
                pipe.send((wc.status, bytes(line.buffer[: remote.length])))
            case ("write", remote, content):
                line.buffer[: remote.length] = content
                wc = line.run(hca.Write(line.mr[: remote.length], remote=remote, signaled=True))
                pipe.send((wc.status, b""))
            case ("show", length):
                pipe.send(bytes(line.buffer[:length]))
            case _:
                return


def main(pipes: list[Any]) -> None:
    with hca.open() as device, device.alloc_pd() as pd:
        threads = [
            threading.Thread(target=serve, args=(pipe, pd, device.create_cq(64))) for pipe in pipes
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
