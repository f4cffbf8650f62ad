"""What Python brings along, between two processes."""

from __future__ import annotations

import tempfile

from bench.two_sides import TwoSides


class PythonSides(TwoSides):
    """Two processes with a pipe, shared memory, or sockets between them."""

    def __init__(self, kind: str) -> None:
        self._meeting = tempfile.TemporaryDirectory(prefix="bench-")
        super().__init__("bench.peers.python_sides", self._meeting.name, kind)
        address = self.tell(1, "offer")
        self.each("meet", (address,), (None,))

    def close(self) -> None:
        """Ends the processes."""
        super().close()
        self._meeting.cleanup()
