"""What is checked in every run: traces that were doctored do not pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

import softhca as hca
from softhca.testing import Fabric, InvariantError, Record, What, check_invariants
from softhca.testing.invariants import Invariants

from .ends import End, connected, pair

Doctor = Callable[[list[Record]], Iterable[Record]]

LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC = 1, 2, 4, 8


def good_run() -> list[Record]:
    """A SEND, a WRITE, a READ and an atomic between two hosts."""
    with Fabric(seed=1) as fabric:
        a, b = pair(fabric)
        b.qp.post_recv(hca.Recv(b.mr[:100]))
        a.buffer[:100] = bytes(range(100))
        remote = b.mr.remote()
        a.qp.post_send(
            [
                hca.Send(a.mr[:100], signaled=True),
                hca.Write(a.mr[:50], remote=remote[1000:1050], signaled=True),
                hca.Read(a.mr[200:300], remote=remote[:100], signaled=True),
                hca.FetchAdd(a.mr[400:408], remote=remote[2000:2008], add=3, signaled=True),
            ]
        )
        for _ in range(4):
            assert a.next().ok
        assert b.next().ok
        return list(fabric.trace)


def of_keys(change: Callable[[Record], Record]) -> Doctor:
    """Changes what the responder registered."""
    return lambda rs: [change(r) if r.what is What.KEY and r.host == 1 else r for r in rs]


def without_right(right: int) -> Doctor:
    return of_keys(lambda r: replace(r, b=r.b & ~right))


def shorter(r: Record) -> Record:
    return replace(r, data=(1024).to_bytes(8, "big") + r.data[8:])


def in_another_domain(r: Record) -> Record:
    return replace(r, data=r.data[:8] + (77).to_bytes(4, "big") + r.data[12:])


def gone_too_early(rs: list[Record]) -> list[Record]:
    """The responder's region is deregistered before the first packet comes."""
    key = next(r for r in rs if r.what is What.KEY and r.host == 1)
    first = next(i for i, r in enumerate(rs) if r.what is What.SENT)
    return [*rs[:first], replace(key, data=b""), *rs[first:]]


def of_responder_rights(right: int) -> Doctor:
    def change(r: Record) -> Record:
        is_it = r.what is What.STATE and r.host == 1 and r.b != 255
        return replace(r, a=r.a & ~(right << 8)) if is_it else r

    return lambda rs: [change(r) for r in rs]


def written_elsewhere(rs: list[Record]) -> list[Record]:
    """The WRITE lands 8 bytes behind what it asked for."""
    packet = next(r.packet for r in rs if r.what is What.SENT and r.data[0] == 0x0A)
    return [replace(r, a=r.a + 8) if r.what is What.WRITE and r.packet == packet else r for r in rs]


def test_a_good_run_passes() -> None:
    check_invariants(good_run())


@pytest.mark.parametrize(
    ("doctor", "says"),
    [
        (without_right(REMOTE_WRITE), "writes by a key without REMOTE_WRITE"),
        (without_right(REMOTE_ATOMIC), "writes by a key without REMOTE_ATOMIC"),
        (without_right(REMOTE_READ), "reads without REMOTE_READ"),
        (without_right(LOCAL_WRITE), "lands by a key that gives no right to write"),
        (of_responder_rights(REMOTE_WRITE), "for a queue pair without REMOTE_WRITE"),
        (of_responder_rights(REMOTE_READ), "reads without REMOTE_READ"),
        (of_keys(shorter), "beyond its key"),
        (of_keys(in_another_domain), "in another protection domain"),
        (gone_too_early, "which stands for nothing"),
        (written_elsewhere, "which was not asked for"),
    ],
)
def test_bytes_outside_rights(doctor: Doctor, says: str) -> None:
    with pytest.raises(InvariantError, match=says):
        check_invariants(doctor(good_run()))


def test_more_reads_than_were_agreed() -> None:
    with Fabric(seed=1) as fabric:
        a, b = pair(fabric, max_rd_atomic=4, max_dest_rd_atomic=4)
        read = hca.Read(a.mr[:100], remote=b.mr.remote()[:100], signaled=True)
        a.qp.post_send([read] * 8)
        for _ in range(8):
            assert a.next().ok
        records = list(fabric.trace)
    check_invariants(records)
    rts = [r for r in records if r.what is What.STATE and r.b == hca.QPState.RTS]
    assert [r.number for r in rts] == [4, 4]
    with pytest.raises(InvariantError, match="asks for 4 READs and atomics at once, of 3"):
        check_invariants([replace(r, number=3) if r in rts else r for r in records])


