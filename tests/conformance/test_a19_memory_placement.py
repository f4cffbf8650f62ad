"""IBTA Annex A19: FLUSH and ATOMIC WRITE, packet by packet; and masked atomics, which are ours."""

from __future__ import annotations

import pytest

from softhca._adapter import Access, EventType, QPState, SendFlags, SendWr, WcStatus, WrOpcode

from .host import EVERYTHING
from .peer import ACK, NAK_ACCESS, NAK_INVALID, connect

GLOBAL = Access.FLUSH_GLOBAL
RIGHTS = int(EVERYTHING | GLOBAL)


def answering(host, qp_access=RIGHTS, access=RIGHTS, **more):
    qp, peer = connect(host, qp_access_flags=qp_access, **more)
    return qp, peer, host.memory(4096, access)


def flush(peer, memory, *, at=0, length=64, kind=1, level=0, **more):
    more.setdefault("rkey", memory.rkey)
    peer.request(
        "FLUSH",
        virtual_address=memory.address + at,
        dma_length=length,
        placement_type=kind,
        selectivity=level,
        **more,
    )


def atomic_write(peer, memory, payload=b"12345678", *, at=0, length=8, **more):
    more.setdefault("rkey", memory.rkey)
    peer.request(
        "ATOMIC_WRITE",
        payload,
        virtual_address=memory.address + at,
        dma_length=length,
        **more,
    )


# --- FLUSH


def test_a19_flush_is_answered_by_a_read_response_without_bytes(host):
    qp, peer, memory = answering(host)
    flush(peer, memory)
    flush(peer, memory, at=4095, length=1)
    flush(peer, memory, at=1 << 40, length=0xFFFF, level=1)  # A whole region ignores the range.
    names = [(psn, name, content) for psn, name, content in peer.answers()]
    assert names == [(0x100 + n, "RDMA_READ_RESPONSE_ONLY", b"") for n in range(3)]
    assert qp.state == QPState.RTS


@pytest.mark.parametrize("length", [(1 << 31) + 1, 0xFFFFFFFF])
def test_a19_flush_of_a_whole_region_may_name_more_than_a_message_has(host, length):
    _, peer, memory = answering(host)
    flush(peer, memory, length=length, level=1)
    assert peer.answers() == [(0x100, "RDMA_READ_RESPONSE_ONLY", b"")]
    flush(peer, memory, length=length)  # A range of so many bytes is no message.
    assert peer.answers() == [(0x101, NAK_INVALID)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"at": 4096 - 63},
        {"at": -1},
        {"rkey": 0x7FFFFF00},
        {"kind": 2},  # Persistence, which no region here gives.
        {"kind": 3},
        {"rkey": 0x7FFFFF00, "level": 1},
    ],
)
def test_a19_flush_outside_its_rights_is_a_remote_access_error(host, wrong):
    qp, peer, memory = answering(host)
    flush(peer, memory, **wrong)
    assert peer.answers() == [(0x100, NAK_ACCESS)]
    assert qp.state == QPState.ERR
    assert (EventType.QP_ACCESS_ERR, qp.qpn) in host.events()


@pytest.mark.parametrize("missing", ["queue pair", "region"])
def test_a19_flush_needs_the_right_on_both_sides(host, missing):
    rights = int(EVERYTHING)
    options = {"qp_access": rights} if missing == "queue pair" else {"access": rights}
    qp, peer, memory = answering(host, **options)
    flush(peer, memory)
    assert peer.answers() == [(0x100, NAK_ACCESS)]
    assert qp.state == QPState.ERR


@pytest.mark.parametrize("wrong", [{"kind": 0}, {"kind": 4}, {"level": 2}, {"level": 3}])
def test_a19_reserved_kinds_and_levels_are_invalid_requests(host, wrong):
    _, peer, memory = answering(host)
    flush(peer, memory, **wrong)
    assert peer.answers() == [(0x100, NAK_INVALID)]


# --- ATOMIC WRITE


def test_a19_atomic_write_places_eight_bytes_once(host):
    qp, peer, memory = answering(host)
    atomic_write(peer, memory, at=8)
    assert peer.answers() == [(0x100, "RDMA_READ_RESPONSE_ONLY", b"")]
    assert memory.bytes[:24] == bytes(8) + b"12345678" + bytes(8)
    memory.bytes[8:16] = b"changed!"
    atomic_write(peer, memory, at=8, psn=0x100)  # Repeated: answered again, not done again.
    assert peer.answers() == [(0x100, "RDMA_READ_RESPONSE_ONLY", b"")]
    assert memory.bytes[8:16] == b"changed!"
    assert qp.state == QPState.RTS


