"""Who polls does the work of its adapter, where the adapter's thread gets no processor."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

NOT_PERMITTED = 77
POLLS = 100_000

# Of real-time priority and with one processor, the caller leaves the thread only what it yields.
PROGRAM = f"""
import os, sys
import softhca as hca
from tests.api.test_neighbours import connect, end_of

os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})
try:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
except PermissionError:
    sys.exit({NOT_PERMITTED})
with hca.open() as dev, hca.open() as neighbour, hca.open(link="udp") as stranger:
    near = [end_of(dev, allocated=False) for _ in range(2)]
    peers = [end_of(there, allocated=False) for there in (neighbour, stranger)]
    for ours, theirs in zip(near, peers):
        connect(ours, theirs)
    near[1].qp.post_recv(hca.Recv(near[1].mr[:8]))
    for _ in range({POLLS}):  # Until the network is one from which nothing comes.
        assert not near[1].cq.poll(1)
    peers[1].qp.post_send(hca.Send(peers[1].mr[:8]))
    # Polls are counted, and not what they take: others may have the processor meanwhile.
    assert any(near[1].cq.poll(1) for _ in range({POLLS})), "nobody has looked at the network"
"""


@pytest.mark.skipif(not hasattr(os, "SCHED_FIFO"), reason="there is no real-time priority")
def test_polls_look_at_the_network_though_there_are_neighbours() -> None:
    environment = {k: v for k, v in os.environ.items() if k != "SOFTHCA_LINK"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=Path(__file__).resolve().parents[2],
        env=environment,
        timeout=60,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode == NOT_PERMITTED:
        pytest.skip("real-time priority is not permitted")
    assert done.returncode == 0, done.stdout
