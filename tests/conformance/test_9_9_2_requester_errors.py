"""IBTA Vol 1, 9.9.2 and 10.8.3: how a failing request completes, and what becomes of others."""

from __future__ import annotations

import pytest

from softhca._adapter import (
    Access,
    QPState,
    Reason,
    SendFlags,
    WcStatus,
    WrOpcode,
)

from .host import fetch_add, read, send, write
from .peer import (
    ACK,
    NAK_ACCESS,
    NAK_INVALID,
    NAK_OPERATIONAL,
    NAK_SEQUENCE,
    connect,
)

SUCCESS, FLUSHED = WcStatus.SUCCESS, WcStatus.WR_FLUSH_ERR
PSN = 0x800
UNSIGNALED = 0


@pytest.fixture
def asking(host):
    qp, peer = connect(host, path_mtu=1)
    return qp, peer, host.memory(4096)


# --- what the peer says

REFUSALS = {
    NAK_INVALID: (WcStatus.REM_INV_REQ_ERR, Reason.NAK_INVALID_REQUEST),
    NAK_ACCESS: (WcStatus.REM_ACCESS_ERR, Reason.NAK_ACCESS),
    NAK_OPERATIONAL: (WcStatus.REM_OP_ERR, Reason.NAK_OPERATIONAL),
}


@pytest.mark.parametrize("syndrome", REFUSALS)
@pytest.mark.parametrize("flags", [SendFlags.SIGNALED, UNSIGNALED], ids=["signaled", "unsignaled"])
def test_10_7_3_a_nak_completes_its_request_signaled_or_not(asking, syndrome, flags):
    """An error is always reported; who does not ask for completions must still learn of it."""
    qp, peer, memory = asking
    qp.post(write(memory.sge(0, 8), to=0x5000, rkey=0x77, wr_id=3, flags=flags))
    peer.take()
    peer.ack(PSN, syndrome)
    (wc,) = qp.host.send_wcs()
    assert (wc.wr_id, wc.status, wc.reason) == (3, *REFUSALS[syndrome])
    assert (wc.qp_num, wc.by_peer) == (qp.qpn, True)
    assert (wc.key, wc.address) == (0x77, 0x5000)
    assert qp.state == QPState.ERR


@pytest.mark.parametrize("syndrome", REFUSALS)
def test_9_9_2_a_nak_acknowledges_what_came_before_and_flushes_what_comes_after(asking, syndrome):
    qp, peer, memory = asking
    qp.post(
        write(memory.sge(0, 8), wr_id=1, flags=UNSIGNALED),
        send(wr_id=2),
        write(memory.sge(0, 8), wr_id=3),
        send(wr_id=4, flags=UNSIGNALED),
        send(wr_id=5),
    )
    peer.take()
    peer.ack(PSN + 2, syndrome)
    assert qp.host.sends() == [
        (2, SUCCESS),
        (3, REFUSALS[syndrome][0]),
        (4, FLUSHED),
        (5, FLUSHED),
    ]


def test_9_9_2_a_nak_in_the_middle_of_a_message_fails_that_message(asking):
    qp, peer, memory = asking
    qp.post(send(wr_id=1), write(memory.sge(0, 1000), wr_id=2), send(wr_id=3))
    peer.take()
    peer.ack(PSN + 3, NAK_ACCESS)
    assert qp.host.sends() == [(1, SUCCESS), (2, WcStatus.REM_ACCESS_ERR), (3, FLUSHED)]


def test_9_9_2_a_nak_that_skips_an_unanswered_read_is_a_lost_answer_first(asking):
    """The READ may have been answered; its data must come before the failure is believed."""
    qp, peer, memory = asking
    qp.post(read(memory.sge(0, 8), wr_id=1), write(memory.sge(0, 8), wr_id=2))
    peer.take()
    peer.ack(PSN + 1, NAK_ACCESS)
    assert qp.host.sends() == []
    assert [name for name, _ in peer.requests()] == ["RDMA_READ_REQUEST", "RDMA_WRITE_ONLY"]
    peer.response("RDMA_READ_RESPONSE_ONLY", PSN, bytes(8))
    peer.ack(PSN + 1, NAK_ACCESS)
    assert qp.host.sends() == [(1, SUCCESS), (2, WcStatus.REM_ACCESS_ERR)]


