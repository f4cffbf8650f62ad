"""`softhca dump FILE`: the RoCEv2 packets of a capture, a line each, with every ICRC verified."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import BufferedReader
from typing import Any, cast

from softhca.tools.capture import CaptureError, Frame
from softhca.tools.census import Decoder, Summary, read_packets
from softhca.tools.command import FAILED, UNUSABLE, Command, CommandError, print_error, print_json
from softhca.tools.roce import RocePacket, flag_texts, header_texts, syndrome_text

DESCRIPTION = """Decodes any pcap or pcapng file: time, addresses, opcode, QP, PSN, headers and
payload length of each RoCEv2 packet. Every ICRC is computed again over the bytes that travelled.
Exit status: 0 if all are right, 1 if any is wrong, 2 if the file cannot be read."""


def line_of(frame: Frame, roce: RocePacket, start_ns: int) -> str:
    """One packet on one line."""
    packet, udp = roce.packet, roce.udp
    time = "-" if frame.time_ns is None else f"{(frame.time_ns - start_ns) / 1e9:.6f}"
    words = [f"{time:>12}  {udp.source} > {udp.destination} "]
    if packet.problem and packet.problem != "RESERVED_OPCODE":
        words.append(f"{packet.opcode_name} MALFORMED {packet.problem}")
    elif packet.problem:
        words.append(f"RESERVED opcode {packet.opcode:#04x}")
    else:
        words.append(
            f"{packet.opcode_name:<29} qp {packet.destination_qpn:#08x} psn {packet.psn:<8}"
        )
        words += header_texts(packet)
        words += flag_texts(packet)
        words.append(f"payload {len(packet.payload)}")
    if not roce.icrc_ok:
        words.append(f"WRONG ICRC {roce.icrc:#010x}, should be {roce.right_icrc:#010x}")
    return " ".join(words)


def json_of(frame: Frame, roce: RocePacket) -> dict[str, Any]:
    """One packet with every field that its opcode has."""
    packet, udp = roce.packet, roce.udp
    out: dict[str, Any] = {
        "number": frame.number,
        "time_ns": frame.time_ns,
        "source": str(udp.source),
        "destination": str(udp.destination),
        "udp_source_port": udp.source_port,
        "icrc": roce.icrc,
        "icrc_ok": roce.icrc_ok,
        "opcode": packet.opcode,
        "opcode_name": packet.opcode_name,
    }
    if packet.problem:
        return out | {"problem": packet.problem}
    out |= {
        "qp": packet.destination_qpn,
        "psn": packet.psn,
        "ack_request": packet.ack_request,
        "migrated": packet.migrated,
        "solicited": packet.solicited,
        "pkey": packet.pkey,
        "headers": packet.headers,
        "payload_bytes": len(packet.payload),
    }
    for name in packet.headers:
        out |= {key: getattr(packet, key) for key in _JSON_FIELDS[name]}
    if "AETH" in packet.headers:
        out["syndrome_text"] = syndrome_text(packet.syndrome)
    if frame.comments:
        out["comments"] = list(frame.comments)
    return out


_JSON_FIELDS = {
    "DETH": ("qkey", "source_qpn"),
    "XRCETH": ("xrc_srqn",),
    "FETH": ("placement_type", "selectivity"),
    "RETH": ("virtual_address", "rkey", "dma_length"),
    "AtomicETH": ("atomic_address", "atomic_rkey", "swap_add", "compare"),
    "MaskETH": ("compare_mask", "swap_mask"),
    "AETH": ("syndrome", "msn"),
    "AtomicAckETH": ("atomic_original",),
    "ImmDt": ("immediate",),
    "IETH": ("invalidate_rkey",),
}


@contextmanager
def _opened(path: str) -> Iterator[BufferedReader]:
    if path == "-":
        if sys.stdin is None:
            raise CommandError("standard input is closed")
        yield cast(BufferedReader, sys.stdin.buffer)
        return
    with ExitStack() as stack:
        try:
            stream = stack.enter_context(open(path, "rb"))
        except OSError as error:
            raise CommandError(f"{path}: {error.strerror}") from None
        yield stream


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what `dump` understands."""
    parser.add_argument("file", metavar="FILE", help="pcap or pcapng, gzipped or not; - for stdin")
    parser.add_argument("--comments", action="store_true", help="show the capture's own comments")
    parser.add_argument(
        "--packets", action="store_true", help="with --json: every packet too, not only the summary"
    )
    parser.add_argument("--quiet", action="store_true", help="the summary alone")


def run(args: argparse.Namespace) -> int:
    """Dumps the file; see DESCRIPTION for the status."""
    decoder = Decoder()
    output = _JsonOutput(args) if args.json else _TextOutput(args)
    problem = ""
    with _opened(args.file) as stream:
        try:
            for frame, roce in read_packets(stream, decoder):
                output.show(frame, roce)
        except CaptureError as error:
            problem = str(error)
    summary = decoder.summary
    if summary.unsupported_links and not problem:
        links = ", ".join(str(link) for link in sorted(summary.unsupported_links))
        problem = f"frames of link type {links} cannot be read"
    output.finish(summary, problem)
    if problem:
        print_error(f"softhca dump: {args.file}: {problem}")
        return UNUSABLE
    return FAILED if summary.bad_icrc else 0


class _TextOutput:
    """A line per packet as it is read, and a closing line."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._start_ns: int | None = None

    def show(self, frame: Frame, roce: RocePacket) -> None:
        if self._args.quiet:
            return
        if self._start_ns is None:
            self._start_ns = frame.time_ns
        comments = f"  # {'; '.join(frame.comments)}" if self._args.comments else ""
        print(line_of(frame, roce, self._start_ns or 0) + (comments if frame.comments else ""))

    def finish(self, summary: Summary, problem: str) -> None:
        print(summary.as_text(), flush=True)


class _JsonOutput:
    """One object: the summary, the packets if they were asked for, and what went wrong."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._packets: list[dict[str, Any]] = []

    def show(self, frame: Frame, roce: RocePacket) -> None:
        if self._args.packets:
            self._packets.append(json_of(frame, roce))

    def finish(self, summary: Summary, problem: str) -> None:
        out = summary.as_json()
        if self._args.packets:
            out["each"] = self._packets
        if problem:
            out["error"] = problem
        print_json(out)


COMMAND = Command(
    name="dump",
    summary="decode a capture and verify every ICRC",
    description=DESCRIPTION,
    add_arguments=add_arguments,
    run=run,
)
