"""IBTA Vol 1, 9.7.4.1: what a responder refuses of a request: its order, length, key and range."""

from __future__ import annotations

import pytest

from softhca._adapter import Access, EventType, QPState, WcStatus

from .peer import (
    ACK,
    NAK_ACCESS,
    NAK_INVALID,
    connect,
    reth,
)

SUCCESS, FLUSHED = WcStatus.SUCCESS, WcStatus.WR_FLUSH_ERR
PSN = 0x100
MTU = 256


def assert_refused(qp, peer, nak, event, psn=PSN):
    assert peer.answers() == [(psn, nak)]
    assert qp.state == QPState.ERR
    assert qp.host.events() == [(event, qp.qpn)]


# --- a wrong sequence of opcodes (9.7.4.1.3)

SEQUENCES = {
    "a middle without a first": ["SEND_MIDDLE"],
    "a last without a first": ["SEND_LAST"],
    "a WRITE middle without a first": ["RDMA_WRITE_MIDDLE"],
    "a WRITE last without a first": ["RDMA_WRITE_LAST"],
    "a first inside a message": ["SEND_FIRST", "SEND_FIRST"],
    "an only inside a message": ["SEND_FIRST", "SEND_ONLY"],
    "a WRITE inside a SEND": ["SEND_FIRST", "RDMA_WRITE_ONLY"],
    "a WRITE middle inside a SEND": ["SEND_FIRST", "RDMA_WRITE_MIDDLE"],
    "a SEND inside a WRITE": ["RDMA_WRITE_FIRST", "SEND_LAST"],
    "a READ inside a message": ["SEND_FIRST", "RDMA_READ_REQUEST"],
    "an atomic inside a message": ["RDMA_WRITE_FIRST", "FETCH_ADD"],
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_9_7_4_a_wrong_sequence_of_opcodes_is_an_invalid_request(served, name):
    qp, peer, memory = served
    qp.recv(memory.sge(), wr_id=1)
    qp.recv(memory.sge(), wr_id=2)
    opcodes = SEQUENCES[name]
    for number, opcode in enumerate(opcodes):
        last = number + 1 == len(opcodes)
        has_payload = "READ" not in opcode and "ADD" not in opcode
        payload = bytes(MTU if opcode.endswith(("FIRST", "MIDDLE")) else 8) if has_payload else b""
        fields = reth(memory, 2 * MTU if opcode.endswith("FIRST") else 8)
        peer.request(opcode, payload, ack_request=last, **fields)
    assert_refused(qp, peer, NAK_INVALID, EventType.QP_REQ_ERR, PSN + len(opcodes) - 1)
    taken = opcodes[0] == "SEND_FIRST"
    first = (1, WcStatus.REM_INV_REQ_ERR if taken else FLUSHED)
    assert qp.host.receives() == [first, (2, FLUSHED)]


# --- wrong lengths (9.7.4.1.6)


@pytest.mark.parametrize(
    ("opcode", "length"),
    [
        ("SEND_FIRST", MTU - 4),
        ("SEND_FIRST", MTU + 4),
        ("SEND_FIRST", 0),
        ("SEND_ONLY", MTU + 1),
        ("RDMA_WRITE_ONLY", MTU + 1),
        ("RDMA_WRITE_FIRST", MTU - 1),
    ],
)
def test_9_7_4_a_packet_of_a_wrong_length_is_an_invalid_request(served, opcode, length):
    qp, peer, memory = served
    qp.recv(memory.sge())
    peer.request(opcode, bytes(length), **reth(memory, max(length, 1000)))
    assert_refused(qp, peer, NAK_INVALID, EventType.QP_REQ_ERR)
    assert memory.bytes == bytes(4096)


@pytest.mark.parametrize(
    ("opcode", "length"),
    [("SEND_MIDDLE", MTU - 4), ("SEND_MIDDLE", 0), ("SEND_LAST", 0), ("SEND_LAST", MTU + 1)],
)
def test_9_7_4_a_later_packet_of_a_wrong_length_is_an_invalid_request(served, opcode, length):
    qp, peer, memory = served
    qp.recv(memory.sge())
    peer.request("SEND_FIRST", bytes(MTU), ack_request=False)
    peer.request(opcode, bytes(length))
    assert_refused(qp, peer, NAK_INVALID, EventType.QP_REQ_ERR, PSN + 1)


@pytest.mark.parametrize("announced", [0, 1, 7, 9, 300])
def test_9_7_4_a_write_that_is_not_as_long_as_it_says_is_an_invalid_request(served, announced):
    qp, peer, memory = served
    peer.request("RDMA_WRITE_ONLY", b"12345678", **reth(memory, announced))
    assert_refused(qp, peer, NAK_INVALID, EventType.QP_REQ_ERR)
    assert memory.bytes == bytes(4096)


@pytest.mark.parametrize("last", [1, 99, 101, MTU])
def test_9_7_4_a_write_whose_packets_do_not_add_up_is_an_invalid_request(served, last):
    qp, peer, memory = served
    peer.request("RDMA_WRITE_FIRST", bytes(MTU), ack_request=False, **reth(memory, MTU + 100))
    peer.request("RDMA_WRITE_LAST", b"\xff" * last)
    assert_refused(qp, peer, NAK_INVALID, EventType.QP_REQ_ERR, PSN + 1)
    assert memory.bytes == bytes(4096)


def test_9_7_4_a_write_that_goes_on_beyond_its_length_is_an_invalid_request(served):
    qp, peer, memory = served
    peer.request("RDMA_WRITE_FIRST", bytes(MTU), ack_request=False, **reth(memory, MTU + 1))
    peer.request("RDMA_WRITE_MIDDLE", b"\xff" * MTU)
    assert_refused(qp, peer, NAK_INVALID, EventType.QP_REQ_ERR, PSN + 1)
    assert memory.bytes == bytes(4096)


@pytest.mark.parametrize("opcode", ["RDMA_WRITE_FIRST", "RDMA_READ_REQUEST"])
@pytest.mark.parametrize("length", [(1 << 31) + 1, 0xFFFFFFFF])
def test_9_7_4_a_length_above_2_31_is_an_invalid_request(served, opcode, length):
    qp, peer, memory = served
    payload = bytes(MTU) if "WRITE" in opcode else b""
    peer.request(opcode, payload, **reth(memory, length))
    assert_refused(qp, peer, NAK_INVALID, EventType.QP_REQ_ERR)


# --- remote access (9.7.4.1.5)

BAD_ACCESS = {
    "an unknown key": {"rkey": 0x7FFFFF00},
    "key 0": {"rkey": 0},
    "before the region": {"at": -1},
    "behind the region": {"at": 4096},
    "over the end": {"at": 4096 - 7},
    "around 2^64": {"at": -0x1000000000000000},
}


@pytest.mark.parametrize("name", BAD_ACCESS)
@pytest.mark.parametrize("opcode", ["RDMA_WRITE_ONLY", "RDMA_READ_REQUEST"])
def test_9_7_4_access_outside_a_region_is_a_remote_access_error(served, name, opcode):
    qp, peer, memory = served
    payload = b"\xff" * 8 if "WRITE" in opcode else b""
    peer.request(opcode, payload, **reth(memory, 8, **BAD_ACCESS[name]))
    assert_refused(qp, peer, NAK_ACCESS, EventType.QP_ACCESS_ERR)
    assert memory.bytes == bytes(4096)
    # Nobody's receive was used, so nobody is told by a completion.
    assert qp.host.receives() == []


def test_9_7_4_a_long_write_is_checked_as_a_whole_at_its_first_packet(served):
    qp, peer, memory = served
    peer.request("RDMA_WRITE_FIRST", b"\xff" * MTU, **reth(memory, 4097))
    assert_refused(qp, peer, NAK_ACCESS, EventType.QP_ACCESS_ERR)
    assert memory.bytes == bytes(4096)


def test_9_7_4_addresses_that_wrap_2_64_are_refused(served):
    """The end of the range is computed without an overflow that would make it small."""
    qp, peer, _ = served
    memory = qp.host.memory(4096, iova=0xFFFFFFFFFFFFE000)
    peer.request("RDMA_READ_REQUEST", **reth(memory, 0x7FFFFFFF, at=4000))
    assert_refused(qp, peer, NAK_ACCESS, EventType.QP_ACCESS_ERR)


def test_9_7_4_a_region_of_another_protection_domain_is_refused(served):
    qp, peer, _ = served
    foreign = qp.host.memory(64, pd=qp.host.hca.alloc_pd())
    peer.request("RDMA_WRITE_ONLY", b"12345678", **reth(foreign, 8))
    assert_refused(qp, peer, NAK_ACCESS, EventType.QP_ACCESS_ERR)
    assert foreign.bytes == bytes(64)


def test_9_7_4_a_region_deregistered_between_two_packets_ends_the_write(served):
    qp, peer, memory = served
    peer.request("RDMA_WRITE_FIRST", b"\x11" * MTU, ack_request=False, **reth(memory, 300))
    memory.dereg()
    peer.request("RDMA_WRITE_LAST", b"\x22" * 44)
    assert_refused(qp, peer, NAK_ACCESS, EventType.QP_ACCESS_ERR, PSN + 1)
    assert memory.bytes[MTU:] == bytes(4096 - MTU)


def test_9_7_4_a_stale_key_of_a_registered_slot_is_refused(served):
    """The index is in use again, by another region; the whole key is compared (10.6.3)."""
    qp, peer, memory = served
    old_rkey = memory.rkey
    memory.dereg()
    regions = [qp.host.memory(4096) for _ in range(64)]
    assert old_rkey not in {region.rkey for region in regions}
    for region in regions:
        region.address = regions[0].address
    peer.request("RDMA_WRITE_ONLY", b"12345678", **reth(regions[0], 8, rkey=old_rkey))
    assert_refused(qp, peer, NAK_ACCESS, EventType.QP_ACCESS_ERR)


def test_9_7_4_right_bounds_are_reached_and_not_crossed(served):
    qp, peer, memory = served
    peer.request("RDMA_WRITE_ONLY", b"A" * 8, **reth(memory, 8))
    peer.request("RDMA_WRITE_ONLY", b"Z" * 8, **reth(memory, 8, at=4088))
    assert [answer[1] for answer in peer.answers()] == [ACK]
    assert memory.bytes == b"A" * 8 + bytes(4080) + b"Z" * 8
    assert qp.state == QPState.RTS


def test_9_7_4_a_write_with_immediate_and_a_bad_key_leaves_the_receive(served):
    """The receive is flushed like the others; it was not used for the message."""
    qp, peer, memory = served
    qp.recv(memory.sge(), wr_id=1)
    peer.request("RDMA_WRITE_ONLY_WITH_IMMEDIATE", b"12345678", **reth(memory, 8, rkey=0xBAD00))
    assert_refused(qp, peer, NAK_ACCESS, EventType.QP_ACCESS_ERR)
    assert qp.host.receives() == [(1, FLUSHED)]


# --- zero bytes (C9-88)


@pytest.mark.parametrize("opcode", ["RDMA_WRITE_ONLY", "RDMA_READ_REQUEST"])
def test_c9_88_zero_bytes_need_neither_key_nor_address(served, opcode):
    qp, peer, memory = served
    peer.request(opcode, **reth(memory, 0, at=-0x5000, rkey=0xBAD00))
    expected = (PSN, ACK) if "WRITE" in opcode else (PSN, "RDMA_READ_RESPONSE_ONLY", b"")
    assert peer.answers() == [expected]
    assert qp.state == QPState.RTS


def test_c9_88_zero_bytes_still_need_the_queue_pairs_right(host):
    qp, peer = connect(host, qp_access_flags=int(Access.LOCAL_WRITE))
    peer.request("RDMA_WRITE_ONLY", **reth(host.memory(64), 0))
    assert peer.answers() == [(PSN, NAK_INVALID)]
    assert qp.state == QPState.ERR


def test_c9_88_a_write_with_immediate_of_zero_bytes_uses_a_receive(served):
    qp, peer, memory = served
    qp.recv(wr_id=6)
    fields = reth(memory, 0, rkey=0xBAD00)
    peer.request("RDMA_WRITE_ONLY_WITH_IMMEDIATE", immediate=0x55, **fields)
    assert peer.answers() == [(PSN, ACK)]
    (wc,) = qp.host.recv_wcs()
    assert (wc.wr_id, wc.byte_len, wc.immediate_or_rkey) == (6, 0, 0x55)


def test_9_7_4_a_send_of_zero_bytes_uses_a_receive_without_entries(served):
    qp, peer, _ = served
    qp.recv(wr_id=6)
    peer.request("SEND_ONLY")
    assert peer.answers() == [(PSN, ACK)]
    (wc,) = qp.host.recv_wcs()
    assert (wc.wr_id, wc.status, wc.byte_len) == (6, SUCCESS, 0)
