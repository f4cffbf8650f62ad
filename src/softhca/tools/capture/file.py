"""Tells the two capture formats apart, compressed or not."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from io import BufferedReader
from typing import BinaryIO, cast

from softhca.tools.capture import pcap, pcapng
from softhca.tools.capture.frame import CaptureError, Frame

_GZIP_MAGIC = b"\x1f\x8b"


def read_frames(stream: BufferedReader) -> Iterator[Frame]:
    """Yields the frames of a pcap or pcapng stream, in the file's order.

    Raises:
        CaptureError: it is neither, or is damaged; what came before the damage was yielded.
    """
    if stream.peek(2)[:2] == _GZIP_MAGIC:
        with gzip.open(stream) as unpacked:
            try:
                yield from _read_plain(cast(BinaryIO, unpacked))
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise CaptureError(f"the compressed file is damaged: {error}") from None
    else:
        yield from _read_plain(stream)


def _read_plain(stream: BinaryIO) -> Iterator[Frame]:
    magic = stream.read(4)
    if not magic:
        raise CaptureError("the file is empty")
    if magic in pcap.MAGICS:
        yield from pcap.read_frames(stream, magic)
    elif magic == pcapng.MAGIC:
        yield from pcapng.read_frames(stream)
    else:
        raise CaptureError(f"neither pcap nor pcapng: it starts with {magic.hex(' ')}")
