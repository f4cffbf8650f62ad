"""`softhca dump`: what it finds in frames, what it says of packets, and its exit status."""

from __future__ import annotations

import io
import json
import os
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from made_captures import (
    DESTINATION6,
    SOURCE6,
    block,
    bsd_null,
    datagram,
    enhanced_packet,
    ethernet,
    interface,
    ipv4_packet,
    ipv6_packet,
    linux_sll,
    linux_sll2,
    option,
    pcap,
    section_header,
)

from softhca.tools.main import main

RunJson = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def capture(tmp_path: Path) -> Callable[[bytes], Path]:
    def write(content: bytes) -> Path:
        path = tmp_path / "made.pcap"
        path.write_bytes(content)
        return path

    return write


PACKET4 = ipv4_packet(datagram(psn=7, destination_qpn=0x1234, payload=b"hello"))
PACKET6 = ipv6_packet(datagram(SOURCE6, DESTINATION6, psn=8, payload=b"hello"))


@pytest.mark.parametrize("packet", [PACKET4, PACKET6], ids=["ipv4", "ipv6"])
@pytest.mark.parametrize(
    ("link_type", "wrap"),
    [
        (1, ethernet),
        (1, lambda packet: ethernet(packet, vlans=1)),
        (1, lambda packet: ethernet(packet, vlans=2)),
        (101, lambda packet: packet),
        (113, linux_sll),
        (276, linux_sll2),
        (0, bsd_null),
        (0, lambda packet: bsd_null(packet, order=">")),
        (108, lambda packet: bsd_null(packet, order=">")),
    ],
    ids=["ethernet", "vlan", "qinq", "raw", "sll", "sll2", "null", "null-big", "loop"],
)
def test_every_link_type(
    run_json: RunJson,
    capture: Callable[[bytes], Path],
    link_type: int,
    wrap: Callable[[bytes], bytes],
    packet: bytes,
) -> None:
    status, out = run_json("dump", capture(pcap([wrap(packet)], link_type=link_type)))
    assert status == 0
    assert (out["packets"], out["roce"], out["bad_icrc"]) == (1, 1, 0)
    assert out["opcodes"] == {"RC_SEND_ONLY": 1}


def test_trailing_bytes_of_ethernet_are_not_the_packets(
    run_json: RunJson, capture: Callable[[bytes], Path]
) -> None:
    status, _ = run_json("dump", capture(pcap([ethernet(PACKET4) + bytes(6)])))
    assert status == 0


def test_the_icrc_is_that_of_the_packets_own_identification_and_flags(
    run_json: RunJson, capture: Callable[[bytes], Path]
) -> None:
    # The datagram's ICRC was made for identification 0 with DF, so both of these are wrong.
    renumbered = ipv4_packet(datagram(), identification=77)
    fragmentable = ipv4_packet(datagram(), fragment=0)
    status, out = run_json(
        "dump", capture(pcap([ethernet(renumbered), ethernet(fragmentable), ethernet(PACKET4)]))
    )
    assert status == 1
    assert (out["roce"], out["bad_icrc"]) == (3, 2)


def test_what_routers_change_is_not_covered(
    run_json: RunJson, capture: Callable[[bytes], Path]
) -> None:
    routed = bytearray(PACKET4)
    routed[1], routed[8], routed[10:12], routed[26:28] = 0x23, 17, b"\xab\xcd", b"\x12\x34"
    routed[32] = 0xC0  # FECN and BECN.
    routed6 = bytearray(PACKET6)
    routed6[0] |= 0x0A
    routed6[1:4] = b"\x12\x34\x56"
    routed6[7] = 3
    status, out = run_json(
        "dump", capture(pcap([ethernet(bytes(routed)), ethernet(bytes(routed6))]))
    )
    assert status == 0
    assert out["roce"] == 2


