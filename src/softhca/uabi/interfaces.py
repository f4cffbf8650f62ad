"""Network interfaces: which one has an address."""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address

# netdevice(7).
_LIST_ADDRESSES = 0x8912  # SIOCGIFCONF
_LIST = struct.Struct("@iP")  # struct ifconf: bytes, and where they are.
_ENTRY_BYTES = 40  # struct ifreq: a name of 16, and struct sockaddr_in with four at its fifth.
_NAME_BYTES = 16
_ADDRESS_AT = 20


def interface_of(ip: IPv4Address | IPv6Address) -> int:
    """Number of the first interface that has an address; 0, if none is known to."""
    with suppress(OSError):
        if ip.is_loopback:
            return socket.if_nametoindex("lo")
        addresses = _ipv4_addresses() if ip.version == 4 else _ipv6_addresses()
        return next((socket.if_nametoindex(name) for one, name in addresses if one == ip), 0)
    return 0


def _ipv4_addresses() -> Iterator[tuple[IPv4Address, str]]:
    """All addresses, of which an interface may have several, each with its interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as kernel:
        size, _ = _LIST.unpack(fcntl.ioctl(kernel, _LIST_ADDRESSES, _LIST.pack(0, 0)))
        listed = array.array("B", bytes(size))
        where, _ = listed.buffer_info()
        size, _ = _LIST.unpack(fcntl.ioctl(kernel, _LIST_ADDRESSES, _LIST.pack(size, where)))
    for at in range(0, size, _ENTRY_BYTES):
        entry = listed[at : at + _ENTRY_BYTES].tobytes()
        label = entry[:_NAME_BYTES].partition(b"\0")[0].decode(errors="surrogateescape")
        # An address may have a label of its own, such as eth0:1.
        name = label.partition(":")[0]
        yield IPv4Address(entry[_ADDRESS_AT : _ADDRESS_AT + 4]), name


def _ipv6_addresses() -> Iterator[tuple[IPv6Address, str]]:
    """The same for IPv6."""
    with open("/proc/net/if_inet6") as table:
        for line in table:
            packed, *_, name = line.split()
            yield IPv6Address(bytes.fromhex(packed)), name
