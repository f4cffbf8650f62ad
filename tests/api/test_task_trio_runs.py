"""Runs of trio that break off under their tasks."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("trio")

# A program of its own, since trio complains of what such a run leaves behind as it is collected.
BREAKS_OFF = """
import trio, trio.testing
import softhca as hca

class Breaking(trio.abc.Clock):
    # Raises, once it is told to, where trio has no place for exceptions: as signal handlers do.
    broken = False
    def start_clock(self):
        pass
    def current_time(self):
        return 0.0
    def deadline_to_sleep_time(self, deadline):
        return 1 / (not self.broken)

clock = Breaking()

async def broken(qp):
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(qp.recv)
        await trio.testing.wait_all_tasks_blocked()
        clock.broken = True
        await trio.sleep_forever()

async def whole(qp, peer):
    with trio.fail_after(60):
        coming = qp.recv(wr_id=9)
        peer.post_send([hca.Send()] * 3)
        print((await coming).wr_id)

def program(a, b):
    cq = a.create_cq(16)
    qp = a.alloc_pd().create_qp(hca.QPType.RC, send_cq=cq, recv_cq=cq)
    other = b.create_cq(16)
    peer = b.alloc_pd().create_qp(hca.QPType.RC, send_cq=other, recv_cq=other)
    qp.connect(peer.info())
    peer.connect(qp.info())
    try:
        trio.run(broken, qp, clock=clock)
    except (ZeroDivisionError, trio.TrioInternalError):
        pass
    THEN
    for dev in (a, b):
        dev.__exit__(None, None, None)

program(hca.open(), hca.open())
"""
POLL = """
    qp.post_recv([hca.Recv(wr_id=7), hca.Recv(wr_id=8)])
    peer.post_send([hca.Send()] * 4)
    taken = []
    while len(taken) < 2:
        taken += [wc.wr_id for wc in cq.poll()]
    print(*taken)
"""
RUN = """
    trio.run(whole, qp, peer)
"""
NEXT = """
    qp.post_recv([hca.Recv(wr_id=7), hca.Recv(wr_id=8), hca.Recv(wr_id=9)])
    peer.post_send([hca.Send()] * 3)
    taken = []

    async def take():
        with trio.fail_after(60):
            while not taken or taken[-1] != 9:
                taken.append((await cq.next()).wr_id)
                gc.collect()

    trio.run(take)
    gc.collect()
    taken += [wc.wr_id for wc in cq.poll()]
    print(*taken)
"""


@pytest.mark.parametrize(("then", "printed"), [(POLL, "7 8"), (RUN, "9")], ids=["poll", "run"])
def test_a_run_that_broke_off_is_no_obstacle(then: str, printed: str) -> None:
    """Its tasks never run again, and what they awaited still completes."""
    program = BREAKS_OFF.replace("    THEN", then)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout.strip()) == (0, printed), done.stderr


def test_what_passed_by_a_run_that_broke_off_comes_once() -> None:
    """Its tasks are collected at some time, and have nothing to hand on then."""
    program = BREAKS_OFF.replace("    THEN", NEXT)
    program = program.replace("import trio, trio.testing", "import gc, trio, trio.testing")
    program = program.replace("nursery.start_soon(qp.recv)", "nursery.start_soon(qp.recv_cq.next)")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout.strip()) == (0, "7 8 9"), done.stderr
