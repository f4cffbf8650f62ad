"""IBTA Vol 1, 9.8.2: an unreliable connection loses whole messages and never answers."""

from __future__ import annotations

import pytest

from softhca._adapter import QPState, QPType, WcOpcode, WcStatus, WrOpcode

from .host import fetch_add, pattern, read, send, write
from .peer import connect, psn_after, reth

SUCCESS, FLUSHED = WcStatus.SUCCESS, WcStatus.WR_FLUSH_ERR
PSN = 0xFFFFFE
MTU = 256


@pytest.fixture
def joined(host):
    qp, peer = connect(host, QPType.UC, path_mtu=1, rq_psn=PSN, sq_psn=PSN)
    return qp, peer, host.memory(8192)


# --- the requester


def test_9_8_2_a_send_completes_when_its_last_packet_has_left(joined):
    qp, peer, memory = joined
    memory.bytes[:600] = pattern(600)
    qp.post(send(memory.sge(0, 600), wr_id=1))
    sent = peer.take()
    assert [(p.opcode_name, p.psn, p.ack_request) for p in sent] == [
        ("UC_SEND_FIRST", PSN, False),
        ("UC_SEND_MIDDLE", psn_after(PSN), False),
        ("UC_SEND_LAST", psn_after(PSN, 2), False),
    ]
    assert b"".join(p.payload for p in sent) == pattern(600)
    assert qp.host.sends() == [(1, SUCCESS)]


def test_9_8_2_nothing_is_ever_repeated(joined):
    qp, peer, _ = joined
    qp.post(send(wr_id=1))
    peer.take()
    assert qp.host.hca.next_deadline_ns is None
    qp.host.advance(10**12)
    assert peer.take() == []


@pytest.mark.parametrize("make", [read, fetch_add])
def test_9_8_2_reads_and_atomics_do_not_exist(joined, make):
    qp, peer, memory = joined
    qp.post(send(wr_id=1), make(memory.sge(0, 8), wr_id=2), send(wr_id=3))
    assert [p.opcode_name for p in peer.take()] == ["UC_SEND_ONLY"]
    assert qp.host.sends() == [(1, SUCCESS), (2, WcStatus.LOC_QP_OP_ERR), (3, FLUSHED)]
    assert qp.state == QPState.SQE


def test_9_8_2_send_with_invalidate_does_not_exist(joined):
    qp, peer, _ = joined
    qp.post(send(opcode=WrOpcode.SEND_WITH_INV, invalidate_rkey=5, wr_id=2))
    assert peer.take() == []
    assert qp.host.sends() == [(2, WcStatus.LOC_QP_OP_ERR)]


# --- the responder


def test_9_8_2_whole_messages_arrive_in_the_receives_without_an_answer(joined):
    qp, peer, memory = joined
    for number in range(3):
        qp.recv(memory.sge(1000 * number, 1000), wr_id=number)
    content = pattern(600)
    peer.request("SEND_FIRST", content[:MTU])
    peer.request("SEND_MIDDLE", content[MTU : 2 * MTU])
    peer.request("SEND_LAST_WITH_IMMEDIATE", content[2 * MTU :], immediate=0x77)
    peer.request("SEND_ONLY", b"short")
    assert peer.take() == []
    first, second = qp.host.recv_wcs()
    assert (first.wr_id, first.byte_len, first.immediate_or_rkey) == (0, 600, 0x77)
    assert (second.wr_id, second.byte_len) == (1, 5)
    assert memory.bytes[:600] == content


@pytest.mark.parametrize("lost", ["SEND_FIRST", "SEND_MIDDLE", "SEND_LAST"])
def test_9_8_2_a_missing_packet_costs_its_message_and_no_receive(joined, lost):
    """The receive that the lost message had begun to fill serves the next one."""
    qp, peer, memory = joined
    qp.recv(memory.sge(0, 1000), wr_id=1)
    qp.recv(memory.sge(1000, 1000), wr_id=2)
    for operation in ("SEND_FIRST", "SEND_MIDDLE", "SEND_LAST"):
        if operation == lost:
            peer.psn = psn_after(peer.psn)
        else:
            peer.request(operation, b"\xee" * (8 if operation == "SEND_LAST" else MTU))
    assert qp.host.receives() == []
    peer.request("SEND_ONLY", b"the next one")
    assert qp.host.receives() == [(1, SUCCESS)]
    assert memory.bytes[:12] == b"the next one"
    peer.request("SEND_ONLY", b"and one more")
    assert qp.host.receives() == [(2, SUCCESS)]
    assert peer.take() == []
    assert qp.state == QPState.RTS


def test_9_8_2_a_gap_between_messages_is_no_matter(joined):
    qp, peer, memory = joined
    qp.recv(memory.sge(), wr_id=1)
    peer.request("SEND_ONLY", b"x", psn=psn_after(PSN, 100))
    assert qp.host.receives() == [(1, SUCCESS)]
    assert qp.query().rq_psn == psn_after(PSN, 101)


def test_9_8_2_a_message_that_begins_ends_the_one_before_it(joined):
    qp, peer, memory = joined
    qp.recv(memory.sge(0, 1000), wr_id=1)
    peer.request("SEND_FIRST", b"\xee" * MTU)
    peer.request("SEND_FIRST", pattern(MTU))
    peer.request("SEND_LAST", b"end")
    assert qp.host.receives() == [(1, SUCCESS)]
    assert memory.bytes[: MTU + 3] == pattern(MTU) + b"end"


