"""An adapter as the programs of a supervisor share it."""

from __future__ import annotations

import os
import socket
from ipaddress import IPv4Address, IPv4Interface
from typing import TYPE_CHECKING

from softhca.uabi.rings import most_of
from softhca.verbs.device import Device
from softhca.verbs.lifetime import VerbsObject

if TYPE_CHECKING:
    from softhca.uabi.events import AsyncPipe

# Of the devices of uverbs in Linux.
_MAJOR = 231
_FIRST_MINOR = 192


class SharedDevice:
    """An adapter, and what Linux would call it.

    Attributes:
        adapter: The device of the verbs.
        hca: Its native half.
        owners: Where events of an object go, and what its program calls it.
        max_sge: Of the limits that programs are told, those that the size of rings decides.
        max_inline_data: As well.
        max_qp_wr: As well.
        max_srq_wr: As well.
        max_cqe: As well.
        node_index: The number of its device file.
        name: As ibv_devices shows it. The library's provider recognises it by this.
        times_down: How often its port went down.
        interface: The network interface that the adapter's address is of; empty if it is unknown.
    """

    def __init__(self, adapter: Device, index: int, node_index: int) -> None:
        self.adapter = adapter
        self.node_index = node_index
        self.name = f"rxe{index}"
        self.times_down = 0
        self.interface = _interface_of(adapter)
        self.hca = adapter.adapter
        limits = adapter.query_device()
        self.max_sge = limits.max_sge
        self.max_inline_data = limits.max_inline_data
        self.max_qp_wr = most_of(limits.max_qp_wr)
        self.max_srq_wr = most_of(limits.max_srq_wr)
        self.max_cqe = most_of(limits.max_cqe)
        self.owners: dict[VerbsObject, tuple[AsyncPipe | None, int]] = {}

    @property
    def node(self) -> str:
        """Name of its device file."""
        return f"uverbs{self.node_index}"

    @property
    def path(self) -> str:
        """Its device file."""
        return f"/dev/infiniband/{self.node}"

    @property
    def number(self) -> int:
        """The number of its device file (st_rdev)."""
        return os.makedev(_MAJOR, _FIRST_MINOR + self.node_index)

    @property
    def interface_index(self) -> int:
        """Number of the interface; 0 if it is unknown."""
        try:
            return socket.if_nametoindex(self.interface) if self.interface else 0
        except OSError:
            return 0

    def used_gids(self) -> list[tuple[int, bytes]]:
        """Entries of the GID table that are in use, with their indices."""
        length = self.adapter.query_port().gid_tbl_len
        gids = ((index, self.adapter.query_gid(1, index).raw) for index in range(length))
        return [(index, raw) for index, raw in gids if any(raw)]


def _interface_of(adapter: Device) -> str:
    """The interface that has the adapter's address."""
    ip = adapter.gid.ip
    if ip.is_loopback:
        return "lo"
    if isinstance(ip, IPv4Address):
        return _ipv4_interfaces().get(str(ip), "")
    with open("/proc/net/if_inet6") as table:
        for line in table:
            packed, *_, name = line.split()
            if bytes.fromhex(packed) == ip.packed:
                return name
    return ""


def _ipv4_interfaces() -> dict[str, str]:
    """Interfaces by their IPv4 address, the first of each."""
    import fcntl
    import struct

    get_address = 0x8915  # SIOCGIFADDR
    found: dict[str, str] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe, get_address, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
            found[str(IPv4Interface(answer[20:24]).ip)] = name
    return found
