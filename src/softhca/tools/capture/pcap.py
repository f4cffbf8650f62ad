"""The classic pcap format (draft-ietf-opsawg-pcap): a file header, then records."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

from softhca.tools.capture.frame import MAX_RECORD_BYTES, CaptureError, Frame, read_exactly

# First four bytes of the file: byte order, and nanoseconds per unit of the timestamps' fractions.
MAGICS = {
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}
_RECORD_HEADER_BYTES = 16


def read_frames(stream: BinaryIO, magic: bytes) -> Iterator[Frame]:
    """Yields the frames behind `magic`, which has been read already."""
    order, unit_ns = MAGICS[magic]
    header = read_exactly(stream, 20, "the file header")
    major, _minor, _zone, _figures, _snaplen, network = struct.unpack(f"{order}HHiIII", header)
    if major != 2:
        raise CaptureError(f"pcap version {major} is not known; 2 is")
    link_type = network & 0xFFFF  # The upper bits say how long a frame check sequence follows.
    record = struct.Struct(f"{order}IIII")
    number = 0
    while head := stream.read(_RECORD_HEADER_BYTES):
        number += 1
        if len(head) != _RECORD_HEADER_BYTES:
            raise CaptureError(f"the file ends in the middle of the header of frame {number}")
        seconds, fraction, kept, on_wire = record.unpack(head)
        if kept > MAX_RECORD_BYTES:
            raise CaptureError(f"frame {number} claims {kept} bytes: the file is damaged")
        data = read_exactly(stream, kept, f"frame {number}")
        yield Frame(
            number=number,
            time_ns=seconds * 1_000_000_000 + fraction * unit_ns,
            link_type=link_type,
            data=data,
            wire_bytes=on_wire,
        )