@pytest.mark.parametrize(
    ("leave_out", "says"),
    [
        (lambda r: r.what is What.POST and not r.b & 256, "slots for"),
        (lambda r: r.what is What.COMPLETION and r.b & 256, "receives of"),
    ],
)
def test_slots_that_were_lost(leave_out: Callable[[Record], bool], says: str) -> None:
    with Fabric(seed=1) as fabric:
        a, b = pair(fabric)
        b.qp.post_recv(hca.Recv(b.mr[:10]))
        a.qp.post_send(hca.Send(a.mr[:10], signaled=True))
        assert a.next().ok
        a.qp.post_send(hca.Send(a.mr[:10], signaled=True))  # Nobody receives it.
        checker = Invariants()
        checker.check(fabric.trace)
        checker.balance(fabric.devices)
        assert checker.violations == []
        doctored = Invariants()
        doctored.check(r for r in fabric.trace if not leave_out(r))
        doctored.violations.clear()
        doctored.balance(fabric.devices)
        assert any(says in line for line in doctored.violations), doctored.violations


def test_resources_of_the_responder_are_counted() -> None:
    with Fabric(seed=1) as fabric:
        a, b = pair(fabric, max_dest_rd_atomic=5)
        a.qp.post_send(hca.Read(a.mr[:10], remote=b.mr.remote()[:10], signaled=True))
        assert a.next().ok
        _, _, resources, answering, answers = b.device.adapter.qp_load(b.qp.qpn)
        assert (resources, answering, answers) == (5, 0, 0)
        doctored = Invariants()
        is_rtr = lambda r: r.what is What.STATE and r.b == hca.QPState.RTR  # noqa: E731
        doctored.check(replace(r, number=6) if is_rtr(r) else r for r in fabric.trace)
        doctored.balance(fabric.devices)
        assert any("has 5 responder resources of 6" in line for line in doctored.violations)


def test_requests_of_the_same_name_are_no_imbalance() -> None:
    with Fabric(seed=1) as fabric:
        a, b = pair(fabric)
        bad = hca.RemoteMemory(1, b.mr.rkey, 10)
        a.qp.post_send([hca.Write(a.mr[:10], remote=b.mr.remote()[:10])])
        a.qp.post_send([hca.Write(a.mr[:10], remote=bad), hca.Send(a.mr[:10], signaled=True)])
        statuses = [a.next().status for _ in range(2)]
        assert statuses == [hca.WcStatus.REM_ACCESS_ERR, hca.WcStatus.WR_FLUSH_ERR]


@pytest.mark.parametrize("seed", range(1, 6))
def test_xrc_is_held_to_the_same(seed: int) -> None:
    with Fabric(seed) as fabric:
        a, b = pair(fabric)
        fabric.faults.drop(probability=0.1)
        fabric.faults.duplicate(probability=0.2)
        xrcd = b.device.alloc_xrcd()
        srq = xrcd.create_srq(b.pd, b.cq, max_wr=8)
        target = xrcd.create_qp()
        qp = a.pd.create_qp(hca.QPType.XRC_SEND, send_cq=a.cq)
        qp.connect(target.info(), timeout=8)
        target.connect(qp.info(), timeout=8)
        srq.post_recv([hca.Recv(b.mr[:100], wr_id=n) for n in range(8)])
        word = b.mr.remote()[200:208]
        for _ in range(8):
            qp.post_send(
                [
                    hca.Write(a.mr[:50], remote=b.mr.remote()[300:350], srqn=srq.srqn),
                    hca.FetchAdd(a.mr[100:108], remote=word, add=1, srqn=srq.srqn),
                    hca.MaskedFetchAdd(
                        a.mr[100:108], remote=word, add=1, boundary=0, srqn=srq.srqn
                    ),
                    hca.Send(a.mr[:50], srqn=srq.srqn, signaled=True),
                ]
            )
            assert a.next().ok
            assert b.next().ok
        records = list(fabric.trace)
    check_invariants(records)
    with pytest.raises(InvariantError, match="before its data are in memory"):
        check_invariants(r for r in records if r.what is not What.WRITE)
    atomics = {r.packet for r in records if r.what is What.SENT and r.data[0] & 31 in (0x13, 0x14)}
    twice: list[Record] = []
    for record in records:
        twice.append(record)
        if record.packet in atomics:  # As if another packet had asked for it once more.
            twice.append(replace(record, packet=record.packet + 1_000_000))
    with pytest.raises(InvariantError, match="executes the atomic of PSN"):
        check_invariants(twice)


