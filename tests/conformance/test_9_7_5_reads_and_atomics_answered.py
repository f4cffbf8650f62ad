"""IBTA Vol 1, 9.7.4, 9.7.5 and 9.7.7: the responder answers READs and atomics, again if asked."""

from __future__ import annotations

import pytest

from softhca._adapter import EventType, QPState

from .host import EVERYTHING, Access, pattern
from .peer import ACK, NAK_ACCESS, NAK_INVALID, NAK_SEQUENCE, connect, psn_after

MTU = 256


@pytest.fixture
def served(host):
    """(qp, peer, memory) with path MTU 256 and PSNs that are about to wrap."""
    qp, peer = connect(host, rq_psn=0xFFFFFE, path_mtu=1)
    memory = host.memory(8192)
    memory.bytes[:] = pattern(8192)
    return qp, peer, memory


def ask(peer, memory, psn, length, *, skip=0, **fields):
    """Sends a READ request for `length` bytes from `skip` on."""
    return peer.request(
        "RDMA_READ_REQUEST",
        psn=psn & 0xFFFFFF,
        virtual_address=memory.address + skip,
        rkey=fields.pop("rkey", memory.rkey),
        dma_length=length,
        **fields,
    )


def responses(memory, psn, lengths, *, skip=0):
    """What a READ of these packets must be answered with."""
    out, names = [], ["FIRST", *["MIDDLE"] * (len(lengths) - 2), "LAST"]
    if len(lengths) == 1:
        names = ["ONLY"]
    for number, (name, length) in enumerate(zip(names, lengths, strict=True)):
        at = skip + number * MTU
        content = bytes(memory.bytes[at : at + length])
        out.append((psn_after(psn, number), f"RDMA_READ_RESPONSE_{name}", content))
    return out


@pytest.mark.parametrize(
    ("length", "packets"),
    [
        (0, [0]),
        (1, [1]),
        (256, [256]),
        (257, [256, 1]),
        (512, [256] * 2),
        (1000, [256] * 3 + [232]),
    ],
)
def test_9_7_5_a_read_takes_one_psn_for_each_response(served, length, packets):
    qp, peer, memory = served
    ask(peer, memory, 0xFFFFFE, length)
    assert peer.answers() == responses(memory, 0xFFFFFE, packets)
    assert qp.query().rq_psn == psn_after(0xFFFFFE, len(packets))


def test_9_7_5_aeth_is_in_the_first_and_last_response_and_has_the_msn(served):
    _, peer, memory = served
    ask(peer, memory, 0xFFFFFE, 3 * MTU)
    first, middle, last = peer.take()
    assert [("AETH" in packet.headers) for packet in (first, middle, last)] == [True, False, True]
    assert [(p.syndrome, p.msn) for p in (first, last)] == [(ACK, 1), (ACK, 1)]


def test_9_7_5_a_duplicate_read_is_executed_again(served):
    """With what memory holds now: a READ is the one request that may be executed twice."""
    _, peer, memory = served
    ask(peer, memory, 0xFFFFFE, 700)
    peer.take()
    memory.bytes[:700] = pattern(700, salt=99)
    ask(peer, memory, 0xFFFFFE, 700)
    assert peer.answers() == responses(memory, 0xFFFFFE, [256, 256, 188])


def test_9_7_5_a_duplicate_read_may_start_in_the_middle(served):
    """The requester lost the last responses and asks for those alone."""
    qp, peer, memory = served
    ask(peer, memory, 0xFFFFFE, 1000)
    peer.take()
    ask(peer, memory, 0xFFFFFE + 2, 1000 - 2 * MTU, skip=2 * MTU)
    assert peer.answers() == responses(memory, 0x000000, [256, 232], skip=2 * MTU)
    ask(peer, memory, 0xFFFFFE + 3, 1000 - 3 * MTU, skip=3 * MTU)
    assert peer.answers() == responses(memory, 0x000001, [232], skip=3 * MTU)
    ask(peer, memory, 0xFFFFFE + 1, MTU, skip=MTU)
    assert peer.answers() == responses(memory, 0xFFFFFF, [256], skip=MTU)
    assert qp.query().rq_psn == 2