def test_one_flipped_bit_anywhere_else_is_found(
    run_json: RunJson, capture: Callable[[bytes], Path]
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    generator = random.Random(seed)
    frames = []
    for _ in range(200):
        # From the transport header's first byte on, its masked byte excepted.
        position = generator.choice([28, *range(29, 32), *range(33, len(PACKET4))])
        damaged = bytearray(PACKET4)
        damaged[position] ^= 1 << generator.randrange(8)
        frames.append(ethernet(bytes(damaged)))
    status, out = run_json("dump", capture(pcap(frames)))
    assert status == 1
    assert out["bad_icrc"] == 200


def test_fragments_truncated_frames_and_others_are_counted_apart(
    run_json: RunJson, capture: Callable[[bytes], Path]
) -> None:
    first = ipv4_packet(datagram(payload=bytes(64)), fragment=0x2000, identification=9)
    rest = first[:20] + bytes(32)
    rest = rest[:6] + struct.pack(">H", 8) + rest[8:]
    arp = bytes(12) + b"\x08\x06" + bytes(28)
    dns = ethernet(ipv4_packet(b"question", port=53))
    frames = [ethernet(first), ethernet(rest), arp, dns, ethernet(PACKET4), b"", b"\x00"]
    path = capture(pcap(frames, snaplen=86))
    status, out = run_json("dump", path)
    assert status == 0
    assert out["fragments"] == 2
    assert out["other"] == 4
    assert out["roce"] == 1

    cut = capture(pcap([ethernet(ipv4_packet(datagram(payload=bytes(500))))], snaplen=96))
    status, out = run_json("dump", cut)
    assert status == 0
    assert (out["truncated"], out["roce"]) == (1, 0)


def test_malformed_headers_are_counted_and_do_not_end_the_dump(
    run_json: RunJson, capture: Callable[[bytes], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    reserved = ipv4_packet(datagram(opcode=0x3F))
    versioned = ipv4_packet(datagram(version=3))
    tiny = ipv4_packet(b"tiny")
    path = capture(
        pcap([ethernet(reserved), ethernet(versioned), ethernet(tiny), ethernet(PACKET4)])
    )
    status, out = run_json("dump", path)
    assert status == 1  # Four bytes cannot end in a right ICRC.
    assert (out["malformed"], out["bad_icrc"], out["roce"]) == (3, 1, 4)
    main(["dump", str(path)])
    text = capsys.readouterr().out
    assert "RESERVED opcode 0x3f" in text
    assert "BAD_VERSION" in text


def test_a_line_says_what_the_packet_says(
    capture: Callable[[bytes], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    packets = [
        datagram(
            opcode=0x0A,
            virtual_address=0xABC0,
            rkey=0x77,
            dma_length=5,
            payload=b"hello",
            psn=4711,
            destination_qpn=0x12,
            ack_request=True,
        ),
        datagram(opcode=0x11, syndrome=0x1F, msn=3),
        datagram(opcode=0x11, syndrome=0x62, msn=3),
        datagram(opcode=0x11, syndrome=0x2C, msn=3),
        datagram(opcode=0x13, atomic_address=8, atomic_rkey=1, swap_add=2, compare=3),
        datagram(opcode=0x65, qkey=0x11111111, source_qpn=0x99, immediate=0xCAFE, solicited=True),
        datagram(
            opcode=0x1C,
            virtual_address=0x10,
            rkey=2,
            dma_length=3,
            placement_type=1,
            selectivity=1,
        ),
        datagram(opcode=0x1D, virtual_address=0x10, rkey=2, dma_length=8, payload=bytes(8)),
        datagram(opcode=0x17, invalidate_rkey=0x123),
        datagram(opcode=0xD3, swap_add=2, compare=3, compare_mask=0xFF, swap_mask=1),
        datagram(opcode=0xF4, swap_add=2, compare=0x80, xrc_srqn=5),
    ]
    status = main(["dump", str(capture(pcap([ethernet(ipv4_packet(p)) for p in packets])))])
    lines = capsys.readouterr().out.splitlines()
    assert status == 0
    assert lines[0].split()[:9] == [
        "0.000000", "192.0.2.1", ">", "192.0.2.2", "RC_RDMA_WRITE_ONLY", "qp", "0x000012", "psn",
        "4711",
    ]  # fmt: skip
    assert "RETH(va 0xabc0 rkey 0x00000077 len 5) ack-req payload 5" in lines[0]
    assert "AETH(ACK msn 3)" in lines[1]
    assert lines[1].startswith("    1.000001")
    assert "NAK remote access error" in lines[2]
    assert "RNR NAK 0.64 ms" in lines[3]
    assert "AtomicETH(va 0x8 rkey 0x00000001 swap 0x2 compare 0x3)" in lines[4]
    assert "DETH(qkey 0x11111111 src 0x000099) ImmDt(0x0000cafe) solicited" in lines[5]
    assert "RC_FLUSH" in lines[6]
    assert "FETH(type 1 level 1) RETH(va 0x10 rkey 0x00000002 len 3)" in lines[6]
    assert "RC_ATOMIC_WRITE" in lines[7]
    assert "RC_SEND_ONLY_WITH_INVALIDATE" in lines[8]
    assert "IETH(rkey 0x00000123)" in lines[8]
    assert "RC_MASKED_COMPARE_SWAP" in lines[9]
    assert "MaskETH(compare 0x00000000000000ff swap 0x0000000000000001)" in lines[9]
    assert "XRC_MASKED_FETCH_ADD" in lines[10]
    assert "add 0x2 boundary 0x0000000000000080" in lines[10]
    assert lines[11] == "11 frames, 11 RoCEv2 packets, every ICRC right"


def test_a_wrong_icrc_is_shown_with_the_right_one(
    capture: Callable[[bytes], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = PACKET4[:-1] + bytes([PACKET4[-1] ^ 0xFF])
    assert main(["dump", str(capture(pcap([ethernet(damaged)])))]) == 1
    text = capsys.readouterr().out
    carried = struct.unpack("<I", damaged[-4:])[0]
    right = struct.unpack("<I", PACKET4[-4:])[0]
    assert f"WRONG ICRC {carried:#010x}, should be {right:#010x}" in text


@pytest.mark.parametrize("version", [4, 6])
def test_a_train_is_taken_apart(
    version: int, run_json: RunJson, capture: Callable[[bytes], Path]
) -> None:
    ends = (SOURCE6, DESTINATION6) if version == 6 else ()
    sizes = [1024, 1024, 1024, 12]
    parts = [
        datagram(*ends, psn=psn, payload=bytes([psn]) * size, identification=3 + psn)
        for psn, size in enumerate(sizes)
    ]
    train = b"".join(parts)
    whole = ipv6_packet(train) if version == 6 else ipv4_packet(train, identification=3)
    status, out = run_json("dump", capture(pcap([ethernet(whole)])), "--packets")
    assert status == 0
    assert (out["packets"], out["trains"], out["roce"], out["bad_icrc"]) == (1, 1, 4, 0)
    assert [one["psn"] for one in out["each"]] == [0, 1, 2, 3]
    assert [one["payload_bytes"] for one in out["each"]] == sizes


def test_a_train_with_one_wrong_packet_is_wrong(
    run_json: RunJson, capture: Callable[[bytes], Path]
) -> None:
    parts = [datagram(psn=psn, payload=bytes(64), identification=psn) for psn in range(3)]
    parts[1] = parts[1][:-1] + bytes([parts[1][-1] ^ 1])
    status, out = run_json("dump", capture(pcap([ethernet(ipv4_packet(b"".join(parts)))])))
    assert status == 1
    assert (out["roce"], out["bad_icrc"]) == (1, 1)


def test_json_of_each_packet(run_json: RunJson, capture: Callable[[bytes], Path]) -> None:
    note = option(1, b"QP 0x000012 wr_id 5")
    content = section_header() + interface() + enhanced_packet(ethernet(PACKET4), options=note)
    _, out = run_json("dump", capture(content), "--packets")
    (packet,) = out["each"]
    assert packet["opcode_name"] == "RC_SEND_ONLY"
    assert (packet["qp"], packet["psn"], packet["payload_bytes"]) == (0x1234, 7, 5)
    assert packet["comments"] == ["QP 0x000012 wr_id 5"]
    assert packet["icrc_ok"]


def test_comments_are_shown_when_asked_for(
    capture: Callable[[bytes], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    note = option(1, b"wr_id 5")
    content = section_header() + interface() + enhanced_packet(ethernet(PACKET4), options=note)
    path = str(capture(content))
    main(["dump", path])
    assert "wr_id" not in capsys.readouterr().out
    main(["dump", path, "--comments"])
    assert "# wr_id 5" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not a capture", "neither pcap nor pcapng"),
        (pcap([ethernet(PACKET4)])[:-1], "middle of frame 1"),
        (pcap([b"802.11"], link_type=105), "link type 105"),
        (section_header() + block(6, b""), "too short"),
    ],
)
def test_unreadable_files_end_with_status_2_and_a_sentence(
    capture: Callable[[bytes], Path],
    capsys: pytest.CaptureFixture[str],
    content: bytes,
    message: str,
) -> None:
    assert main(["dump", str(capture(content)), "--json"]) == 2
    output = capsys.readouterr()
    assert message in json.loads(output.out)["error"]
    assert message in output.err


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dump", "/nonexistent.pcap"]) == 2
    assert "No such file" in capsys.readouterr().err


def test_a_comment_that_the_terminal_cannot_show(
    capture: Callable[[bytes], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(shown, encoding="ascii"))
    note = option(1, "5 \N{MICRO SIGN}s".encode())
    content = section_header() + interface() + enhanced_packet(ethernet(PACKET4), options=note)
    assert main(["dump", str(capture(content)), "--comments"]) == 0
    assert b"# 5 \\xb5s" in shown.getvalue()


def test_standard_input_that_is_closed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert main(["dump", "-"]) == 2
    assert "standard input is closed" in capsys.readouterr().err


def shared_captures() -> Iterator[Path]:
    """The captures of Linux's own traffic, where they are at hand."""
    top = Path(__file__).resolve().parents[2]
    directory = Path(os.environ.get("SOFTHCA_PCAPS", top.parent / "shared" / "pcaps"))
    yield from sorted(directory.rglob("*.pcap"))


def test_every_packet_of_linux_has_a_right_icrc(run_json: RunJson) -> None:
    paths = list(shared_captures())
    if not paths:
        pytest.skip("no captures of Linux's traffic: SOFTHCA_PCAPS names no directory of them")
    roce = 0
    for path in paths:
        status, out = run_json("dump", path)
        assert status == 0, path
        assert out["malformed"] == out["truncated"] == out["fragments"] == 0, path
        roce += out["roce"]
    assert roce > 500