# --- local checks at execution

BAD_ENTRIES = {
    "an unknown lkey": lambda memory: (memory.address, 8, 0x7FFFFF00),
    "outside its region": lambda memory: (memory.address + 4090, 8, memory.lkey),
    "before its region": lambda memory: (memory.address - 1, 8, memory.lkey),
    "an address that wraps": lambda memory: (0xFFFFFFFFFFFFFFFC, 8, memory.lkey),
    "another protection domain": lambda m: m.host.memory(64, pd=m.host.hca.alloc_pd()).sge(0, 8),
}


@pytest.mark.parametrize("name", BAD_ENTRIES)
@pytest.mark.parametrize("flags", [SendFlags.SIGNALED, UNSIGNALED], ids=["signaled", "unsignaled"])
@pytest.mark.parametrize("make", [send, write])
def test_9_9_2_a_bad_entry_of_a_send_is_a_local_protection_error(asking, name, make, flags):
    qp, peer, memory = asking
    qp.post(make(memory.sge(0, 8), BAD_ENTRIES[name](memory), wr_id=3, flags=flags))
    # Nothing leaves: the list is checked as a whole before the first packet.
    assert peer.take() == []
    assert qp.host.sends() == [(3, WcStatus.LOC_PROT_ERR)]
    assert qp.state == QPState.ERR


@pytest.mark.parametrize("name", BAD_ENTRIES)
def test_9_9_2_a_bad_landing_of_a_read_is_a_local_protection_error(asking, name):
    """Found when the data comes: remote errors come first for a READ."""
    qp, peer, memory = asking
    qp.post(read(BAD_ENTRIES[name](memory), wr_id=3))
    assert peer.requests() == [("RDMA_READ_REQUEST", PSN)]
    peer.response("RDMA_READ_RESPONSE_ONLY", PSN, bytes(8))
    assert qp.host.sends() == [(3, WcStatus.LOC_PROT_ERR)]
    assert qp.state == QPState.ERR


@pytest.mark.parametrize("make", [read, fetch_add])
def test_9_9_2_a_landing_without_local_write_is_a_local_protection_error(asking, make):
    qp, peer, _ = asking
    read_only = qp.host.memory(64, Access.REMOTE_READ)
    qp.post(make(read_only.sge(0, 8), wr_id=3))
    peer.take()
    if make is read:
        peer.response("RDMA_READ_RESPONSE_ONLY", PSN, b"\xff" * 8)
    else:
        peer.response("ATOMIC_ACKNOWLEDGE", PSN, atomic_original=0xFFFF)
    assert qp.host.sends() == [(3, WcStatus.LOC_PROT_ERR)]
    assert read_only.bytes == bytes(64)


def test_10_6_3_a_source_needs_no_right_at_all(asking):
    qp, peer, _ = asking
    bare = qp.host.memory(64, 0)
    qp.post(send(bare.sge(0, 8)))
    assert len(peer.take()) == 1


def test_9_9_2_a_bad_local_and_a_bad_remote_key_of_a_write_is_a_local_error(asking):
    qp, peer, memory = asking
    qp.post(write((memory.address, 8, 0xBAD00), rkey=0xBAD00, wr_id=1))
    assert peer.take() == []
    assert qp.host.sends() == [(1, WcStatus.LOC_PROT_ERR)]


