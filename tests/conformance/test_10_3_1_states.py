"""IBTA Vol 1, 10.3.1: what each state of a queue pair allows, drains, flushes and forgets."""

from __future__ import annotations

import errno

import pytest

from softhca._adapter import EventType, QPState, QPType, WcStatus

from .host import Qp, errno_of, fetch_add, read, send, write
from .peer import ACK, NAK_INVALID, connect, rnr, to_state

S = QPState
SUCCESS, FLUSHED = WcStatus.SUCCESS, WcStatus.WR_FLUSH_ERR
PSN = 0x800


# --- what may be posted


@pytest.mark.parametrize(
    ("state", "to_send", "to_receive"),
    [
        (S.RESET, errno.EINVAL, errno.EINVAL),
        (S.INIT, errno.EINVAL, 0),
        (S.RTR, errno.EINVAL, 0),
        (S.RTS, 0, 0),
        (S.SQD, 0, 0),
        (S.ERR, 0, 0),
    ],
    ids=str,
)
def test_10_3_1_posting_by_state(host, state, to_send, to_receive):
    qp, _ = connect(host, state=state)
    assert errno_of(qp.post, send()) == to_send
    assert errno_of(qp.recv, host.memory(64).sge()) == to_receive
    assert qp.state == state


def test_10_3_1_posting_in_err_completes_as_flushed(host):
    qp, peer = connect(host, state=S.ERR)
    qp.post(send(wr_id=1), write(host.memory(64).sge(), wr_id=2, flags=0), read(wr_id=3))
    qp.recv(wr_id=11)
    qp.recv(wr_id=12)
    assert host.sends() == [(1, FLUSHED), (2, FLUSHED), (3, FLUSHED)]
    assert host.receives() == [(11, FLUSHED), (12, FLUSHED)]
    assert peer.take() == []


def test_10_3_1_posting_in_err_never_fills_the_queue(host):
    qp, _ = connect(host, state=S.ERR, max_send_wr=2, max_recv_wr=2)
    for number in range(10):
        qp.post(send(wr_id=number))
        qp.recv(wr_id=number)
    assert len(host.sends()) == len(host.receives()) == 10


# --- what is received


@pytest.mark.parametrize("state", [S.RESET, S.INIT, S.ERR], ids=str)
def test_10_3_1_packets_are_dropped_before_rtr_and_in_err(host, state):
    qp, peer = connect(host, state=state)
    if state == S.INIT:
        qp.recv(host.memory(64).sge())
    assert peer.request("SEND_ONLY", b"x", psn=0x100) != ""
    assert peer.answers() == []
    assert qp.counters()["rx_wrong_state"] == 1
    assert host.receives() == []
    assert qp.state == state


@pytest.mark.parametrize("state", [S.RTR, S.RTS, S.SQD], ids=str)
def test_10_3_1_the_responder_works_from_rtr_on(host, state):
    qp, peer = connect(host, state=state)
    memory = host.memory(64)
    qp.recv(memory.sge(0, 8), wr_id=1)
    peer.request("SEND_ONLY", b"received")
    fields = {"virtual_address": memory.address, "rkey": memory.rkey, "dma_length": 8}
    peer.request("RDMA_READ_REQUEST", **fields)
    assert peer.answers() == [(0x100, ACK), (0x101, "RDMA_READ_RESPONSE_ONLY", b"received")]
    assert host.receives() == [(1, SUCCESS)]


@pytest.mark.parametrize("qp_type", [QPType.RC, QPType.UC], ids=str)
def test_11_6_2_the_first_packet_in_rtr_raises_comm_est_once(host, qp_type):
    qp, peer = connect(host, qp_type, state=S.RTR)
    for _ in range(3):
        qp.recv(host.memory(64).sge())
        peer.request("SEND_ONLY")
    assert host.events() == [(EventType.COMM_EST, qp.qpn)]


def test_11_6_2_a_packet_in_rts_raises_no_comm_est(host):
    qp, peer = connect(host)
    qp.recv(host.memory(64).sge())
    peer.request("SEND_ONLY")
    assert host.events() == []


# --- SQD


