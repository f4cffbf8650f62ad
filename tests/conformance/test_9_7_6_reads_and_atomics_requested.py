"""IBTA Vol 1, 9.7.3, 9.7.6 and 9.7.7: the requester of READs and atomics, fences, lost answers."""

from __future__ import annotations

import pytest

from softhca._adapter import QPState, Route, SendFlags, WcOpcode, WcStatus

from .host import MS, compare_swap, fetch_add, pattern, read, send, write
from .peer import NAK_SEQUENCE, Peer, connect, to_state

SUCCESS = WcStatus.SUCCESS
START = 0xFFFFFE
FENCED = SendFlags.SIGNALED | SendFlags.FENCE


@pytest.fixture
def asking(host):
    """(qp, peer, memory) with path MTU 256 and PSNs that are about to wrap."""
    qp, peer = connect(host, sq_psn=START, path_mtu=1, max_rd_atomic=2)
    return qp, peer, host.memory(8192)


def respond(peer, psn, content, *, skip_first=0, last=None, begins=True):
    """Answers a READ; `skip_first` responses are lost, and those behind `last`."""
    pieces = [content[at : at + 256] for at in range(0, len(content), 256)] or [b""]
    for number, piece in enumerate(pieces):
        first, final = number == 0 and begins, number + 1 == len(pieces)
        name = {
            (True, True): "ONLY",
            (True, False): "FIRST",
            (False, False): "MIDDLE",
            (False, True): "LAST",
        }[(first, final)]
        if number >= skip_first and (last is None or number <= last):
            peer.response(f"RDMA_READ_RESPONSE_{name}", psn + number, piece)


