"""Traces as files: all records as lines of JSON, or the packets as pcapng."""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from softhca import _adapter
from softhca.testing.record import Record, What
from softhca.testing.record_text import packet_text

_FORMAT = "softhca trace 1"
_ROUTE = ("udp_source_port", "identification", "traffic_class", "hop_limit", "flow_label")
_LINKTYPE_RAW = 101  # IP packets without a link layer.
_MOST_OPTION_BYTES = 0xFFFF
# What reading a file raises that is another, or damaged.
_NO_TRACE = (gzip.BadGzipFile, zlib.error, EOFError, ValueError, TypeError, KeyError)


def save_records(path: Path, hosts: Sequence[str], records: Iterable[Record]) -> None:
    """Writes a .trace file: a line about the file, and one for each record; compressed."""
    with gzip.GzipFile(path, "wb", mtime=0) as out:
        out.write(json.dumps({"format": _FORMAT, "hosts": list(hosts)}).encode() + b"\n")
        for r in records:
            line: list[Any] = [r.at_ns, int(r.what), r.host, r.qpn, r.packet, r.a, r.b, r.number]
            line += [r.text, r.data.hex()]
            if r.route is not None:
                line.append([r.route.source.hex(), r.route.destination.hex()])
                line.append([getattr(r.route, name) for name in _ROUTE])
            out.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")


def _record(line: list[Any]) -> Record:
    at_ns, what, host, qpn, packet, a, b, number, text, data, *route = line
    made = None
    if route:
        (source, destination), values = route
        made = _adapter.Route(
            bytes.fromhex(source),
            bytes.fromhex(destination),
            **dict(zip(_ROUTE, values, strict=True)),
        )
    kind = What(what)
    return Record(at_ns, kind, host, qpn, packet, a, b, number, text, bytes.fromhex(data), made)


def load_records(path: Path) -> tuple[list[str], list[Record]]:
    """Reads a .trace file: names of hosts, and records.

    Raises:
        ValueError: If it is none.
        OSError: If it cannot be read.
    """
    try:
        with gzip.open(path, "rt") as lines:
            head = json.loads(next(lines, "null"))
            if not isinstance(head, dict) or head.get("format") != _FORMAT:
                raise ValueError("of another format")
            return list(head["hosts"]), [_record(json.loads(line)) for line in lines]
    except _NO_TRACE as error:
        raise ValueError(f"{path}: is no trace: {error}") from None


def _block(kind: int, body: bytes) -> bytes:
    length = 12 + len(body)
    return struct.pack("<II", kind, length) + body + struct.pack("<I", length)


def _comment(text: str) -> bytes:
    """As an option, cut to what fits into one: a packet may come thousands of times."""
    cut = text.encode()[:_MOST_OPTION_BYTES].decode(errors="ignore")
    return _option(1, cut.encode())


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)


def pcapng_of(hosts: Sequence[str], records: Iterable[Record]) -> bytes:
    """The packets of a trace as a pcapng file, with what became of each as its comment."""
    out = [_block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))]
    out.append(_block(1, struct.pack("<HHI", _LINKTYPE_RAW, 0, 0) + _option(9, b"\x09") + bytes(4)))
    kept = list(records)
    fates: dict[int, list[str]] = {}
    for r in kept:
        if r.what is What.DELIVERED:
            name = hosts[r.host] if r.host is not None else "?"
            verdict = f"dropped by {name}: {r.text}" if r.text else f"delivered to {name}"
            fates.setdefault(r.packet, []).append(f"{verdict} at {r.at_ns} ns")
        elif r.what is What.LOST:
            fates.setdefault(r.packet, []).append(f"lost: {r.text}")
        elif r.what is What.FAULT:
            fates.setdefault(r.packet, []).append(f"fault: {r.text}")
    for r in kept:
        if r.what is not What.SENT or r.route is None:
            continue
        name = hosts[r.host] if r.host is not None else "the fabric"
        comment = "; ".join([f"{name} sends {packet_text(r)}", *fates.get(r.packet, [])])
        data = _adapter.encode_ip_udp(r.route, len(r.data), r.data) + r.data
        head = struct.pack("<IIIII", 0, r.at_ns >> 32, r.at_ns & 0xFFFFFFFF, len(data), len(data))
        body = head + data + bytes(-len(data) % 4)
        out.append(_block(6, body + _comment(comment) + bytes(4)))
    return b"".join(out)
