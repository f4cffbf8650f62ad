"""IBTA Vol 1, 9.7.5.2.8 and 9.9.2: RNR NAKs, and the count that limits them."""

from __future__ import annotations

import pytest

from softhca._adapter import QPState, WcStatus, rnr_delay_ns

from .host import pattern, send, write
from .peer import ACK, NAK_SEQUENCE, connect, rnr

SUCCESS = WcStatus.SUCCESS
PSN = 0x800

# wire.md 6: the delay of each RNR timer code, in units of 10 us.
RNR_DELAYS = [
    *(65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192),
    *(256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288),
    *(16384, 24576, 32768, 49152),
]


def time_out(host) -> None:
    """Lets exactly the ACK timer run out."""
    deadline = host.hca.next_deadline_ns
    assert deadline is not None
    host.advance(deadline - host.now_ns)


# --- the requester's side


@pytest.mark.parametrize("code", range(32))
def test_9_7_5_2_8_the_rnr_delays_are_those_of_the_table(code):
    assert rnr_delay_ns(code) == RNR_DELAYS[code] * 10_000


@pytest.mark.parametrize("code", [0, 1, 12, 31])
def test_9_7_5_2_8_after_an_rnr_nak_the_requester_waits_as_long_as_it_is_told(host, code):
    qp, peer = connect(host)
    qp.post(send(wr_id=1), send(wr_id=2))
    peer.take()
    peer.ack(PSN, rnr(code))
    host.advance(rnr_delay_ns(code) - 1)
    assert peer.requests() == []
    time_out(host)
    assert peer.requests() == [("SEND_ONLY", PSN), ("SEND_ONLY", PSN + 1)]
    peer.ack(PSN + 1)
    assert host.sends() == [(1, SUCCESS), (2, SUCCESS)]
    assert qp.counters()["rcvd_rnr_err"] == 1


def test_9_7_5_2_8_nothing_overtakes_a_request_that_waits(host):
    qp, peer = connect(host)
    qp.post(send(wr_id=1))
    peer.take()
    peer.ack(PSN, rnr(14))
    qp.post(send(wr_id=2))
    assert peer.requests() == []
    time_out(host)
    assert peer.requests() == [("SEND_ONLY", PSN), ("SEND_ONLY", PSN + 1)]


def test_9_7_5_2_8_an_rnr_nak_acknowledges_what_came_before(host):
    qp, peer = connect(host)
    memory = host.memory(64)
    qp.post(write(memory.sge(), wr_id=1), send(wr_id=2))
    peer.take()
    peer.ack(PSN + 1, rnr(12))
    assert host.sends() == [(1, SUCCESS)]
    time_out(host)
    assert peer.requests() == [("SEND_ONLY", PSN + 1)]


@pytest.mark.parametrize("rnr_retry", [0, 1, 3, 6])
def test_9_9_2_rnr_retries_are_exceeded_after_exactly_rnr_retry_of_them(host, rnr_retry):
    qp, peer = connect(host, rnr_retry=rnr_retry)
    qp.post(send(wr_id=7))
    attempts = 0
    while qp.state == QPState.RTS:
        attempts += len(peer.take())
        peer.ack(PSN, rnr(12))
        if qp.state == QPState.RTS:
            time_out(host)
    assert attempts == 1 + rnr_retry
    assert host.sends() == [(7, WcStatus.RNR_RETRY_EXC_ERR)]
    assert qp.counters()["rnr_nak_retry_err"] == 1


def test_9_9_2_rnr_retry_7_is_without_end(host):
    qp, peer = connect(host, rnr_retry=7)
    qp.post(send())
    for _ in range(100):
        assert peer.requests() == [("SEND_ONLY", PSN)]
        peer.ack(PSN, rnr(12))
        time_out(host)
    assert qp.state == QPState.RTS
    peer.take()
    peer.ack(PSN)
    assert host.sends() == [(0, SUCCESS)]


