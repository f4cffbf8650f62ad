"""Faults as words, each by what it does to a connection."""

from __future__ import annotations

import errno
from typing import Any

import pytest

import softhca as hca
from softhca.testing import DeadlockError, Fabric, FabricError, FaultPacket, Pair
from softhca.testing.record import What

from .ends import End, connected, pair


def writes(a: End, b: End, count: int = 8, size: int = 1000) -> None:
    """Writes that must all arrive."""
    for n in range(count):
        a.buffer[n * size : (n + 1) * size] = bytes([n + 1]) * size
        a.qp.post_send(
            hca.Write(
                a.mr[n * size : (n + 1) * size],
                remote=b.mr.remote()[n * size : (n + 1) * size],
                signaled=True,
            )
        )
    for _ in range(count):
        a.next().raise_for_status()
    assert b.buffer[: count * size] == a.buffer[: count * size]


@pytest.mark.parametrize("word", ["drop", "duplicate", "reorder", "corrupt"])
def test_transfers_survive_faults_at_random(word: str) -> None:
    with Fabric(seed=7) as fabric:
        a, b = pair(fabric)
        fault = getattr(fabric.faults, word)(probability=0.2)
        for _ in range(5):
            writes(a, b)
        assert fault.struck > 5
        assert fault.matched > fault.struck


def test_the_nth_match() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        fault = fabric.faults.drop(opcode="RC_RDMA_WRITE*", nth=[2, 5])
        writes(a, b)
        assert fault.struck == 2
        counters = fabric.counters
        assert counters["lost"] == 2


@pytest.mark.parametrize("retry_early", [False, True])
def test_a_lost_acknowledgement_costs_a_time_out_or_a_probe(retry_early: bool) -> None:
    with Fabric(seed=3) as fabric:
        both = Pair(fabric, retry_early=retry_early)
        fabric.faults.drop(opcode="RC_ACKNOWLEDGE", nth=3)
        for _ in range(4):
            both.a.qp.post_send(hca.Write(both.a.mr[:64], remote=both.b.mr.remote(), signaled=True))
            both.a.next().raise_for_status()
        counters = both.a.device.counters
        found = (counters.local_ack_timeout_err, counters.early_retransmits)
        assert found == ((0, 1) if retry_early else (1, 0))


def test_a_predicate_sees_the_packet() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        seen: list[FaultPacket] = []

        def where(packet: FaultPacket) -> bool:
            seen.append(packet)
            return packet.payload[:1] == b"\x03"

        fault = fabric.faults.drop(where=where, opcode="RC_RDMA_WRITE_ONLY", times=1)
        writes(a, b)
        assert fault.struck == 1
        assert {p.source for p in seen} == {a.device.gid}
        assert {p.destination for p in seen} == {b.device.gid}
        assert {p.qpn for p in seen} == {b.qp.qpn}
        assert {p.opcode for p in seen} == {"RC_RDMA_WRITE_ONLY"}


def test_a_window_of_time() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric, timeout=10)  # 4 ms.
        fault = fabric.faults.drop(from_ns=0, until_ns=10_000_000)
        writes(a, b, 1)
        assert fabric.now_ns > 10_000_000
        assert fault.struck >= 1


def test_direction_and_queue_pair() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        back = fabric.faults.drop(source=b.device, qp=a.qp, nth=1)
        forth = fabric.faults.drop(source=a.device, qp=a.qp.qpn)
        writes(a, b)
        assert back.struck == 1
        assert forth.struck == 0 or a.qp.qpn == b.qp.qpn


def test_sizes_and_psns() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        first = a.qp.psn
        large = fabric.faults.drop(size=(500, 5000), times=1)
        third = fabric.faults.drop(psn=(first + 2) % (1 << 24), times=1)
        writes(a, b)
        assert large.struck == third.struck == 1


