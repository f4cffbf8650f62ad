"""One frame of a capture, and what can be wrong with a file of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO

# No link carries frames anywhere near this; a length above it is damage, not a frame.
MAX_RECORD_BYTES = 64 << 20


class CaptureError(ValueError):
    """The file is not a capture, or is damaged; the message is for the user."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A captured frame.

    Attributes:
        number: Counts from 1 within the file, as other tools do.
        time_ns: Nanoseconds since the epoch; None where the file has no time for it.
        link_type: LINKTYPE_ value of the first header in `data`.
        data: The bytes that were kept.
        wire_bytes: Length of the frame on the wire; more than `data` holds if it was cut.
        comments: What the capture says about the frame (pcapng only).
    """

    number: int
    time_ns: int | None
    link_type: int
    data: bytes
    wire_bytes: int
    comments: tuple[str, ...] = ()


def read_exactly(stream: BinaryIO, count: int, what: str) -> bytes:
    """Reads `count` bytes of `what`.

    Raises:
        CaptureError: the file ends before.
    """
    got = stream.read(count)
    if len(got) != count:
        raise CaptureError(f"the file ends in the middle of {what}")
    return got
