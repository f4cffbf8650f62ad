"""What callbacks keep alive, until when, and what becomes of them when nothing comes."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from typing import Any

import pytest

import softhca as hca
from softhca import PollContext, QPState, QPType
from softhca.testing import open_simulated

from .callbacks import Note, Told, kept, no_connection, passes, to_itself
from .hosts import Host, Pair


def connected(
    pair: Pair, near_cq: hca.CQ, far_cq: hca.CQ, timeout: int = 16, **options: Any
) -> tuple[hca.QP, hca.QP]:
    """Two queue pairs that complete where they are told to."""
    near = pair.a.qp(send_cq=near_cq, recv_cq=near_cq, **options)
    far = pair.b.qp(send_cq=far_cq, recv_cq=far_cq, **options)
    near.connect(far.info(), timeout=timeout)
    far.connect(near.info())
    return near, far


def direct_cq(host: Host) -> hca.CallbackCQ:
    return host.keep(host.device.alloc_cq(1024, poll_context=PollContext.DIRECT))


def process(pair: Pair, cq: hca.CallbackCQ, told: Told, count: int) -> None:
    """Lets packets pass until so many callbacks have run."""

    def enough() -> bool:
        cq.process_direct()
        return len(told.wr_ids) >= count

    pair.until(enough)


def test_a_work_request_lives_until_its_callback(pair: Pair) -> None:
    cq = direct_cq(pair.a)
    near, _ = connected(pair, cq, pair.b.cq)
    told = Told()
    note = Note(told)
    wr = hca.Write(pair.a.mr[:8], remote=pair.b.mr.remote(), cqe=note, signaled=True)
    lives = weakref.ref(note)
    references = sys.getrefcount(wr)
    near.post_send(wr)
    assert sys.getrefcount(wr) == references + 1
    del note
    process(pair, cq, told, 1)
    assert sys.getrefcount(wr) == references
    assert lives() is not None
    del wr
    assert lives() is None


def test_unsignaled_work_is_let_go_by_the_next_success(pair: Pair) -> None:
    cq = direct_cq(pair.a)
    near, _ = connected(pair, cq, pair.b.cq, max_send_wr=64)
    told = Told()
    adapter = pair.a.device.adapter
    remote = pair.b.mr.remote()
    for round_number in range(200):
        notes = [Note(told) for _ in range(40)]
        lives = [weakref.ref(note) for note in notes]
        for index, note in enumerate(notes):
            last = index == 39
            near.post_send(
                hca.Write(pair.a.mr[:8], remote=remote, cqe=note, signaled=last, wr_id=round_number)
            )
        del note, notes
        process(pair, cq, told, round_number + 1)
        assert adapter.cqes_under_way == 0
        assert all(life() is None for life in lives)
    assert told.wr_ids == list(range(200))
    assert told.forgotten == 0


def test_threads_that_post_at_once_leak_nothing() -> None:
    with hca.open() as device:
        pd = device.alloc_pd()
        cq = device.alloc_cq(4096)
        near, _ = to_itself(pd, cq, max_send_wr=256)
        buffer = bytearray(64)
        mr = pd.reg_mr(buffer)
        told = Told()
        room = threading.Semaphore(128)

        def post() -> None:
            note = Note(told, lambda *_: room.release(2))
            quiet = Note(told)
            write = hca.Write(mr[:8], remote=mr.remote(), cqe=quiet, signaled=False)
            for _ in range(500):
                room.acquire()
                room.acquire()
                near.post_send(write)
                near.post_send(hca.Write(mr[8:16], remote=mr.remote(), cqe=note, signaled=True))

        threads = [threading.Thread(target=post) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        told.wait(2000)
        # One more, which nobody races with, tells of all before it.
        near.post_send(hca.Write(mr[:8], remote=mr.remote(), cqe=Note(told), signaled=True))
        told.wait(2001)
        assert device.adapter.cqes_under_way == 0
        assert told.forgotten == 0


def test_what_is_refused_is_not_kept(host: Host) -> None:
    cq = direct_cq(host)
    qp = host.qp(send_cq=cq, recv_cq=cq, max_recv_wr=2)
    qp.modify(qp_state=QPState.INIT, pkey_index=0, port_num=1, qp_access_flags=0)
    note = Note(Told())
    references = sys.getrefcount(note)
    with pytest.raises(hca.VerbsError, match="max_recv_wr"):
        qp.post_recv([hca.Recv(cqe=note) for _ in range(5)])
    gc.collect()
    assert host.device.adapter.cqes_under_way == 2
    assert sys.getrefcount(note) == references + 4  # Two entries, and their work requests.


def test_reset_forgets_what_vanished_and_leaves_what_waits(pair: Pair) -> None:
    cq = direct_cq(pair.a)
    # It waits for ever for the answer that will not come.
    near, far = connected(pair, cq, pair.b.cq, timeout=0, max_recv_wr=16, max_send_wr=16)
    told = Told()
    for wr_id in range(6):
        near.post_recv(hca.Recv(pair.a.mr[:64], cqe=Note(told), wr_id=wr_id))
    far.post_send([hca.Send(pair.b.mr[:8]), hca.Send(pair.b.mr[:8], signaled=True)])
    pair.completion(pair.b)
    # Two completions wait; four receives are posted, and so is a send that nobody will answer.
    far.close()
    near.post_send(hca.Send(pair.a.mr[:8], cqe=Note(told), wr_id=10, signaled=True))
    near.modify(qp_state=QPState.RESET)
    assert told.forgotten == 5
    assert told.wr_ids == []
    cq.process_direct()
    assert told.wr_ids == [0, 1]
    assert pair.a.device.adapter.cqes_under_way == 0


def test_reset_in_a_callback_leaves_what_its_thread_has_polled(host: Host) -> None:
    cq = direct_cq(host)
    qp = no_connection(host.pd, cq)
    told = Told()

    def reset(*_: object) -> None:
        if qp.state is QPState.ERR:
            qp.modify(qp_state=QPState.RESET)

    qp.post_recv([hca.Recv(cqe=Note(told, reset), wr_id=wr_id) for wr_id in range(30)])
    assert cq.process_direct() == 30
    assert told.wr_ids == list(range(30))
    assert told.forgotten == 0


def test_destroying_forgets_everything(pair: Pair) -> None:
    cq = direct_cq(pair.a)
    near, far = connected(pair, cq, pair.b.cq, max_recv_wr=16)
    told = Told()
    near.post_recv([hca.Recv(pair.a.mr[:64], cqe=Note(told)) for _ in range(6)])
    far.post_send(hca.Send(pair.b.mr[:8], signaled=True))
    pair.completion(pair.b)
    near.close()
    assert told.forgotten == 6
    assert cq.process_direct() == 0
    assert pair.a.device.adapter.cqes_under_way == 0


def test_a_forgotten_that_raises_costs_nothing_else(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: reports.append(report.exc_value))
    told = Told()

    class Sour(Note):
        def forgotten(self) -> None:
            super().forgotten()
            raise RuntimeError("sour")

    cq = direct_cq(host)
    qp = host.qp(send_cq=cq, recv_cq=cq)
    qp.modify(qp_state=QPState.INIT, pkey_index=0, port_num=1, qp_access_flags=0)
    qp.post_recv(hca.Recv(cqe=Sour(told)))
    qp.close()
    assert qp.closed
    assert told.forgotten == 1
    assert [str(error) for error in reports] == ["sour"]


def shared_receives(pair: Pair, cq: hca.CQ) -> tuple[hca.SRQ, hca.QP, hca.QP]:
    """An SRQ on the first host, and a queue pair of it that the second one sends to."""
    srq = pair.a.keep(pair.a.pd.create_srq(max_wr=64))
    near = pair.a.qp(send_cq=cq, recv_cq=cq, srq=srq)
    far = pair.b.qp(max_send_wr=64)
    near.connect(far.info())
    far.connect(near.info())
    return srq, near, far


def test_receives_of_an_srq_call_back(pair: Pair) -> None:
    cq = direct_cq(pair.a)
    srq, near, far = shared_receives(pair, cq)
    told = Told()
    for wr_id in range(10):
        srq.post_recv(hca.Recv(pair.a.mr[:64], cqe=Note(told), wr_id=wr_id))
    far.post_send([hca.Send(pair.b.mr[:8])] * 7 + [hca.Send(pair.b.mr[:8], signaled=True)])
    process(pair, cq, told, 8)
    assert told.wr_ids == list(range(8))
    near.close()
    assert told.forgotten == 0
    srq.close()
    assert told.forgotten == 2


def test_receives_of_an_srq_go_with_the_queue_pair_that_took_them(pair: Pair) -> None:
    cq = direct_cq(pair.a)
    srq, near, far = shared_receives(pair, cq)
    told = Told()
    for wr_id in range(10):
        srq.post_recv(hca.Recv(pair.a.mr[:64], cqe=Note(told), wr_id=wr_id))
    far.post_send([hca.Send(pair.b.mr[:8])] * 3 + [hca.Send(pair.b.mr[:8], signaled=True)])
    pair.completion(pair.b)
    near.close()
    assert told.forgotten == 4
    assert pair.a.device.adapter.cqes_under_way == 6
    assert cq.process_direct() == 0
    srq.close()
    assert told.forgotten == 10


@pytest.mark.parametrize("ends", ["close", "reset"])
def test_a_receive_of_an_srq_that_a_message_was_filling(simulated: Pair, ends: str) -> None:
    pair, wire = simulated, simulated.wire
    assert wire is not None
    cq = direct_cq(pair.a)
    srq, near, far = shared_receives(pair, cq)
    told = Told()
    srq.post_recv([hca.Recv(pair.a.mr[:], cqe=Note(told)) for _ in range(2)])
    wire.hook = lambda flying: [flying] if len(wire.sent) <= 3 else []
    far.post_send(hca.Send(pair.b.mr[:40000]))
    wire.run_for(10_000)
    assert len(wire.sent) > 3
    if ends == "close":
        near.close()
    else:
        near.modify(qp_state=QPState.RESET)
    assert cq.process_direct() == 0
    assert told.forgotten == 1
    assert pair.a.device.adapter.cqes_under_way == 1


def test_receives_of_an_srq_that_were_polled_when_their_queue_pair_went(pair: Pair) -> None:
    cq = direct_cq(pair.a)
    srq, near, far = shared_receives(pair, cq)
    told = Told()
    for wr_id in range(10):
        note = Note(told, lambda *_: near.close())
        srq.post_recv(hca.Recv(pair.a.mr[:64], cqe=note, wr_id=wr_id))
    far.post_send([hca.Send(pair.b.mr[:8])] * 5 + [hca.Send(pair.b.mr[:8], signaled=True)])
    pair.completion(pair.b)
    process(pair, cq, told, 1)
    assert told.wr_ids == [0]
    assert told.forgotten == 5
    assert pair.a.device.adapter.cqes_under_way == 4


def test_receives_of_an_srq_that_were_polled_when_their_queue_was_freed(simulated: Pair) -> None:
    pair = simulated
    cq = pair.a.device.alloc_cq(1024)
    srq, near, far = shared_receives(pair, cq)
    told = Told()
    for wr_id in range(4):
        srq.post_recv(hca.Recv(pair.a.mr[:64], cqe=Note(told), wr_id=wr_id))
    far.post_send([hca.Send(pair.b.mr[:8]), hca.Send(pair.b.mr[:8], signaled=True)])
    crew = pair.a.device._crews().of(cq.poll_context, cq.comp_vector)

    def meanwhile(handle: int) -> None:
        """Another thread has the interpreter, between the poll and the first callback."""
        near.close()
        cq.close()

    crew._queue_of = meanwhile
    pair.until(lambda: cq.closed)
    assert told.wr_ids == []
    assert told.forgotten == 2
    srq.close()
    assert told.forgotten == 4


def test_xrc_receives_call_back(pair: Pair) -> None:
    cq = direct_cq(pair.b)
    xrcd = pair.b.keep(pair.b.device.alloc_xrcd())
    srq = pair.b.keep(xrcd.create_srq(pair.b.pd, cq, max_wr=16))
    sender = pair.a.qp(QPType.XRC_SEND)
    target = pair.b.keep(xrcd.create_qp())
    sender.connect(target.info(srqn=srq.srqn))
    target.connect(sender.info())
    told = Told()
    for wr_id in range(6):
        srq.post_recv(hca.Recv(pair.b.mr[:64], cqe=Note(told), wr_id=wr_id))
    send = hca.Send(pair.a.mr[:8], srqn=srq.srqn)
    sender.post_send([send] * 2 + [hca.Send(pair.a.mr[:8], srqn=srq.srqn, signaled=True)])
    process(pair, cq, told, 3)
    assert told.wr_ids == [0, 1, 2]
    pair.completion(pair.a)
    sender.post_send(hca.Send(pair.a.mr[:8], srqn=srq.srqn, signaled=True))
    pair.completion(pair.a)
    target.close()
    assert told.forgotten == 1
    assert cq.process_direct() == 0
    srq.close()
    assert told.forgotten == 3


def test_numbers_of_all_signaled_queue_pairs_are_not_kept(host: Host) -> None:
    """A queue pair whose number was of an all-signaled one before it is not taken for one."""
    cq = direct_cq(host)
    for _ in range(20):
        host.pd.create_qp(QPType.RC, send_cq=cq, recv_cq=cq, sq_sig_all=True).close()


def test_a_callback_that_keeps_its_completion_is_collected(pair: Pair) -> None:
    class Keeper(hca.Cqe):
        def done(self, cq: hca.CQ, wc: hca.WC) -> None:
            self.wc = wc

    cq = direct_cq(pair.a)
    near, _ = connected(pair, cq, pair.b.cq)
    keeper = Keeper()
    near.post_send(hca.Write(pair.a.mr[:8], remote=pair.b.mr.remote(), cqe=keeper, signaled=True))
    pair.until(lambda: cq.process_direct() > 0)
    assert keeper.wc.cqe is keeper
    life = weakref.ref(keeper)
    del keeper
    gc.collect()
    assert life() is None


def test_a_forsaken_device_is_collected_with_what_it_had_posted() -> None:
    """Posted work holds callbacks, and callbacks may hold the device."""

    class Holder(hca.Cqe):
        def __init__(self, *held: object) -> None:
            super().__init__()
            self.held = held

    device = open_simulated("10.0.0.1")
    pd = device.alloc_pd()
    cq = device.alloc_cq(16, poll_context=PollContext.DIRECT)
    qp = pd.create_qp(QPType.RC, send_cq=cq, recv_cq=cq)
    qp.modify(qp_state=QPState.INIT, pkey_index=0, port_num=1, qp_access_flags=0)
    qp.post_recv(hca.Recv(cqe=Holder(device, pd, cq, qp)))
    life = weakref.ref(device)
    with pytest.warns(ResourceWarning):
        del device, pd, cq, qp
        gc.collect()
    assert life() is None


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_queues_that_are_forgotten_while_their_callbacks_run() -> None:
    with hca.open() as device:
        pd = device.alloc_pd()
        told = Told()
        inside, leave = threading.Event(), threading.Event()

        def wait(*_: object) -> None:
            inside.set()
            passes(leave)

        cq = device.alloc_cq(64)
        qp = no_connection(pd, cq)
        for wr_id in range(40):
            qp.post_recv(hca.Recv(cqe=Note(told, wait), wr_id=wr_id))
        assert passes(inside)
        kept.clear()
        life = weakref.ref(qp)
        del qp, cq
        gc.collect()
        assert life() is None
        leave.set()
        told.wait(1)
        again = Told()
        other = no_connection(pd, device.alloc_cq(4))
        other.post_recv(hca.Recv(cqe=Note(again)))
        again.wait(1)
        assert told.wr_ids == [0]
        assert told.forgotten == 39
