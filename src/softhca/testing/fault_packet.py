"""A packet as predicates and scripts see it."""

from __future__ import annotations

from softhca import _adapter
from softhca.verbs.gid import GID


class FaultPacket:
    """A packet on a link, before anything happened to it.

    Attributes:
        datagram: BTH to ICRC.
        route: The IP and UDP headers around it.
        now_ns: When; virtual time in a fabric.
        link: Number of the link in a fabric; -1 at a real socket.
        sending: At a real socket: it leaves; False if it came.
    """

    __slots__ = ("_decoded", "datagram", "link", "now_ns", "route", "sending")

    def __init__(
        self, datagram: bytes, route: _adapter.Route, now_ns: int, link: int, sending: bool
    ) -> None:
        self.datagram: bytes = datagram
        self.route: _adapter.Route = route
        self.now_ns: int = now_ns
        self.link: int = link
        self.sending: bool = sending
        self._decoded: _adapter.Packet | None = None

    @property
    def decoded(self) -> _adapter.Packet:
        """All headers, as values."""
        if self._decoded is None:
            self._decoded = _adapter.Packet.decode(self.datagram)
        return self._decoded

    @property
    def opcode(self) -> str:
        """Name of the opcode, such as RC_SEND_ONLY."""
        return _adapter.opcode_name(self.datagram[0])

    @property
    def psn(self) -> int:
        """Packet sequence number."""
        return int.from_bytes(self.datagram[9:12], "big")

    @property
    def qpn(self) -> int:
        """Number of the queue pair it goes to."""
        return int.from_bytes(self.datagram[5:8], "big")

    @property
    def size(self) -> int:
        """Bytes from BTH to ICRC."""
        return len(self.datagram)

    @property
    def payload(self) -> bytes:
        """What it carries for the user."""
        return self.decoded.payload

    @property
    def source(self) -> GID:
        """Where it comes from."""
        return GID(self.route.source)

    @property
    def destination(self) -> GID:
        """Where it goes."""
        return GID(self.route.destination)

    def __repr__(self) -> str:
        return f"<FaultPacket {self.opcode} psn={self.psn} to {self.destination.ip}/{self.qpn:#x}>"