@pytest.mark.parametrize(
    ("wrong", "answer"),
    [
        ({"at": 4}, NAK_INVALID),
        ({"at": 1}, NAK_INVALID),
        ({"length": 4}, NAK_INVALID),
        ({"payload": b"1234"}, NAK_INVALID),
        ({"payload": b"1234567890123456", "length": 16}, NAK_INVALID),
        ({"at": 4096}, NAK_ACCESS),
        ({"at": -8}, NAK_ACCESS),
        ({"rkey": 0x7FFFFF00}, NAK_ACCESS),
        ({"at": 4, "rkey": 0x7FFFFF00}, NAK_INVALID),  # Alignment before the key.
    ],
)
def test_a19_atomic_write_is_eight_aligned_bytes_of_a_region(host, wrong, answer):
    _, peer, memory = answering(host)
    atomic_write(peer, memory, **wrong)
    assert peer.answers() == [(0x100, answer)]
    assert memory.bytes == bytes(4096)


def test_a19_atomic_write_needs_remote_write(host):
    _, peer, memory = answering(host, access=int(Access.LOCAL_WRITE | Access.REMOTE_ATOMIC))
    atomic_write(peer, memory)
    assert peer.answers() == [(0x100, NAK_ACCESS)]
    _, peer, memory = answering(host, qp_access=int(Access.REMOTE_ATOMIC))
    atomic_write(peer, memory)
    assert peer.answers() == [(0x100, NAK_INVALID)]


def test_a19_a_read_before_an_atomic_write_sees_the_old_bytes(host):
    _, peer, memory = answering(host)
    peer.request(
        "RDMA_READ_REQUEST", virtual_address=memory.address, rkey=memory.rkey, dma_length=8
    )
    atomic_write(peer, memory)
    assert [content for _, _, content in peer.answers()] == [bytes(8), b""]
    assert memory.bytes[:8] == b"12345678"


def test_a19_both_take_read_and_atomic_resources(host):
    _, peer, memory = answering(host, max_dest_rd_atomic=2)
    for _ in range(3):
        flush(peer, memory)
    assert peer.answers()[-1] == (0x102, NAK_INVALID)


# --- as a requester


def ask(opcode, memory, **more):
    buffers = [memory.sge(0, 8)] if opcode == WrOpcode.ATOMIC_WRITE else []
    return SendWr(
        opcode,
        buffers,
        wr_id=5,
        send_flags=int(SendFlags.SIGNALED),
        remote_address=0x10000,
        rkey=0x55,
        **more,
    )


def test_a19_flush_travels_with_feth_and_reth(host):
    qp, peer, memory = answering(host)
    qp.post(ask(WrOpcode.FLUSH, memory, flush=(64, 1, 0)))
    (packet,) = peer.take()
    assert (packet.opcode, packet.headers) == (0x1C, ["FETH", "RETH"])
    assert (packet.placement_type, packet.selectivity, packet.dma_length) == (1, 0, 64)
    assert (packet.virtual_address, packet.rkey) == (0x10000, 0x55)
    peer.response("RDMA_READ_RESPONSE_ONLY", 0x800)
    assert host.sends() == [(5, WcStatus.SUCCESS)]


def test_a19_atomic_write_travels_with_reth_and_eight_bytes(host):
    qp, peer, memory = answering(host)
    memory.bytes[:8] = b"abcdefgh"
    qp.post(ask(WrOpcode.ATOMIC_WRITE, memory))
    (packet,) = peer.take()
    assert (packet.opcode, packet.headers, packet.payload) == (0x1D, ["RETH"], b"abcdefgh")
    assert packet.dma_length == 8
    peer.response("RDMA_READ_RESPONSE_ONLY", 0x800)
    assert host.sends() == [(5, WcStatus.SUCCESS)]


@pytest.mark.parametrize("opcode", [WrOpcode.FLUSH, WrOpcode.ATOMIC_WRITE])
@pytest.mark.parametrize("operation", ["RDMA_READ_RESPONSE_ONLY", "ATOMIC_ACKNOWLEDGE"])
def test_a19_another_answer_is_a_bad_response(host, opcode, operation):
    qp, peer, memory = answering(host)
    qp.post(ask(opcode, memory, flush=(64, 1, 0)))
    peer.take()
    peer.response(operation, 0x800, b"x" if "READ" in operation else b"")
    assert host.sends() == [(5, WcStatus.BAD_RESP_ERR)]


