"""An opened device: what one open of /dev/infiniband/uverbs0 stands for (struct ib_uverbs_file)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from softhca.uabi.channels import Channel
from softhca.uabi.deserted import Swept
from softhca.uabi.events import AsyncPipe
from softhca.uabi.files import DeviceFile
from softhca.uabi.objects import Objects
from softhca.uabi.processes import Processes

if TYPE_CHECKING:
    from softhca._adapter import Known
    from softhca.uabi.shared_device import SharedDevice
    from softhca.verbs.lifetime import VerbsObject


class Context:
    """The objects of whoever has the descriptor. They go when nobody has it any more.

    Attributes:
        device: The adapter, which other contexts share.
        known: What listeners recognise.
        file: Behind the descriptor.
        objects: By handle.
        processes: Whose memory the objects reach.
        is_initialized: Whether the program has asked for its context yet; before, nothing works.
        watch: Number of the watch that tells when nobody has the file any more.
    """

    def __init__(self, device: SharedDevice, known: Known) -> None:
        self.device = device
        self.known = known
        self.file = DeviceFile()
        self.objects = Objects()
        self.processes = Processes()
        self.is_initialized = False
        self.watch = -1
        # By the inode of their pipe.
        self._channels: Swept[int, Channel] = Swept(lambda _, channel: channel.is_deserted)
        self._async_pipes: list[AsyncPipe] = []

    def add_async_pipe(self, pipe: AsyncPipe) -> None:
        """Adds a pipe of asynchronous events; the first is the one that they go to."""
        self._async_pipes.append(pipe)

    def add_channel(self, channel: Channel) -> None:
        """Adds a completion channel, and drops those that nobody has any more."""
        for deserted in self._channels.add(channel.inode, channel):
            deserted.close()

    def channel_of(self, task: int, descriptor: int) -> Channel | None:
        """The completion channel that a descriptor of a program is."""
        return self._channels.get(_inode_of(task, descriptor))

    def async_pipe_of(self, task: int, descriptor: int) -> AsyncPipe | None:
        """The asynchronous events that a descriptor of a program is."""
        inode = _inode_of(task, descriptor)
        return next((pipe for pipe in self._async_pipes if pipe.inode == inode), None)

    def name_for_events(self, thing: VerbsObject, user_handle: int) -> None:
        """Says what the program calls an object that events may be about."""
        self.device.owners[thing] = (self, user_handle)

    def tell(self, event_type: int, element: int) -> None:
        """Writes an asynchronous event."""
        if self._async_pipes:
            self._async_pipes[0].put(event_type, element)

    def forget_events(self, thing: VerbsObject) -> int:
        """Takes back unread events of an object that is gone; returns how many were read."""
        _, user_handle = self.device.owners.pop(thing)
        return sum(pipe.forget(user_handle) for pipe in self._async_pipes)

    def close(self) -> None:
        """Destroys everything that the programs left."""
        try:
            self.objects.destroy_all()
        finally:
            for channel in self._channels:
                channel.close()
            self._channels.clear()
            for pipe in self._async_pipes:
                pipe.close()


def _inode_of(task: int, descriptor: int) -> int:
    """What a descriptor of a program is of; 0, if there is none."""
    try:
        return os.stat(f"/proc/{task}/fd/{descriptor}").st_ino
    except OSError:
        return 0
