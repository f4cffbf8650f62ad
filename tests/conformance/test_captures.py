"""Every RoCEv2 frame that Linux's rxe sent decodes, and its ICRC is good (IBTA Vol 1, 7.8.1)."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from softhca._adapter import IcrcLevel, Route, check_icrc

from .conftest import captures_dir
from .pcap import ETHERNET_BYTES, ROCE_PORT, ethernet_frames, roce_frames

# siw/ is iWARP over TCP: it has no RoCE frame.
PCAPS = sorted(
    path.relative_to(captures_dir())
    for pattern in ("*.pcap", "tools/*.pcap")
    for path in captures_dir().glob(pattern)
) or [Path("none")]


@pytest.mark.parametrize("name", PCAPS, ids=str)
def test_every_frame_of_rxe_decodes_with_a_good_icrc(captures, name):
    frames = roce_frames(captures / name)
    assert frames
    for frame in frames:
        assert frame.packet.problem == ""
        verdict = check_icrc(frame.route, frame.datagram, IcrcLevel.STRICT)
        assert verdict.good
        assert not verdict.solved


@pytest.mark.parametrize("name", PCAPS, ids=str)
def test_no_frame_of_rxe_is_overlooked(captures, name):
    to_port_4791 = 0
    for frame in ethernet_frames(captures / name):
        ip = frame[ETHERNET_BYTES:]
        is_ipv6 = frame[12:14] == b"\x86\xdd"
        if frame[12:14] not in (b"\x08\x00", b"\x86\xdd") or ip[6 if is_ipv6 else 9] != 17:
            continue
        to_port_4791 += struct.unpack_from(">H", ip, (40 if is_ipv6 else 20) + 2)[0] == ROCE_PORT
    assert len(roce_frames(captures / name)) == to_port_4791


@pytest.mark.parametrize("name", PCAPS, ids=str)
def test_without_a_raw_socket_the_identification_of_rxe_is_solved_for(captures, name):
    """What a socket does not show of the IPv4 header is found from the ICRC alone."""
    for frame in roce_frames(captures / name):
        seen = frame.route
        socket_view = Route(
            seen.source,
            seen.destination,
            udp_source_port=seen.udp_source_port,
            traffic_class=seen.traffic_class,
            hop_limit=seen.hop_limit,
            flow_label=seen.flow_label,
        )
        verdict = check_icrc(socket_view, frame.datagram, IcrcLevel.SOLVE)
        assert verdict.good
        assert verdict.identification == seen.identification
        assert verdict.solved == (seen.identification != 0)


@pytest.mark.parametrize("name", PCAPS, ids=str)
def test_a_changed_byte_of_rxe_is_noticed(captures, name):
    """Every byte that the ICRC covers, in the first frame of each capture."""
    frame = roce_frames(captures / name)[0]
    masked_bth_byte = 4  # FECN, BECN and reserved bits: a router may change them.
    for at in range(len(frame.datagram)):
        changed = bytearray(frame.datagram)
        changed[at] ^= 0x10
        good = check_icrc(frame.route, bytes(changed), IcrcLevel.STRICT).good
        assert good == (at == masked_bth_byte)


@pytest.mark.parametrize("name", PCAPS, ids=str)
def test_what_was_decoded_encodes_to_the_same_bytes(captures, name):
    for frame in roce_frames(captures / name):
        assert frame.packet.encode(frame.route) == frame.datagram
