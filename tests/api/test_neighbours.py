"""Adapters of one host share memory, unless they are told not to."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

import softhca as hca
from softhca.verbs.errors import VerbsError

LENGTHS = (1, 64, 1025, 70_000, 1_000_000)
# An adapter that gets no processor for a quarter of a second does not answer in time, and is taken
# for a stranger: how often in a row that may happen.
TRIALS = 10


class End(NamedTuple):
    pd: hca.PD
    cq: hca.CQ
    qp: hca.QP
    mr: hca.MR


def end_of(dev: hca.Device, *, allocated: bool) -> End:
    pd, cq = dev.alloc_pd(), dev.create_cq(64)
    qp = pd.create_qp(hca.QPType.RC, send_cq=cq, recv_cq=cq)
    size = max(LENGTHS)
    mr = pd.alloc_mr_buffer(size) if allocated else pd.reg_mr(bytearray(size))
    return End(pd, cq, qp, mr)


def connect(a: End, b: End) -> None:
    a.qp.connect(b.qp.info())
    b.qp.connect(a.qp.info())


def wait(cq: hca.CQ) -> hca.WC:
    while True:
        if completions := cq.poll(1):
            return completions[0]


def move_all(a: End, b: End) -> None:
    """WRITEs and READs of every length, each looked at."""
    ours, theirs = memoryview(a.mr.obj).cast("B"), memoryview(b.mr.obj).cast("B")
    for number, length in enumerate(LENGTHS):
        ours[:length] = bytes([number + 1]) * length
        a.qp.post_send(hca.Write(a.mr[:length], remote=b.mr.remote()[:length], signaled=True))
        assert wait(a.cq).status == hca.WcStatus.SUCCESS
        assert theirs[:length] == bytes([number + 1]) * length
        theirs[:length] = bytes([number + 101]) * length
        a.qp.post_send(hca.Read(a.mr[:length], remote=b.mr.remote()[:length], signaled=True))
        assert wait(a.cq).status == hca.WcStatus.SUCCESS
        assert ours[:length] == bytes([number + 101]) * length
    ours.release()
    theirs.release()


def datagrams(*devices: hca.Device) -> int:
    return sum(dev.link_counters["sent"] for dev in devices)


@pytest.mark.parametrize("allocated", [True, False])
def test_no_datagram_leaves_for_a_neighbour(
    allocated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOFTHCA_LINK", raising=False)
    for _ in range(TRIALS):
        with hca.open() as one, hca.open() as other:
            a, b = end_of(one, allocated=allocated), end_of(other, allocated=allocated)
            connect(a, b)
            a.qp.post_send(hca.Write(a.mr[:1], remote=b.mr.remote()[:1], signaled=True))
            assert wait(a.cq).status == hca.WcStatus.SUCCESS
            if datagrams(one, other):
                continue  # They have not met.
            move_all(a, b)
            assert datagrams(one, other) == 0
            return
    raise AssertionError(f"adapters of one host have not met, {TRIALS} times in a row")


def test_nor_to_a_queue_pair_of_the_same_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOFTHCA_LINK", raising=False)
    with hca.open() as dev:
        a, b = end_of(dev, allocated=False), end_of(dev, allocated=False)
        connect(a, b)
        move_all(a, b)
        assert datagrams(dev) == 0


@pytest.mark.parametrize("by_variable", [True, False])
def test_sockets_by_order(by_variable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTHCA_LINK", "udp" if by_variable else "auto")
    link = None if by_variable else "udp"
    with hca.open(link=link) as one, hca.open() as other:
        a, b = end_of(one, allocated=False), end_of(other, allocated=False)
        connect(a, b)
        move_all(a, b)
        assert datagrams(one) > 0
        assert datagrams(other) > 0


def test_what_is_captured_takes_the_network(tmp_path: Path) -> None:
    with hca.open(capture=tmp_path / "all.pcapng") as one, hca.open() as other:
        a, b = end_of(one, allocated=False), end_of(other, allocated=False)
        connect(a, b)
        move_all(a, b)
        assert datagrams(one) > 0


@pytest.mark.parametrize("by_variable", [True, False])
def test_a_link_that_there_is_not(by_variable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if by_variable:
        monkeypatch.setenv("SOFTHCA_LINK", "shm")
    with pytest.raises(VerbsError, match=r'(link|SOFTHCA_LINK)=.*"auto" or "udp"'):
        hca.open(link=None if by_variable else "shm")


def test_rights_are_those_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOFTHCA_LINK", raising=False)
    with hca.open() as one, hca.open() as other:
        a, b = end_of(one, allocated=True), end_of(other, allocated=True)
        connect(a, b)
        readable = b.pd.reg_mr(bytearray(100_000), hca.Access.REMOTE_READ)
        a.qp.post_send(hca.Write(a.mr[:100_000], remote=readable.remote(), signaled=True))
        assert wait(a.cq).status == hca.WcStatus.REM_ACCESS_ERR
        assert bytes(readable.obj) == bytes(100_000)


def test_a_buffer_that_is_closed_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOFTHCA_LINK", raising=False)
    with hca.open() as one, hca.open() as other:
        a, b = end_of(one, allocated=True), end_of(other, allocated=True)
        connect(a, b)
        move_all(a, b)
        remote = b.mr.remote()[:100_000]
        b.mr.close()
        a.qp.post_send(hca.Write(a.mr[:100_000], remote=remote, signaled=True))
        assert wait(a.cq).status == hca.WcStatus.REM_ACCESS_ERR