def test_a19_a_plain_ack_means_that_the_answer_was_lost(host):
    qp, peer, memory = answering(host)
    qp.post(ask(WrOpcode.ATOMIC_WRITE, memory))
    peer.take()
    peer.ack(0x800)
    assert [packet.psn for packet in peer.take()] == [0x800]
    peer.response("RDMA_READ_RESPONSE_ONLY", 0x800)
    assert host.sends() == [(5, WcStatus.SUCCESS)]


# --- masked atomics

WORD = 0x1122334455667788


def masked(peer, memory, operation, **fields):
    peer.request(operation, atomic_address=memory.address, atomic_rkey=memory.rkey, **fields)
    ((_, _, original),) = peer.answers()
    return original, int.from_bytes(memory.bytes[:8], "little")


@pytest.mark.parametrize(
    ("compare", "compare_mask", "swap", "swap_mask", "after"),
    [
        (WORD, ~0, 5, ~0, 5),
        (0x88, 0xFF, 0xAB00, 0xFF00, 0x112233445566AB88),
        (0x89, 0xFF, 0xAB00, 0xFF00, WORD),
        (0xFFFF88, 0xFF, ~0, 0xF, 0x112233445566778F),
        (123, 0, 0, 0xFF << 56, WORD & (1 << 56) - 1),
    ],
)
def test_masked_compare_swap(host, compare, compare_mask, swap, swap_mask, after):
    _, peer, memory = answering(host)
    memory.bytes[:8] = WORD.to_bytes(8, "little")
    ones = (1 << 64) - 1
    found = masked(
        peer,
        memory,
        "MASKED_COMPARE_SWAP",
        compare=compare & ones,
        compare_mask=compare_mask & ones,
        swap_add=swap & ones,
        swap_mask=swap_mask & ones,
    )
    assert found == (WORD, after)


@pytest.mark.parametrize(
    ("start", "add", "boundary", "after"),
    [
        ((1 << 64) - 1, 1, 0, 0),
        (0xFF, 1, 0x80, 0),
        (0x00FF_FFFF, 0x0001_0001, 0x8000_8000, 0x0100_0000),
        (0x7F7F, 0x0101, 0x8080, 0x8080),
        (0xFFFF_FFFF_FFFF_FFFF, 0x0101_0101_0101_0101, 0x8080_8080_8080_8080, 0),
        (0b1010, 0b0110, 0b1111, 0b1100),
    ],
)
def test_masked_fetch_add_carries_over_no_boundary(host, start, add, boundary, after):
    _, peer, memory = answering(host)
    memory.bytes[:8] = start.to_bytes(8, "little")
    found = masked(peer, memory, "MASKED_FETCH_ADD", swap_add=add, compare=boundary)
    assert found == (start, after)


def test_masked_atomics_are_checked_as_the_others(host):
    for wrong in ({"atomic_address": 4}, {"atomic_rkey": 0x7FFFFF00}):
        _, peer, memory = answering(host)
        at = memory.address + wrong.get("atomic_address", 0)
        rkey = wrong.get("atomic_rkey", memory.rkey)
        peer.request("MASKED_FETCH_ADD", atomic_address=at, atomic_rkey=rkey, swap_add=1)
        expected = NAK_INVALID if "atomic_address" in wrong else NAK_ACCESS
        assert peer.answers() == [(0x100, expected)]
        assert memory.bytes == bytes(4096)


def test_a_masked_atomic_is_repeated_from_its_result(host):
    _, peer, memory = answering(host)
    for _ in range(2):
        peer.request(
            "MASKED_FETCH_ADD",
            psn=0x100,
            atomic_address=memory.address,
            atomic_rkey=memory.rkey,
            swap_add=7,
        )
        assert peer.answers() == [(0x100, "ATOMIC_ACKNOWLEDGE", 0)]
    assert memory.bytes[0] == 7


def test_the_plain_ack_of_a_write_is_still_one(host):
    _, peer, memory = answering(host)
    peer.request(
        "RDMA_WRITE_ONLY", b"x", virtual_address=memory.address, rkey=memory.rkey, dma_length=1
    )
    assert peer.answers() == [(0x100, ACK)]
