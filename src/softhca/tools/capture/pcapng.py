"""The pcapng format (draft-ietf-opsawg-pcapng): blocks, in sections of either byte order."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import BinaryIO

from softhca.tools.capture.frame import MAX_RECORD_BYTES, CaptureError, Frame, read_exactly

MAGIC = b"\x0a\x0d\x0d\x0a"  # The type of a section header block reads the same both ways.

_BYTE_ORDERS = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}

_OPTION_END = 0
_OPTION_COMMENT = 1
_OPTION_TIME_RESOLUTION = 9
_OPTION_TIME_OFFSET = 14


class Block(IntEnum):
    """Types of the blocks that matter here; all others are passed over."""

    INTERFACE_DESCRIPTION = 1
    OLD_PACKET = 2
    SIMPLE_PACKET = 3
    ENHANCED_PACKET = 6


@dataclass(frozen=True, slots=True)
class _Interface:
    link_type: int
    snaplen: int  # 0: nothing is cut.
    units_per_second: int
    offset_s: int

    def time_ns(self, high: int, low: int) -> int:
        units = high << 32 | low
        return self.offset_s * 1_000_000_000 + units * 1_000_000_000 // self.units_per_second


@dataclass(slots=True)
class _Section:
    order: str
    interfaces: list[_Interface] = field(default_factory=list)

    def interface(self, index: int) -> _Interface:
        if index >= len(self.interfaces):
            raise CaptureError(f"a packet names interface {index}, which is not described")
        return self.interfaces[index]


def read_frames(stream: BinaryIO) -> Iterator[Frame]:
    """Yields the frames of all sections; the first block's type has been read already."""
    section = _Section(order="<")
    number = 0
    kind_bytes = MAGIC
    while kind_bytes:
        if len(kind_bytes) != 4:
            raise CaptureError("the file ends in the middle of a block's type")
        if kind_bytes == MAGIC:
            section = _read_section_header(stream)
        else:
            (kind,) = struct.unpack(f"{section.order}I", kind_bytes)
            body = _read_block(stream, section.order)
            frame = _read_body(section, kind, body, number + 1)
            if frame is not None:
                number += 1
                yield frame
        kind_bytes = stream.read(4)


def _read_section_header(stream: BinaryIO) -> _Section:
    head = read_exactly(stream, 8, "a section header")
    order = _BYTE_ORDERS.get(head[4:])
    if order is None:
        raise CaptureError(f"a section header has no byte-order magic but {head[4:].hex(' ')}")
    # The magic is a part of the body, which is why the length is checked by hand here.
    (length,) = struct.unpack(f"{order}I", head[:4])
    rest = _read_rest(stream, order, length, already=12)
    major = struct.unpack_from(f"{order}H", rest)[0] if len(rest) >= 2 else 0
    if major != 1:
        raise CaptureError(f"pcapng version {major} is not known; 1 is")
    return _Section(order=order)


def _read_block(stream: BinaryIO, order: str) -> bytes:
    (length,) = struct.unpack(f"{order}I", read_exactly(stream, 4, "a block's length"))
    return _read_rest(stream, order, length, already=8)


def _read_rest(stream: BinaryIO, order: str, length: int, already: int) -> bytes:
    """Reads a block's body, and its second length, of which `already` bytes are behind us."""
    if length < already + 4 or length % 4 or length > MAX_RECORD_BYTES:
        raise CaptureError(f"a block claims {length} bytes: the file is damaged")
    rest = read_exactly(stream, length - already, "a block")
    (again,) = struct.unpack(f"{order}I", rest[-4:])
    if again != length:
        raise CaptureError(f"a block starts with length {length} and ends with {again}")
    return rest[:-4]


def _read_body(section: _Section, kind: int, body: bytes, number: int) -> Frame | None:
    try:
        match kind:
            case Block.INTERFACE_DESCRIPTION:
                section.interfaces.append(_interface(section.order, body))
            case Block.ENHANCED_PACKET:
                return _enhanced_packet(section, body, number)
            case Block.SIMPLE_PACKET:
                return _simple_packet(section, body, number)
            case Block.OLD_PACKET:
                return _old_packet(section, body, number)
    except struct.error:
        raise CaptureError(f"a block of type {kind} is too short") from None
    return None  # Statistics, name resolution, secrets and what may come later.


def _options(order: str, body: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    while at + 4 <= len(body):
        code, length = struct.unpack_from(f"{order}HH", body, at)
        if code == _OPTION_END:
            return
        if at + 4 + length > len(body):
            raise CaptureError("an option is longer than its block")
        yield code, body[at + 4 : at + 4 + length]
        at += 4 + length + -length % 4


def _interface(order: str, body: bytes) -> _Interface:
    link_type, _reserved, snaplen = struct.unpack_from(f"{order}HHI", body)
    units_per_second = 1_000_000
    offset_s = 0
    for code, value in _options(order, body, 8):
        if code == _OPTION_TIME_RESOLUTION and value:
            exponent = value[0] & 0x7F
            units_per_second = (2 if value[0] & 0x80 else 10) ** exponent
        elif code == _OPTION_TIME_OFFSET and len(value) == 8:
            (offset_s,) = struct.unpack(f"{order}q", value)
    return _Interface(link_type, snaplen, units_per_second, offset_s)


def _cut(body: bytes, at: int, kept: int, number: int) -> bytes:
    if at + kept > len(body):
        raise CaptureError(f"frame {number} claims more bytes ({kept}) than its block has")
    return body[at : at + kept]


def _enhanced_packet(section: _Section, body: bytes, number: int) -> Frame:
    index, high, low, kept, on_wire = struct.unpack_from(f"{section.order}5I", body)
    interface = section.interface(index)
    data = _cut(body, 20, kept, number)
    comments = tuple(
        value.decode("utf-8", "replace")
        for code, value in _options(section.order, body, 20 + kept + -kept % 4)
        if code == _OPTION_COMMENT
    )
    time_ns = interface.time_ns(high, low)
    return Frame(number, time_ns, interface.link_type, data, on_wire, comments)


def _simple_packet(section: _Section, body: bytes, number: int) -> Frame:
    (on_wire,) = struct.unpack_from(f"{section.order}I", body)
    interface = section.interface(0)
    kept = min(on_wire, interface.snaplen) if interface.snaplen else on_wire
    return Frame(number, None, interface.link_type, _cut(body, 4, kept, number), on_wire)


def _old_packet(section: _Section, body: bytes, number: int) -> Frame:
    index, _drops, high, low, kept, on_wire = struct.unpack_from(f"{section.order}HHIIII", body)
    interface = section.interface(index)
    data = _cut(body, 20, kept, number)
    return Frame(number, interface.time_ns(high, low), interface.link_type, data, on_wire)