def test_9_9_2_a_bad_local_and_a_bad_remote_key_of_a_read_is_a_remote_error(asking):
    qp, peer, memory = asking
    qp.post(read((memory.address, 8, 0xBAD00), rkey=0xBAD00, wr_id=1))
    assert len(peer.take()) == 1
    peer.ack(PSN, NAK_ACCESS)
    assert qp.host.sends() == [(1, WcStatus.REM_ACCESS_ERR)]


def test_10_8_3_a_request_is_checked_when_it_runs_and_not_when_it_is_posted(asking):
    """Deregistered in between: an error completion, and nothing of the memory leaves."""
    qp, peer, memory = asking
    qp.post(send(memory.sge(0, 8), wr_id=1))
    memory.dereg()
    assert peer.take() == []
    assert qp.host.sends() == [(1, WcStatus.LOC_PROT_ERR)]


def test_10_8_3_a_region_that_goes_away_before_a_repeat_is_an_error_completion(asking):
    qp, peer, memory = asking
    qp.post(send(memory.sge(0, 8), wr_id=1))
    assert len(peer.take()) == 1
    memory.dereg()
    peer.ack(PSN, NAK_SEQUENCE)
    assert peer.take() == []
    assert qp.host.sends() == [(1, WcStatus.LOC_PROT_ERR)]
    assert qp.state == QPState.ERR


@pytest.mark.parametrize("length", [0, 4, 7])
def test_9_9_2_an_atomic_whose_landing_is_too_short_is_a_local_length_error(asking, length):
    qp, peer, memory = asking
    qp.post(fetch_add(memory.sge(0, length), wr_id=1))
    assert peer.take() == []
    (wc,) = qp.host.send_wcs()
    expected = (1, WcStatus.LOC_LEN_ERR, Reason.ATOMIC_LENGTH, length)
    assert (wc.wr_id, wc.status, wc.reason, wc.length) == expected


def test_9_4_1_a_message_above_2_31_is_a_local_length_error(host):
    qp, peer = connect(host)
    region = host.memory(64, iova=0)
    half = (0, 1 << 30, region.lkey)
    qp.post(write(half, half, (0, 1, region.lkey), wr_id=1))
    assert peer.take() == []
    assert host.sends() == [(1, WcStatus.LOC_LEN_ERR)]


# --- malformed responses

BAD_RESPONSES = {
    "too short": ("RDMA_READ_RESPONSE_ONLY", b"1234567", {}),
    "too long": ("RDMA_READ_RESPONSE_ONLY", b"123456789", {}),
    "empty": ("RDMA_READ_RESPONSE_ONLY", b"", {}),
    "a first where the only belongs": ("RDMA_READ_RESPONSE_FIRST", b"12345678", {}),
    "a middle where the only belongs": ("RDMA_READ_RESPONSE_MIDDLE", b"12345678", {}),
    "a last where the only belongs": ("RDMA_READ_RESPONSE_LAST", b"12345678", {}),
    "an atomic's answer": ("ATOMIC_ACKNOWLEDGE", b"", {}),
    "a syndrome that refuses": ("RDMA_READ_RESPONSE_ONLY", b"12345678", {"syndrome": 0x62}),
}


@pytest.mark.parametrize("name", BAD_RESPONSES)
def test_9_9_2_a_malformed_response_is_a_bad_response_error(asking, name):
    qp, peer, memory = asking
    qp.post(read(memory.sge(0, 8), wr_id=1), send(wr_id=2))
    peer.take()
    operation, payload, fields = BAD_RESPONSES[name]
    peer.response(operation, PSN, payload, **fields)
    assert qp.host.sends() == [(1, WcStatus.BAD_RESP_ERR), (2, FLUSHED)]
    assert qp.state == QPState.ERR
    assert memory.bytes == bytes(4096)


