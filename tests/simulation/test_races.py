"""Races on registered memory."""

from __future__ import annotations

import ctypes
import errno
import gc
import mmap

import pytest

import softhca as hca
from softhca.testing import Fabric, Pair, RaceError

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


def test_many_that_are_posted_at_once_are_watched_too() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        fabric.watch_memory()
        a.qp.post_send_many(hca.Write(a.mr[:100], remote=b.mr.remote(), signaled=True), [5, 6])
        a.next()
        a.buffer[7] = 1
        a.next()
        with pytest.raises(RaceError, match=r"byte 7 of the buffer .* changed before"):
            fabric.check()


def test_records_cannot_be_watched() -> None:
    with Fabric() as fabric:
        a, _ = pair(fabric)
        fabric.watch_memory()
        with pytest.raises(hca.VerbsError, match=r"wrs.*must see work requests"):
            a.qp.post_send_many(bytes(80))


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


@pytest.mark.parametrize("what", ["receive", "read"])
def test_a_buffer_that_is_to_be_filled_changes(what: str) -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        fabric.watch_memory()
        if what == "receive":
            a.qp.post_recv(hca.Recv(a.mr[:100]))
            b.qp.post_send(hca.Send(b.mr[:100]))
        else:
            a.qp.post_send(hca.Read(a.mr[:100], remote=b.mr.remote()[:100], signaled=True))
        a.buffer[50] = 7
        a.next()
        with pytest.raises(RaceError, match=r"byte 50 .* which it is to fill, changed before"):
            fabric.check()


def test_what_comes_into_buffers_is_no_race() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric, timeout=8)
        fabric.watch_memory(poison=True)
        fabric.faults.drop(probability=0.1)
        b.buffer[:9000] = bytes(range(250)) * 36
        word = b.mr.remote()[9992:10_000]
        for _ in range(5):
            a.qp.post_recv(hca.Recv(a.mr[:9000]))
            b.qp.post_send(hca.Send(b.mr[:9000], signaled=True))
            a.qp.post_send(hca.Read(a.mr[9000:18_000], remote=b.mr.remote()[:9000]))
            a.qp.post_send(hca.FetchAdd(a.mr[20_000:20_008], remote=word, add=1, signaled=True))
            assert {a.next().ok, a.next().ok, b.next().ok} == {True}
            assert a.buffer[:9000] == a.buffer[9000:18_000] == b.buffer[:9000]


def test_deregistered_under_its_own_request() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        fabric.watch_memory()
        other = a.pd.reg_mr(bytearray(100))
        a.qp.post_send(hca.Write(other[:], remote=b.mr.remote(), signaled=True))
        other.close()
        a.next()
        with pytest.raises(RaceError, match=r"deregistered .* while .* h1, .* may still touch it"):
            fabric.check()


def test_deregistered_under_a_request_of_the_peer() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        other = b.pd.reg_mr(bytearray(100))
        fabric.watch_memory()
        a.qp.post_send(hca.Write(a.mr[:100], remote=other.remote(), signaled=True))
        other.close()
        a.next()
        with pytest.raises(RaceError, match=r"h2: the region .* is deregistered .* h1, qp"):
            fabric.check()


def test_deregistered_in_time() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        fabric.watch_memory()
        here, there = a.pd.reg_mr(bytearray(100)), b.pd.reg_mr(bytearray(100))
        a.qp.post_send(hca.Write(here[:], remote=there.remote(), signaled=True))
        assert a.next().ok
        here.close()
        there.close()


def test_freed_while_registered() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    size = 4 * mmap.PAGESIZE
    with Fabric() as fabric:
        a, _ = pair(fabric)
        fabric.watch_memory()
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        address = libc.mmap(None, ctypes.c_size_t(size), 3, flags, -1, ctypes.c_long(0))
        mr = a.pd.reg_mr(addr=address, length=size)
        fabric.run_for(1e-6)
        libc.munmap(address, size)
        fabric.run_for(1e-6)
        with pytest.raises(RaceError, match=r"h1: the region .* is registered, and is no memory"):
            fabric.check()
        mr.close()