def test_delay() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric, timeout=20)
        fabric.faults.delay(5_000_000, opcode="RC_ACKNOWLEDGE", nth=1)
        writes(a, b, 1)
        assert fabric.now_ns >= 5_000_000


def test_two_delays_for_ever_are_one() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        for _ in range(2):
            fabric.faults.delay((1 << 63) - 1)
        a.qp.post_send(hca.Write(a.mr[:5], remote=b.mr.remote(), signaled=True))
        fabric.run_for(1)
        assert a.poll() == []


def arrivals(fabric: Fabric) -> list[int]:
    """The packets of requests, by when they were sent, in the order in which they arrived."""
    return [record.packet for record in fabric.trace if record.what is What.DELIVERED]


def test_equal_delays_keep_the_order() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric, timeout=20)
        fabric.faults.delay(5_000_000)
        writes(a, b)
        sent = arrivals(fabric)
        assert sent == sorted(sent)
        assert a.device.counters["retransmitted_pkts"] == 0


def test_drawn_delays_change_the_order_as_the_seed_says() -> None:
    def run(seed: int) -> list[int]:
        with Fabric(seed) as fabric:
            a, b = pair(fabric, timeout=20)
            fabric.faults.delay((0, 50_000), opcode="RC_RDMA_WRITE*")
            writes(a, b)
            return arrivals(fabric)

    first = run(1)
    assert first != sorted(first)
    assert run(1) == first
    assert run(2) != first


@pytest.mark.parametrize("jitter_ns", [0, 1000])
def test_what_is_late_delays_nobody_behind_it(jitter_ns: int) -> None:
    """With jitter too, in which packets of one connection keep their order by themselves."""
    with Fabric(jitter_ns=jitter_ns) as fabric:
        a, b = pair(fabric)
        fabric.faults.ghost(1_000_000_000, opcode="RC_RDMA_WRITE_ONLY", nth=1)
        writes(a, b, 1)
        writes(a, b)
        assert fabric.now_ns < 1_000_000
        assert a.device.counters["retransmitted_pkts"] == 0


def test_truncated_packets_are_dropped_by_the_icrc() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        fabric.faults.truncate(40, opcode="RC_RDMA_WRITE_ONLY", nth=1)
        writes(a, b)
        assert b.device.counters.rx_icrc_encapsulated == 1


@pytest.mark.parametrize("part", ["anywhere", "headers", "payload", "icrc"])
def test_damage_is_noticed(part: str) -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        fault = fabric.faults.corrupt(part, opcode="RC_RDMA_WRITE_ONLY", nth=1)
        writes(a, b)
        assert fault.struck == 1
        assert b.device.counters.rx_icrc_encapsulated == 1


def test_damage_with_a_mended_icrc_arrives() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        fabric.faults.corrupt("payload", mend_icrc=True, opcode="RC_RDMA_WRITE_ONLY", nth=1)
        a.qp.post_send(hca.Write(a.mr[:100], remote=b.mr.remote(), signaled=True))
        assert a.next().ok
        assert sum(bin(byte).count("1") for byte in b.buffer[:100]) == 1


def test_copies_of_a_marked_packet_are_marked() -> None:
    with Fabric() as fabric:
        a, b = connected(fabric, *fabric.hosts(2, dcqcn=hca.Dcqcn(gbps=25)))
        fabric.faults.mark(opcode="RC_RDMA_WRITE_ONLY")
        fabric.faults.duplicate(2, opcode="RC_RDMA_WRITE_ONLY")
        writes(a, b, 1)
        fabric.settle()
        assert b.device.counters.np_ecn_marked_roce_packets == 3


def test_what_is_overtaken_may_be_late_besides() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        late = {"opcode": "RC_RDMA_WRITE_ONLY", "nth": 1}
        fabric.faults.delay(1_000_000, **late)
        fabric.faults.reorder(by=1, **late)
        writes(a, b, 2)
        fabric.settle()
        times = {r.packet: r.at_ns for r in fabric.trace if r.what is What.DELIVERED}
        assert times[2] < 1_000_000 < times[1] < 1_010_000