@pytest.mark.parametrize(
    "order",
    [
        ("MIDDLE",),
        ("LAST",),
        ("ONLY",),
        ("FIRST", "FIRST"),
        ("FIRST", "ONLY"),
        ("FIRST", "LAST"),
        ("FIRST", "MIDDLE", "ONLY"),
        ("FIRST", "MIDDLE", "FIRST"),
        ("FIRST", "MIDDLE", "MIDDLE"),
    ],
)
def test_9_9_2_responses_out_of_their_order_are_a_bad_response_error(host, order):
    qp, peer = connect(host, sq_psn=PSN, path_mtu=1)
    memory = host.memory(4096)
    qp.post(read(memory.sge(0, 3 * 256), wr_id=1))
    peer.take()
    for number, position in enumerate(order):
        assert host.sends() == []
        peer.response(f"RDMA_READ_RESPONSE_{position}", PSN + number, bytes(256))
    assert host.sends() == [(1, WcStatus.BAD_RESP_ERR)]
    assert qp.state == QPState.ERR


@pytest.mark.parametrize("order", [("FIRST", "LAST"), ("MIDDLE", "LAST"), ("FIRST", "ONLY")])
def test_9_9_2_the_answer_to_a_repeat_may_begin_where_that_did(host, order):
    """Of a READ of three packets whose second was lost; rxe sends the rest without a FIRST."""
    qp, peer = connect(host, sq_psn=PSN, path_mtu=1)
    memory = host.memory(4096)
    qp.post(read(memory.sge(0, 3 * 256), wr_id=1))
    peer.take()
    peer.response("RDMA_READ_RESPONSE_FIRST", PSN, bytes(256))
    peer.response("RDMA_READ_RESPONSE_LAST", PSN + 2, bytes(256))
    assert peer.requests() == [("RDMA_READ_REQUEST", PSN + 1)]
    for number, position in enumerate(order):
        peer.response(f"RDMA_READ_RESPONSE_{position}", PSN + 1 + number, bytes(256))
    assert host.sends() == [(1, WcStatus.SUCCESS)]


def test_9_9_2_a_read_response_for_an_atomic_is_a_bad_response_error(asking):
    qp, peer, memory = asking
    qp.post(fetch_add(memory.sge(0, 8), wr_id=1))
    peer.take()
    peer.response("RDMA_READ_RESPONSE_ONLY", PSN, bytes(8))
    assert qp.host.sends() == [(1, WcStatus.BAD_RESP_ERR)]


ANSWERS = [
    "RDMA_READ_RESPONSE_FIRST",
    "RDMA_READ_RESPONSE_MIDDLE",
    "RDMA_READ_RESPONSE_LAST",
    "RDMA_READ_RESPONSE_ONLY",
    "ATOMIC_ACKNOWLEDGE",
]


@pytest.mark.parametrize("operation", ANSWERS)
@pytest.mark.parametrize("make", [send, write])
def test_9_9_2_an_answer_where_an_acknowledgement_is_due_is_a_bad_response(asking, operation, make):
    """What is before it has arrived nevertheless; a READ behind it is owed another answer."""
    qp, peer, memory = asking
    qp.post(send(wr_id=1), make(memory.sge(0, 8), wr_id=2), read(memory.sge(8, 8), wr_id=3))
    peer.take()
    peer.response(operation, PSN + 1)
    assert qp.host.sends() == [(1, SUCCESS), (2, WcStatus.BAD_RESP_ERR), (3, FLUSHED)]
    assert qp.state == QPState.ERR
    assert memory.bytes == bytes(4096)


@pytest.mark.parametrize("operation", ANSWERS)
@pytest.mark.parametrize("psn", [PSN - 1, PSN + 1])
def test_9_9_2_an_answer_to_what_is_not_under_way_changes_nothing(asking, operation, psn):
    qp, peer, memory = asking
    qp.post(send(memory.sge(0, 8), wr_id=1))
    peer.take()
    peer.response(operation, psn)
    assert qp.state == QPState.RTS
    peer.ack(PSN)
    assert qp.host.sends() == [(1, SUCCESS)]


