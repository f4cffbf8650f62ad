"""A supervisor that has no descriptor left does what gives back, and takes nothing from anybody."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import softhca
from softhca.uabi.channels import Channel
from softhca.uabi.events import AsyncPipe
from softhca.uabi.files import DeviceFile
from softhca.uabi.shared_device import SharedDevice
from softhca.uabi.spare import keep_one
from softhca.uabi.sysfs import SysfsTree


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Nothing can be opened any more but what is closed before."""
    keep_one()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    taken = [os.open("/dev/null", os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                taken.append(os.dup(taken[0]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)


def test_unread_events_of_what_is_destroyed_are_taken_back() -> None:
    """Otherwise the program would wait for ever to acknowledge what it has never read."""
    pipe, channel = AsyncPipe(), Channel()
    ends = pipe.for_program, channel.for_program
    for descriptor in ends:
        os.set_blocking(descriptor, False)
    with no_descriptor_left():
        for _ in range(2):
            pipe.put(16, 1)
            assert pipe.forget(1) == 0
            os.write(channel._writer, (2).to_bytes(8, "little"))
            channel.forget(2)
            for descriptor in ends:
                with pytest.raises(BlockingIOError):
                    os.read(descriptor, 16)
    pipe.close()
    channel.close()


def test_a_device_that_somebody_has_is_open() -> None:
    """One of its descriptions is closed, and it is to be found out whether there are others."""
    file = DeviceFile()
    copy = file.open_again()
    with no_descriptor_left():
        assert file.is_open()
        assert file.is_open()
    os.close(copy)
    assert not file.is_open()


def test_counters_and_the_port_follow() -> None:
    """They are brought up to date every few milliseconds, while somebody has them open."""
    with softhca.open() as adapter:
        tree = SysfsTree()
        try:
            (node,) = tree.make_nodes(1)
            device = SharedDevice(adapter, 0, node)
            tree.add(device)
            device.times_down = 7
            with no_descriptor_left():
                tree.refresh_counters(device)
                tree.refresh_port(device)
            counters = tree.top / "infiniband/rxe0/ports/1/hw_counters"
            assert (counters / "link_downed").read_text() == "7\n"
        finally:
            tree.remove()
