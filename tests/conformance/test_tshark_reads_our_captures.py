"""tshark, which knows nothing of us, reads a capture of ours without a complaint, and as we do."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import softhca as hca

from .pcap import roce_frames
from .traffic import End, everything

# Guesses at what payloads are (RPC, Ethernet, Fibre Channel) and complaints about the guess.
GUESSES = ["rpcordma", "infiniband.eoib", "fcoib"]
ERROR = 8388608
BTH_FIELDS = {
    "infiniband.bth.opcode": "opcode",
    "infiniband.bth.destqp": "destination_qpn",
    "infiniband.bth.psn": "psn",
    "infiniband.bth.a": "ack_request",
    "infiniband.bth.se": "solicited",
    "infiniband.bth.p_key": "pkey",
    "infiniband.bth.padcnt": "pad_count",
    "infiniband.bth.tver": "version",
}
# Our name, and the header that has it. tshark 4.0 looks into none behind an XRC header.
FIELDS = {
    "infiniband.reth.va": ("virtual_address", "RETH"),
    "infiniband.reth.r_key": ("rkey", "RETH"),
    "infiniband.reth.dmalen": ("dma_length", "RETH"),
    "infiniband.aeth.syndrome": ("syndrome", "AETH"),
    "infiniband.aeth.msn": ("msn", "AETH"),
    "infiniband.deth.q_key": ("qkey", "DETH"),
    "infiniband.deth.srcqp": ("source_qpn", "DETH"),
}

needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")


def tshark(capture: Path, *arguments: str) -> list[str]:
    disabled = [word for name in GUESSES for word in ("--disable-protocol", name)]
    command = ["tshark", *disabled, "-r", str(capture), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def number(text: str) -> int:
    """A field as tshark prints it: a flag is 0 or 1 in version 4.0, False or True in 4.6."""
    return ["False", "True"].index(text) if text in ("False", "True") else int(text, 0)


@pytest.fixture(scope="module", params=["IPv4", "IPv6"])
def capture(request, tmp_path_factory) -> Path:
    """Both directions of all traffic: between two devices, or of one with itself over ::1."""
    path = tmp_path_factory.mktemp("capture") / "ours.pcapng"
    if request.param == "IPv4":
        with hca.open(capture=path) as device, hca.open() as far_device:
            ends = End(device), End(far_device)
            everything(*ends)
            for end in ends:
                end.close()
        return path
    try:
        device = hca.open("::1", capture=path)
    except hca.VerbsError as error:
        pytest.skip(f"no device on ::1: {error}")
    with device:
        end = End(device)
        everything(end, end)
        end.close()
    return path


@needs_tshark
def test_tshark_finds_nothing_malformed(capture):
    complaints = tshark(capture, "-Y", f"_ws.malformed or _ws.expert.severity == {ERROR}")
    assert complaints == []


@needs_tshark
def test_tshark_takes_every_frame_for_infiniband(capture):
    frames = tshark(capture)
    assert len(frames) > 200
    assert len(tshark(capture, "-Y", "infiniband")) == len(frames)


@needs_tshark
def test_tshark_reads_every_header_as_we_do(capture):
    classic = capture.with_suffix(".pcap")
    tshark(capture, "-F", "pcap", "-w", str(classic))
    ours = [frame.packet for frame in roce_frames(classic)]
    columns = [word for name in (*BTH_FIELDS, *FIELDS) for word in ("-e", name)]
    rows = tshark(capture, "-T", "fields", *columns)
    assert len(rows) == len(ours)
    kinds = set()
    for row, packet in zip(rows, ours, strict=True):
        assert packet.problem == ""
        kinds.add(packet.opcode_name)
        texts = dict(zip((*BTH_FIELDS, *FIELDS), row.split("\t"), strict=True))
        for name, attribute in BTH_FIELDS.items():
            assert number(texts[name]) == int(getattr(packet, attribute)), (name, row)
        if packet.opcode_name.startswith("XRC"):
            continue
        for name, (attribute, header) in FIELDS.items():
            # It shows the address and key of an atomic under the names of the RETH.
            if header == "RETH" and "AtomicETH" in packet.headers:
                continue
            expected = int(getattr(packet, attribute)) if header in packet.headers else None
            assert (number(texts[name]) if texts[name] else None) == expected, (name, row)
    # Every operation that there is, but for those that are not offered.
    assert len(kinds) >= 55, sorted(kinds)


@needs_tshark
def test_tshark_finds_good_checksums_of_ip_and_udp(capture):
    checks = ["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]
    bad = "ip.checksum.status == Bad or udp.checksum.status == Bad"
    assert tshark(capture, *checks, "-Y", bad) == []