@pytest.mark.parametrize(
    ("name", "psn", "length", "skip", "rkey_xor"),
    [
        ("longer", 0xFFFFFE, 1001, 0, 0),
        ("longer from the middle", 0xFFFFFF, 1000, MTU, 0),
        ("another address", 0xFFFFFE, 1000, 4, 0),
        ("an address that does not fit its PSN", 0xFFFFFF, 500, 0, 0),
        ("another key", 0xFFFFFE, 1000, 0, 0x100),
    ],
)
def test_9_7_5_a_duplicate_read_outside_the_first_one_is_dropped(
    served, name, psn, length, skip, rkey_xor
):
    qp, peer, memory = served
    ask(peer, memory, 0xFFFFFE, 1000)
    peer.take()
    ask(peer, memory, psn, length, skip=skip, rkey=memory.rkey ^ rkey_xor)
    assert peer.answers() == [], name
    assert qp.state == QPState.RTS


def test_9_7_5_a_duplicate_read_is_validated_again(served):
    """Its region has been deregistered since: the old rights are worth nothing."""
    qp, peer, memory = served
    ask(peer, memory, 0xFFFFFE, 300)
    peer.take()
    memory.dereg()
    ask(peer, memory, 0xFFFFFE, 300)
    assert [answer for answer in peer.answers() if "READ" in str(answer[1])] == []
    assert qp.state in (QPState.RTS, QPState.ERR)


def test_9_7_5_a_region_that_goes_away_between_responses_ends_the_read(served):
    qp, peer, memory = served
    ask(peer, memory, 0xFFFFFE, 600)
    first = peer.host.hca.next_packet(peer.host.now_ns)
    assert first is not None
    memory.dereg()
    assert peer.answers() == [(0xFFFFFF, NAK_ACCESS)]
    assert qp.state == QPState.ERR
    assert (EventType.QP_ACCESS_ERR, qp.qpn) in peer.host.events()


@pytest.mark.parametrize("answered", [0, 1, 2])
def test_9_7_7_the_refusal_of_a_read_that_has_begun_does_not_count_it(served, answered):
    """Nor what came behind it, of which the peer never hears."""
    qp, peer, memory = served
    lent = qp.host.memory(8192)
    qp.recv(memory.sge(), wr_id=1)
    qp.recv(memory.sge(), wr_id=2)
    peer.request("SEND_ONLY", psn=0xFFFFFE)
    ask(peer, lent, 0xFFFFFF, 600)
    peer.request("SEND_ONLY", psn=2)
    sent = [peer.host.hca.next_packet(peer.host.now_ns) for _ in range(1 + answered)]
    assert None not in sent
    lent.dereg()
    (refusal,) = peer.take()
    assert (refusal.psn, refusal.syndrome) == (psn_after(0xFFFFFF, answered), NAK_ACCESS)
    assert refusal.msn == 1


def test_9_7_7_the_refusal_of_an_atomic_behind_a_read_does_not_count_it(served):
    qp, peer, memory = served
    target = qp.host.memory(64)
    ask(peer, memory, 0xFFFFFE, 8)
    add(peer, target, 0xFFFFFF, 1)
    add(peer, target, 0, 1)
    target.dereg()
    answer, refusal = peer.take()
    assert (answer.psn, answer.msn) == (0xFFFFFE, 1)
    assert (refusal.psn, refusal.syndrome, refusal.msn) == (0xFFFFFF, NAK_ACCESS, 1)


def test_9_7_5_a_read_in_the_order_of_requests_before_and_behind_it(served):
    qp, peer, memory = served
    qp.recv(memory.sge(4096, 64))
    ask(peer, memory, 0xFFFFFE, 300)
    peer.psn = 0
    peer.request("SEND_ONLY", b"behind")
    assert peer.answers() == [*responses(memory, 0xFFFFFE, [256, 44]), (0, ACK)]


def test_9_7_5_a_write_before_a_read_is_seen_by_it(served):
    _, peer, memory = served
    fields = {"virtual_address": memory.address, "rkey": memory.rkey, "dma_length": 8}
    peer.request("RDMA_WRITE_ONLY", b"newbytes", psn=0xFFFFFE, ack_request=False, **fields)
    ask(peer, memory, 0xFFFFFF, 8)
    assert peer.answers() == [(0xFFFFFF, "RDMA_READ_RESPONSE_ONLY", b"newbytes")]


