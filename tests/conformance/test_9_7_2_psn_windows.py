"""IBTA Vol 1, 9.7.2 and 9.7.4: expected, duplicate and out-of-order PSNs, modulo 2^24."""

from __future__ import annotations

import pytest

from softhca._adapter import QPState, WcStatus

from .host import pattern, send, write
from .peer import ACK, NAK_SEQUENCE, connect, psn_after, to_state

SUCCESS = WcStatus.SUCCESS
START = 0xFFFFF0


def test_9_7_2_responder_psns_wrap(host):
    qp, peer = connect(host, rq_psn=START)
    memory = host.memory()
    for number in range(40):
        qp.recv(memory.sge(64 * number, 64), wr_id=number)
    for number in range(40):
        assert peer.request("SEND_ONLY", bytes([number]) * 64) == ""
        assert peer.answers() == [(psn_after(START, number), ACK)]
    assert host.receives() == [(number, SUCCESS) for number in range(40)]
    assert memory.bytes[: 64 * 40] == b"".join(bytes([n]) * 64 for n in range(40))
    assert qp.query().rq_psn == psn_after(START, 40)


def test_9_7_2_requester_psns_wrap(host):
    qp, peer = connect(host, sq_psn=START)
    memory = host.memory()
    qp.post(*(send(memory.sge(0, 8), wr_id=number) for number in range(20)))
    assert peer.requests() == [("SEND_ONLY", psn_after(START, n)) for n in range(20)]
    # One ACK across the wrap completes all of them.
    peer.ack(psn_after(START, 19))
    assert host.sends() == [(number, SUCCESS) for number in range(20)]
    assert qp.query().sq_psn == psn_after(START, 20)


def test_9_7_2_a_message_across_the_wrap_is_one_message(host):
    qp, peer = connect(host, rq_psn=0xFFFFFF, path_mtu=1)
    memory = host.memory()
    content = pattern(700)
    fields = {"virtual_address": memory.address, "rkey": memory.rkey, "dma_length": 700}
    peer.request("RDMA_WRITE_FIRST", content[:256], ack_request=False, **fields)
    peer.request("RDMA_WRITE_MIDDLE", content[256:512], ack_request=False)
    peer.request("RDMA_WRITE_LAST", content[512:])
    assert peer.answers() == [(1, ACK)]
    assert memory.bytes[:700] == content
    assert qp.state == QPState.RTS


@pytest.mark.parametrize("behind", [1, 2, 100, 0x7FFFFF])
def test_9_7_2_half_the_psn_space_is_behind_and_means_duplicate(host, behind):
    qp, peer = connect(host, rq_psn=0x10)
    qp.recv(host.memory().sge())
    peer.request("SEND_ONLY", b"old", psn=psn_after(0x10, -behind))
    assert peer.answers() == [(0x0F, ACK)]
    assert host.receives() == []


@pytest.mark.parametrize("ahead", [1, 2, 100, 0x7FFFFF])
def test_9_7_2_the_other_half_is_ahead_and_means_a_gap(host, ahead):
    qp, peer = connect(host, rq_psn=0x10)
    qp.recv(host.memory().sge())
    peer.request("SEND_ONLY", b"early", psn=psn_after(0x10, ahead))
    assert peer.answers() == [(0x10, NAK_SEQUENCE)]
    assert host.receives() == []
    assert qp.state == QPState.RTS


def test_9_7_4_one_nak_per_gap(host):
    """What follows the gap is dropped in silence until the expected packet comes."""
    qp, peer = connect(host, rq_psn=START)
    for number in range(4):
        qp.recv(host.memory(64).sge(), wr_id=number)
    peer.request("SEND_ONLY", psn=START)
    assert peer.answers() == [(START, ACK)]
    for number in (2, 3, 4):
        peer.request("SEND_ONLY", psn=START + number)
    assert peer.answers() == [(START + 1, NAK_SEQUENCE)]
    for number in (1, 2):
        peer.request("SEND_ONLY", psn=START + number)
        assert peer.answers() == [(START + number, ACK)]
    # The gap was filled: a new one has its own NAK.
    peer.request("SEND_ONLY", psn=START + 5)
    assert peer.answers() == [(START + 3, NAK_SEQUENCE)]
    assert qp.counters()["out_of_sequence"] == 4