def test_a_script_replaces_packets() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)

        def script(packet: FaultPacket) -> Any:
            if packet.psn % 2:
                return None
            return [packet.datagram, (packet.datagram, 10_000)]

        fault = fabric.faults.script(script, source=a.device)
        writes(a, b)
        fabric.run_for(0.001)
        assert fault.struck == 4
        assert b.device.counters.duplicate_request > 0


def test_rnr_for_three_tries() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        fault = fabric.faults.rnr(tries=3, timer_code=1)
        b.qp.post_recv(hca.Recv(b.mr[:100]))
        a.qp.post_send(hca.Send(a.mr[:5], signaled=True))
        assert a.next().ok
        assert fault.struck == 3
        assert a.device.counters.rnr_nak_retry_err == 0


def test_rnr_beyond_the_retries() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric, rnr_retry=2)
        fabric.faults.rnr(tries=3)
        b.qp.post_recv(hca.Recv(b.mr[:100]))
        a.qp.post_send(hca.Send(a.mr[:5], signaled=True))
        assert a.next().status is hca.WcStatus.RNR_RETRY_EXC_ERR


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("invalid_request", hca.WcStatus.REM_INV_REQ_ERR),
        ("remote_access", hca.WcStatus.REM_ACCESS_ERR),
        ("remote_operation", hca.WcStatus.REM_OP_ERR),
    ],
)
def test_naks(kind: str, status: hca.WcStatus) -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        fabric.faults.nak(kind, nth=2)
        for _ in range(2):
            a.qp.post_send(hca.Write(a.mr[:5], remote=b.mr.remote(), signaled=True))
        assert a.next().ok
        assert a.next().status is status


def test_a_sequence_nak_makes_the_requester_go_back() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        fabric.faults.nak("sequence", nth=3)
        writes(a, b)
        assert a.device.counters.packet_seq_err >= 1


def test_a_mute_responder() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric, timeout=8, retry_cnt=3)
        fabric.faults.mute(b.device)
        a.qp.post_send(hca.Write(a.mr[:5], remote=b.mr.remote(), signaled=True))
        assert a.next().status is hca.WcStatus.RETRY_EXC_ERR


def test_a_ghost_of_an_earlier_connection() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        fabric.faults.ghost(1_000_000, opcode="RC_RDMA_WRITE_ONLY", nth=1)
        writes(a, b, 1)
        for end in (a, b):
            end.qp.modify(qp_state=hca.QPState.RESET)
        a.qp.connect(b.qp.info(), sq_psn=500, rq_psn=700)
        b.qp.connect(a.qp.info(), sq_psn=700, rq_psn=500)
        b.buffer[:] = bytes(len(b.buffer))
        fabric.run_for(0.002)
        writes(a, b)


def test_cnp_reaches_the_sender() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        fabric.faults.cnp(opcode="RC_RDMA_WRITE*", nth=1)
        writes(a, b)
        assert a.device.counters.rx_cnp == 1


def test_a_fault_that_is_removed_strikes_no_more() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        with fabric.faults.drop(opcode="RC_RDMA_WRITE*", probability=0.5) as fault:
            writes(a, b)
        struck = fault.struck
        writes(a, b)
        assert fault.struck == struck > 0


def test_one_fault_does_not_change_what_another_draws() -> None:
    def struck(with_other: bool) -> list[int]:
        with Fabric(seed=3) as fabric:
            a, b = pair(fabric)
            strikes: list[int] = []
            fabric.faults.drop(
                opcode="RC_RDMA_WRITE*",
                probability=0.3,
                where=lambda p: bool(strikes.append(p.psn)) or True,
            )
            if with_other:
                fabric.faults.delay((1, 100), probability=0.5, opcode="RC_RDMA_WRITE*")
            writes(a, b)
            return strikes[:4]

    assert struck(False) == struck(True)