@pytest.mark.parametrize("operation", ["RDMA_READ_RESPONSE_ONLY", "ATOMIC_ACKNOWLEDGE"])
def test_9_9_2_an_answer_beyond_one_that_is_owed_says_that_this_was_lost(asking, operation):
    qp, peer, memory = asking
    qp.post(read(memory.sge(0, 8), wr_id=1), send(wr_id=2))
    peer.take()
    peer.response(operation, PSN + 1)
    assert peer.requests() == [("RDMA_READ_REQUEST", PSN), ("SEND_ONLY", PSN + 1)]
    assert qp.state == QPState.RTS


# Codes of NAKs that mean nothing, that of reliable datagrams among them, and classes that are none.
RESERVED_SYNDROMES = [0x64, 0x65, 0x7F, 0x40, 0x5F, 0x80, 0x9F, 0xE0, 0xFF]


@pytest.mark.parametrize("syndrome", RESERVED_SYNDROMES)
def test_9_9_2_a_reserved_syndrome_is_a_bad_response_to_its_request(asking, syndrome):
    qp, peer, memory = asking
    qp.post(send(wr_id=1), write(memory.sge(0, 8), rkey=0x77, wr_id=2), send(wr_id=3))
    peer.take()
    peer.ack(PSN + 1, syndrome)
    first, second, third = qp.host.send_wcs()
    assert (first.wr_id, first.status) == (1, SUCCESS)
    assert (second.wr_id, second.status, second.reason, second.key, second.by_peer) == (
        2,
        WcStatus.BAD_RESP_ERR,
        Reason.BAD_RESPONSE,
        0x77,
        True,
    )
    assert (third.wr_id, third.status) == (3, FLUSHED)
    assert qp.state == QPState.ERR


@pytest.mark.parametrize("syndrome", RESERVED_SYNDROMES)
@pytest.mark.parametrize("psn", [PSN - 1, PSN + 2, PSN + 0x800000])
def test_9_9_2_a_reserved_syndrome_about_what_is_not_under_way_changes_nothing(
    asking, syndrome, psn
):
    qp, peer, _ = asking
    qp.post(send(wr_id=1), send(wr_id=2))
    peer.take()
    peer.ack(psn, syndrome)
    assert (qp.host.sends(), qp.state) == ([], QPState.RTS)
    peer.ack(PSN + 1)
    assert qp.host.sends() == [(1, SUCCESS), (2, SUCCESS)]


def test_9_9_2_a_reserved_syndrome_that_skips_an_unanswered_read_is_a_lost_answer_first(asking):
    qp, peer, memory = asking
    qp.post(read(memory.sge(0, 8), wr_id=1), send(wr_id=2))
    peer.take()
    peer.ack(PSN + 1, 0x65)
    assert qp.host.sends() == []
    assert [name for name, _ in peer.requests()] == ["RDMA_READ_REQUEST", "SEND_ONLY"]


# --- order


def test_10_8_3_errors_do_not_overtake(asking):
    """The third request fails locally while the first two are still unacknowledged."""
    qp, peer, memory = asking
    qp.post(
        send(wr_id=1),
        write(memory.sge(0, 8), wr_id=2),
        send((0, 8, 0xBAD00), wr_id=3),
        send(wr_id=4),
    )
    assert peer.requests() == [("SEND_ONLY", PSN), ("RDMA_WRITE_ONLY", PSN + 1)]
    assert qp.host.sends() == []
    peer.ack(PSN)
    assert qp.host.sends() == [(1, SUCCESS)]
    peer.ack(PSN + 1)
    assert qp.host.sends() == [(2, SUCCESS), (3, WcStatus.LOC_PROT_ERR), (4, FLUSHED)]


def test_10_8_3_an_earlier_failure_wins_over_a_later_one_that_waits(asking):
    qp, peer, _ = asking
    qp.post(send(wr_id=1), send((0, 8, 0xBAD00), wr_id=2))
    peer.take()
    peer.ack(PSN, NAK_ACCESS)
    assert qp.host.sends() == [(1, WcStatus.REM_ACCESS_ERR), (2, FLUSHED)]


