"""The public tools for tests: faults around an adapter, and a wire in virtual time."""

from __future__ import annotations

import pytest

import softhca as hca
from softhca.testing import (
    Faults,
    Packet,
    Wire,
    check_icrc,
    encode_ip_udp,
    open_simulated,
    parse_ip_udp,
    route,
)
from softhca.testing.simulation import Flying

from .hosts import BUFFER_BYTES, Host, Pair

PATTERN = bytes((i * 7 + i // 251) & 0xFF for i in range(BUFFER_BYTES))


@pytest.mark.parametrize(
    "faults",
    [
        Faults(drop=0.05, seed=11),
        Faults(duplicate=0.2, seed=12),
        Faults(reorder=0.2, seed=13),
        Faults(corrupt=0.05, seed=14),
        Faults(drop=0.05, duplicate=0.05, reorder=0.05, corrupt=0.05, seed=15, on="send"),
    ],
    ids=lambda faults: f"seed {faults.seed}",
)
def test_every_byte_is_right_on_a_bad_network(faults: Faults) -> None:
    with hca.open(faults=faults, seed=1) as a, hca.open(seed=2) as b:
        pair = Pair(Host(a), Host(b), None)
        near, _ = pair.connected(max_send_wr=16)
        pair.a.buffer[:] = PATTERN
        remote = pair.b.mr.remote()
        for _ in range(8):
            pair.b.buffer[:] = bytes(BUFFER_BYTES)
            half = BUFFER_BYTES // 2
            near.post_send(hca.Write(pair.a.mr[:half], remote=remote))
            near.post_send(hca.Write(pair.a.mr[half:], remote=remote[half:], signaled=True))
            pair.completion(pair.a).raise_for_status()
            assert pair.b.buffer == PATTERN
            pair.a.buffer[:] = bytes(BUFFER_BYTES)
            near.post_send(hca.Read(pair.a.mr[:], remote=remote, signaled=True))
            pair.completion(pair.a).raise_for_status()
            assert pair.a.buffer == PATTERN
        counted = a.link_counters["sent_faults"]
        assert counted["passed"] > 100
        assert sum(counted[k] for k in ("dropped", "duplicated", "reordered", "corrupted")) > 0


def lossy_run(seed: int) -> tuple[list[bytes], int]:
    """Writes over a wire that loses every fifth packet; every datagram and the time it took."""
    lost: list[Flying] = []

    def lose(flying: Flying) -> list[Flying] | None:
        if flying.order % 5 == 4:
            lost.append(flying)
            return None
        return [flying]

    # Probes, since every fifth packet that is lost may be the first of each retry.
    options = {"mtu": 256, "retry_early": True}
    with (
        open_simulated("10.0.0.1", seed=seed, **options) as a,
        open_simulated("10.0.0.2", seed=seed + 1, **options) as b,
    ):
        # Addresses of buffers are not the simulation's: keys start at a number of the test's.
        hosts = [Host(a), Host(b)]
        pair = Pair(*hosts, Wire(a, b, hook=lose))
        near, _ = pair.connected()
        target = hosts[1].keep(
            hosts[1].pd.reg_mr(addr=hosts[1].mr.addr, length=BUFFER_BYTES, iova=0x10000)
        )
        pair.a.buffer[:] = PATTERN
        near.post_send(hca.Write(pair.a.mr[:], remote=target.remote(), signaled=True))
        pair.completion(pair.a).raise_for_status()
        assert pair.b.buffer == PATTERN
        assert lost
        assert pair.wire is not None
        return [flying.datagram for flying in pair.wire.sent], pair.wire.now_ns


def test_a_simulation_repeats_itself_to_the_byte() -> None:
    assert lossy_run(5) == lossy_run(5)
    assert lossy_run(5) != lossy_run(7)


def test_a_wire_says_when_nothing_more_can_happen(simulated: Pair) -> None:
    assert simulated.wire is not None
    with pytest.raises(AssertionError, match="nothing more happens"):
        simulated.wire.run_until(lambda: False)


def test_a_silent_peer_exhausts_the_retries(simulated: Pair) -> None:
    near, _ = simulated.connected()
    assert simulated.wire is not None
    simulated.wire.hook = lambda flying: None
    near.post_send(hca.Write(remote=simulated.b.mr.remote(), wr_id=1))
    wc = simulated.completion(simulated.a)
    assert wc.status is hca.WcStatus.RETRY_EXC_ERR
    assert wc.reason is hca.Reason.RETRIES_EXHAUSTED
    assert near.counters.local_ack_timeout_err >= 7


def test_packets_are_values() -> None:
    packet = Packet()
    packet.opcode = 0x0A
    packet.destination_qpn = 0x123456
    packet.psn = 0xFFFFFF
    packet.virtual_address = 0x1122334455667788
    packet.rkey = 0xCAFE
    packet.dma_length = 5
    packet.payload = b"hello"
    assert packet.pad_count == 3
    way = route("10.0.0.1", "10.0.0.2", udp_source_port=0xC123)
    datagram = packet.encode(way)
    assert check_icrc(way, datagram, hca.IcrcLevel.STRICT).good
    again = Packet.decode(datagram)
    assert (again.problem, again.opcode_name, again.headers) == ("", "RC_RDMA_WRITE_ONLY", ["RETH"])
    assert (again.payload, again.dma_length, again.rkey) == (b"hello", 5, 0xCAFE)
    parsed = parse_ip_udp(encode_ip_udp(way, len(datagram)) + datagram)
    assert parsed is not None
    assert (parsed[0].source, parsed[1], parsed[2]) == (way.source, datagram, True)
    assert Packet.decode(b"short").problem == "TOO_SHORT"


def test_injected_packets_are_judged(simulated: Pair) -> None:
    near, far = simulated.connected()
    assert simulated.wire is not None
    packet = Packet()
    packet.opcode = 0x04
    packet.destination_qpn = far.qpn
    packet.psn = near.psn
    way = route(simulated.a.device.gid, simulated.b.device.gid)
    report = simulated.wire.inject(packet.encode(way)[:-1] + b"?", way)
    assert report is not None
    assert report.verdict
    assert simulated.b.device.counters.rx_icrc_encapsulated == 1
