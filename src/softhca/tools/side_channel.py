"""How two ends of a test tell each other what RDMA cannot: a line of JSON per message.

Over TCP between machines, over a pair of sockets between a process and the one it started.
"""

from __future__ import annotations

import json
import select
import socket
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from types import TracebackType
from typing import Any

from softhca.tools.command import FAILED, CommandError

DEFAULT_PORT = 18515  # What ibv_rc_pingpong and perftest use.
_MAX_LINE_BYTES = 1 << 16


class SideChannel:
    """Messages to and from the other end. What comes from there is checked by whoever uses it."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._received = bytearray()

    @classmethod
    def listen(cls, port: int) -> tuple[socket.socket, int]:
        """A listening socket on every address, IPv6 too where there is IPv6, and its port."""
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        try:
            listener = socket.create_server(("", port), family=family, dualstack_ipv6=dual)
        except OSError as error:
            raise CommandError(f"cannot listen on TCP port {port}: {error.strerror}") from None
        return listener, listener.getsockname()[1]

    @classmethod
    def connect(cls, host: str, port: int) -> SideChannel:
        """Connects to a server."""
        try:
            connection = socket.create_connection((host, port), timeout=10, all_errors=True)
        except (OSError, ExceptionGroup) as error:
            # The first address is the best; the last may be of a kind that this machine has not.
            one = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
            why = getattr(one, "strerror", None) or one
            raise CommandError(f"cannot reach a server at {host}, TCP port {port}: {why}") from None
        except UnicodeError:
            raise CommandError(f"{host!r} is no name of a host") from None
        connection.settimeout(None)
        return cls(connection)

    @property
    def local_address(self) -> str | None:
        """Our address on the way to the other end; None within a machine."""
        if self._socket.family not in (socket.AF_INET, socket.AF_INET6):
            return None
        host, _, *rest = self._socket.getsockname()
        address = ip_address(host)
        if isinstance(address, IPv6Address):
            if address.ipv4_mapped:
                address = address.ipv4_mapped
            elif address.is_link_local:
                # Another interface may have the same one.
                return f"{host}%{socket.if_indextoname(rest[1])}"
        return None if address.is_loopback else str(address)

    def send(self, **message: Any) -> None:
        """Sends one message."""
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            raise CommandError("the other end went away", FAILED) from None

    def receive(self, *keys: str) -> dict[str, Any]:
        """Waits for a message and returns it.

        Args:
            keys: What it must have.

        Raises:
            CommandError: the other end reports an error, went away, or speaks something else.
        """
        while b"\n" not in self._received:
            if len(self._received) > _MAX_LINE_BYTES:
                raise CommandError("the other end does not speak this protocol")
            try:
                chunk = self._socket.recv(_MAX_LINE_BYTES)
            except OSError:
                chunk = b""
            if not chunk:
                raise CommandError("the other end went away", FAILED)
            self._received += chunk
        line, _, rest = self._received.partition(b"\n")
        self._received = rest
        return _parsed(bytes(line), keys)

    def check(self) -> None:
        """Raises what receive() would if the other end has failed; never waits, takes nothing."""
        readable, _, _ = select.select([self._socket], [], [], 0)
        if readable:
            chunk = self._socket.recv(_MAX_LINE_BYTES)
            if not chunk:
                raise CommandError("the other end went away", FAILED)
            self._received += chunk
        line, newline, _ = self._received.partition(b"\n")
        if newline:
            _parsed(bytes(line), ())

    def barrier(self) -> None:
        """Waits until the other end is here too."""
        self.send(barrier=True)
        self.receive("barrier")

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()

    def __enter__(self) -> SideChannel:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Tells the other end why this one stops, if it stops for a reason."""
        if error is not None and not isinstance(error, BrokenPipeError):
            with suppress(CommandError):
                self.send(error=str(error) or type(error).__name__)
        self.close()


def _parsed(line: bytes, keys: tuple[str, ...]) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):  # No JSON, or lists of lists of lists.
        message = None
    if not isinstance(message, dict):
        raise CommandError("the other end does not speak this protocol")
    if "error" in message:
        raise CommandError(f"the other end: {message['error']}", FAILED)
    missing = [key for key in keys if key not in message]
    if missing:
        raise CommandError(f"the other end sent no {missing[0]}")
    return message
