"""Races on registered memory, by each kind of work request and of key."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import softhca as hca
from softhca import Access
from softhca.testing import End, Fabric, RaceError

from .ends import pair

LENDABLE = Access.LOCAL_WRITE | Access.MW_BIND


def shared(
    fabric: Fabric, near: End, far: End, count: int = 1
) -> tuple[hca.SRQ, list[tuple[hca.QP, hca.QP]]]:
    """A shared receive queue of `far`, and queue pairs that take from it, with their peers."""
    srq = far.pd.create_srq(max_wr=64)
    made = []
    for _ in range(count):
        taker = far.pd.create_qp(
            hca.QPType.RC, send_cq=far.cq, recv_cq=far.cq, srq=srq, max_send_wr=64
        )
        sender = near.pd.create_qp(hca.QPType.RC, send_cq=near.cq, recv_cq=near.cq, max_send_wr=64)
        taker.connect(sender.info(), timeout=8, path_mtu=hca.Mtu.MTU_256)
        sender.connect(taker.info(), timeout=8, path_mtu=hca.Mtu.MTU_256)
        made.append((taker, sender))
    return fabric.keep(srq), fabric.keep(made)


def beside(
    fabric: Fabric, near: End, far: End, qp_type: hca.QPType = hca.QPType.RC, **attributes: hca.Mtu
) -> hca.QP:
    """Another queue pair of `near`, connected to another one of `far`."""
    mine, theirs = (
        end.pd.create_qp(qp_type, send_cq=end.cq, recv_cq=end.cq) for end in (near, far)
    )
    mine.connect(theirs.info(), **attributes)
    theirs.connect(mine.info(), **attributes)
    return fabric.keep((mine, theirs))[0]


def unreliable(fabric: Fabric, near: End, far: End) -> hca.QP:
    """An unreliable one."""
    return beside(fabric, near, far, hca.QPType.UC, path_mtu=hca.Mtu.MTU_256)


REQUESTS: dict[str, Callable[[hca.Sge, hca.RemoteMemory], hca.SendRequest]] = {
    "atomic write": lambda part, far: hca.AtomicWrite(part, remote=far, signaled=True),
    "masked add": lambda part, far: hca.MaskedFetchAdd(
        part, remote=far, add=1, boundary=0, signaled=True
    ),
    "masked swap": lambda part, far: hca.MaskedCmpSwap(
        part, remote=far, compare=0, compare_mask=1, swap=1, swap_mask=1, signaled=True
    ),
}


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_buffer_of_eight_bytes_changes(kind: str) -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        watch = fabric.watch_memory()
        a.qp.post_send(REQUESTS[kind](a.mr[:8], b.mr.remote()[:8]))
        with pytest.raises(RaceError, match="h2 reads what"):
            watch.reads(b.mr[:8])
        a.buffer[3] = 7
        assert a.next().ok
        with pytest.raises(RaceError, match=r"byte 3 of the buffer .* changed before"):
            fabric.check()


@pytest.mark.parametrize("kind", REQUESTS)
def test_buffers_of_eight_bytes_that_are_left_alone(kind: str) -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        fabric.watch_memory(poison=True)
        for _ in range(3):
            a.qp.post_send(REQUESTS[kind](a.mr[:8], b.mr.remote()[:8]))
            assert a.next().ok


def test_atomic_writes_of_two_queue_pairs_overlap() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        other = beside(fabric, a, b)
        fabric.watch_memory()
        for qp in (a.qp, other):
            qp.post_send(hca.AtomicWrite(a.mr[:8], remote=b.mr.remote()[:8]))
        fabric.run_for(0.001)
        with pytest.raises(RaceError, match="neither knew"):
            fabric.check()


def test_a_shared_receive_changes_before_its_completion() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        watch = fabric.watch_memory()
        srq, [(_, sender)] = shared(fabric, a, b)
        srq.post_recv([hca.Recv(b.mr[:100]), hca.Recv(b.mr[100:200])])
        with pytest.raises(RaceError, match=r"h2 reads what .* srq 1, may still write"):
            watch.reads(b.mr[150:160])
        sender.post_send(hca.Send(a.mr[:50]))
        assert b.next().ok
        watch.reads(b.mr[:100])
        b.buffer[0] = 1
        fabric.check()
        b.buffer[120] = 1
        with pytest.raises(RaceError, match=r"byte 20 of the buffer .* srq 1, which it is to fill"):
            fabric.check()


def test_memory_of_a_shared_receive_is_deregistered() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        fabric.watch_memory(poison=True)
        srq, _ = shared(fabric, a, b)
        memory = bytearray(64)
        mr = b.pd.reg_mr(memory)
        srq.post_recv(hca.Recv(mr))
        assert memory == b"\xdb" * 64
        mr.close()
        with pytest.raises(RaceError, match=r"deregistered .* srq 1, may still touch it"):
            fabric.check()


@pytest.mark.parametrize("seed", range(1, 7))
def test_shared_receives_that_complete_in_any_order(seed: int) -> None:
    with Fabric(seed, jitter_ns=3000) as fabric:
        a, b = pair(fabric)
        fabric.watch_memory(poison=True)
        fabric.faults.drop(probability=0.1)
        fabric.faults.duplicate(probability=0.1)
        srq, pairs = shared(fabric, a, b, count=3)
        slots = [b.mr[1000 * n : 1000 * n + 1000] for n in range(12)]
        srq.post_recv([hca.Recv(slot) for slot in slots])
        for round_ in range(4):
            for length in (700, 1, 0):
                for _, sender in pairs:
                    sender.post_send(hca.Send(a.mr[:length], signaled=True))
            for end in (a, b):
                assert all(end.next().ok for _ in range(9))
            # They are taken in order, so that those posted first are free again.
            srq.post_recv([hca.Recv(slots[(9 * round_ + n) % 12]) for n in range(9)])


def test_a_queue_pair_that_is_reset_gives_up_what_it_had_taken() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        fabric.watch_memory()
        srq, [(taker, sender)] = shared(fabric, a, b)
        srq.post_recv(hca.Recv(b.mr[:1000]))
        fabric.faults.drop(opcode="RC_SEND_LAST")
        sender.post_send(hca.Send(a.mr[:1000]))
        fabric.run_for(10e-6)
        taker.modify(qp_state=hca.QPState.RESET)
        b.buffer[0] = 1


@pytest.mark.parametrize("whose", ["own", "peer's"])
def test_registered_anew_under_a_request(whose: str) -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        fabric.watch_memory()
        mr = (a if whose == "own" else b).pd.reg_mr(bytearray(100))
        part, far = (mr[:], b.mr.remote()) if whose == "own" else (a.mr[:100], mr.remote())
        a.qp.post_send(hca.Write(part, remote=far, signaled=True))
        mr.rereg(access=mr.access | Access.RELAXED_ORDERING)  # It keeps its keys and its place.
        fabric.check()
        mr.rereg(bytearray(100))
        a.next()
        with pytest.raises(RaceError, match=r"is registered anew .* while .* may still touch it"):
            fabric.check()
        mr.close()


def test_a_region_that_was_registered_anew_is_still_watched() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        fabric.watch_memory()
        mr = b.pd.reg_mr(bytearray(100))
        mr.rereg(bytearray(100))
        a.qp.post_send(hca.Write(a.mr[:100], remote=mr.remote(), signaled=True))
        mr.close()
        a.next()
        with pytest.raises(RaceError, match=r"h2: the region .* is deregistered"):
            fabric.check()


@pytest.mark.parametrize("kind", ["type 1", "type 2", "zero-based"])
def test_who_reads_what_a_peer_writes_through_a_window(kind: str) -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        watch = fabric.watch_memory()
        region = b.pd.reg_mr(bytearray(4096), LENDABLE)
        if kind == "type 1":
            mw = b.pd.alloc_mw(hca.MwType.TYPE_1)
            info = hca.BindInfo.of(region[100:200], Access.REMOTE_WRITE)
            lent = b.qp.bind_mw(mw, info, signaled=True)
        else:
            mw = b.pd.alloc_mw(hca.MwType.TYPE_2)
            access = Access.REMOTE_WRITE | (Access.ZERO_BASED if kind == "zero-based" else 0)
            bind = hca.BindMw(mw, region[100:200], rkey=hca.inc_rkey(mw.rkey), access=access)
            lent = bind.remote
            b.qp.post_send([bind, hca.Write(b.mr[:1], remote=a.mr.remote()[:1], signaled=True)])
        assert b.next().ok
        a.qp.post_send(hca.Write(a.mr[:10], remote=lent[50:60], signaled=True))
        watch.reads(region[160:200])
        with pytest.raises(RaceError, match="h2 reads what"):
            watch.reads(region[159:200])
        assert a.next().ok
        watch.reads(region)


def test_a_bind_of_type_1_is_no_other_request_to_the_watch() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        fabric.watch_memory()
        region, mw = a.pd.reg_mr(bytearray(64), LENDABLE), a.pd.alloc_mw(hca.MwType.TYPE_1)
        a.qp.bind_mw(mw, hca.BindInfo.of(region, Access.REMOTE_READ), signaled=True)
        a.qp.post_send(hca.Write(a.mr[:100], remote=b.mr.remote(), signaled=True))
        assert a.next().ok  # The bind.
        a.buffer[7] = 1
        assert a.next().ok
        with pytest.raises(RaceError, match="byte 7"):
            fabric.check()


def test_the_same_address_of_other_memory_is_no_race() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        other = beside(fabric, a, b)
        access = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.ZERO_BASED
        regions = [b.pd.reg_mr(bytearray(100), access) for _ in range(2)]
        fabric.watch_memory()
        for qp, mr in zip((a.qp, other), regions, strict=True):
            qp.post_send(hca.Write(a.mr[:100], remote=mr.remote()))
        fabric.run_for(0.001)


def test_the_same_memory_by_two_keys_is_a_race() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        other = beside(fabric, a, b)
        memory = bytearray(100)
        regions = [b.pd.reg_mr(memory) for _ in range(2)]
        fabric.watch_memory()
        for qp, mr in zip((a.qp, other), regions, strict=True):
            qp.post_send(hca.Write(a.mr[:100], remote=mr.remote()))
        fabric.run_for(0.001)
        with pytest.raises(RaceError, match="neither knew"):
            fabric.check()


@pytest.mark.parametrize("end", ["closed", "reset"])
def test_what_a_queue_pair_wrote_before_its_end_is_no_race(end: str) -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        other = beside(fabric, a, b)
        fabric.watch_memory()
        other.post_send(hca.Write(a.mr[:100], remote=b.mr.remote()[:100]))
        fabric.run_for(0.001)
        if end == "closed":
            other.close()
        else:
            other.modify(qp_state=hca.QPState.RESET)
        a.qp.post_send(hca.Write(a.mr[:100], remote=b.mr.remote()[:100], signaled=True))
        assert a.next().ok


def test_receives_before_one_that_is_refused_are_watched() -> None:
    with Fabric() as fabric:
        a, _ = pair(fabric)
        fabric.watch_memory()
        with pytest.raises(hca.VerbsError, match="ENOMEM"):
            a.qp.post_recv([hca.Recv(a.mr[:8])] * 300)
        a.buffer[0] = 1
        with pytest.raises(RaceError, match="byte 0"):
            fabric.check()


def test_memory_cannot_be_watched_without_a_trace() -> None:
    with Fabric(trace=False) as fabric, pytest.raises(hca.VerbsError, match="trace=False: must"):
        fabric.watch_memory()


def test_the_watch_makes_no_calls_that_a_fault_counts() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        fabric.watch_memory()
        refusal = fabric.faults.refuse("query_qp", nth=None)
        a.qp.post_send(hca.Write(a.mr[:8], remote=b.mr.remote()[:8], signaled=True))
        assert a.next().ok
        assert refusal.calls == 0


@pytest.mark.parametrize("length", [100, 1000])
@pytest.mark.parametrize("lost", [None, "UC_RDMA_WRITE_MIDDLE", "UC_RDMA_WRITE_LAST"])
@pytest.mark.parametrize("signaled", [True, False])
def test_an_unreliable_write_that_has_arrived_is_no_race(
    length: int, lost: str | None, signaled: bool
) -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        uc = unreliable(fabric, a, b)
        watch = fabric.watch_memory()
        if lost is not None:
            fabric.faults.drop(opcode=lost)
        part, far = a.mr[:length], b.mr.remote()[:length]
        uc.post_send(hca.Write(part, remote=far, signaled=signaled))
        uc.post_send(hca.Write(part, remote=far, signaled=True))
        assert all(a.next().ok for _ in range(1 + signaled))
        fabric.run_for(0.001)
        watch.reads(b.mr[:length])
        a.qp.post_send(hca.Write(part, remote=far, signaled=True))
        assert a.next().ok


@pytest.mark.parametrize("length", [100, 1000])
def test_who_reads_what_an_unreliable_write_has_not_brought_yet(length: int) -> None:
    """That it has completed says only that it has left."""
    with Fabric() as fabric:
        a, b = pair(fabric)
        uc = unreliable(fabric, a, b)
        watch = fabric.watch_memory()
        for _ in range(3):
            write = hca.Write(a.mr[:length], remote=b.mr.remote()[:length], signaled=True)
            uc.post_send([write, write])
            assert all(a.next().ok for _ in range(2))
            a.buffer[0] += 1  # What it leaves behind is the program's again.
            with pytest.raises(RaceError, match="h2 reads what"):
                watch.reads(b.mr[:1])
            fabric.run_for(0.001)
            watch.reads(b.mr[:length])


def test_a_region_goes_while_an_unreliable_write_is_on_its_way() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        uc = unreliable(fabric, a, b)
        fabric.watch_memory()
        near, far = a.pd.reg_mr(bytearray(100)), b.pd.reg_mr(bytearray(100))
        uc.post_send(hca.Write(near, remote=far.remote(), signaled=True))
        assert a.next().ok
        near.close()
        fabric.check()
        far.close()
        with pytest.raises(RaceError, match=r"h2: the region .* is deregistered"):
            fabric.check()


@pytest.mark.parametrize("length", [100, 1000])
@pytest.mark.parametrize("kind", [hca.QPType.UC, hca.QPType.RC])
def test_an_unreliable_write_and_another_overlap(length: int, kind: hca.QPType) -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        fabric.watch_memory()
        for qp in (unreliable(fabric, a, b), beside(fabric, a, b, kind)):
            qp.post_send(hca.Write(a.mr[:length], remote=b.mr.remote()[:length]))
        fabric.run_for(0.001)
        with pytest.raises(RaceError, match="neither knew"):
            fabric.check()


def test_unreliable_writes_that_have_left_overlap() -> None:
    """One of them arrives before the other, but was not there yet when that was posted."""
    with Fabric() as fabric:
        a, b = pair(fabric)
        qps = [unreliable(fabric, a, b) for _ in range(2)]
        fabric.watch_memory()
        for qp in qps:
            qp.post_send(hca.Write(a.mr[:100], remote=b.mr.remote()[:100], signaled=True))
            assert a.next().ok
        fabric.run_for(0.001)
        with pytest.raises(RaceError, match="neither knew"):
            fabric.check()
