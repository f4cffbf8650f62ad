"""IBTA Vol 1, 9.7.6 and 9.9.2: time-outs, sequence errors, and the count that limits them."""

from __future__ import annotations

import pytest

from softhca._adapter import QPState, WcStatus

from .host import MS, pattern, read, send, write
from .peer import NAK_SEQUENCE, connect, rnr

SUCCESS = WcStatus.SUCCESS
PSN = 0x800
TIMEOUT_CODE = 14
TIMEOUT_NS = 4096 << TIMEOUT_CODE


def time_out(host) -> None:
    """Lets exactly the ACK timer run out."""
    deadline = host.hca.next_deadline_ns
    assert deadline is not None
    host.advance(deadline - host.now_ns)


def test_9_7_6_the_oldest_unacknowledged_is_repeated_after_the_time_out(host):
    qp, peer = connect(host)
    qp.post(*(send(wr_id=number) for number in range(3)))
    peer.take()
    peer.ack(PSN)
    host.advance(TIMEOUT_NS - 1)
    assert peer.requests() == []
    host.advance(1)
    assert peer.requests() == [("SEND_ONLY", PSN + 1), ("SEND_ONLY", PSN + 2)]
    assert qp.counters()["local_ack_timeout_err"] == 1


@pytest.mark.parametrize("code", [1, 8, 12, 14, 20, 31])
def test_9_7_6_the_time_out_is_never_shorter_than_4096_ns_times_2_to_the_code(host, code):
    qp, peer = connect(host, timeout=code)
    qp.post(send())
    peer.take()
    host.advance((4096 << code) - 1)
    assert peer.requests() == []
    # And not longer than four times that, nor than a minimum that suits software.
    host.advance(max(3 * (4096 << code), 100 * MS))
    assert peer.requests() == [("SEND_ONLY", PSN)]


def test_9_7_6_time_out_0_waits_for_ever(host):
    qp, peer = connect(host, timeout=0)
    qp.post(send())
    peer.take()
    assert host.hca.next_deadline_ns is None
    host.advance(3600 * 1000 * MS)
    assert peer.requests() == []
    peer.ack(PSN)
    assert host.sends() == [(0, SUCCESS)]


@pytest.mark.parametrize("retry_cnt", [0, 1, 3, 7])
def test_9_9_2_retries_are_exceeded_after_exactly_retry_cnt_of_them(host, retry_cnt):
    qp, peer = connect(host, retry_cnt=retry_cnt)
    qp.post(send(wr_id=7))
    attempts = len(peer.take())
    while qp.state == QPState.RTS:
        time_out(host)
        attempts += len(peer.take())
    assert attempts == 1 + retry_cnt
    assert host.sends() == [(7, WcStatus.RETRY_EXC_ERR)]
    assert qp.counters()["retry_exceeded_err"] == 1
    assert host.hca.next_deadline_ns is None


def test_9_9_2_any_progress_restores_the_retry_count(host):
    """Otherwise a long transfer on a lossy path would die of its accumulated losses."""
    qp, peer = connect(host, retry_cnt=2)
    qp.post(*(send(wr_id=number) for number in range(10)))
    peer.take()
    for number in range(10):
        for _ in range(2):
            time_out(host)
            assert peer.take()
        peer.ack(PSN + number)
    assert host.sends() == [(number, SUCCESS) for number in range(10)]
    assert qp.state == QPState.RTS
    assert qp.counters()["local_ack_timeout_err"] == 20


def test_9_9_2_a_read_response_is_progress_too(host):
    qp, peer = connect(host, retry_cnt=1, path_mtu=1)
    memory = host.memory(1024)
    qp.post(read(memory.sge(0, 1024)))
    content = pattern(1024)
    peer.take()
    for number, name in enumerate(("FIRST", "FIRST", "FIRST", "ONLY")):
        time_out(host)
        assert peer.requests() == [("RDMA_READ_REQUEST", PSN + number)]
        piece = content[256 * number : 256 * (number + 1)]
        peer.response(f"RDMA_READ_RESPONSE_{name}", PSN + number, piece)
    assert host.sends() == [(0, SUCCESS)]
    assert memory.bytes == content


def test_9_9_2_repeated_acks_are_no_progress(host):
    qp, peer = connect(host, retry_cnt=1)
    qp.post(send(wr_id=0), send(wr_id=1))
    peer.take()
    peer.ack(PSN)
    time_out(host)
    peer.take()
    peer.ack(PSN)
    time_out(host)
    assert qp.state == QPState.ERR
    assert host.sends() == [(0, SUCCESS), (1, WcStatus.RETRY_EXC_ERR)]


def test_9_7_6_what_a_nak_asks_for_has_the_whole_time_out_to_be_answered(host):
    """Otherwise a peer that has just answered is given up, far away and with few retries."""
    qp, peer = connect(host, retry_cnt=1)
    qp.post(send(wr_id=3))
    peer.take()
    host.advance(TIMEOUT_NS - 1)
    peer.ack(PSN, NAK_SEQUENCE)
    assert peer.requests() == [("SEND_ONLY", PSN)]
    host.advance(TIMEOUT_NS - 1)
    assert (peer.requests(), qp.state) == ([], QPState.RTS)
    peer.ack(PSN)
    assert host.sends() == [(3, SUCCESS)]