def test_a_program_that_says_what_it_reads() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        watch = fabric.watch_memory()
        a.qp.post_send(hca.Write(a.mr[:100], remote=b.mr.remote()[:100], signaled=True))
        a.qp.post_send(hca.Read(a.mr[500:600], remote=b.mr.remote()[:100], signaled=True))
        watch.reads(b.mr[100:200])
        watch.reads(a.mr[:100])
        with pytest.raises(RaceError, match=r"h2 reads what .* by h1, .* may still write"):
            watch.reads(b.mr[50:200])
        with pytest.raises(RaceError, match="h1 reads what"):
            watch.reads(a.mr[599:700])
        assert a.next().ok
        assert a.next().ok
        watch.reads(b.mr)
        watch.reads(a.mr)


def test_reading_what_no_host_has_is_refused() -> None:
    with Fabric(seed=1) as fabric, Fabric(seed=2) as elsewhere:
        pair, other = Pair(fabric), Pair(elsewhere)
        watch = fabric.watch_memory()
        for part in (None, 7, bytearray(8), hca.Sge(pair.a.mr.addr, 8, pair.a.mr.lkey)):
            with pytest.raises(
                TypeError, match=f"part must be MR, or Sge of one, not {type(part).__name__}"
            ):
                watch.reads(part)  # type: ignore[arg-type]
        for part in (other.a.mr, other.a.mr[0:8]):
            with pytest.raises(hca.VerbsError, match=r"part=.*is of no host") as refused:
                watch.reads(part)
            assert refused.value.errno == errno.EINVAL
        closed = pair.a.pd.reg_mr(bytearray(8))
        part = closed[0:8]
        closed.close()
        with pytest.raises(hca.VerbsError, match="mr: is closed"):
            watch.reads(part)
        watch.reads(pair.a.mr)


def test_a_region_that_outlives_its_fabric_is_closed() -> None:
    fabric = Fabric(seed=1)
    device = fabric.host()
    memory = bytearray(8)
    pd = device.alloc_pd()
    mr = pd.reg_mr(memory)
    fabric.watch_memory()
    del fabric
    gc.collect()
    mr.close()
    memory.extend(b"resized")
    device.__exit__(None, None, None)


def test_requests_that_are_refused_are_not_watched() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        fabric.watch_memory()
        wr = hca.Write(a.mr[:100], remote=b.mr.remote()[:100], signaled=True)
        with pytest.raises(hca.VerbsError, match="ENOMEM"):
            a.qp.post_send([wr] * 300)
        for _ in range(256):
            assert a.next().ok
        a.buffer[:100] = b"x" * 100


def test_hosts_that_are_added_later_are_watched_too() -> None:
    with Fabric() as fabric:
        fabric.watch_memory()
        a, b = pair(fabric)
        b.qp.post_recv(hca.Recv(b.mr[:100]))
        a.qp.post_send(hca.Send(a.mr[:100], signaled=True))
        a.buffer[7] = 1
        a.next()
        with pytest.raises(RaceError, match=r"byte 7 of the buffer .* changed before"):
            fabric.check()


@pytest.mark.parametrize("kind", ["send", "receive", "shared receive"])
def test_what_was_posted_before_the_watch_is_told_from_what_came_later(kind: str) -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        near: hca.QP = a.qp
        receives: hca.QP | hca.SRQ = b.qp
        if kind == "shared receive":
            receives = fabric.keep(b.pd.create_srq(max_wr=8))
            near = fabric.keep(a.pd.create_qp(hca.QPType.RC, send_cq=a.cq, recv_cq=a.cq))
            far = b.pd.create_qp(hca.QPType.RC, send_cq=b.cq, recv_cq=b.cq, srq=receives)
            near.connect(fabric.keep(far).info())
            far.connect(near.info())

        def post(part: slice) -> None:
            receives.post_recv(hca.Recv(b.mr[part]))
            near.post_send(hca.Send(a.mr[part], signaled=True))

        post(slice(100))
        watch = fabric.watch_memory()
        fabric.faults.drop(opcode="RC_SEND_ONLY", nth=2)  # The second stays under way.
        post(slice(100, 200))
        assert a.next().ok
        (a if kind == "send" else b).buffer[150] = 1
        with pytest.raises(RaceError, match="byte 50 of the buffer"):
            watch.check()
        assert a.next().ok