def test_9_7_4_a_duplicate_does_not_open_the_gap_again(host):
    qp, peer = connect(host, rq_psn=0x100)
    qp.recv(host.memory(64).sge())
    peer.request("SEND_ONLY", psn=0x100)
    peer.request("SEND_ONLY", psn=0x102)
    assert peer.answers()[-1] == (0x101, NAK_SEQUENCE)
    peer.request("SEND_ONLY", psn=0x100)
    assert peer.answers() == [(0x100, ACK)]
    peer.request("SEND_ONLY", psn=0x102)
    assert peer.answers() == []


def test_9_7_5_a_duplicate_send_is_acked_again_and_not_executed(host):
    qp, peer = connect(host, rq_psn=START)
    memory = host.memory(128)
    for number in range(2):
        qp.recv(memory.sge(64 * number, 64), wr_id=number)
    peer.request("SEND_ONLY", b"first", psn=START)
    for _ in range(3):
        peer.request("SEND_ONLY", b"other", psn=START)
    assert peer.answers() == [(START, ACK)]  # Coalesced: no packet left in between.
    peer.request("SEND_ONLY", b"other", psn=START)
    assert peer.answers() == [(START, ACK)]
    assert host.receives() == [(0, SUCCESS)]
    assert memory.bytes[:5] == b"first"
    assert qp.counters()["duplicate_request"] == 4


def test_9_7_5_a_duplicate_write_is_acked_again_and_not_executed(host):
    qp, peer = connect(host, rq_psn=START)
    memory = host.memory(64)
    fields = {"virtual_address": memory.address, "rkey": memory.rkey, "dma_length": 4}
    peer.request("RDMA_WRITE_ONLY", b"once", psn=START, **fields)
    memory.bytes[:4] = b"mine"
    peer.request("RDMA_WRITE_ONLY", b"once", psn=START, **fields)
    assert peer.answers() == [(START, ACK)]
    assert memory.bytes[:4] == b"mine"
    assert qp.state == QPState.RTS


def test_9_7_5_a_duplicate_in_a_later_message_is_acked_with_the_last_good_psn(host):
    """The ACK of a duplicate carries the newest PSN and MSN, not those of the duplicate."""
    qp, peer = connect(host, rq_psn=0x100)
    for _ in range(3):
        qp.recv(host.memory(64).sge())
        peer.request("SEND_ONLY")
    peer.take()
    peer.request("SEND_ONLY", psn=0x100)
    (answer,) = peer.take()
    assert (answer.psn, answer.syndrome, answer.msn) == (0x102, ACK, 3)


def test_9_7_5_duplicates_with_a_wrong_key_are_acked_without_a_look(host):
    """Nothing of a duplicate SEND or WRITE is executed, so nothing of it is validated."""
    qp, peer = connect(host, rq_psn=0x100)
    qp.recv(host.memory(64).sge())
    peer.request("SEND_ONLY")
    peer.take()
    fields = {"virtual_address": 0, "rkey": 0xBAD, "dma_length": 4}
    peer.request("RDMA_WRITE_ONLY", b"evil", psn=0x100, **fields)
    assert peer.answers() == [(0x100, ACK)]
    assert qp.state == QPState.RTS


@pytest.mark.parametrize("psn", [0x7FF, 0x80A, 0x400000, 0x800 - 0x7FFFFF])
def test_9_7_6_an_ack_outside_what_is_under_way_is_ignored(host, psn):
    """A ghost of an earlier connection, or an ACK for what was never sent."""
    qp, peer = connect(host, sq_psn=0x800)
    memory = host.memory()
    qp.post(*(write(memory.sge(0, 8), wr_id=number) for number in range(10)))
    assert len(peer.take()) == 10
    for syndrome in (ACK, NAK_SEQUENCE, 0x61, 0x62, 0x63, 0x20):
        peer.ack(psn & 0xFFFFFF, syndrome)
    assert host.sends() == []
    assert peer.requests() == []
    assert qp.state == QPState.RTS
    peer.ack(0x809)
    assert host.sends() == [(number, SUCCESS) for number in range(10)]