def test_masked_atomics_are_of_a_reliable_connection() -> None:
    with Fabric(seed=1) as fabric:
        a, b = pair(fabric)
        remote = b.mr.remote()
        masked = hca.MaskedFetchAdd(
            a.mr[400:408], remote=remote[2000:2008], add=3, boundary=0, signaled=True
        )
        a.qp.post_send([hca.Write(a.mr[:50], remote=remote[1000:1050]), masked])
        assert a.next().ok
        check_invariants(fabric.trace)


def test_receives_belong_to_the_domain_of_their_shared_queue() -> None:
    with Fabric(seed=1) as fabric:
        near, far = fabric.hosts(2)
        a = fabric.keep(End(near, 4096))
        own, other, cq = far.alloc_pd(), far.alloc_pd(), far.create_cq(16)
        srq, mr = other.create_srq(max_wr=8), other.reg_mr(bytearray(4096))
        qp = own.create_qp(hca.QPType.RC, send_cq=cq, recv_cq=cq, srq=srq)
        a.qp.connect(qp.info())
        qp.connect(a.qp.info())
        srq.post_recv(hca.Recv(mr[:100]))
        a.qp.post_send(hca.Send(a.mr[:50], signaled=True))
        assert a.next().ok
        check_invariants(fabric.trace)
        for opened in (qp, srq, mr, cq, own, other):
            opened.close()


def test_an_atomic_write_may_wait_for_its_turn() -> None:
    with Fabric(seed=1) as fabric:
        a, b = pair(fabric, max_rd_atomic=4, max_dest_rd_atomic=4)
        remote = b.mr.remote()
        a.buffer[:8] = b"12345678"
        a.qp.post_send(
            [
                hca.Read(a.mr[8:20008], remote=remote[:20000]),
                hca.AtomicWrite(a.mr[:8], remote=remote[2000:2008]),
                hca.Write(a.mr[:8], remote=remote[:8], signaled=True),
            ]
        )
        assert a.next().ok
        check_invariants(fabric.trace)


def test_a_type_1_window_is_for_every_queue_pair_of_its_domain() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        window = fabric.keep(b.pd.alloc_mw(hca.MwType.TYPE_1))
        rights = hca.Access.LOCAL_WRITE | hca.Access.MW_BIND
        mr = fabric.keep(b.pd.reg_mr(bytearray(100), access=rights))
        bind = hca.BindInfo.of(mr, hca.Access.REMOTE_WRITE)
        other = fabric.keep(End(b.device, 4096))
        # By a queue pair of the same domain that no peer ever sends to.
        binds = fabric.keep(b.pd.create_qp(hca.QPType.RC, send_cq=b.cq, recv_cq=b.cq))
        binds.connect(other.qp.info())
        remote = binds.bind_mw(window, bind, signaled=True)
        assert b.next().ok
        a.qp.post_send(hca.Write(a.mr[:100], remote=remote, signaled=True))
        assert a.next().ok
        fabric.check()


def test_a_read_is_answered_by_many_packets() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric, path_mtu=hca.Mtu.MTU_256)
        a.qp.post_send(hca.Read(a.mr[:60_000], remote=b.mr.remote()[:60_000], signaled=True))
        assert a.next().ok
        fabric.check()


def test_a_host_that_does_not_look_at_the_icrc_takes_damage() -> None:
    """What comes of it is not the transport's fault."""
    with Fabric() as fabric:
        a, b = connected(fabric, *fabric.hosts(2, icrc="off"))
        fabric.faults.corrupt("payload", opcode="RC_RDMA_WRITE_ONLY")
        a.qp.post_send(hca.Write(a.mr[:8], remote=b.mr.remote(), signaled=True))
        assert a.next().ok
        assert b.buffer[:8] != a.buffer[:8]
        fabric.check()