# --- atomics


def add(peer, memory, psn, addend=1, *, at=0, **fields):
    return peer.request(
        "FETCH_ADD",
        psn=psn & 0xFFFFFF,
        atomic_address=memory.address + at,
        atomic_rkey=fields.pop("rkey", memory.rkey),
        swap_add=addend,
        **fields,
    )


def swap(peer, memory, psn, compare, new):
    return peer.request(
        "COMPARE_SWAP",
        psn=psn & 0xFFFFFF,
        atomic_address=memory.address,
        atomic_rkey=memory.rkey,
        compare=compare,
        swap_add=new,
    )


def value(memory, at=0):
    return int.from_bytes(memory.bytes[at : at + 8], "little")


def put(memory, number, at=0):
    memory.bytes[at : at + 8] = number.to_bytes(8, "little")


def test_9_7_7_fetch_add_wraps_modulo_2_64(served):
    _, peer, memory = served
    put(memory, (1 << 64) - 2)
    add(peer, memory, 0xFFFFFE, 5)
    assert peer.answers() == [(0xFFFFFE, "ATOMIC_ACKNOWLEDGE", (1 << 64) - 2)]
    assert value(memory) == 3


def test_9_7_7_compare_swap_hits_and_misses(served):
    _, peer, memory = served
    put(memory, 77)
    swap(peer, memory, 0xFFFFFE, 77, 0x1122334455667788)
    swap(peer, memory, 0xFFFFFF, 77, 5)
    assert peer.answers() == [
        (0xFFFFFE, "ATOMIC_ACKNOWLEDGE", 77),
        (0xFFFFFF, "ATOMIC_ACKNOWLEDGE", 0x1122334455667788),
    ]
    assert value(memory) == 0x1122334455667788


def test_9_7_7_a_duplicate_atomic_is_replayed_and_never_executed_again(served):
    """The answer is the stored one, whatever memory holds now, and memory stays as it is."""
    qp, peer, memory = served
    put(memory, 10)
    add(peer, memory, 0xFFFFFE, 1)
    assert peer.answers() == [(0xFFFFFE, "ATOMIC_ACKNOWLEDGE", 10)]
    put(memory, 500)
    for _ in range(3):
        add(peer, memory, 0xFFFFFE, 1)
        assert peer.answers() == [(0xFFFFFE, "ATOMIC_ACKNOWLEDGE", 10)]
    assert value(memory) == 500
    assert qp.counters()["duplicate_request"] == 3


def test_9_7_7_the_replay_of_an_atomic_has_the_msn_of_its_first_answer(served):
    qp, peer, memory = served
    add(peer, memory, 0xFFFFFE)
    qp.recv(memory.sge(4096, 64))
    peer.request("SEND_ONLY", psn=0xFFFFFF)
    peer.take()
    add(peer, memory, 0xFFFFFE)
    (answer,) = peer.take()
    assert (answer.syndrome, answer.msn) == (ACK, 1)


def test_9_7_7_an_atomic_that_is_not_remembered_is_dropped(host):
    """Two resources remember the last two; an older duplicate is answered by nothing."""
    qp, peer = connect(host, rq_psn=0, max_dest_rd_atomic=2)
    memory = host.memory(64)
    for psn in range(3):
        add(peer, memory, psn)
        assert [answer[0] for answer in peer.answers()] == [psn]
    add(peer, memory, 0)
    assert peer.answers() == []
    add(peer, memory, 1)
    assert peer.answers() == [(1, "ATOMIC_ACKNOWLEDGE", 1)]
    assert value(memory) == 3
    assert qp.state == QPState.RTS


@pytest.mark.parametrize("offset", [1, 2, 4, 7])
def test_9_7_7_a_misaligned_atomic_is_an_invalid_request(served, offset):
    qp, peer, memory = served
    add(peer, memory, 0xFFFFFE, at=offset)
    assert peer.answers() == [(0xFFFFFE, NAK_INVALID)]
    assert qp.state == QPState.ERR