@pytest.mark.parametrize("length", [0, 1, 255, 256, 257, 700, 2048])
def test_9_7_6_a_read_lands(asking, length):
    qp, peer, memory = asking
    qp.post(read(memory.sge(64, length), at=0x5000, rkey=0x77, wr_id=5))
    (request,) = peer.take()
    assert (request.opcode_name, request.psn) == ("RC_RDMA_READ_REQUEST", START)
    assert (request.virtual_address, request.rkey, request.dma_length) == (0x5000, 0x77, length)
    respond(peer, START, pattern(length))
    (wc,) = peer.host.send_wcs()
    assert (wc.wr_id, wc.status, wc.opcode) == (5, SUCCESS, WcOpcode.RDMA_READ)
    assert wc.byte_len == length
    assert memory.bytes == bytes(64) + pattern(length) + bytes(8192 - 64 - length)
    assert qp.query().sq_psn == (START + max(1, -(-length // 256))) & 0xFFFFFF


def asked(peer):
    """The READs that the peer is asked for: PSN, address and length."""
    return [(packet.psn, packet.virtual_address, packet.dma_length) for packet in peer.take()]


@pytest.mark.parametrize(("mtu_code", "packets"), [(1, 128), (2, 128), (3, 128), (4, 64), (5, 32)])
def test_9_7_6_a_long_read_is_asked_for_in_pieces(host, mtu_code, packets):
    """A socket's buffer holds one, and no more are asked for than agreed on (decision 3)."""
    qp, peer = connect(host, sq_psn=START, path_mtu=mtu_code, max_rd_atomic=1)
    mtu = 128 << mtu_code
    length = packets * mtu
    memory = host.memory(length + 5)
    qp.post(read(memory.sge(0, length + 5), at=0x5000))
    assert asked(peer) == [(START, 0x5000, length)]
    for number in range(packets):
        name = "FIRST" if number == 0 else "LAST" if number + 1 == packets else "MIDDLE"
        peer.response(f"RDMA_READ_RESPONSE_{name}", START + number, bytes(mtu))
    assert asked(peer) == [(START + packets & 0xFFFFFF, 0x5000 + length, 5)]
    peer.response("RDMA_READ_RESPONSE_ONLY", START + packets, b"thend")
    assert peer.host.sends() == [(0, SUCCESS)]
    assert memory.bytes == bytes(length) + b"thend"


def hear_a_program(qp, peer):
    """The peer is one from now on: it acknowledges a SEND, and not from an adapter's port."""
    peer.route = Route(peer.route.source, peer.route.destination, udp_source_port=4791)
    qp.post(send())
    peer.take()
    peer.ack(START)


def test_9_7_6_a_program_is_asked_for_a_long_read_at_once(asking):
    """One that does not send from an adapter's ports, once it has been heard."""
    qp, peer, _ = asking
    hear_a_program(qp, peer)
    memory = peer.host.memory(1025 * 256)
    qp.post(read(memory.sge(0, 1025 * 256), at=0x5000))
    assert asked(peer) == [(START + 1, 0x5000, 1024 * 256)]
    content = pattern(1024 * 256)
    for number in range(1024):
        name = "FIRST" if number == 0 else "LAST" if number == 1023 else "MIDDLE"
        piece = content[number * 256 : (number + 1) * 256]
        peer.response(f"RDMA_READ_RESPONSE_{name}", START + 1 + number, piece)
    assert asked(peer) == [((START + 1025) & 0xFFFFFF, 0x5000 + 1024 * 256, 256)]
    peer.response("RDMA_READ_RESPONSE_ONLY", START + 1025, pattern(256))
    assert [status for _, status in peer.host.sends()] == [SUCCESS] * 2
    assert memory.bytes == content + pattern(256)


def test_9_7_6_a_program_whose_answers_get_lost_is_asked_for_less(asking):
    """The rest at once, and pieces from the next READ on."""
    qp, peer, _ = asking
    hear_a_program(qp, peer)
    memory = peer.host.memory(200 * 256)
    qp.post(read(memory.sge(0, 200 * 256), at=0x5000))
    assert asked(peer) == [(START + 1, 0x5000, 200 * 256)]
    peer.response("RDMA_READ_RESPONSE_FIRST", START + 1, bytes(256))
    peer.response("RDMA_READ_RESPONSE_MIDDLE", START + 3, bytes(256))
    assert asked(peer) == [(0, 0x5000 + 256, 199 * 256)]
    respond(peer, 0, bytes(199 * 256))
    qp.post(read(memory.sge(0, 200 * 256), at=0x5000))
    assert asked(peer)[0] == (199, 0x5000, 128 * 256)


def asked_at_once(qp, peer):
    """How many bytes of a longer READ the first request is for."""
    memory = peer.host.memory(200 * 256)
    qp.post(read(memory.sge(0, 200 * 256), at=0x5000))
    return asked(peer)[0][2]


def test_9_7_6_what_a_stranger_sends_makes_the_peer_no_program(asking):
    """Not even until the peer is heard from the same port."""
    qp, peer, _ = asking
    stranger = Peer(qp, address="10.9.0.77")
    for port in (4791, peer.route.udp_source_port):
        stranger.route = Route(stranger.route.source, peer.route.destination, udp_source_port=port)
        assert stranger.ack(START) != ""
    qp.post(send())
    peer.take()
    peer.ack(START)
    assert asked_at_once(qp, peer) == 128 * 256


def test_9_7_6_the_peer_of_the_last_connection_makes_the_next_one_no_program(asking):
    qp, peer, _ = asking
    hear_a_program(qp, peer)
    qp.modify(qp_state=QPState.RESET)
    to_state(qp, QPState.RTS, sq_psn=START, path_mtu=1)
    assert asked_at_once(qp, peer) == 128 * 256


def test_9_7_6_a_read_scatters_over_its_entries(asking):
    qp, peer, memory = asking
    qp.post(read(memory.sge(0, 10), memory.sge(1000, 300), memory.sge(500, 1)))
    peer.take()
    content = pattern(311)
    respond(peer, START, content)
    assert memory.bytes[:10] == content[:10]
    assert memory.bytes[1000:1300] == content[10:310]
    assert memory.bytes[500] == content[310]


def test_9_7_6_a_read_response_acknowledges_what_came_before_it(asking):
    qp, peer, memory = asking
    qp.post(send(wr_id=1), write(memory.sge(0, 8), wr_id=2), read(memory.sge(0, 8), wr_id=3))
    assert len(peer.take()) == 3
    peer.response("RDMA_READ_RESPONSE_ONLY", START + 2, b"12345678")
    assert peer.host.sends() == [(1, SUCCESS), (2, SUCCESS), (3, SUCCESS)]


def test_9_7_6_an_ack_that_skips_an_unanswered_read_means_its_answer_was_lost(asking):
    """The READ is asked for again; what the ACK covers beyond it is not completed before it."""
    qp, peer, memory = asking
    qp.post(send(wr_id=1), read(memory.sge(0, 8), wr_id=2), send(wr_id=3))
    assert len(peer.take()) == 3
    peer.ack(START + 2)
    assert peer.host.sends() == [(1, SUCCESS)]
    assert [name for name, _ in peer.requests()] == ["RDMA_READ_REQUEST", "SEND_ONLY"]
    assert qp.counters()["implied_nak_seq_err"] == 1
    peer.response("RDMA_READ_RESPONSE_ONLY", START + 1, b"answered")
    peer.ack(START + 2)
    assert peer.host.sends() == [(2, SUCCESS), (3, SUCCESS)]
    assert memory.bytes[:8] == b"answered"


def test_9_7_6_a_later_response_means_that_an_earlier_one_was_lost(asking):
    qp, peer, memory = asking
    qp.post(read(memory.sge(0, 8), wr_id=1), read(memory.sge(8, 8), wr_id=2))
    assert len(peer.take()) == 2
    peer.response("RDMA_READ_RESPONSE_ONLY", START + 1, b"second!!")
    assert peer.host.sends() == []
    assert peer.requests() == [
        ("RDMA_READ_REQUEST", START),
        ("RDMA_READ_REQUEST", START + 1),
    ]
    peer.response("RDMA_READ_RESPONSE_ONLY", START, b"first!!!")
    peer.response("RDMA_READ_RESPONSE_ONLY", START + 1, b"second!!")
    assert peer.host.sends() == [(1, SUCCESS), (2, SUCCESS)]
    assert memory.bytes[:16] == b"first!!!second!!"


def test_9_7_6_after_a_lost_response_only_the_rest_of_the_read_is_asked_for(asking):
    qp, peer, memory = asking
    content = pattern(1000)
    qp.post(read(memory.sge(0, 1000), at=0x5000))
    peer.take()
    respond(peer, START, content, last=1)
    peer.response("RDMA_READ_RESPONSE_LAST", START + 3, content[768:])
    (again,) = peer.take()
    assert (again.psn, again.virtual_address, again.dma_length) == (0, 0x5000 + 512, 488)
    assert qp.counters()["retransmitted_pkts"] == 1
    respond(peer, 0, content[512:])
    assert peer.host.sends() == [(0, SUCCESS)]
    assert memory.bytes[:1000] == content


def test_9_7_6_a_repeated_response_is_ignored(asking):
    qp, peer, memory = asking
    content = pattern(700)
    qp.post(read(memory.sge(0, 700)))
    peer.take()
    respond(peer, START, content, last=1)
    peer.response("RDMA_READ_RESPONSE_FIRST", START, b"\xee" * 256)
    peer.response("RDMA_READ_RESPONSE_MIDDLE", START + 1, b"\xee" * 256)
    respond(peer, START, content, skip_first=2)
    assert peer.host.sends() == [(0, SUCCESS)]
    assert memory.bytes[:700] == content
    assert qp.state == QPState.RTS


@pytest.mark.parametrize("make", [fetch_add, compare_swap])
def test_9_7_7_the_old_value_lands_in_host_order(asking, make):
    qp, peer, memory = asking
    operands = {"add": 5} if make is fetch_add else {"compare": 1, "swap": 2}
    qp.post(make(memory.sge(8, 8), at=0x5008, rkey=0x77, wr_id=9, **operands))
    (request,) = peer.take()
    assert (request.atomic_address, request.atomic_rkey) == (0x5008, 0x77)
    if make is fetch_add:
        assert (request.opcode_name, request.swap_add) == ("RC_FETCH_ADD", 5)
    else:
        assert request.opcode_name == "RC_COMPARE_SWAP"
        assert (request.compare, request.swap_add) == (1, 2)
    peer.response("ATOMIC_ACKNOWLEDGE", START, atomic_original=0x0102030405060708)
    (wc,) = peer.host.send_wcs()
    assert (wc.status, wc.byte_len) == (SUCCESS, 8)
    assert int.from_bytes(memory.bytes[8:16], "little") == 0x0102030405060708


def test_9_7_7_a_lost_atomic_answer_is_asked_for_with_the_same_psn(asking):
    qp, peer, memory = asking
    qp.post(fetch_add(memory.sge(0, 8), wr_id=1), send(wr_id=2))
    assert len(peer.take()) == 2
    peer.ack(START + 1)
    assert peer.requests() == [("FETCH_ADD", START), ("SEND_ONLY", START + 1)]
    peer.response("ATOMIC_ACKNOWLEDGE", START, atomic_original=4)
    peer.ack(START + 1)
    assert peer.host.sends() == [(1, SUCCESS), (2, SUCCESS)]


# --- how many at once


def test_9_7_3_no_more_than_max_rd_atomic_are_under_way(asking):
    qp, peer, memory = asking
    qp.post(*(read(memory.sge(8 * n, 8), wr_id=n) for n in range(3)), fetch_add(memory.sge(64, 8)))
    assert peer.requests() == [("RDMA_READ_REQUEST", START), ("RDMA_READ_REQUEST", START + 1)]
    peer.response("RDMA_READ_RESPONSE_ONLY", START, bytes(8))
    assert peer.requests() == [("RDMA_READ_REQUEST", 0)]
    peer.response("RDMA_READ_RESPONSE_ONLY", START + 1, bytes(8))
    assert peer.requests() == [("FETCH_ADD", 1)]


def test_9_7_3_what_is_behind_a_waiting_read_waits_too(asking):
    """Work requests begin in the order they were posted."""
    qp, peer, memory = asking
    qp.post(*(read(memory.sge(0, 8)) for _ in range(3)), send())
    assert len(peer.take()) == 2
    peer.response("RDMA_READ_RESPONSE_ONLY", START, bytes(8))
    assert peer.requests() == [("RDMA_READ_REQUEST", 0), ("SEND_ONLY", 1)]


@pytest.mark.parametrize("make", [read, fetch_add])
def test_9_7_3_with_max_rd_atomic_0_a_read_fails_at_once(host, make):
    """It could never start; a queue that stands still for ever would tell nobody."""
    qp, peer = connect(host, max_rd_atomic=0)
    memory = host.memory(64)
    qp.post(send(wr_id=1), make(memory.sge(0, 8), wr_id=2), send(wr_id=3))
    assert peer.requests() == [("SEND_ONLY", 0x800)]
    peer.ack(0x800)
    assert host.sends() == [
        (1, SUCCESS),
        (2, WcStatus.LOC_QP_OP_ERR),
        (3, WcStatus.WR_FLUSH_ERR),
    ]
    assert qp.state == QPState.ERR


# --- fence (IBTA Vol 1, 10.8.3.3)


def test_10_8_3_without_a_fence_what_follows_a_read_starts_at_once(asking):
    qp, peer, memory = asking
    qp.post(read(memory.sge(0, 8)), write(memory.sge(0, 8)))
    assert [name for name, _ in peer.requests()] == ["RDMA_READ_REQUEST", "RDMA_WRITE_ONLY"]


@pytest.mark.parametrize("make", [read, fetch_add])
def test_10_8_3_a_fenced_request_waits_for_reads_and_atomics_before_it(asking, make):
    qp, peer, memory = asking
    memory.bytes[:8] = b"old data"
    qp.post(make(memory.sge(0, 8)), write(memory.sge(0, 8), flags=FENCED), send(wr_id=3))
    assert len(peer.take()) == 1
    if make is read:
        peer.response("RDMA_READ_RESPONSE_ONLY", START, b"new data")
    else:
        original = int.from_bytes(b"new data", "little")
        peer.response("ATOMIC_ACKNOWLEDGE", START, atomic_original=original)
    written, sent = peer.take()
    assert (written.opcode_name, written.payload) == ("RC_RDMA_WRITE_ONLY", b"new data")
    assert sent.opcode_name == "RC_SEND_ONLY"


def test_10_8_3_a_fence_does_not_wait_for_sends_and_writes(asking):
    qp, peer, memory = asking
    qp.post(send(), write(memory.sge(0, 8)), send(flags=FENCED))
    assert len(peer.take()) == 3


def test_10_8_3_a_repeated_read_still_holds_the_fence(asking):
    qp, peer, memory = asking
    qp.post(read(memory.sge(0, 8)), send(flags=FENCED))
    peer.take()
    peer.host.advance(200 * MS)
    assert peer.requests() == [("RDMA_READ_REQUEST", START)]
    peer.response("RDMA_READ_RESPONSE_ONLY", START, bytes(8))
    assert [name for name, _ in peer.requests()] == ["SEND_ONLY"]


# --- a repeat of part of the window


def test_9_7_6_a_sequence_nak_repeats_reads_too(asking):
    qp, peer, memory = asking
    qp.post(send(wr_id=1), read(memory.sge(0, 600), wr_id=2), send(wr_id=3))
    assert len(peer.take()) == 3
    peer.ack(START, NAK_SEQUENCE)
    assert peer.requests() == [
        ("SEND_ONLY", START),
        ("RDMA_READ_REQUEST", START + 1),
        ("SEND_ONLY", 2),
    ]


def test_9_7_6_no_more_than_max_rd_atomic_are_repeated_at_once(asking):
    qp, peer, memory = asking
    qp.post(*(read(memory.sge(0, 8), wr_id=n) for n in range(3)))
    peer.take()
    peer.host.advance(200 * MS)
    assert peer.requests() == [("RDMA_READ_REQUEST", START), ("RDMA_READ_REQUEST", START + 1)]


@pytest.mark.parametrize("answered", [0, 1, 5])
def test_9_7_6_a_read_that_is_asked_for_again_counts_as_one_packet(asking, host, answered):
    qp, peer, memory = asking
    content = pattern(2048)
    qp.post(read(memory.sge(0, 2048)))
    peer.take()
    respond(peer, START, content, last=answered - 1)
    deadline = host.hca.next_deadline_ns
    assert deadline is not None
    host.advance(deadline - host.now_ns)
    (again,) = peer.take()
    assert again.psn == (START + answered) & 0xFFFFFF
    counted = qp.counters()
    assert (counted["sent_pkts"], counted["retransmitted_pkts"]) == (2, 1)
