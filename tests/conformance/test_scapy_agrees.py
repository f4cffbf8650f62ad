"""Scapy's own RoCE layer is a judge that knows nothing of ours: BTH, AETH, opcodes, CNP, ICRC.

Random packets over IPv4 and IPv6, both ways. Scapy has no extended header but the AETH; those are
laid out here by hand from IBTA Vol 1, 9.3, and reach it as bytes.
"""

from __future__ import annotations

import ipaddress
import random
import struct
import warnings

import pytest

from softhca._adapter import (
    IcrcLevel,
    Packet,
    Route,
    check_icrc,
    encode_ip_udp,
    header_names,
    opcode_name,
    parse_ip_udp,
)

pytest.importorskip("scapy", reason="scapy is not installed")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Scapy's imports warn about other packages.
    from scapy.contrib import roce
    from scapy.layers.inet import IP, UDP
    from scapy.layers.inet6 import IPv6
    from scapy.packet import Raw

SEED = random.SystemRandom().randrange(1 << 32)
ROUNDS = 400
# Not CNP, and not the manufacturers' range, which is ours here.
OPCODES = [n for n in range(0xC0) if opcode_name(n) != "RESERVED" and n != 0x81]

# Each extended header: its wire layout, and our names for its fields (None: reserved).
LAYOUTS: dict[str, tuple[str, tuple[str | None, ...]]] = {
    "DETH": (">II", ("qkey", "source_qpn")),
    "XRCETH": (">I", ("xrc_srqn",)),
    "RETH": (">QII", ("virtual_address", "rkey", "dma_length")),
    "AtomicETH": (">QIQQ", ("atomic_address", "atomic_rkey", "swap_add", "compare")),
    "AETH": (">I", ("aeth",)),
    "AtomicAckETH": (">Q", ("atomic_original",)),
    "ImmDt": (">I", ("immediate",)),
    "IETH": (">I", ("invalidate_rkey",)),
}
WIDTH = {"Q": 64, "I": 32}
TWENTY_FOUR_BITS = ("source_qpn", "xrc_srqn")
WITHOUT_PAYLOAD = ("READ_REQUEST", "ACKNOWLEDGE", "COMPARE_SWAP", "FETCH_ADD", "FLUSH")


@pytest.fixture
def rng() -> random.Random:
    print(f"seed {SEED}")
    return random.Random(SEED)


def random_opcode(rng: random.Random) -> int:
    """One whose headers are in LAYOUTS, which leaves out FLUSH."""
    while True:
        opcode = rng.choice(OPCODES)
        if set(header_names(opcode)) <= set(LAYOUTS):
            return opcode


def random_headers(rng: random.Random, opcode: int) -> tuple[bytes, dict[str, int]]:
    """The extended headers of an opcode as bytes, and the same by our names."""
    wire, fields = b"", {}
    for header in header_names(opcode):
        layout, names = LAYOUTS[header]
        values = []
        for code, name in zip(layout[1:], names, strict=True):
            bits = 24 if name in TWENTY_FOUR_BITS else WIDTH[code]
            values.append(rng.getrandbits(bits))
            fields[name] = values[-1]
        wire += struct.pack(layout, *values)
    if "aeth" in fields:
        aeth = fields.pop("aeth")
        fields["syndrome"], fields["msn"] = aeth >> 24, aeth & 0xFFFFFF
    return wire, fields


def random_payload(rng: random.Random, opcode: int) -> bytes:
    if opcode_name(opcode).endswith(WITHOUT_PAYLOAD):
        return b""
    if opcode_name(opcode).endswith("ATOMIC_WRITE"):
        return rng.randbytes(8)
    return rng.randbytes(rng.choice([0, 1, 2, 3, 4, 61, 256, 1000, 1024, 4095, 4096]))


def random_bth(rng: random.Random) -> dict[str, int]:
    return {
        "solicited": rng.getrandbits(1),
        "migreq": rng.getrandbits(1),
        "pkey": rng.getrandbits(16),
        "fecn": rng.getrandbits(1),
        "becn": rng.getrandbits(1),
        "dqpn": rng.getrandbits(24),
        "ackreq": rng.getrandbits(1),
        "psn": rng.getrandbits(24),
    }


OUR_NAME = {"dqpn": "destination_qpn", "ackreq": "ack_request", "migreq": "migrated"}


def random_route(rng: random.Random, version: int) -> Route:
    def address() -> bytes:
        if version == 4:
            return bytes(10) + b"\xff\xff" + bytes([10]) + rng.randbytes(3)
        return b"\xfd" + rng.randbytes(15)

    return Route(
        address(),
        address(),
        udp_source_port=rng.randrange(0xC000, 0x10000),
        identification=rng.getrandbits(16) if version == 4 else 0,
        traffic_class=rng.getrandbits(8),
        hop_limit=rng.getrandbits(8),
        flow_label=rng.getrandbits(20) if version == 6 else 0,
    )