def test_9_7_6_a_stale_ack_after_everything_is_acknowledged_is_ignored(host):
    qp, peer = connect(host, sq_psn=0x800)
    qp.post(send())
    peer.take()
    peer.ack(0x800)
    peer.ack(0x800)
    peer.ack(0x800, NAK_SEQUENCE)
    assert host.sends() == [(0, SUCCESS)]
    assert peer.requests() == []
    assert qp.state == QPState.RTS


def test_9_7_6_a_coalesced_ack_acknowledges_all_before_it(host):
    qp, peer = connect(host, sq_psn=0x800)
    qp.post(*(send(wr_id=number) for number in range(5)))
    peer.take()
    peer.ack(0x802)
    assert host.sends() == [(0, SUCCESS), (1, SUCCESS), (2, SUCCESS)]
    peer.ack(0x804)
    assert host.sends() == [(3, SUCCESS), (4, SUCCESS)]


def test_9_7_6_a_sequence_nak_acknowledges_all_before_it_and_repeats_the_rest(host):
    qp, peer = connect(host, sq_psn=0xFFFFFE)
    qp.post(*(send(wr_id=number) for number in range(5)))
    peer.take()
    peer.ack(0x000000, NAK_SEQUENCE)
    assert host.sends() == [(0, SUCCESS), (1, SUCCESS)]
    assert peer.requests() == [("SEND_ONLY", psn) for psn in (0, 1, 2)]
    assert qp.counters()["packet_seq_err"] == 1
    assert qp.counters()["retransmitted_pkts"] == 3


def test_9_7_6_repeats_of_one_nak_do_not_multiply_the_repeats(host):
    """Otherwise each duplicated NAK would double the traffic of a lossy path."""
    qp, peer = connect(host, sq_psn=0x800)
    qp.post(*(send(wr_id=number) for number in range(4)))
    peer.take()
    for _ in range(3):
        peer.ack(0x801, NAK_SEQUENCE)
    assert peer.requests() == [("SEND_ONLY", psn) for psn in (0x801, 0x802, 0x803)]
    peer.ack(0x801, NAK_SEQUENCE)
    assert peer.requests() == []


def test_9_7_3_ack_request_on_the_last_packet_of_a_message(host):
    qp, peer = connect(host, path_mtu=1)
    memory = host.memory()
    qp.post(send(memory.sge(0, 700)))
    assert [packet.ack_request for packet in peer.take()] == [False, False, True]


def test_9_7_3_ack_request_before_the_window_closes(host):
    """A requester that stopped without asking would wait for the time-out."""
    qp, peer = connect(host, path_mtu=1)
    memory = host.memory()
    qp.post(write(memory.sge(0, 256 * 200)))
    seen = 0
    while packets := peer.take():
        seen += len(packets)
        assert packets[-1].ack_request
        peer.ack(packets[-1].psn)
    assert seen == 200
    assert host.sends() == [(0, SUCCESS)]


def test_9_7_5_msn_counts_completed_messages(host):
    qp, peer = connect(host, path_mtu=1)
    memory = host.memory()
    for _ in range(3):
        qp.recv(memory.sge())
    peer.request("SEND_FIRST", bytes(256))
    peer.request("SEND_LAST", bytes(1))
    peer.request("SEND_ONLY")
    fields = {"virtual_address": memory.address, "rkey": memory.rkey, "dma_length": 1}
    peer.request("RDMA_READ_REQUEST", **fields)
    peer.request("RDMA_WRITE_ONLY", b"x", **fields)
    answers = peer.take()
    assert [answer.msn for answer in answers] == [2, 3, 4]


def test_9_7_5_msn_begins_again_after_reset(host):
    qp, peer = connect(host)
    qp.recv(host.memory(64).sge())
    peer.request("SEND_ONLY")
    assert [answer.msn for answer in peer.take()] == [1]
    qp.modify(qp_state=QPState.RESET)
    to_state(qp, QPState.RTS)
    qp.recv(host.memory(64).sge())
    peer.request("SEND_ONLY", psn=0x100)
    assert [answer.msn for answer in peer.take()] == [1]
