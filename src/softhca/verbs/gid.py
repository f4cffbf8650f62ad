"""GIDs, which in RoCEv2 are IP addresses."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from softhca.verbs.errors import VerbsError

_MAPPED = bytes(10) + b"\xff\xff"


class GID:
    """A global identifier: an IPv6 address, or an IPv4 address mapped into ::ffff:0:0/96.

    Immutable, hashable, equal by value. Source: IBTA Annex A17.4.1.
    """

    __slots__ = ("raw",)

    raw: bytes

    def __init__(self, address: GIDLike) -> None:
        """Takes an address as text, as an `ipaddress` object, or as its 16 bytes, of a header too.

        Raises:
            VerbsError: EINVAL, if it is no address.
        """
        object.__setattr__(self, "raw", _raw_of(address))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name}: a GID is immutable")

    @property
    def ip(self) -> IPv4Address | IPv6Address:
        """The address, as IPv4 where it is a mapped one."""
        if self.raw.startswith(_MAPPED):
            return IPv4Address(self.raw[12:])
        return IPv6Address(self.raw)

    def __str__(self) -> str:
        """As the kernel's gids files and ibv_devinfo show it to people: ::ffff:192.0.2.1."""
        ip = self.ip
        return f"::ffff:{ip}" if isinstance(ip, IPv4Address) else str(ip)

    def __repr__(self) -> str:
        return f"GID('{self.ip}')"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GID) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash(self.raw)

    def __bytes__(self) -> bytes:
        return self.raw

    def __reduce__(self) -> tuple[Any, ...]:
        return GID, (self.raw,)


GIDLike = GID | str | bytes | bytearray | memoryview | IPv4Address | IPv6Address


@contextmanager
def refused_as(argument: str, given: object) -> Iterator[None]:
    """Lets what refuses a GID name the argument that it was given as, and its value."""
    try:
        yield
    except VerbsError as error:
        if error.argument not in ("gid", "dgid"):
            raise
        raise VerbsError(errno.EINVAL, argument, given, error.rule) from None


def _raw_of(address: GIDLike) -> bytes:
    if isinstance(address, GID):
        return address.raw
    if isinstance(address, bytes | bytearray | memoryview):
        raw = bytes(address)  # A GID keeps its value, whatever becomes of a receive buffer.
        if len(raw) != 16:
            raise VerbsError(errno.EINVAL, "gid", raw, "must have 16 bytes")
        return raw
    # ip_address() makes addresses of numbers, too: a port or a handle would become 0.0.0.1.
    is_one = isinstance(address, str | IPv4Address | IPv6Address)
    try:
        ip = ip_address(address if is_one else "")
    except ValueError:
        raise VerbsError(errno.EINVAL, "gid", address, "is no IP address") from None
    return _MAPPED + ip.packed if isinstance(ip, IPv4Address) else ip.packed