def scapy_ip(route: Route, version: int):
    """Scapy's IP and UDP layers for a route of ours."""
    source, destination = (
        str(ipaddress.ip_address(gid[12:] if version == 4 else gid))
        for gid in (route.source, route.destination)
    )
    if version == 4:
        ip = IP(
            src=source,
            dst=destination,
            flags="DF",
            id=route.identification,
            tos=route.traffic_class,
            ttl=route.hop_limit,
        )
    else:
        ip = IPv6(
            src=source,
            dst=destination,
            tc=route.traffic_class,
            fl=route.flow_label,
            hlim=route.hop_limit,
        )
    return ip / UDP(sport=route.udp_source_port, dport=4791, chksum=0)


@pytest.mark.parametrize("version", [4, 6])
def test_scapy_packets_decode_here_with_a_good_icrc(rng, version):
    for _ in range(ROUNDS):
        opcode, bth, route = random_opcode(rng), random_bth(rng), random_route(rng, version)
        headers, fields = random_headers(rng, opcode)
        payload = random_payload(rng, opcode)
        pad = -len(payload) % 4
        layers = scapy_ip(route, version) / roce.BTH(opcode=opcode, padcount=pad, **bth)
        built = bytes(layers / Raw(headers + payload + bytes(pad)))
        parsed = parse_ip_udp(built)
        assert parsed is not None
        seen_route, datagram, dont_fragment = parsed
        assert dont_fragment or version == 6
        for name in ("source", "destination", "udp_source_port", "traffic_class", "hop_limit"):
            assert getattr(seen_route, name) == getattr(route, name)
        verdict = check_icrc(seen_route, datagram, IcrcLevel.STRICT)
        assert verdict.good, built.hex()
        packet = Packet.decode(datagram)
        assert packet.problem == "", (packet.opcode_name, packet.problem)
        assert packet.opcode == opcode
        assert packet.payload == payload
        for name, value in bth.items():
            assert getattr(packet, OUR_NAME.get(name, name)) == value
        assert {name: getattr(packet, name) for name in fields} == fields


@pytest.mark.parametrize("version", [4, 6])
def test_packets_from_here_are_read_by_scapy_and_have_its_icrc(rng, version):
    for _ in range(ROUNDS):
        opcode, bth, route = random_opcode(rng), random_bth(rng), random_route(rng, version)
        headers, fields = random_headers(rng, opcode)
        packet = Packet()
        packet.opcode = opcode
        packet.payload = random_payload(rng, opcode)
        for name, value in {**bth, **fields}.items():
            ours = OUR_NAME.get(name, name)
            setattr(packet, ours, type(getattr(packet, ours))(value))
        datagram = packet.encode(route)
        built = encode_ip_udp(route, len(datagram)) + datagram
        parsed = (IP if version == 4 else IPv6)(built)
        assert parsed[UDP].dport == 4791
        assert parsed[UDP].sport == route.udp_source_port
        seen = parsed[roce.BTH]
        assert seen.opcode == opcode
        assert {name: getattr(seen, name) for name in bth} == bth
        assert seen.padcount == -len(packet.payload) % 4
        assert seen.version == 0
        behind = headers + packet.payload + bytes(seen.padcount)
        assert bytes(seen.payload) == behind
        if roce.AETH in parsed:
            assert (parsed[roce.AETH].syndrome, parsed[roce.AETH].msn) == (
                packet.syndrome,
                packet.msn,
            )
        icrc = seen.icrc
        seen.icrc = None  # Scapy then computes it.
        again = bytes(parsed)
        assert again[-4:] == struct.pack("!I", icrc) == datagram[-4:]


def test_opcodes_have_the_numbers_that_scapy_gives_them():
    known = {name: number for number, name in roce._bth_opcodes.items() if name[:2] != "RD"}
    assert {name: opcode_name(number) for name, number in known.items()} == {
        name: name for name in known
    }


@pytest.mark.parametrize("version", [4, 6])
def test_a_congestion_notification_of_scapy_decodes_here(rng, version):
    built = bytes(scapy_ip(random_route(rng, version), version) / roce.cnp(dqpn=0x123456))
    route, datagram, _ = parse_ip_udp(built) or pytest.fail("is not UDP")
    assert check_icrc(route, datagram, IcrcLevel.STRICT).good
    packet = Packet.decode(datagram)
    assert (packet.problem, packet.opcode_name) == ("", "CNP")
    assert (packet.destination_qpn, packet.becn) == (0x123456, True)