def test_9_9_2_progress_restores_the_rnr_retry_count(host):
    qp, peer = connect(host, rnr_retry=2)
    qp.post(*(send(wr_id=number) for number in range(5)))
    for number in range(5):
        for _ in range(2):
            assert peer.take()
            peer.ack(PSN + number, rnr(12))
            time_out(host)
        peer.take()
        peer.ack(PSN + number)
        qp.post(send(wr_id=100 + number))
    assert host.sends() == [(number, SUCCESS) for number in range(5)]
    assert qp.state == QPState.RTS


def test_9_9_2_an_rnr_nak_restores_both_counts_if_it_acknowledges_something(host):
    qp, peer = connect(host, rnr_retry=1, retry_cnt=1)
    qp.post(send(wr_id=0), send(wr_id=1))
    peer.take()
    time_out(host)
    peer.take()
    peer.ack(PSN, rnr(12))
    time_out(host)
    peer.take()
    peer.ack(PSN + 1, rnr(12))
    for _ in range(2):
        time_out(host)
        assert peer.requests() == [("SEND_ONLY", PSN + 1)]
    peer.ack(PSN + 1)
    assert host.sends() == [(0, SUCCESS), (1, SUCCESS)]


def test_9_9_2_an_rnr_nak_that_acknowledges_nothing_restores_no_retries(host):
    """Only what is cleared does; rnr_retry counts for itself."""
    qp, peer = connect(host, rnr_retry=7, retry_cnt=2)
    qp.post(send(wr_id=4))
    for _ in range(2):
        peer.take()
        time_out(host)
        peer.take()
        peer.ack(PSN, rnr(12))
        time_out(host)
    peer.take()
    time_out(host)
    assert host.sends() == [(4, WcStatus.RETRY_EXC_ERR)]


def test_9_9_2_rnr_waits_do_not_count_as_time_outs(host):
    qp, peer = connect(host, rnr_retry=7, retry_cnt=0)
    qp.post(send())
    for _ in range(5):
        peer.take()
        peer.ack(PSN, rnr(0))  # 655 ms, ten times the ACK time-out.
        host.advance(rnr_delay_ns(0))
    peer.take()
    peer.ack(PSN)
    assert host.sends() == [(0, SUCCESS)]
    assert qp.counters()["local_ack_timeout_err"] == 0


def test_9_9_2_repeats_of_one_rnr_nak_count_once(host):
    qp, peer = connect(host, rnr_retry=1)
    qp.post(send())
    peer.take()
    for _ in range(5):
        peer.ack(PSN, rnr(12))
    assert qp.state == QPState.RTS
    time_out(host)
    peer.take()
    peer.ack(PSN)
    assert host.sends() == [(0, SUCCESS)]


def test_9_9_2_a_sequence_nak_behind_an_rnr_nak_says_nothing_new(host):
    """Linux's rxe misses the packet that it has just refused in each that follows it."""
    qp, peer = connect(host, rnr_retry=7, retry_cnt=0)
    both = [("SEND_ONLY", PSN), ("SEND_ONLY", PSN + 1)]
    qp.post(send(wr_id=0), send(wr_id=1))
    for _ in range(3):
        assert peer.requests() == both
        peer.ack(PSN, rnr(12))
        peer.ack(PSN, NAK_SEQUENCE)
        assert (peer.requests(), qp.state) == ([], QPState.RTS)
        time_out(host)
    peer.take()
    peer.ack(PSN + 1)
    assert host.sends() == [(0, SUCCESS), (1, SUCCESS)]
    assert qp.counters()["packet_seq_err"] == 0


def test_9_9_2_a_sequence_nak_ends_the_wait_for_what_it_acknowledges(host):
    qp, peer = connect(host, rnr_retry=7, retry_cnt=1)
    qp.post(send(wr_id=0), send(wr_id=1))
    peer.take()
    peer.ack(PSN, rnr(31))
    peer.ack(PSN + 1, NAK_SEQUENCE)
    assert peer.requests() == [("SEND_ONLY", PSN + 1)]
    peer.ack(PSN + 1)
    assert host.sends() == [(0, SUCCESS), (1, SUCCESS)]


# --- the responder's side