def test_9_7_7_alignment_is_checked_before_the_key(served):
    _, peer, memory = served
    add(peer, memory, 0xFFFFFE, at=4, rkey=0xBAD00)
    assert peer.answers() == [(0xFFFFFE, NAK_INVALID)]


def test_9_7_7_atomics_of_two_queue_pairs_see_each_other(host):
    memory = host.memory(64)
    one, peer_one = connect(host, peer_qpn=0x11)
    two, peer_two = connect(host, peer_qpn=0x22)
    for turn in range(4):
        for qp, peer in ((one, peer_one), (two, peer_two)):
            assert qp.state == QPState.RTS
            add(peer, memory, 0x100 + turn)
    seen = [answer[2] for peer in (peer_one, peer_two) for answer in peer.answers()]
    assert sorted(seen) == list(range(8))


def test_10_8_3_an_atomic_does_not_overtake_a_read_before_it(served):
    """The READ's answer, though sent later, shows what was there before the atomic."""
    _, peer, memory = served
    put(memory, 5)
    ask(peer, memory, 0xFFFFFE, 8)
    add(peer, memory, 0xFFFFFF, 1)
    ask(peer, memory, 0, 8)
    swap(peer, memory, 1, 6, 100)
    assert peer.answers() == [
        (0xFFFFFE, "RDMA_READ_RESPONSE_ONLY", (5).to_bytes(8, "little")),
        (0xFFFFFF, "ATOMIC_ACKNOWLEDGE", 5),
        (0, "RDMA_READ_RESPONSE_ONLY", (6).to_bytes(8, "little")),
        (1, "ATOMIC_ACKNOWLEDGE", 6),
    ]
    assert value(memory) == 100


@pytest.mark.parametrize("behind", ["send", "write", "refused"])
def test_10_8_3_nor_does_it_where_something_behind_it_cannot_wait_for_the_answer(served, behind):
    """A receive completes with the atomic before it done, and the READ before both not sent yet."""
    qp, peer, memory = served
    memory.bytes[: 3 * MTU] = pattern(3 * MTU)
    at = MTU - memory.address % 8 - 4 & ~7  # On the last packet but one, or over its end.
    at += -(memory.address + at) % 8
    put(memory, 5, at=at)
    before = responses(memory, 0xFFFFFE, [MTU] * 3)
    qp.recv()
    ask(peer, memory, 0xFFFFFE, 3 * MTU)
    add(peer, memory, 1, 1, at=at)
    peer.request(
        "ATOMIC_WRITE",
        (9).to_bytes(8, "little"),
        psn=2,
        virtual_address=memory.address + at,
        rkey=memory.rkey,
        dma_length=8,
    )
    add(peer, memory, 3, 1, at=at)
    if behind == "send":
        peer.request("SEND_ONLY", psn=4)
        assert value(memory, at) == 10
    elif behind == "write":
        peer.request(
            "RDMA_WRITE_ONLY", psn=4, virtual_address=0, rkey=0, dma_length=0, ack_request=True
        )
        assert value(memory, at) == 10
    else:
        peer.request("SEND_LAST", psn=4)
    answers = peer.answers()
    assert answers[:3] == before
    assert answers[3] == (1, "ATOMIC_ACKNOWLEDGE", 5)
    assert answers[5] == (3, "ATOMIC_ACKNOWLEDGE", 9)
    # Asked for again, it shows what is there now.
    if behind != "refused":
        ask(peer, memory, 0xFFFFFE, 3 * MTU)
        assert peer.answers() == responses(memory, 0xFFFFFE, [MTU] * 3)


def test_10_8_3_nor_does_it_by_another_key_of_the_same_memory(served):
    qp, peer, memory = served
    at, iova = 16 - memory.address % 8, 0x7000_0000
    host = qp.host
    other = host.hca.reg_mr(host.pd, memory.address + at, 8, iova, int(EVERYTHING))
    put(memory, 5, at=at)
    before = bytes(memory.bytes[:64])
    qp.recv()
    ask(peer, memory, 0xFFFFFE, 64)
    fields = {"atomic_address": iova, "atomic_rkey": other.rkey, "swap_add": 1}
    peer.request("FETCH_ADD", psn=0xFFFFFF, **fields)
    peer.request("SEND_ONLY", psn=0)
    assert value(memory, at) == 6
    assert peer.answers()[:2] == [
        (0xFFFFFE, "RDMA_READ_RESPONSE_ONLY", before),
        (0xFFFFFF, "ATOMIC_ACKNOWLEDGE", 5),
    ]
    host.hca.dereg_mr(other.handle)