def test_9_7_6_a_read_asked_for_again_has_the_whole_time_out_to_be_answered(host):
    qp, peer = connect(host, retry_cnt=1)
    memory = host.memory(64)
    qp.post(read(memory.sge(0, 8), wr_id=3), send(wr_id=4))
    peer.take()
    host.advance(TIMEOUT_NS - 1)
    peer.ack(PSN + 1)  # The READ's response was lost before it.
    assert ("RDMA_READ_REQUEST", PSN) in peer.requests()
    host.advance(TIMEOUT_NS - 1)
    assert (peer.requests(), qp.state) == ([], QPState.RTS)
    peer.response("RDMA_READ_RESPONSE_ONLY", PSN, bytes(8))
    peer.ack(PSN + 1)
    assert host.sends() == [(3, SUCCESS), (4, SUCCESS)]


def test_9_7_6_the_timer_stops_when_nothing_is_under_way(host):
    qp, peer = connect(host)
    qp.post(send())
    peer.take()
    peer.ack(PSN)
    host.advance(3600 * 1000 * MS)
    assert peer.requests() == []
    assert host.sends() == [(0, SUCCESS)]
    assert qp.state == QPState.RTS
    assert qp.counters()["local_ack_timeout_err"] == 0


def test_9_7_6_the_timer_starts_anew_with_each_acknowledgement(host):
    qp, peer = connect(host)
    qp.post(*(send(wr_id=number) for number in range(4)))
    peer.take()
    for number in range(3):
        host.advance(TIMEOUT_NS - 1)
        assert peer.requests() == []
        peer.ack(PSN + number)
    assert qp.counters()["local_ack_timeout_err"] == 0


def test_9_7_6_a_repeat_begins_in_the_middle_of_a_message(host):
    qp, peer = connect(host, path_mtu=1)
    memory = host.memory(1024)
    memory.bytes[:] = pattern(1024)
    qp.post(write(memory.sge(), to=0x9000))
    peer.take()
    peer.ack(PSN + 1)
    time_out(host)
    middle, last = peer.take()
    assert [p.opcode_name for p in (middle, last)] == [
        "RC_RDMA_WRITE_MIDDLE",
        "RC_RDMA_WRITE_LAST",
    ]
    assert (middle.psn, last.psn) == (PSN + 2, PSN + 3)
    assert middle.payload + last.payload == pattern(1024)[512:]


# --- attributes modified meanwhile


def test_11_2_5_modifying_something_else_restores_no_retries(host):
    qp, peer = connect(host, retry_cnt=2, rnr_retry=2)
    qp.post(send(wr_id=7))
    attempts = len(peer.take())
    for _ in range(3):
        time_out(host)
        attempts += len(peer.take())
        if qp.state == QPState.RTS:
            qp.modify(min_rnr_timer=3)
    assert attempts == 1 + 2
    assert host.sends() == [(7, WcStatus.RETRY_EXC_ERR)]


def test_11_2_5_modifying_something_else_restores_no_rnr_retries(host):
    qp, peer = connect(host, retry_cnt=2, rnr_retry=2)
    qp.post(send(wr_id=7))
    for _ in range(3):
        assert peer.take()
        peer.ack(PSN, rnr(12))
        if qp.state == QPState.RTS:
            qp.modify(qp_state=QPState.SQD)
            qp.modify(qp_state=QPState.RTS)
            time_out(host)
    assert host.sends() == [(7, WcStatus.RNR_RETRY_EXC_ERR)]


def test_11_2_5_a_retry_count_that_is_modified_holds_at_once(host):
    qp, peer = connect(host, retry_cnt=0)
    qp.post(send(wr_id=7))
    attempts = len(peer.take())
    qp.modify(qp_state=QPState.SQD)
    qp.modify(retry_cnt=3)
    while qp.state == QPState.SQD:
        time_out(host)
        attempts += len(peer.take())
    assert attempts == 1 + 3
    assert host.sends() == [(7, WcStatus.RETRY_EXC_ERR)]


@pytest.mark.parametrize("before", [0, 20])
def test_11_2_5_a_time_out_that_is_modified_holds_for_what_is_under_way(host, before):
    qp, peer = connect(host, timeout=before)
    qp.post(send())
    peer.take()
    qp.modify(qp_state=QPState.SQD)
    qp.modify(timeout=TIMEOUT_CODE)
    host.advance(TIMEOUT_NS - 1)
    assert peer.requests() == []
    host.advance(1)
    assert peer.requests() == [("SEND_ONLY", PSN)]


# --- both at once


