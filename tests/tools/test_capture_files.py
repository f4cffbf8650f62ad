"""Reading pcap and pcapng: every layout, and every kind of damage."""

from __future__ import annotations

import gzip
import io
import random
import struct

import pytest
from made_captures import (
    block,
    enhanced_packet,
    interface,
    option,
    pcap,
    section_header,
    simple_packet,
)

from softhca.tools.capture import CaptureError, Frame, read_frames


def frames_of(content: bytes) -> list[Frame]:
    return list(read_frames(io.BufferedReader(io.BytesIO(content))))


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(("nanoseconds", "unit_ns"), [(False, 1000), (True, 1)])
def test_pcap_in_both_byte_orders_and_units(order: str, nanoseconds: bool, unit_ns: int) -> None:
    frames = frames_of(pcap([b"one", b"three"], order=order, nanoseconds=nanoseconds))
    assert [frame.data for frame in frames] == [b"one", b"three"]
    assert [frame.number for frame in frames] == [1, 2]
    assert frames[1].time_ns == 101_000_000_000 + unit_ns
    assert frames[0].link_type == 1


def test_pcap_keeps_the_length_on_the_wire() -> None:
    (frame,) = frames_of(pcap([b"0123456789"], snaplen=4))
    assert frame.data == b"0123"
    assert frame.wire_bytes == 10


def test_pcap_link_type_without_the_check_sequence_bits() -> None:
    assert frames_of(pcap([b"x"], link_type=0x14000071))[0].link_type == 0x71


def test_gzip_is_unpacked() -> None:
    assert frames_of(gzip.compress(pcap([b"one"])))[0].data == b"one"


@pytest.mark.parametrize("order", ["<", ">"])
def test_pcapng_packets_of_all_three_kinds(order: str) -> None:
    old = block(2, struct.pack(f"{order}HHIIII", 0, 0xFFFF, 0, 7_000_000, 3, 3) + b"old", order)
    content = (
        section_header(order)
        + interface(order=order)
        + enhanced_packet(b"full", time=5_000_000, order=order)
        + simple_packet(b"simple", order=order)
        + block(5, bytes(12), order)  # Interface statistics: passed over.
        + old
    )
    frames = frames_of(content)
    assert [frame.data for frame in frames] == [b"full", b"simple", b"old"]
    assert [frame.time_ns for frame in frames] == [5_000_000_000, None, 7_000_000_000]
    assert [frame.number for frame in frames] == [1, 2, 3]


def test_pcapng_sections_of_different_byte_orders() -> None:
    content = (
        section_header("<")
        + interface()
        + enhanced_packet(b"little")
        + section_header(">")
        + interface(113, order=">")
        + enhanced_packet(b"big", order=">")
    )
    assert [(f.data, f.link_type) for f in frames_of(content)] == [(b"little", 1), (b"big", 113)]


@pytest.mark.parametrize(
    ("resolution", "time", "expected_ns"),
    [(9, 1_500_000_000, 1_500_000_000), (3, 1500, 1_500_000_000), (0x80 | 10, 512, 500_000_000)],
)
def test_pcapng_time_resolutions(resolution: int, time: int, expected_ns: int) -> None:
    options = option(9, bytes([resolution])) + option(0, b"")
    content = section_header() + interface(options=options) + enhanced_packet(b"x", time=time)
    assert frames_of(content)[0].time_ns == expected_ns


def test_pcapng_time_offset_and_comments() -> None:
    options = option(14, struct.pack("<q", 10))
    packet = enhanced_packet(
        b"x", time=1, options=option(1, b"first") + option(2, bytes(4)) + option(1, b"second")
    )
    (frame,) = frames_of(section_header() + interface(options=options) + packet)
    assert frame.time_ns == 10_000_001_000
    assert frame.comments == ("first", "second")


def test_simple_packets_are_cut_at_the_interfaces_snaplen() -> None:
    content = section_header() + interface(snaplen=4) + simple_packet(b"0123456789", snaplen=4)
    (frame,) = frames_of(content)
    assert (frame.data, frame.wire_bytes) == (b"0123", 10)


WHOLE_PCAP = pcap([b"one", b"two"])
WHOLE_PCAPNG = section_header() + interface() + enhanced_packet(b"one") + simple_packet(b"two")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"\x7fELF and more", "neither pcap nor pcapng"),
        (WHOLE_PCAP[:20], "file header"),
        (WHOLE_PCAP[:30], "header of frame 1"),
        (WHOLE_PCAP[:-1], "frame 2"),
        (struct.pack("<IHHiIII", 0xA1B2C3D4, 1, 0, 0, 0, 0, 1), "version 1"),
        (pcap([]) + struct.pack("<IIII", 0, 0, 1 << 31, 4), "damaged"),
        (WHOLE_PCAPNG[:-1], "middle of a block"),
        (WHOLE_PCAPNG[:-18], "middle of"),
        (section_header()[:-4] + struct.pack("<I", 99), "ends with 99"),
        (b"\x0a\x0d\x0d\x0a" + struct.pack("<II", 28, 0xABADCAFE), "byte-order magic"),
        (section_header() + struct.pack("<II", 6, 13), "damaged"),
        (section_header() + enhanced_packet(b"x"), "interface 0"),
        (section_header() + interface() + block(6, bytes(8)), "too short"),
        (section_header() + interface() + block(6, struct.pack("<5I", 0, 0, 0, 99, 99)), "claims"),
        (section_header() + interface(options=struct.pack("<HH", 1, 99)), "option"),
        (gzip.compress(WHOLE_PCAP)[:-12], "compressed"),
    ],
)
def test_damage_is_named(content: bytes, message: str) -> None:
    with pytest.raises(CaptureError, match=message):
        frames_of(content)


def test_what_comes_before_the_damage_is_read() -> None:
    frames = read_frames(io.BufferedReader(io.BytesIO(WHOLE_PCAP[:-1])))
    assert next(frames).data == b"one"
    with pytest.raises(CaptureError):
        next(frames)


def test_random_damage_never_raises_anything_else() -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    generator = random.Random(seed)
    for whole in (WHOLE_PCAP, WHOLE_PCAPNG, gzip.compress(WHOLE_PCAPNG)):
        for _ in range(1000):
            content = bytearray(whole)
            for _ in range(generator.randint(1, 4)):
                content[generator.randrange(len(content))] = generator.randrange(256)
            try:
                frames_of(bytes(content[: generator.randint(1, len(content))]))
            except CaptureError:
                continue