def test_10_8_3_nor_does_it_in_a_packet_of_the_longest_payload(host):
    qp, peer = connect(host, rq_psn=0, path_mtu=5)
    memory = host.memory(4096)
    memory.bytes[:] = pattern(4096)
    put(memory, 5)
    before = bytes(memory.bytes)
    qp.recv()
    ask(peer, memory, 0, 4096)
    add(peer, memory, 1, 1)
    peer.request("SEND_ONLY", psn=2)
    assert value(memory) == 6
    answers = peer.answers()
    assert answers[:2] == [(0, "RDMA_READ_RESPONSE_ONLY", before), (1, "ATOMIC_ACKNOWLEDGE", 5)]


def test_10_8_3_a_duplicate_of_an_atomic_that_waits_behind_a_read_is_one_atomic(served):
    _, peer, memory = served
    put(memory, 0)
    ask(peer, memory, 0xFFFFFE, 8)
    add(peer, memory, 0xFFFFFF, 1)
    add(peer, memory, 0xFFFFFF, 1)
    assert [answer[0] for answer in peer.answers()] == [0xFFFFFE, 0xFFFFFF]
    assert value(memory) == 1
    add(peer, memory, 0xFFFFFF, 1)
    assert peer.answers() == [(0xFFFFFF, "ATOMIC_ACKNOWLEDGE", 0)]
    assert value(memory) == 1


def test_9_7_7_a_region_that_goes_away_before_an_atomic_behind_a_read_refuses_it(served):
    qp, peer, memory = served
    target = qp.host.memory(64)
    assert value(target) == 0
    ask(peer, memory, 0xFFFFFE, 8)
    add(peer, target, 0xFFFFFF, 1)
    target.dereg()
    assert [answer[1] for answer in peer.answers()] == ["RDMA_READ_RESPONSE_ONLY", NAK_ACCESS]
    assert value(target) == 0
    assert qp.state == QPState.ERR


@pytest.mark.parametrize("operation", ["read", "atomic"])
def test_9_7_5_a_duplicate_write_acknowledges_no_read_or_atomic_behind_it(served, operation):
    """The answer of the READ may be lost, and a plain ACK of its last PSN is not that answer."""
    _, peer, memory = served
    fields = {"virtual_address": memory.address, "rkey": memory.rkey, "dma_length": 4}
    for psn in (0xFFFFFE, 0xFFFFFF):
        peer.request("RDMA_WRITE_ONLY", b"once", psn=psn, **fields)
    if operation == "read":
        ask(peer, memory, 0, 300)
    else:
        add(peer, memory, 0)
    peer.take()
    peer.request("RDMA_WRITE_ONLY", b"once", psn=0xFFFFFE, **fields)
    assert peer.answers() == [(0xFFFFFF, ACK)]


# --- responder resources


def test_9_7_5_more_reads_than_responder_resources_are_an_invalid_request(host):
    """Refused while the answers of the others still wait to be sent."""
    qp, peer = connect(host, rq_psn=0, max_dest_rd_atomic=2)
    memory = host.memory(64)
    for psn in range(3):
        ask(peer, memory, psn, 1)
    (first, second, nak) = peer.answers()
    assert (first[0], second[0]) == (0, 1)
    assert nak == (2, NAK_INVALID)
    assert qp.state == QPState.ERR
    assert (EventType.QP_REQ_ERR, qp.qpn) in host.events()


@pytest.mark.parametrize("operation", ["read", "atomic"])
def test_9_7_5_without_responder_resources_every_read_and_atomic_is_refused(host, operation):
    qp, peer = connect(host, rq_psn=0, max_dest_rd_atomic=0)
    memory = host.memory(64)
    if operation == "read":
        ask(peer, memory, 0, 1)
    else:
        add(peer, memory, 0)
    assert peer.answers() == [(0, NAK_INVALID)]
    assert value(memory) == 0
    assert qp.state == QPState.ERR


