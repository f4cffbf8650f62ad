"""IBTA Vol 1, 9.7.6.1.3 allows a requester to repeat before its ACK timer runs out; ours does.

Such a repeat is a question, not a retry: it does not count, and a peer that never answered is not
asked, nor is one that is no adapter.
"""

from __future__ import annotations

import pytest

from softhca._adapter import QPState, Route, WcStatus

from .host import MS, Host, fetch_add, read, send
from .peer import ACK, NAK_SEQUENCE, connect

SUCCESS = WcStatus.SUCCESS
PSN = 0x800
TIMEOUT_CODE = 20
TIMEOUT_NS = 4096 << TIMEOUT_CODE


@pytest.fixture
def known():
    """A peer that has answered once, within 20 us; the time-out is over four seconds."""
    host = Host(retry_early=True)
    qp, peer = connect(host, timeout=TIMEOUT_CODE, retry_cnt=2)
    qp.post(send(wr_id=100))
    peer.take()
    host.advance(20_000)
    peer.ack(PSN)
    assert host.sends() == [(100, SUCCESS)]
    return qp, peer, host.memory(4096)


def next_deadline(host) -> None:
    deadline = host.hca.next_deadline_ns
    assert deadline is not None
    host.advance(max(deadline - host.now_ns, 0))


def wait_for_packets(peer, within_ns):
    """Lets deadlines pass until something is sent."""
    end_ns = peer.host.now_ns + within_ns
    while peer.host.now_ns <= end_ns:
        packets = peer.take()
        if packets:
            return packets
        next_deadline(peer.host)
    return []


