"""What the model knows of keys, of memory and of queue pairs."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from softhca import Access, QPState, QPType

Key = tuple[Any, ...]
Wr = dict[str, Any]


@dataclass
class Range:
    """What a key stands for.

    Attributes:
        end: Whose arena.
        start: First byte there.
        length: Bytes.
        rights: What it gives.
        pd: Number of the protection domain on its host.
        valid: Whether it is bound, registered or open.
        kind: mr, fast, mw1 or mw2.
        gen: The key's generation that works.
        qp: Of a bound window of type 2, whose.
        under: Of a bound window, its region.
    """

    end: int
    start: int
    length: int
    rights: Access
    pd: int
    valid: bool = True
    kind: str = "mr"
    gen: int = 0
    qp: int | None = None
    under: Key | None = None
    windows: int = 0
    zero_based: bool = False


@dataclass
class End:
    """A queue pair and its memory.

    Attributes:
        number: Its index.
        peer: That of the other end.
    """

    number: int
    peer: int
    type: QPType
    pd: int
    mtu: int
    memory: bytearray
    known: bytearray
    srq: int | None = None
    state: QPState = QPState.RTS
    rights: Access = Access(0)  # noqa: RUF009
    peer_rights: Access = Access(0)  # noqa: RUF009
    receives: deque[Wr] = field(default_factory=deque)
    sends: deque[Wr] = field(default_factory=deque)
    waiting: bool = False  # A send waits for a receive.
    depth: int = 4
    peer_depth: int = 4
    rnr_retry: int = 7


def gather(places: list[Any]) -> tuple[bytes, bytes]:
    """The bytes of places, and which of them are known."""
    data = b"".join(bytes(e.memory[at : at + n]) for e, at, n in places)
    known = b"".join(bytes(e.known[at : at + n]) for e, at, n in places)
    return data, known


def scatter(places: list[Any], data: bytes, known: bytes) -> None:
    """Puts bytes into places, in their order."""
    done = 0
    for e, at, n in places:
        n = min(n, len(data) - done)
        e.memory[at : at + n] = data[done : done + n]
        e.known[at : at + n] = known[done : done + n]
        done += n


def blur(places: list[Any]) -> None:
    """Nobody knows what is there from now on."""
    for e, at, n in places:
        e.known[at : at + n] = bytes(len(e.known[at : at + n]))