def test_9_8_2_a_write_lands_and_a_bad_one_is_dropped_in_silence(joined):
    qp, peer, memory = joined
    peer.request("RDMA_WRITE_ONLY", b"good", **reth(memory, 4))
    peer.request("RDMA_WRITE_ONLY", b"evil", **reth(memory, 4, rkey=0xBAD00))
    peer.request("RDMA_WRITE_ONLY", b"evil", **reth(memory, 4, at=-2))
    peer.request("RDMA_WRITE_ONLY", b"evil", **reth(memory, 5))
    peer.request("RDMA_WRITE_ONLY", b"fine", **reth(memory, 4, at=8))
    assert memory.bytes[:12] == b"good" + bytes(4) + b"fine"
    assert memory.bytes[12:] == bytes(8192 - 12)
    assert peer.take() == []
    assert qp.state == QPState.RTS


def test_9_8_2_the_rest_of_a_refused_write_is_dropped(joined):
    qp, peer, memory = joined
    peer.request("RDMA_WRITE_FIRST", b"\xee" * MTU, **reth(memory, 600, rkey=0xBAD00))
    peer.request("RDMA_WRITE_MIDDLE", b"\xee" * MTU)
    peer.request("RDMA_WRITE_LAST", b"\xee" * 88)
    peer.request("RDMA_WRITE_ONLY", b"fine", **reth(memory, 4))
    assert memory.bytes == b"fine" + bytes(8188)
    assert qp.state == QPState.RTS


def test_9_8_2_a_write_with_immediate_takes_a_receive(joined):
    qp, peer, memory = joined
    qp.recv(wr_id=1)
    fields = reth(memory, MTU + 4)
    peer.request("RDMA_WRITE_FIRST", pattern(MTU), **fields)
    peer.request("RDMA_WRITE_LAST_WITH_IMMEDIATE", b"last", immediate=9)
    (wc,) = qp.host.recv_wcs()
    assert (wc.opcode, wc.byte_len) == (WcOpcode.RECV_RDMA_WITH_IMM, MTU + 4)
    assert (wc.wr_id, wc.immediate_or_rkey) == (1, 9)
    assert memory.bytes[: MTU + 4] == pattern(MTU) + b"last"


def test_9_8_2_without_a_receive_messages_are_dropped_in_silence(joined):
    qp, peer, memory = joined
    peer.request("SEND_FIRST", bytes(MTU))
    peer.request("SEND_LAST", b"lost")
    peer.request("SEND_ONLY", b"lost")
    qp.recv(memory.sge(), wr_id=1)
    peer.request("SEND_ONLY", b"kept")
    assert qp.host.receives() == [(1, SUCCESS)]
    assert memory.bytes[:4] == b"kept"
    assert peer.take() == []


def test_9_8_2_a_message_longer_than_its_receive_is_dropped_in_silence(joined):
    qp, peer, memory = joined
    qp.recv(memory.sge(0, 8), wr_id=1)
    peer.request("SEND_ONLY", b"123456789")
    assert qp.host.receives() == []
    assert qp.state == QPState.RTS
    peer.request("SEND_ONLY", b"it fits!")
    assert qp.host.receives() == [(1, SUCCESS)]
    assert peer.take() == []


@pytest.mark.parametrize(
    ("operation", "length"),
    [("SEND_FIRST", MTU - 4), ("SEND_ONLY", MTU + 1), ("SEND_MIDDLE", MTU), ("SEND_LAST", 4)],
)
def test_9_8_2_malformed_messages_are_dropped_in_silence(joined, operation, length):
    qp, peer, memory = joined
    qp.recv(memory.sge(), wr_id=1)
    peer.request(operation, b"\xee" * length)
    assert qp.host.receives() == []
    assert peer.take() == []
    assert qp.state == QPState.RTS
    peer.request("SEND_ONLY", b"fine")
    assert qp.host.receives() == [(1, SUCCESS)]


def test_9_8_2_responses_make_no_sense_and_change_nothing(joined):
    qp, peer, _ = joined
    peer.prefix = "RC"
    assert peer.ack(PSN) != ""
    assert qp.state == QPState.RTS


def test_9_8_2_a_queue_pair_without_the_right_takes_no_write(host):
    qp, peer = connect(host, QPType.UC, rq_psn=0, qp_access_flags=0)
    memory = host.memory(64)
    peer.request("RDMA_WRITE_ONLY", b"evil", **reth(memory, 4))
    assert memory.bytes == bytes(64)
    assert qp.state == QPState.RTS


def test_9_8_2_zero_bytes(joined):
    qp, peer, memory = joined
    qp.recv(wr_id=1)
    peer.request("RDMA_WRITE_ONLY", **reth(memory, 0, rkey=0xBAD00))
    peer.request("SEND_ONLY")
    assert qp.host.receives() == [(1, SUCCESS)]
    qp.post(send(wr_id=2), write(wr_id=3))
    assert [p.payload for p in peer.take()] == [b"", b""]
    assert qp.host.sends() == [(2, SUCCESS), (3, SUCCESS)]