def test_9_7_5_2_8_without_a_receive_the_responder_sends_its_own_timer_code(host):
    qp, peer = connect(host, min_rnr_timer=21)
    peer.request("SEND_ONLY", b"too early")
    assert peer.answers() == [(0x100, rnr(21))]
    assert qp.state == QPState.RTS
    assert qp.counters()["send_rnr_err"] == 1
    assert qp.counters()["out_of_buffer"] == 1


def test_9_7_5_2_8_a_request_that_comes_twice_before_its_answer_left_gets_one(host):
    qp, peer = connect(host)
    peer.request("SEND_ONLY", b"too early", psn=0x100)
    peer.request("SEND_ONLY", b"too early", psn=0x100)
    answers = peer.answers()
    assert answers == [(0x100, rnr(12))]
    assert qp.counters()["send_rnr_err"] == len(answers)
    assert qp.counters()["out_of_buffer"] == 2


def test_9_7_5_2_8_min_rnr_timer_may_change_while_running(host):
    qp, peer = connect(host, min_rnr_timer=21)
    qp.modify(min_rnr_timer=3)
    peer.request("SEND_ONLY")
    assert peer.answers() == [(0x100, rnr(3))]


def test_9_7_5_2_8_what_follows_a_refused_send_is_dropped_in_silence(host):
    qp, peer = connect(host)
    peer.request("SEND_ONLY", psn=0x100)
    peer.request("SEND_ONLY", psn=0x101)
    peer.request("SEND_ONLY", psn=0x102)
    assert peer.answers() == [(0x100, rnr(12))]
    for number in range(3):
        qp.recv(host.memory(64).sge(), wr_id=number)
    for number in range(3):
        peer.request("SEND_ONLY", psn=0x100 + number)
        assert peer.answers() == [(0x100 + number, ACK)]
    assert host.receives() == [(number, SUCCESS) for number in range(3)]


def test_9_7_5_2_8_a_repeat_that_again_finds_no_receive_is_refused_again(host):
    _, peer = connect(host)
    for _ in range(3):
        peer.request("SEND_ONLY", psn=0x100)
        assert peer.answers() == [(0x100, rnr(12))]


def test_9_7_5_2_8_a_send_of_many_packets_is_refused_at_its_first(host):
    _, peer = connect(host, path_mtu=1)
    peer.request("SEND_FIRST", bytes(256), ack_request=False)
    assert peer.answers() == [(0x100, rnr(12))]


def test_9_7_5_2_8_a_write_with_immediate_is_refused_at_its_last_with_the_data_placed(host):
    """Only the last packet needs a receive; the bytes before it are in memory already."""
    qp, peer = connect(host, path_mtu=1)
    memory = host.memory(1024)
    content = pattern(600)
    fields = {"virtual_address": memory.address, "rkey": memory.rkey, "dma_length": 600}
    peer.request("RDMA_WRITE_FIRST", content[:256], ack_request=False, **fields)
    peer.request("RDMA_WRITE_MIDDLE", content[256:512], ack_request=False)
    last = {"psn": 0x102, "immediate": 0xABCD}
    peer.request("RDMA_WRITE_LAST_WITH_IMMEDIATE", content[512:], **last)
    assert peer.answers() == [(0x102, rnr(12))]
    assert memory.bytes[:512] == content[:512]
    assert host.receives() == []
    qp.recv(wr_id=4)
    peer.request("RDMA_WRITE_LAST_WITH_IMMEDIATE", content[512:], **last)
    assert peer.answers() == [(0x102, ACK)]
    (wc,) = host.recv_wcs()
    assert (wc.wr_id, wc.byte_len, wc.immediate_or_rkey) == (4, 600, 0xABCD)
    assert memory.bytes[:600] == content


def test_9_7_5_2_8_plain_writes_reads_and_atomics_need_no_receive(host):
    _, peer = connect(host, rq_psn=0)
    memory = host.memory(64)
    fields = {"virtual_address": memory.address, "rkey": memory.rkey, "dma_length": 8}
    peer.request("RDMA_WRITE_ONLY", b"12345678", **fields)
    peer.request("RDMA_READ_REQUEST", **fields)
    peer.request("FETCH_ADD", atomic_address=memory.address, atomic_rkey=memory.rkey)
    assert [answer[0] for answer in peer.answers()] == [0, 1, 2]
