"""Both sides of softhca, connected and ready to be measured."""

from __future__ import annotations

from collections.abc import Sequence

from bench.two_sides import SideError, TwoSides


def _copier(op: str) -> int:
    """The side that the bytes come to, which fetches them."""
    return 0 if op == "READ" else 1


class SofthcaSides(TwoSides):
    """Two processes with an adapter each.

    Args:
        link: "udp" to keep the adapters from taking a shorter way.
        addresses: Where to open them; empty: loopback addresses that are free.
        before: What stands before the command of either process.
    """

    def __init__(
        self,
        link: str = "",
        addresses: tuple[str, str] = ("", ""),
        before: tuple[Sequence[str], Sequence[str]] = ((), ()),
    ) -> None:
        super().__init__("bench.softhca_side", link, *addresses, before=before)

    def connect(self, key: str, size: int, memory: str = "allocated", op: str = "WRITE") -> None:
        """Makes a queue pair on either side, with buffers, and connects them."""
        said = self.both("make", key, size, memory)
        remote = 2 if op == "READ" else 1
        for number in (1, 0):
            info, far = said[1 - number][0], said[1 - number][remote]
            self.tell(number, "join", key, info, far)

    def ping_pong(self, key: str, count: int) -> float:
        """Seconds of half a round trip."""
        return self.measured("ping_pong", key, count)

    def rate(self, key: str, count: int, as_list: bool) -> float:
        """Messages a second."""
        return self.measured("rate", key, count, as_list)

    def stream(self, key: str, op: str, count: int, window: int) -> float:
        """Bytes a second."""
        return self.measured("stream", key, op, count, window)

    def streams(self, keys: Sequence[str], count: int) -> float:
        """Bytes a second of several pairs at once."""
        return self.measured("streams", keys, count)

    def bare_copies(self, key: str, op: str, count: int) -> float:
        """Probe v: bytes a second between the buffers of such a stream, by the kernel alone."""
        process, address = self.tell(1 - _copier(op), "place_of_source", key)
        return float(self.tell(_copier(op), "bare_copy", key, process, address, count))

    def verify(self, key: str, op: str) -> None:
        """Raises SideError unless the bytes of the stream are where they belong."""
        if not self.tell(_copier(op), "was_filled", key):
            raise SideError(f"the bytes of {key} have not arrived")