def test_10_3_1_5_sqd_finishes_what_was_started_and_starts_nothing(host):
    qp, peer = connect(host)
    qp.post(send(wr_id=1), send(wr_id=2))
    assert len(peer.take()) == 2
    qp.modify(qp_state=S.SQD, en_sqd_async_notify=True)
    qp.post(send(wr_id=3))
    assert peer.take() == []
    assert qp.query().sq_draining
    peer.ack(PSN)
    assert host.events() == []
    assert qp.query().sq_draining
    peer.ack(PSN + 1)
    assert host.events() == [(EventType.SQ_DRAINED, qp.qpn)]
    assert not qp.query().sq_draining
    assert host.sends() == [(1, SUCCESS), (2, SUCCESS)]
    assert qp.state == S.SQD
    assert peer.take() == []
    qp.modify(qp_state=S.RTS)
    assert peer.requests() == [("SEND_ONLY", PSN + 2)]


def test_10_3_1_5_a_started_message_is_sent_to_its_end_in_sqd(host):
    qp, peer = connect(host, path_mtu=1)
    memory = host.memory(256 * 100)
    qp.post(write(memory.sge(), wr_id=1), send(wr_id=2))
    first = len(peer.take())
    assert first < 100
    qp.modify(qp_state=S.SQD, en_sqd_async_notify=True)
    sent = first
    while sent < 100:
        peer.ack(PSN + sent - 1)
        sent += len(peer.take())
    assert host.events() == []
    peer.ack(PSN + 99)
    assert host.events() == [(EventType.SQ_DRAINED, qp.qpn)]
    assert host.sends() == [(1, SUCCESS)]


def test_10_3_1_5_a_read_that_waits_for_another_is_not_started(host):
    qp, peer = connect(host, max_rd_atomic=1)
    memory = host.memory(64)
    qp.post(read(memory.sge(0, 8), wr_id=1), read(memory.sge(8, 8), wr_id=2))
    assert peer.requests() == [("RDMA_READ_REQUEST", PSN)]
    qp.modify(qp_state=S.SQD, en_sqd_async_notify=True)
    peer.response("RDMA_READ_RESPONSE_ONLY", PSN, bytes(8))
    assert host.events() == [(EventType.SQ_DRAINED, qp.qpn)]
    assert host.sends() == [(1, SUCCESS)]
    assert peer.requests() == []
    qp.modify(qp_state=S.RTS)
    assert peer.requests() == [("RDMA_READ_REQUEST", PSN + 1)]


def test_10_3_1_5_a_message_that_waits_for_the_window_is_not_started(host):
    qp, peer = connect(host, path_mtu=1, max_send_wr=128)
    memory = host.memory(257)
    qp.post(*(write(memory.sge(), wr_id=n) for n in range(100)))
    sent = len(peer.take())
    assert 0 < sent < 200
    started = (sent + 1) // 2
    qp.modify(qp_state=S.SQD, en_sqd_async_notify=True)
    peer.ack(PSN + sent - 1)
    rest = len(peer.take())
    assert sent + rest == 2 * started
    if rest:
        peer.ack(PSN + sent)
    assert host.events() == [(EventType.SQ_DRAINED, qp.qpn)]
    assert [wr_id for wr_id, _ in host.sends()] == list(range(started))


def test_10_3_1_5_lost_packets_are_repeated_in_sqd(host):
    qp, peer = connect(host)
    qp.post(send(wr_id=1))
    peer.take()
    qp.modify(qp_state=S.SQD, en_sqd_async_notify=True)
    host.advance(10**9)
    assert peer.requests() == [("SEND_ONLY", PSN)]
    peer.ack(PSN)
    assert host.events() == [(EventType.SQ_DRAINED, qp.qpn)]


def test_10_3_1_5_an_empty_queue_is_drained_at_once(host):
    qp, _ = connect(host)
    qp.modify(qp_state=S.SQD, en_sqd_async_notify=True)
    assert host.events() == [(EventType.SQ_DRAINED, qp.qpn)]


def test_10_3_1_5_without_the_wish_there_is_no_event(host):
    qp, _ = connect(host)
    qp.modify(qp_state=S.SQD)
    assert host.events() == []
    assert not qp.query().sq_draining


def test_10_3_1_5_the_wish_for_an_event_holds_for_one_drain(host):
    qp, _ = connect(host)
    qp.modify(qp_state=S.SQD, en_sqd_async_notify=True)
    qp.modify(qp_state=S.RTS)
    host.events()
    qp.modify(qp_state=S.SQD, en_sqd_async_notify=False)
    assert host.events() == []