@pytest.mark.parametrize("fields", [{"rkey": 0x7FFFFF00}, {"skip": 1 << 20}])
def test_9_7_4_resources_are_looked_at_before_the_key(host, fields):
    """Who may ask for no READ hears so, and not that there were something wrong with the key."""
    qp, peer = connect(host, rq_psn=0, max_dest_rd_atomic=0)
    ask(peer, host.memory(64), 0, 1, **fields)
    assert peer.answers() == [(0, NAK_INVALID)]
    assert (EventType.QP_REQ_ERR, qp.qpn) in host.events()


def test_9_7_5_answered_reads_give_their_resources_back(host):
    _, peer = connect(host, rq_psn=0, max_dest_rd_atomic=1)
    memory = host.memory(64)
    for psn in range(5):
        ask(peer, memory, psn, 1)
        assert peer.answers() == [(psn, "RDMA_READ_RESPONSE_ONLY", b"\0")]


@pytest.mark.parametrize("operation", ["read", "atomic"])
def test_9_7_5_the_repeat_of_an_old_answer_does_not_hold_its_resource(host, operation):
    """A duplicate and the next new request arrive together, as on any network that duplicates.

    Who sends the new one has the old answer, so the repeat gives way; refusing the new request
    would kill a connection that did nothing wrong.
    """
    qp, peer = connect(host, rq_psn=0, max_dest_rd_atomic=2)
    memory = host.memory(64)

    def request(psn):
        return ask(peer, memory, psn, 8) if operation == "read" else add(peer, memory, psn)

    for psn in range(2):
        request(psn)
        assert [answer[0] for answer in peer.answers()] == [psn]
    request(0)
    request(2)
    assert [answer[0] for answer in peer.answers()] == [2]
    assert qp.state == QPState.RTS
    request(1)
    assert [answer[0] for answer in peer.answers()] == [1]


def test_9_7_5_a_gap_before_a_read_is_a_sequence_error(served):
    _, peer, memory = served
    ask(peer, memory, 0, 1)
    assert peer.answers() == [(0xFFFFFE, NAK_SEQUENCE)]


# --- rights


@pytest.mark.parametrize("operation", ["read", "atomic", "write"])
def test_9_7_4_a_region_without_the_right_refuses_access(host, operation):
    qp, peer = connect(host, rq_psn=0)
    memory = host.memory(64, Access.LOCAL_WRITE)
    # It has no rkey; whoever guesses the lkey must not get in by it.
    if operation == "read":
        ask(peer, memory, 0, 1, rkey=memory.lkey)
    elif operation == "atomic":
        add(peer, memory, 0, rkey=memory.lkey)
    else:
        fields = {"virtual_address": memory.address, "rkey": memory.lkey, "dma_length": 1}
        peer.request("RDMA_WRITE_ONLY", b"x", **fields)
    assert peer.answers() == [(0, NAK_ACCESS)]
    assert memory.bytes == bytes(64)
    assert qp.state == QPState.ERR
    assert (EventType.QP_ACCESS_ERR, qp.qpn) in host.events()


@pytest.mark.parametrize("operation", ["read", "atomic", "write"])
def test_9_7_4_a_queue_pair_without_the_right_refuses_the_request(host, operation):
    """The queue pair's own access flags: the request, not the key, is invalid."""
    qp, peer = connect(host, rq_psn=0, qp_access_flags=0)
    memory = host.memory(64)
    if operation == "read":
        ask(peer, memory, 0, 1)
    elif operation == "atomic":
        add(peer, memory, 0)
    else:
        fields = {"virtual_address": memory.address, "rkey": memory.rkey, "dma_length": 1}
        peer.request("RDMA_WRITE_ONLY", b"x", **fields)
    assert peer.answers() == [(0, NAK_INVALID)]
    assert memory.bytes == bytes(64)
    assert qp.state == QPState.ERR
    assert host.events() == [(EventType.QP_REQ_ERR, qp.qpn)]