@pytest.mark.parametrize(
    ("match", "says"),
    [
        ({"opcode": "RC_ACKNOWLEGE"}, "RC_ACKNOWLEDGE"),
        ({"opcode": "RC_NOTHING*"}, "opcode"),
        ({"opcode": []}, "match nothing"),
        ({"nth": 0}, "match nothing"),
        ({"nth": []}, "match nothing"),
        ({"every": 0}, "strike nothing"),
        ({"every": 2, "nth": [1, 3]}, "strike nothing"),
        ({"times": 0}, "strike nothing"),
        ({"probability": 0}, "above 0"),
        ({"probability": 1.5}, "above 0"),
        ({"psn": 1 << 24}, "psn"),
        ({"size": (100, 50)}, "match no packet"),
        ({"size": (0, 8)}, "match no packet"),
        ({"size": (65, 4096), "opcode": ["RC_ACKNOWLEDGE", "*FETCH_ADD"]}, "match nothing"),
        ({"from_ns": 10, "until_ns": 10}, "match nothing"),
        ({"qp": 1 << 24}, "qp"),
        ({"source": "nobody"}, "source"),
        ({"link": 0}, "link"),
        ({"on": "there"}, "on"),
    ],
)
def test_faults_that_can_match_nothing(match: dict[str, Any], says: str) -> None:
    with Fabric() as fabric:
        fabric.hosts(2)
        with pytest.raises(hca.VerbsError, match=says.replace("*", r"\*")) as raised:
            fabric.faults.drop(**match)
        assert raised.value.errno == errno.EINVAL
        assert not fabric.faults.all


def test_more_that_can_match_nothing() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        with pytest.raises(hca.VerbsError, match="carries no payload"):
            fabric.faults.corrupt("payload", opcode="RC_ACKNOWLEDGE")
        with pytest.raises(hca.VerbsError, match="not where that queue pair is"):
            fabric.faults.drop(qp=a.qp, destination=b.device)
        for word in ({"destination": a.device}, {"qp": a.qp}):
            with pytest.raises(hca.VerbsError, match="to itself passes no link: can match nothing"):
                fabric.faults.drop(source=a.device, **word)
        with pytest.raises(hca.VerbsError, match="must be one of"):
            fabric.faults.corrupt("tail")
        with pytest.raises(hca.VerbsError, match="must be one of"):
            fabric.faults.nak("rude")
        with pytest.raises(TypeError, match="'nht' is no condition"):
            fabric.faults.drop(nht=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("word", ["drop", "script", "nak"])
def test_a_packet_goes_on_though_a_function_raises(word: str) -> None:
    def fails(packet: FaultPacket) -> Any:
        raise RuntimeError(packet.opcode)

    with Fabric() as fabric:
        a, b = pair(fabric)
        match: dict[str, Any] = {"opcode": "RC_RDMA_WRITE_ONLY", "until_ns": 2000}
        if word == "script":
            fabric.faults.script(fails, **match)
        elif word == "nak":
            fabric.faults.nak("remote_access", where=fails, **match)
        else:
            fabric.faults.drop(where=fails, **match)
        a.qp.post_send(hca.Write(a.mr[:5], remote=b.mr.remote(), signaled=True))
        with pytest.raises(RuntimeError, match="RC_RDMA_WRITE_ONLY"):
            a.next()
        assert a.next().ok
        fabric.settle()
        assert a.device.counters["retransmitted_pkts"] == 0
        # Nothing is on its way for ever, which polls would wait for.
        with pytest.raises(DeadlockError):
            while not a.cq.poll():
                pass


def test_a_predicate_must_not_let_time_pass() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        fabric.faults.drop(where=lambda packet: fabric.run_for(1))
        a.qp.post_send(hca.Write(a.mr[:5], remote=b.mr.remote(), signaled=True))
        with pytest.raises(FabricError, match="must not let time pass"):
            a.next()