def test_10_3_1_5_leaving_sqd_before_it_is_drained_ends_the_drain(host):
    qp, peer = connect(host)
    qp.post(send(wr_id=1))
    peer.take()
    qp.modify(qp_state=S.SQD, en_sqd_async_notify=True)
    qp.modify(qp_state=S.RTS)
    assert not qp.query().sq_draining
    peer.ack(PSN)
    assert host.events() == []
    assert host.sends() == [(1, SUCCESS)]


def test_10_3_1_5_attributes_changed_in_sqd_hold_afterwards(host):
    qp, peer = connect(host, retry_cnt=7)
    qp.modify(qp_state=S.SQD)
    qp.modify(qp_state=S.SQD, retry_cnt=0, timeout=12, max_rd_atomic=1)
    qp.modify(qp_state=S.RTS)
    memory = host.memory(64)
    qp.post(read(memory.sge(0, 8)), read(memory.sge(8, 8)))
    assert len(peer.take()) == 1
    host.advance(10**9)
    assert host.sends() == [(0, WcStatus.RETRY_EXC_ERR), (0, FLUSHED)]


# --- SQE


@pytest.mark.parametrize("qp_type", [QPType.UC, QPType.UD], ids=str)
def test_10_3_1_6_a_local_error_of_an_unreliable_requester_leads_to_sqe(host, qp_type):
    """The send queue is flushed; the receive queue goes on; RTS may be entered again."""
    qp, peer = connect(host, qp_type)
    more = {}
    if qp_type == QPType.UD:
        more = {"ah": host.address_handle(), "remote_qpn": 0xABC, "remote_qkey": 0x1234}
        peer_fields = {"qkey": 0x1234, "source_qpn": 0xABC}
    else:
        peer_fields = {}
    memory = host.memory(256)
    qp.recv(memory.sge(), wr_id=20)
    qp.post(send(wr_id=1, **more), send((0, 8, 0xBAD00), wr_id=2, **more), send(wr_id=3, **more))
    assert len(peer.take()) == 1
    assert host.sends() == [(1, SUCCESS), (2, WcStatus.LOC_PROT_ERR), (3, FLUSHED)]
    assert qp.state == S.SQE
    qp.post(send(wr_id=4, **more))
    assert host.sends() == [(4, FLUSHED)]
    peer.request("SEND_ONLY", b"still received", **peer_fields)
    assert host.receives() == [(20, SUCCESS)]
    qp.modify(qp_state=S.RTS)
    qp.post(send(wr_id=5, **more))
    assert len(peer.take()) == 1
    assert host.sends() == [(5, SUCCESS)]


def test_10_3_1_6_a_reliable_requester_goes_to_err(host):
    qp, _ = connect(host)
    qp.recv(wr_id=20)
    qp.post(send((0, 8, 0xBAD00), wr_id=1))
    host.pump()
    assert qp.state == S.ERR
    assert host.receives() == [(20, FLUSHED)]


# --- ERR


def test_10_3_1_7_err_flushes_both_queues_in_order(host):
    qp, peer = connect(host)
    memory = host.memory(256)
    for number in range(5):
        qp.recv(memory.sge(), wr_id=number)
    qp.post(send(wr_id=10), read(memory.sge(0, 8), wr_id=11), send(wr_id=12, flags=0))
    peer.take()
    qp.modify(qp_state=S.ERR)
    assert host.sends() == [(10, FLUSHED), (11, FLUSHED), (12, FLUSHED)]
    assert host.receives() == [(number, FLUSHED) for number in range(5)]
    assert peer.take() == []


def test_10_3_1_7_a_receive_that_is_being_filled_is_flushed_first(host):
    qp, peer = connect(host, path_mtu=1)
    memory = host.memory(1024)
    for number in range(3):
        qp.recv(memory.sge(), wr_id=number)
    peer.request("SEND_FIRST", bytes(256))
    qp.modify(qp_state=S.ERR)
    assert host.receives() == [(number, FLUSHED) for number in range(3)]


def test_10_3_1_7_completions_that_were_there_stay_before_the_flushed_ones(host):
    qp, peer = connect(host)
    qp.post(send(wr_id=1), send(wr_id=2))
    peer.take()
    peer.ack(PSN)
    qp.modify(qp_state=S.ERR)
    assert host.sends() == [(1, SUCCESS), (2, FLUSHED)]


