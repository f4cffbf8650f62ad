"""The fault scripts of the simulation run unchanged between two real processes over UDP."""

from __future__ import annotations

import errno
import gc
import os
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import softhca as hca
from softhca.testing import Fabric, FaultPacket, LinkFaults

from .ends import pair
from .fault_words import bad_day
from .write_blocks import BLOCK, BLOCKS, block

TESTS = Path(__file__).resolve().parents[1]
EXPECTED = b"".join(block(n) for n in range(BLOCKS))


def test_in_a_fabric() -> None:
    with Fabric(seed=5) as fabric:
        a, b = pair(fabric, timeout=12)
        made = bad_day(fabric.faults)
        a.buffer[: BLOCK * BLOCKS] = EXPECTED
        for n in range(BLOCKS):
            part = slice(n * BLOCK, (n + 1) * BLOCK)
            a.qp.post_send(hca.Write(a.mr[part], remote=b.mr.remote()[part], signaled=True))
        for _ in range(BLOCKS):
            a.next().raise_for_status()
        assert b.buffer[: BLOCK * BLOCKS] == EXPECTED
        assert all(fault.struck for fault in made), made


def test_between_two_processes() -> None:
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    with hca.open() as dev, dev.alloc_pd() as pd:
        cq = dev.create_cq(16)
        qp = pd.create_qp(hca.QPType.RC, send_cq=cq, recv_cq=cq)
        buffer = bytearray(BLOCK * BLOCKS)
        mr = pd.reg_mr(buffer)
        with subprocess.Popen(
            [sys.executable, "-m", "simulation.write_blocks"],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as other:
            assert other.stdin is not None
            assert other.stdout is not None
            qp.connect(hca.QPInfo.from_bytes(bytes.fromhex(other.stdout.readline())))
            other.stdin.write(f"{qp.info().to_bytes().hex()} {mr.remote().to_bytes().hex()}\n")
            other.stdin.flush()
            struck = [int(word) for word in other.stdout.readline().split()]
            assert other.wait(timeout=60) == 0
        assert buffer == EXPECTED
        # A retransmission may have been needed no more when its turn to be struck came.
        assert len(struck) == 8
        assert struck[0] == 3
        assert sum(count > 0 for count in struck) >= 6, struck


def test_words_that_need_a_fabric() -> None:
    faults = LinkFaults()
    with pytest.raises(hca.VerbsError, match="this is a real network"):
        faults.drop(link=0)
    assert not hasattr(faults, "refuse")


class Undecided:
    """Neither true nor false, as arrays of NumPy are."""

    def __bool__(self) -> bool:
        raise ValueError("neither")


def written(a: hca.Device, b: hca.Device) -> hca.WC:
    """The completion of a WRITE from one adapter to another."""
    ends = []
    for device in (a, b):
        pd = device.alloc_pd()
        cq = device.create_cq(16)
        qp = pd.create_qp(hca.QPType.RC, send_cq=cq, recv_cq=cq)
        buffer = bytearray(100)
        ends.append((pd, cq, qp, buffer, pd.reg_mr(buffer)))
    (_, cq, near, _, mr), (_, _, far, _, far_mr) = ends
    near.connect(far.info())
    far.connect(near.info())
    near.post_send(hca.Write(mr[:], remote=far_mr.remote(), signaled=True))
    while not (wcs := cq.poll()):
        pass
    for end in ends:
        for one in (end[2], end[4], end[1], end[0]):
            one.close()
    return wcs[0]


def test_a_predicate_may_ask_for_faults_and_change_them() -> None:
    faults = LinkFaults()
    seen: list[int] = []

    def where(packet: FaultPacket) -> bool:
        seen.append(first.struck)
        if first.struck == 2:
            first.remove()
            faults.delay(1000, nth=1)
        return True

    first = faults.drop(where=where, opcode="RC_RDMA_WRITE_ONLY", on="send")
    with hca.open(faults=faults) as a, hca.open() as b:
        assert written(a, b).ok
    assert seen == [0, 1, 2]
    assert [fault.struck for fault in faults.all] == [3, 1]


WAITING: dict[str, Callable[[hca.Device, hca.QP], object]] = {
    "close": lambda device, qp: device.close(),
    "link_counters": lambda device, qp: device.link_counters,
    "attach_mcast": lambda device, qp: qp.attach_mcast("239.1.2.3"),
    "detach_mcast": lambda device, qp: qp.detach_mcast("239.1.2.3"),
    "leaving its block": lambda device, qp: device.__exit__(None, None, None),
}


@pytest.mark.parametrize("on", ["send", "receive"])
@pytest.mark.parametrize("call", WAITING)
def test_what_would_wait_for_the_packet_that_is_judged_is_refused(call: str, on: str) -> None:
    faults = LinkFaults()
    refusals: list[OSError] = []

    def where(packet: FaultPacket) -> bool:
        try:
            WAITING[call](a, group)
        except OSError as error:
            refusals.append(error)
        return False

    with hca.open(faults=faults) as a, hca.open() as b:
        pd = a.alloc_pd()
        cq = a.create_cq(16)
        group = pd.create_qp(hca.QPType.UD, send_cq=cq, recv_cq=cq)
        faults.drop(where=where, on=on)
        assert written(a, b).ok
        assert not a.closed
        assert a.link_counters["sent"] > 0
        assert not group.closed
        group.attach_mcast("239.1.2.3")
        group.detach_mcast("239.1.2.3")
    assert refusals
    named = "close" if call == "leaving its block" else call
    assert {error.errno for error in refusals} == {errno.EDEADLK}
    assert {getattr(error, "argument", None) for error in refusals} == {named}
    assert str(refusals[0]).startswith(f"{named}: would wait for the packet")


def test_so_is_it_of_another_adapter_with_the_same_rules() -> None:
    faults = LinkFaults()
    refusals: list[int | None] = []

    def where(packet: FaultPacket) -> bool:
        try:
            other.close()
        except OSError as error:
            refusals.append(error.errno)
        return False

    with hca.open(faults=faults) as a, hca.open() as b, hca.open(faults=faults) as other:
        faults.drop(where=where)
        assert written(a, b).ok
        assert not other.closed
    assert set(refusals) == {errno.EDEADLK}


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_predicate_may_let_go_of_its_adapter() -> None:
    faults = LinkFaults()
    held: list[hca.Device] = []
    gone = threading.Event()

    def where(packet: FaultPacket) -> bool:
        held.clear()
        gc.collect()
        return False

    faults.drop(where=where, on="receive")
    held.append(hca.open(faults=faults))
    address = str(held[0].gid.ip)
    weakref.finalize(held[0], gone.set)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as anyone:
        anyone.sendto(bytes(64), (address, 4791))
    assert gone.wait(30)
    deadline = time.monotonic() + 30
    while True:
        try:
            hca.open(address).close()
        except hca.VerbsError as error:
            assert error.errno == errno.EADDRINUSE
            assert time.monotonic() < deadline
        else:
            break


def raising_hook(about: object) -> None:
    raise RuntimeError


@pytest.mark.parametrize("hook", [None, raising_hook])
@pytest.mark.parametrize(
    ("word", "returned"),
    [("drop", Undecided()), ("script", b"datagram"), ("script", [5]), ("script", [(b"", -1)])],
)
def test_what_a_function_may_not_return_is_reported(
    monkeypatch: pytest.MonkeyPatch,
    hook: Callable[[object], None] | None,
    word: str,
    returned: object,
) -> None:
    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", hook or (lambda about: told.append(about.object)))
    faults = LinkFaults()

    def function(packet: FaultPacket) -> Any:
        return returned

    if word == "drop":
        faults.drop(where=function, nth=1, on="send")
    else:
        faults.script(function, nth=1, on="send")
    with hca.open(faults=faults) as a, hca.open() as b:
        assert written(a, b).ok
    assert hook or told[0] is function


def test_a_predicate_that_raises_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda about: told.append(about.exc_value))
    faults = LinkFaults()

    def where(packet: FaultPacket) -> bool:
        raise ValueError(packet.opcode)

    faults.drop(where=where, on="send")
    with hca.open(faults=faults) as a, hca.open() as b:
        assert written(a, b).ok
    assert isinstance(told[0], ValueError)
    assert str(told[0]) == "RC_RDMA_WRITE_ONLY"