def test_9_7_6_1_3_a_lost_tail_is_repeated_long_before_the_time_out(known):
    qp, peer, _ = known
    qp.post(send(wr_id=1))
    assert len(peer.take()) == 1
    (again,) = wait_for_packets(peer, TIMEOUT_NS // 10)
    assert (again.psn, again.ack_request) == (PSN + 1, True)
    assert qp.counters()["early_retransmits"] >= 1
    assert qp.counters()["local_ack_timeout_err"] == 0
    peer.ack(PSN + 1)
    assert peer.host.sends() == [(1, SUCCESS)]


def test_9_7_6_1_3_the_answer_to_a_probe_brings_back_the_rest_of_a_lost_window(known):
    qp, peer, _ = known
    qp.post(*(send(wr_id=number) for number in range(1, 6)))
    assert len(peer.take()) == 5
    (probe,) = wait_for_packets(peer, TIMEOUT_NS // 10)
    assert probe.psn == PSN + 1
    peer.ack(PSN + 1)
    assert [packet.psn for packet in peer.take()] == [PSN + 2, PSN + 3, PSN + 4, PSN + 5]


def test_9_7_6_1_3_a_nak_is_a_first_answer_too():
    """What it asks for may be lost again, and without a time-out nothing else would repeat it."""
    host = Host(retry_early=True)
    qp, peer = connect(host, timeout=0)
    qp.post(send(wr_id=1), send(wr_id=2))
    peer.take()
    peer.ack(PSN, NAK_SEQUENCE)
    assert peer.requests() == [("SEND_ONLY", PSN), ("SEND_ONLY", PSN + 1)]
    (probe,) = wait_for_packets(peer, TIMEOUT_NS // 10)
    assert (probe.psn, probe.ack_request) == (PSN, True)
    peer.ack(PSN)
    peer.ack(PSN + 1)
    assert host.sends() == [(1, SUCCESS), (2, SUCCESS)]


def test_9_7_6_1_3_probes_do_not_count_against_the_retry_count(known):
    qp, peer, _ = known
    qp.post(send(wr_id=1))
    started_ns = peer.host.now_ns
    while qp.state == QPState.RTS:
        next_deadline(peer.host)
        peer.take()
    assert peer.host.sends() == [(1, WcStatus.RETRY_EXC_ERR)]
    counters = qp.counters()
    assert counters["early_retransmits"] > 2
    assert counters["local_ack_timeout_err"] == 3
    # The first attempt and two retries, each as long as it was asked to be.
    assert peer.host.now_ns - started_ns >= 3 * TIMEOUT_NS


def test_9_7_6_1_3_a_peer_that_never_answered_is_not_probed():
    host = Host(retry_early=True)
    qp, peer = connect(host, timeout=TIMEOUT_CODE)
    qp.post(send())
    peer.take()
    host.advance(TIMEOUT_NS - 1)
    assert peer.take() == []
    assert qp.counters()["early_retransmits"] == 0


@pytest.mark.parametrize("port", [4791, 0xC000])
def test_9_7_6_1_3_a_program_is_asked_by_the_time_out_alone(port):
    """It answers when it comes to that."""
    host = Host(retry_early=True)
    qp, peer = connect(host, timeout=TIMEOUT_CODE, retry_cnt=1)
    peer.route = Route(peer.route.source, peer.route.destination, udp_source_port=port)
    for psn in (PSN, PSN + 1):
        qp.post(send())
        peer.take()
        host.advance(20_000)
        peer.ack(psn)
    qp.post(send(wr_id=1))
    assert len(peer.take()) == 1
    host.advance(TIMEOUT_NS - 1)
    assert peer.take() == []
    (again,) = wait_for_packets(peer, TIMEOUT_NS)
    assert (again.psn, qp.counters()["early_retransmits"]) == (PSN + 2, 0)
    while qp.state == QPState.RTS:
        next_deadline(host)
        assert peer.take() == []
    assert qp.counters()["local_ack_timeout_err"] == 2


def test_9_7_6_1_3_probes_learn_how_long_the_way_is(known):
    """Each round trip has a probe in it at first; that both were answered tells of no loss."""
    qp, peer, _ = known
    round_trip_ns = 20 * MS

    def probes_of(psn):
        """Sends a message, which is answered as often as it came, a round trip later."""
        qp.post(send(wr_id=psn))
        peer.take()
        sent_ns = peer.host.now_ns
        probes_ns = []
        while (deadline := peer.host.hca.next_deadline_ns) < sent_ns + round_trip_ns:
            peer.host.advance(deadline - peer.host.now_ns)
            probes_ns += [peer.host.now_ns] * len(peer.take())
        for ns in [sent_ns, *probes_ns]:
            peer.host.advance(max(ns + round_trip_ns - peer.host.now_ns, 0))
            peer.ack(psn)
        assert peer.host.sends() == [(psn, SUCCESS)]
        return len(probes_ns)

    assert probes_of(PSN + 1) > 0
    assert [probes_of(PSN + number) for number in range(2, 40)][-1] == 0


def test_9_7_6_1_3_answers_that_a_network_doubles_tell_nothing_of_the_way(known):
    """They come at once, and an adapter that took them for two would wait longer each time."""
    qp, peer, _ = known
    for psn in range(PSN + 1, PSN + 40):
        qp.post(send(wr_id=psn))
        peer.take()
        for _ in range(2):  # The first probe is lost as well.
            assert len(wait_for_packets(peer, TIMEOUT_NS)) == 1
        peer.ack(psn)
        peer.ack(psn)
        assert peer.host.sends() == [(psn, SUCCESS)]
    qp.post(send(wr_id=1))
    peer.take()
    assert peer.host.hca.next_deadline_ns - peer.host.now_ns < 5 * MS


@pytest.mark.parametrize("make", [read, fetch_add])
def test_9_7_6_1_3_a_probe_of_a_read_or_atomic_is_the_same_request(known, make):
    """The responder knows it for a duplicate by its PSN, and executes no atomic twice."""
    qp, peer, memory = known
    qp.post(make(memory.sge(0, 8), wr_id=1))
    (first,) = peer.take()
    (again,) = wait_for_packets(peer, TIMEOUT_NS // 10)
    assert (again.opcode, again.psn) == (first.opcode, first.psn)
    if make is read:
        peer.response("RDMA_READ_RESPONSE_ONLY", PSN + 1, bytes(8))
    else:
        peer.response("ATOMIC_ACKNOWLEDGE", PSN + 1)
    assert peer.host.sends() == [(1, SUCCESS)]


def test_9_7_6_1_3_probes_stop_when_everything_is_answered(known):
    qp, peer, _ = known
    qp.post(send(wr_id=1))
    peer.take()
    wait_for_packets(peer, TIMEOUT_NS // 10)
    peer.ack(PSN + 1)
    peer.host.advance(10 * TIMEOUT_NS)
    assert peer.take() == []
    assert qp.state == QPState.RTS


def test_9_7_6_1_3_a_nak_after_a_probe_is_obeyed(known):
    qp, peer, _ = known
    qp.post(send(wr_id=1), send(wr_id=2))
    peer.take()
    assert len(wait_for_packets(peer, TIMEOUT_NS // 10)) == 1
    peer.ack(PSN + 2, NAK_SEQUENCE)
    assert [packet.psn for packet in peer.take()] == [PSN + 2]
    peer.ack(PSN + 2, ACK)
    assert peer.host.sends() == [(1, SUCCESS), (2, SUCCESS)]


def test_9_7_6_1_3_time_out_0_is_probed_but_never_given_up():
    host = Host(retry_early=True)
    qp, peer = connect(host, timeout=0, retry_cnt=0)
    qp.post(send(wr_id=0))
    peer.take()
    host.advance(20_000)
    peer.ack(PSN)
    qp.post(send(wr_id=1))
    peer.take()
    for _ in range(50):
        host.advance(1000 * MS)
        peer.take()
    assert qp.state == QPState.RTS
    peer.ack(PSN + 1)
    assert host.sends() == [(0, SUCCESS), (1, SUCCESS)]


def test_9_9_2_a_nak_of_what_went_again_after_a_probe_is_heard(known):
    """All behind what was probed was lost; of the repeat so is the first, which nobody said yet."""
    qp, peer, _ = known
    qp.post(*(send(wr_id=number) for number in range(1, 4)))
    peer.take()
    (probe,) = wait_for_packets(peer, TIMEOUT_NS // 10)
    assert probe.psn == PSN + 1
    peer.ack(PSN + 1)
    rest = [("SEND_ONLY", PSN + 2), ("SEND_ONLY", PSN + 3)]
    assert peer.requests() == rest
    for _ in range(2):
        peer.ack(PSN + 2, NAK_SEQUENCE)
    assert peer.requests() == rest
    peer.ack(PSN + 3)
    assert qp.host.sends() == [(number, SUCCESS) for number in range(1, 4)]
