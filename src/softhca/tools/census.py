"""Counts what a capture holds, and judges every ICRC in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BufferedReader
from typing import Any

from softhca.tools.capture import (
    Frame,
    Outcome,
    UdpFinder,
    UdpPacket,
    UnsupportedLinkError,
    find_ip,
    read_frames,
)
from softhca.tools.roce import UDP_PORT, RocePacket, read_roce
from softhca.tools.trains import take_apart


@dataclass(slots=True)
class Summary:
    """What a capture held. Frames are `packets`; RoCEv2 packets are `roce`, several in a train.

    Attributes:
        trains: Frames that held several RoCEv2 packets.
        bad_icrc: RoCEv2 packets whose ICRC is wrong.
        malformed: RoCEv2 packets whose headers do not decode.
        truncated: Frames that the capture cut short, whose ICRC nobody can check.
        fragments: IP fragments of RoCEv2 packets, which conforming senders do not make.
        other: Frames of other protocols.
    """

    packets: int = 0
    roce: int = 0
    trains: int = 0
    bad_icrc: int = 0
    malformed: int = 0
    truncated: int = 0
    fragments: int = 0
    other: int = 0
    opcodes: Counter[str] = field(default_factory=Counter)
    unsupported_links: Counter[int] = field(default_factory=Counter)

    def as_json(self) -> dict[str, Any]:
        """The summary as `softhca dump --json` prints it."""
        return {
            "packets": self.packets,
            "roce": self.roce,
            "trains": self.trains,
            "bad_icrc": self.bad_icrc,
            "malformed": self.malformed,
            "truncated": self.truncated,
            "fragments": self.fragments,
            "other": self.other,
            "unsupported_link": self.unsupported_links.total(),
            "opcodes": dict(sorted(self.opcodes.items())),
        }

    def as_text(self) -> str:
        """The summary in a line."""
        parts = [_counted(self.packets, "frame"), _counted(self.roce, "RoCEv2 packet")]
        if self.bad_icrc:
            parts.append(f"{self.bad_icrc} with a WRONG ICRC")
        elif self.roce:
            parts.append("every ICRC right")
        for count, noun in (
            (self.trains, "train"),
            (self.malformed, "malformed packet"),
            (self.truncated, "truncated frame"),
            (self.fragments, "IP fragment"),
            (self.other, "other frame"),
        ):
            if count:
                parts.append(_counted(count, noun))
        return ", ".join(parts)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class Decoder:
    """Turns frames into packets and keeps count of both."""

    def __init__(self) -> None:
        self.summary = Summary()
        self._finder = UdpFinder(UDP_PORT)

    def decode(self, frame: Frame) -> list[RocePacket]:
        """The RoCEv2 packets in a frame, as far as they can be read: one, or those of a train."""
        summary = self.summary
        summary.packets += 1
        try:
            ip_at = find_ip(frame.link_type, frame.data)
        except UnsupportedLinkError as error:
            summary.unsupported_links[error.link_type] += 1
            return []
        found = Outcome.OTHER if ip_at is None else self._finder.find(frame.data, ip_at)
        if isinstance(found, Outcome):
            self._count_aside(found)
            return []
        return self._read(found)

    def _count_aside(self, outcome: Outcome) -> None:
        if outcome is Outcome.FRAGMENT:
            self.summary.fragments += 1
        elif outcome is Outcome.TRUNCATED:
            self.summary.truncated += 1
        else:
            self.summary.other += 1

    def _read(self, udp: UdpPacket) -> list[RocePacket]:
        roce = read_roce(udp)
        if roce is None or not roce.icrc_ok:
            train = take_apart(udp)
            if len(train) > 1:
                self.summary.trains += 1
                packets = [one for one in map(read_roce, train) if one is not None]
                for one in packets:
                    self._count(one)
                return packets
        self._count(roce)
        return [] if roce is None else [roce]

    def _count(self, roce: RocePacket | None) -> None:
        summary = self.summary
        summary.roce += 1
        if roce is None:
            # Nothing that short can end in a right ICRC.
            summary.malformed += 1
            summary.bad_icrc += 1
            return
        if roce.packet.problem:
            summary.malformed += 1
        else:
            summary.opcodes[roce.packet.opcode_name] += 1
        if not roce.icrc_ok:
            summary.bad_icrc += 1


def read_packets(stream: BufferedReader, decoder: Decoder) -> Iterator[tuple[Frame, RocePacket]]:
    """Yields the RoCEv2 packets of a capture, each with its frame; `decoder` counts them all.

    Raises:
        CaptureError: it is not a capture, or is damaged.
    """
    for frame in read_frames(stream):
        for roce in decoder.decode(frame):
            yield frame, roce


def verify(path: str) -> Summary:
    """The summary of a whole capture.

    Raises:
        OSError: it cannot be opened.
        CaptureError: it is not a capture, or is damaged.
    """
    decoder = Decoder()
    with open(path, "rb") as stream:
        for _ in read_packets(stream, decoder):
            pass
    return decoder.summary
