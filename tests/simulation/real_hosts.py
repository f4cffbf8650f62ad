"""Devices of this machine in the place of a fabric's hosts: neighbours, one device, or sockets."""

from __future__ import annotations

import time
from typing import Any

import softhca as hca


class RealHosts:
    """What a walk wants of a fabric; nothing is lost, and time is the machine's.

    Args:
        seed: Of the devices.
        link: shared (two devices that share memory), one (one device is both), or udp.
    """

    # Nobody promises when something is done: to a walk, no time passes.
    now_ns = 1

    def __init__(self, seed: int, link: str) -> None:
        self.seed, self.link = seed, link
        self._devices: list[hca.Device] = []

    def hosts(self, count: int, *, retry_early: bool, **options: Any) -> list[hca.Device]:
        del retry_early  # Is decided where a device is opened for a fabric.
        how = "udp" if self.link == "udp" else "auto"
        made = 1 if self.link == "one" else count
        self._devices = [hca.open(link=how, seed=self.seed + i, **options) for i in range(made)]
        self._spare = [device.create_cq(1) for device in self._devices]
        return [self._devices[i % made] for i in range(count)]

    def run_for(self, seconds: float) -> None:
        """Does what there is to be done for so long, and once in any case."""
        end = time.monotonic() + seconds
        while True:
            for cq in self._spare:
                cq.poll()
            if time.monotonic() >= end:
                return

    def check(self) -> None:
        """There is no trace to be judged."""

    def __enter__(self) -> RealHosts:
        return self

    def __exit__(self, *_: object) -> None:
        for device in self._devices:
            device._close_with_children()