def test_10_3_1_7_answers_after_err_are_ignored(host):
    qp, peer = connect(host)
    memory = host.memory(64)
    qp.post(read(memory.sge(0, 8), wr_id=1))
    peer.take()
    qp.modify(qp_state=S.ERR)
    peer.response("RDMA_READ_RESPONSE_ONLY", PSN, b"too late")
    assert host.sends() == [(1, FLUSHED)]
    assert memory.bytes == bytes(64)


def test_10_3_1_7_err_while_waiting_for_a_receive_of_the_peer(host):
    qp, peer = connect(host)
    qp.post(send(wr_id=1))
    peer.take()
    peer.ack(PSN, rnr(12))
    qp.modify(qp_state=S.ERR)
    host.advance(10**10)
    assert peer.take() == []
    assert host.sends() == [(1, FLUSHED)]


def test_10_3_1_7_a_queue_pair_that_failed_reads_nothing_more_for_its_peer(host):
    """Who has been told that it failed may use the memory for something else."""
    qp, peer = connect(host, rq_psn=0)
    memory = host.memory(65536)
    qp.recv(wr_id=20)
    peer.request("SEND_ONLY")
    reth = {"virtual_address": memory.address, "rkey": memory.rkey, "dma_length": 65536}
    peer.request("RDMA_READ_REQUEST", **reth)
    peer.request("FETCH_ADD", psn=65, atomic_address=memory.address, atomic_rkey=memory.rkey)
    qp.post(send(wr_id=1))
    for _ in range(2):  # The acknowledgement, and the request of its own.
        assert host.hca.next_packet(host.now_ns) is not None
    assert peer.ack(PSN, NAK_INVALID) == ""
    assert qp.state == S.ERR
    assert host.sends() == [(1, WcStatus.REM_INV_REQ_ERR)]
    assert peer.take() == []
    assert memory.bytes == bytes(65536)


def test_10_3_1_7_a_queue_pair_that_failed_still_acknowledges_what_it_executed(host):
    qp, peer = connect(host, rq_psn=0)
    qp.recv(wr_id=20)
    qp.post(send(wr_id=1))
    peer.take()
    peer.request("SEND_ONLY")
    peer.ack(PSN, NAK_INVALID)
    assert qp.state == S.ERR
    assert host.receives() == [(20, SUCCESS)]
    assert peer.answers() == [(0, ACK)]


# --- RESET


def test_10_3_1_1_reset_empties_the_queues_without_completions(host):
    qp, peer = connect(host)
    memory = host.memory(256)
    qp.recv(memory.sge(), wr_id=1)
    qp.post(send(wr_id=2), fetch_add(memory.sge(0, 8), wr_id=3))
    peer.take()
    qp.modify(qp_state=S.RESET)
    host.advance(10**10)
    assert (host.sends(), host.receives(), peer.take()) == ([], [], [])


def test_10_3_1_1_completions_that_were_there_survive_reset(host):
    qp, peer = connect(host)
    qp.post(send(wr_id=1))
    peer.take()
    peer.ack(PSN)
    qp.modify(qp_state=S.RESET)
    assert host.sends() == [(1, SUCCESS)]


def test_10_3_1_1_after_reset_the_queue_pair_is_as_new_and_keeps_its_number(host):
    qp, peer = connect(host, path_mtu=1)
    number = qp.qpn
    memory = host.memory(1024)
    for wr_id in range(3):
        qp.recv(memory.sge(), wr_id=wr_id)
    peer.request("SEND_FIRST", bytes(256))
    qp.post(read(memory.sge(0, 8)))
    peer.take()
    qp.modify(qp_state=S.RESET)
    to_state(qp, S.RTS, path_mtu=1)
    assert qp.qpn == number
    # Neither the half message nor the receives nor the READ is left.
    peer.request("SEND_ONLY", b"x", psn=0x100)
    assert peer.answers() == [(0x100, rnr(12))]
    qp.recv(memory.sge(), wr_id=9)
    peer.request("SEND_ONLY", b"x", psn=0x100)
    (answer,) = peer.take()
    assert (answer.psn, answer.syndrome, answer.msn) == (0x100, ACK, 1)
    assert host.receives() == [(9, SUCCESS)]
    qp.post(*(send(wr_id=wr_id) for wr_id in range(64)))
    assert len(peer.take()) > 0


