"""From a frame to its IP packet, for the link types that captures of RoCEv2 come with."""

from __future__ import annotations

import struct

# LINKTYPE_ values (https://www.tcpdump.org/linktypes.html).
NULL = 0
ETHERNET = 1
RAW_VALUES = frozenset({12, 14, 101, 228, 229})
LOOP = 108
LINUX_SLL = 113
LINUX_SLL2 = 276

_ETHERTYPES_IP = frozenset({0x0800, 0x86DD})
_ETHERTYPES_VLAN = frozenset({0x8100, 0x88A8, 0x9100})

# Link type: where the ethertype stands, and where what it names starts.
_ETHERTYPE_LAYOUTS = {ETHERNET: (12, 14), LINUX_SLL: (14, 16), LINUX_SLL2: (0, 20)}


class UnsupportedLinkError(ValueError):
    """Frames of this link type cannot be read; `link_type` is its number."""

    def __init__(self, link_type: int) -> None:
        super().__init__(f"link type {link_type} is not supported")
        self.link_type = link_type


def find_ip(link_type: int, data: bytes) -> int | None:
    """Offset of the IP header in a frame; None if it carries something else.

    Raises:
        UnsupportedLinkError: nothing is known of how such a frame is built.
    """
    if link_type in _ETHERTYPE_LAYOUTS:
        return _behind_ethertype(data, *_ETHERTYPE_LAYOUTS[link_type])
    if link_type in RAW_VALUES:
        return 0
    if link_type in (NULL, LOOP):
        # Four bytes of an address family whose numbers and byte order are those of the machine
        # that captured; the IP version says the same without the guessing.
        return 4
    raise UnsupportedLinkError(link_type)


def _behind_ethertype(data: bytes, at: int, start: int) -> int | None:
    while at + 2 <= len(data):
        (ethertype,) = struct.unpack_from(">H", data, at)
        if ethertype in _ETHERTYPES_IP:
            return start
        if ethertype not in _ETHERTYPES_VLAN:
            return None
        at, start = start + 2, start + 4
    return None
