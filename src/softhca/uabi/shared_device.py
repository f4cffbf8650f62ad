"""An adapter as the programs of a supervisor share it."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from softhca.uabi.interfaces import interface_of
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
        interface_index: Number of the network interface that the adapter's address is of; 0 if it
            is unknown.
    """

    def __init__(self, adapter: Device, index: int, node_index: int) -> None:
        self.adapter = adapter
        self.node_index = node_index
        self.name = f"rxe{index}"
        self.times_down = 0
        self.interface_index = interface_of(adapter.gid.ip)
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
    def interface(self) -> str:
        """The name of its interface, which may change; empty if it is unknown."""
        try:
            return socket.if_indextoname(self.interface_index) if self.interface_index else ""
        except OSError:
            return ""

    def used_gids(self) -> list[tuple[int, bytes]]:
        """Entries of the GID table that are in use, with their indices."""
        length = self.adapter.query_port().gid_tbl_len
        gids = ((index, self.adapter.query_gid(1, index).raw) for index in range(length))
        return [(index, raw) for index, raw in gids if any(raw)]