def test_10_8_3_a_failure_behind_lost_packets_waits_for_their_repeats(asking):
    qp, peer, _ = asking
    qp.post(send(wr_id=1), send((0, 8, 0xBAD00), wr_id=2))
    peer.take()
    peer.ack(PSN, NAK_SEQUENCE)
    assert peer.requests() == [("SEND_ONLY", PSN)]
    peer.ack(PSN, ACK)
    assert qp.host.sends() == [(1, SUCCESS), (2, WcStatus.LOC_PROT_ERR)]


def test_10_3_1_send_and_receive_queues_are_flushed_each_in_its_order(asking):
    qp, peer, memory = asking
    for number in range(20, 25):
        qp.recv(memory.sge(), wr_id=number)
    # Every other pair of them is signaled; 0 and 1 are not.
    qp.post(*(send(wr_id=number, flags=number & 2) for number in range(10)))
    peer.take()
    peer.ack(PSN + 2, NAK_INVALID)
    flushed = [(number, FLUSHED) for number in range(3, 10)]
    assert qp.host.sends() == [(2, WcStatus.REM_INV_REQ_ERR), *flushed]
    assert qp.host.receives() == [(number, FLUSHED) for number in range(20, 25)]


def test_10_3_1_flushed_completions_name_their_queue_pair_and_nothing_is_lost(asking):
    qp, peer, _ = asking
    qp.post(*(send(wr_id=number) for number in range(64)))
    qp.modify(qp_state=QPState.ERR)
    wcs = qp.host.send_wcs()
    assert [wc.wr_id for wc in wcs] == list(range(64))
    assert {(wc.status, wc.qp_num, wc.reason) for wc in wcs} == {(FLUSHED, qp.qpn, Reason.FLUSHED)}
    assert peer.take() == []


def test_9_9_2_after_an_error_nothing_more_is_sent(asking):
    qp, peer, memory = asking
    qp.post(*(write(memory.sge(0, 256), wr_id=number) for number in range(50)))
    peer.take()
    peer.ack(PSN, NAK_ACCESS)
    assert peer.take() == []
    qp.host.advance(3600 * 10**9)
    peer.ack(PSN + 3)
    peer.ack(PSN + 3, NAK_SEQUENCE)
    assert peer.take() == []
    assert len(qp.host.sends()) == 50


# --- completions of what went well


def test_10_7_3_unsignaled_requests_make_no_completion(asking):
    qp, peer, _ = asking
    qp.post(send(wr_id=1, flags=0), send(wr_id=2), send(wr_id=3, flags=0))
    peer.take()
    peer.ack(PSN + 2)
    assert qp.host.sends() == [(2, SUCCESS)]


def test_10_7_3_sq_sig_all_signals_every_request(host):
    qp, peer = connect(host, sq_sig_all=True)
    qp.post(send(wr_id=1, flags=0), send(wr_id=2, flags=0))
    peer.take()
    peer.ack(PSN + 1)
    assert host.sends() == [(1, SUCCESS), (2, SUCCESS)]


@pytest.mark.parametrize("opcode", [WrOpcode.SEND_WITH_INV])
def test_9_9_6_an_invalidate_that_is_never_answered_ends_in_the_requesters_own_time_out(
    asking, opcode
):
    qp, peer, _ = asking
    qp.post(send(opcode=opcode, invalidate_rkey=0x1234, wr_id=1))
    (request,) = peer.take()
    assert request.opcode_name == "RC_SEND_ONLY_WITH_INVALIDATE"
    assert request.invalidate_rkey == 0x1234
    while qp.state == QPState.RTS:
        qp.host.advance(10**9)
        peer.take()
    assert qp.host.sends() == [(1, WcStatus.RETRY_EXC_ERR)]
