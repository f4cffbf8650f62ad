"""Races on registered memory."""

from __future__ import annotations

import pytest

import softhca as hca
from softhca.testing import Fabric, RaceError

from .ends import pair


def test_a_buffer_reused_before_its_completion() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        fabric.watch_memory()
        a.qp.post_send(hca.Write(a.mr[:100], remote=b.mr.remote(), signaled=True))
        a.buffer[7] = 1
        a.next()
        with pytest.raises(RaceError, match=r"byte 7 of the buffer .* changed before"):
            fabric.check()


def test_a_buffer_reused_in_time() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        fabric.watch_memory()
        for n in range(5):
            a.buffer[7] = n
            a.qp.post_send(hca.Write(a.mr[:100], remote=b.mr.remote(), signaled=True))
            assert a.next().ok


def test_writes_one_after_the_other() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        fabric.watch_memory()
        for _ in range(2):
            a.qp.post_send(hca.Write(a.mr[:100], remote=b.mr.remote()[:100], signaled=True))
            assert a.next().ok


def test_writes_of_two_hosts_that_overlap() -> None:
    with Fabric() as fabric:
        server, one, other = fabric.hosts(3)
        pd = server.alloc_pd()
        cq = server.create_cq(16)
        buffer = bytearray(4096)
        mr = pd.reg_mr(buffer)
        clients = []
        for device in (one, other):
            qp = pd.create_qp(hca.QPType.RC, send_cq=cq, recv_cq=cq)
            near_pd, near_cq = device.alloc_pd(), device.create_cq(16)
            near = near_pd.create_qp(hca.QPType.RC, send_cq=near_cq, recv_cq=near_cq)
            near.connect(qp.info())
            qp.connect(near.info())
            near_mr = near_pd.reg_mr(bytearray(4096))
            clients.append((qp, near_pd, near_cq, near, near_mr))
        fabric.watch_memory()
        for start, (_, _, _, near, near_mr) in zip((0, 50), clients, strict=True):
            target = mr.remote()[start : start + 100]
            near.post_send(hca.Write(near_mr[:100], remote=target, signaled=True))
        fabric.run_for(0.001)
        with pytest.raises(RaceError, match="neither knew"):
            fabric.check()


def test_poison_shows_who_reads_too_early() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        fabric.watch_memory(poison=True)
        b.buffer[:4] = b"data"
        a.qp.post_send(hca.Read(a.mr[:4], remote=b.mr.remote()[:4], signaled=True))
        assert a.buffer[:4] == b"\xdb" * 4
        assert a.next().ok
        assert a.buffer[:4] == b"data"