def test_9_9_2_a_time_out_after_a_nak_still_counts(host):
    """A NAK restarts nothing by itself: a peer that only ever NAKs is given up in the end."""
    qp, peer = connect(host, retry_cnt=2)
    qp.post(send(wr_id=3))
    attempts = 0
    while qp.state == QPState.RTS and attempts < 100:
        attempts += len(peer.take())
        peer.ack(PSN, NAK_SEQUENCE)
        attempts += len(peer.take())
        if qp.state == QPState.RTS:
            time_out(host)
    assert host.sends() == [(3, WcStatus.RETRY_EXC_ERR)]
    assert attempts == 1 + 2


@pytest.mark.parametrize("retry_cnt", [0, 1, 7])
def test_9_9_2_a_sequence_nak_spends_a_retry(host, retry_cnt):
    """The peer misses packets as long as it does not move on."""
    qp, peer = connect(host, retry_cnt=retry_cnt)
    qp.post(send(wr_id=0), send(wr_id=1))
    peer.take()
    peer.ack(PSN + 1, NAK_SEQUENCE)
    attempts = 1 + len(peer.take())
    while qp.state == QPState.RTS:
        time_out(host)
        attempts += len(peer.take())
    assert attempts == 1 + retry_cnt
    assert host.sends() == [(0, SUCCESS), (1, WcStatus.RETRY_EXC_ERR)]
    assert qp.counters()["packet_seq_err"] == 1
    assert qp.counters()["retry_exceeded_err"] == 1


def test_9_9_2_a_response_that_is_skipped_over_spends_a_retry(host):
    """What the peer implies counts as what it says."""
    qp, peer = connect(host, retry_cnt=0)
    memory = host.memory(8)
    qp.post(read(memory.sge(0, 8), wr_id=4), send(wr_id=5))
    peer.take()
    peer.ack(PSN + 1)
    assert peer.requests() == []
    assert host.sends() == [(4, WcStatus.RETRY_EXC_ERR), (5, WcStatus.WR_FLUSH_ERR)]
    assert qp.counters()["implied_nak_seq_err"] == 1
    assert qp.counters()["retry_exceeded_err"] == 1


def test_9_9_2_progress_restores_what_sequence_naks_have_spent(host):
    """One packet in two is lost, and one retry is enough."""
    qp, peer = connect(host, retry_cnt=1)
    qp.post(*(send(wr_id=number) for number in range(10)))
    peer.take()
    for number in range(10):
        peer.ack(PSN + number, NAK_SEQUENCE)
        assert peer.requests()[0] == ("SEND_ONLY", PSN + number)
    peer.ack(PSN + 9)
    assert host.sends() == [(number, SUCCESS) for number in range(10)]
    assert qp.counters()["packet_seq_err"] == 10


def test_9_9_2_a_nak_that_comes_twice_spends_one_retry(host):
    qp, peer = connect(host, retry_cnt=1)
    qp.post(send())
    peer.take()
    for _ in range(3):
        peer.ack(PSN, NAK_SEQUENCE)
    assert peer.requests() == [("SEND_ONLY", PSN)]
    peer.ack(PSN)
    assert host.sends() == [(0, SUCCESS)]


def test_9_9_2_a_nak_of_what_went_again_after_a_time_out_is_heard_once(host):
    """All was lost at first; of the repeat only the first, of which the peer says so."""
    qp, peer = connect(host, retry_cnt=3)
    both = [("SEND_ONLY", PSN), ("SEND_ONLY", PSN + 1)]
    qp.post(send(wr_id=0), send(wr_id=1))
    for _ in range(2):
        peer.take()
        time_out(host)
    assert peer.requests() == both
    for _ in range(3):
        peer.ack(PSN, NAK_SEQUENCE)
    assert peer.requests() == both
    peer.ack(PSN, NAK_SEQUENCE)
    assert peer.requests() == []
    peer.ack(PSN + 1)
    assert host.sends() == [(0, SUCCESS), (1, SUCCESS)]
    assert qp.counters()["packet_seq_err"] == 1


def test_9_9_2_a_response_that_is_skipped_over_after_a_time_out_is_asked_for_once(host):
    qp, peer = connect(host, retry_cnt=3)
    memory = host.memory(8)
    both = [("RDMA_READ_REQUEST", PSN), ("SEND_ONLY", PSN + 1)]
    qp.post(read(memory.sge(0, 8), wr_id=4), send(wr_id=5))
    peer.take()
    time_out(host)
    assert peer.requests() == both
    for _ in range(3):
        peer.ack(PSN + 1)
    assert peer.requests() == both
    peer.response("RDMA_READ_RESPONSE_ONLY", PSN, bytes(8))
    peer.ack(PSN + 1)
    assert host.sends() == [(4, SUCCESS), (5, SUCCESS)]


def test_9_9_2_a_nak_that_crosses_the_last_repeat_ends_nothing(host):
    """It may be about what was sent before; whether that repeat arrives, its time-out tells."""
    qp, peer = connect(host, retry_cnt=1)
    qp.post(send(wr_id=0), send(wr_id=1))
    peer.take()
    time_out(host)
    peer.take()
    peer.ack(PSN, NAK_SEQUENCE)
    assert (peer.requests(), qp.state) == ([], QPState.RTS)
    peer.ack(PSN + 1)
    assert host.sends() == [(0, SUCCESS), (1, SUCCESS)]
