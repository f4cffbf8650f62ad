"""A responder that does something wrong, by the same scripts in a fabric and between processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import softhca as hca
from softhca import WcStatus
from softhca.testing import Fabric, LinkFaults

from .ends import pair
from .refusals import SCENES, Scene

TESTS = Path(__file__).resolve().parents[1]


def ask(
    qp: hca.QP, mr: hca.MR, remote: hca.RemoteMemory, next_wc: Callable[[], hca.WC]
) -> list[WcStatus]:
    """Sends and writes, and tells how both end."""
    qp.post_send(
        [
            hca.Send(mr[:50], signaled=True),
            hca.Write(mr[50:], remote=remote[50:], signaled=True),
        ]
    )
    return [next_wc().status for _ in range(2)]


def check(scene: Scene, statuses: list[WcStatus], struck: int, cnps: int) -> None:
    is_good = scene.status is WcStatus.SUCCESS
    assert statuses == [scene.status, scene.status if is_good else WcStatus.WR_FLUSH_ERR]
    # A busy machine makes the requester ask again before it has the answer.
    assert struck >= scene.struck
    assert cnps == (scene is SCENES["is congested"])


@pytest.mark.parametrize("name", SCENES)
def test_in_a_fabric(name: str) -> None:
    scene = SCENES[name]
    with Fabric(seed=3) as fabric:
        a, b = pair(fabric, 100, **scene.attributes)
        made = scene.script(fabric.faults, b.device)
        b.qp.post_recv(hca.Recv(b.mr[:50]))
        statuses = ask(a.qp, a.mr, b.mr.remote(), a.next)
        fabric.run_for(0.001)
        check(scene, statuses, made.struck, a.device.counters.rx_cnp)
        if name != "goes mute":
            assert made.struck == scene.struck


def polled(cq: hca.CQ) -> hca.WC:
    while not (wcs := cq.poll(1)):
        pass
    return wcs[0]


def test_between_two_processes() -> None:
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    with (
        hca.open() as dev,
        dev.alloc_pd() as pd,
        dev.create_cq(16) as cq,
        subprocess.Popen(
            [sys.executable, "-m", "simulation.refusals"],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as other,
    ):
        assert other.stdin is not None
        assert other.stdout is not None
        mr = pd.reg_mr(bytearray(100))
        for scene in SCENES.values():
            before = dev.counters.rx_cnp
            info, remote = (bytes.fromhex(word) for word in other.stdout.readline().split())
            with pd.create_qp(hca.QPType.RC, send_cq=cq, recv_cq=cq, max_send_wr=4) as qp:
                other.stdin.write(qp.info().to_bytes().hex() + "\n")
                other.stdin.flush()
                qp.connect(hca.QPInfo.from_bytes(info), **scene.attributes)
                assert other.stdout.readline() == "ready\n"
                far = hca.RemoteMemory.from_bytes(remote)
                statuses = ask(qp, mr, far, lambda: polled(cq))
                other.stdin.write("done\n")
                other.stdin.flush()
                struck = int(other.stdout.readline())
                print(scene, statuses, struck)
                check(scene, statuses, struck, dev.counters.rx_cnp - before)
        other.stdin.close()
        assert other.wait(timeout=60) == 0


def test_who_sends_takes_nobodys_place() -> None:
    faults = LinkFaults()
    with pytest.raises(hca.VerbsError, match="takes the place of who gets the packet"):
        faults.rnr(on="send")
