"""An opened device: what one open of /dev/infiniband/uverbs0 stands for (struct ib_uverbs_file)."""

from __future__ import annotations

import os
from collections.abc import Iterator
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
        tree: Stands for the programs one of which opened it.
        file: Behind the descriptor.
        objects: By handle.
        processes: Whose memory the objects reach.
        is_initialized: Whether the program has asked for its context yet; before, nothing works.
        watch: Number of the watch that tells when nobody has the file any more.
        first_async_pipe: For asynchronous events of what is made without naming a pipe for them;
            None, before there is one.
    """

    def __init__(self, device: SharedDevice, known: Known, tree: object) -> None:
        self.device = device
        self.known = known
        self.tree = tree
        self.file = DeviceFile()
        self.objects = Objects()
        self.processes = Processes()
        self.is_initialized = False
        self.watch = -1
        self.first_async_pipe: AsyncPipe | None = None
        # By the inode of their pipe.
        self._channels: Swept[int, Channel] = Swept(lambda _, channel: channel.is_deserted)
        self._async_pipes: Swept[int, AsyncPipe] = Swept(lambda _, pipe: pipe.is_deserted)

    def add_async_pipe(self, pipe: AsyncPipe) -> None:
        """Adds a pipe of asynchronous events, and drops those that nobody has any more."""
        if self.first_async_pipe is None:
            self.first_async_pipe = pipe
        for deserted in self._async_pipes.add(pipe.inode, pipe):
            deserted.desert()

    def add_channel(self, channel: Channel) -> None:
        """Adds a completion channel, and drops those that nobody has any more."""
        for deserted in self._channels.add(channel.inode, channel):
            deserted.close()

    def channel_of(self, task: int, descriptor: int) -> Channel | None:
        """The completion channel that a descriptor of a program is."""
        return self._channels.get(_inode_of(task, descriptor))

    def async_pipe_of(self, task: int, descriptor: int) -> AsyncPipe | None:
        """The asynchronous events that a descriptor of a program is."""
        return self._async_pipes.get(_inode_of(task, descriptor))

    def name_for_events(self, thing: VerbsObject, user_handle: int, pipe: AsyncPipe | None) -> None:
        """Says what the program calls an object that events may be about, and where they go."""
        self.device.owners[thing] = (pipe, user_handle)

    def tell(self, event_type: int, element: int) -> None:
        """Writes an asynchronous event of the device or its port: all hear of it."""
        for pipe in self._async_pipes:
            pipe.put(event_type, element)

    def forget_events(self, thing: VerbsObject) -> int:
        """Takes back unread events of an object that is gone; returns how many were read."""
        pipe, user_handle = self.device.owners.pop(thing)
        return 0 if pipe is None else pipe.forget(user_handle)

    def close(self) -> None:
        """Destroys everything that the programs left."""
        for _ in self.close_in_portions(max(1, len(self.objects))):
            pass

    def close_in_portions(self, portion: int) -> Iterator[None]:
        """The same, with a pause after each `portion` of objects."""
        try:
            yield from self.objects.destroy_all(portion)
        finally:
            for channel in self._channels:
                channel.close()
            self._channels.clear()
            for pipe in self._async_pipes:
                pipe.close()
            self._async_pipes.clear()


def _inode_of(task: int, descriptor: int) -> int:
    """What a descriptor of a program is of; 0, if there is none."""
    try:
        return os.stat(f"/proc/{task}/fd/{descriptor}").st_ino
    except OSError:
        return 0
