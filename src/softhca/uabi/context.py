"""An opened device: what one open of /dev/infiniband/uverbs0 stands for (struct ib_uverbs_file)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from softhca.uabi.events import EventPipe
from softhca.uabi.files import DeviceFile
from softhca.uabi.objects import Objects

if TYPE_CHECKING:
    from softhca.uabi.shared_device import SharedDevice


class Context:
    """The objects of whoever has the descriptor. They go when nobody has it any more.

    Attributes:
        device: The adapter, which other contexts share.
        file: Behind the descriptor.
        objects: By handle.
        is_initialized: Whether the program has asked for its context yet; before, nothing works.
        async_events: Where asynchronous events go; none before the program asked for it.
        channels: Completion channels by the inode of their pipe.
        watch: Number of the watch that tells when nobody has the file any more.
    """

    def __init__(self, device: SharedDevice) -> None:
        self.device = device
        self.file = DeviceFile(f"softhca-{device.name}")
        self.objects = Objects()
        self.is_initialized = False
        self.async_events: list[EventPipe] = []
        self.channels: dict[int, EventPipe] = {}
        self.watch = -1

    def add_async_events(self, pipe: EventPipe) -> None:
        """Adds a pipe of asynchronous events; the first is the one that they go to."""
        self.async_events.append(pipe)

    def channel_of(self, task: int, descriptor: int) -> EventPipe | None:
        """The completion channel that a descriptor of a program is."""
        try:
            inode = os.stat(f"/proc/{task}/fd/{descriptor}").st_ino
        except OSError:
            return None
        return self.channels.get(inode)

    def close(self) -> None:
        """Destroys everything that the programs left."""
        self.objects.destroy_all()
        for pipe in (*self.channels.values(), *self.async_events):
            pipe.close()
        self.file.close()