def test_10_3_1_1_a_queue_pair_counts_anew_after_reset_and_the_device_goes_on(host):
    qp, peer = connect(host)
    qp.post(send())
    peer.take()
    peer.ack(PSN)
    assert (qp.counters()["sent_pkts"], qp.counters()["rcvd_pkts"]) == (1, 1)
    qp.modify(qp_state=S.RESET)
    assert set(qp.counters().values()) == {0}
    to_state(qp, S.RTS, sq_psn=PSN)
    qp.post(send())
    assert len(peer.take()) == qp.counters()["sent_pkts"] == 1
    assert host.hca.counters()["sent_pkts"] == 2


def test_10_3_1_1_resources_of_reads_and_atomics_are_forgotten_by_reset(host):
    qp, peer = connect(host, rq_psn=5)
    memory = host.memory(64)
    fields = {"atomic_address": memory.address, "atomic_rkey": memory.rkey, "swap_add": 1}
    peer.request("FETCH_ADD", psn=5, **fields)
    peer.take()
    qp.modify(qp_state=S.RESET)
    to_state(qp, S.RTS, rq_psn=6)
    peer.request("FETCH_ADD", psn=5, **fields)
    assert peer.answers() == []
    assert memory.bytes[:8] == b"\x01" + bytes(7)


def test_10_3_1_1_the_attributes_that_were_queried_bring_it_back(host):
    """What query reports after RESET and before is enough to connect again."""
    qp, peer = connect(host, path_mtu=2, retry_cnt=5, min_rnr_timer=17)
    seen = qp.query()
    qp.modify(qp_state=S.RESET)
    qp.modify(
        qp_state=S.INIT,
        pkey_index=seen.pkey_index,
        port_num=seen.port_num,
        qp_access_flags=seen.qp_access_flags,
    )
    names = "ah_attr path_mtu dest_qp_num rq_psn max_dest_rd_atomic min_rnr_timer"
    qp.modify(qp_state=S.RTR, **{name: getattr(seen, name) for name in names.split()})
    names = "timeout retry_cnt rnr_retry sq_psn max_rd_atomic"
    qp.modify(qp_state=S.RTS, **{name: getattr(seen, name) for name in names.split()})
    qp.post(send())
    assert peer.requests() == [("SEND_ONLY", PSN)]


def test_10_2_4_destroy_takes_its_completions_out_of_the_queue(host):
    """What was not polled disappears; that of other queue pairs stays, in order."""
    one, peer_one = connect(host, peer_qpn=0x11)
    two, peer_two = connect(host, peer_qpn=0x22)
    for turn in range(3):
        for qp, peer, base in ((one, peer_one, 10), (two, peer_two, 20)):
            qp.post(send(wr_id=base + turn))
            peer.take()
            peer.ack(PSN + turn)
            qp.recv(host.memory(64).sge(), wr_id=base + turn)
            peer.request("SEND_ONLY")
    one.destroy()
    assert host.sends() == [(20 + turn, SUCCESS) for turn in range(3)]
    assert host.receives() == [(20 + turn, SUCCESS) for turn in range(3)]


def test_10_2_4_what_is_outstanding_vanishes_with_the_queue_pair(host):
    qp, peer = connect(host)
    qp.recv(host.memory(64).sge())
    qp.post(send(wr_id=1))
    peer.take()
    qp.destroy()
    host.advance(10**10)
    assert (host.sends(), host.receives(), peer.take()) == ([], [], [])
    assert peer.ack(PSN) != ""


def test_12_9_8_a_queue_pair_number_is_not_used_again_at_once(host):
    """Packets on their way to the old queue pair must not meet a new one."""
    seen = set()
    for _ in range(200):
        qp = Qp(host)
        assert qp.qpn not in seen
        assert 1 < qp.qpn < 0xFFFFFF
        seen.add(qp.qpn)
        qp.destroy()


def test_11_2_5_query_gives_every_attribute_whatever_the_state(host):
    qp, _ = connect(host, path_mtu=4, timeout=17, retry_cnt=6, rnr_retry=5, max_rd_atomic=7)
    attr = qp.query()
    assert (attr.qp_state, attr.cur_qp_state) == (S.RTS, S.RTS)
    assert (attr.path_mtu, attr.timeout, attr.retry_cnt, attr.rnr_retry) == (4, 17, 6, 5)
    assert attr.max_rd_atomic >= 7
    assert attr.dest_qp_num == 0xABC
    assert (attr.cap.max_send_wr, attr.cap.max_recv_wr) == (64, 64)
