"""Files of counters that programs keep open, as perftest does from its first message to its last.

What they read of them is the kernel's business, and nobody is asked. So what there is to read is
brought up to date as often as Linux does, for as long as somebody has one of the files.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from softhca.uabi.shared_device import SharedDevice
from softhca.uabi.sysfs import COUNTER_LIFESPAN_MS, SysfsTree

_TURN_SECONDS = COUNTER_LIFESPAN_MS / 1000
# To look whether somebody has the files costs more than to bring them up to date.
_TURNS_UNTIL_A_LOOK = 32


class KeptCounters:
    """Which devices' counters may be open, and when it is their turn."""

    def __init__(self, tree: SysfsTree, clock: Callable[[], float] = time.monotonic) -> None:
        self._tree = tree
        self._clock = clock
        self._turns: dict[SharedDevice, int] = {}  # Since it was opened, or seen to be open.
        self._due = 0.0

    def opened(self, device: SharedDevice) -> None:
        """A program is about to open files of a device, which are up to date."""
        if not self._turns:
            self._due = self._clock() + _TURN_SECONDS
        self._turns[device] = 0

    def shorten(self, timeout: float | None) -> float | None:
        """How long may be waited, of the seconds that somebody wants to wait (None: for ever)."""
        if not self._turns:
            return timeout
        left = max(0.0, self._due - self._clock())
        return left if timeout is None else min(timeout, left)

    def take_turn(self) -> None:
        """Brings the files up to date, if it is time, and forgets devices that nobody looks at."""
        if not self._turns or self._clock() < self._due:
            return
        for device, turns in list(self._turns.items()):
            self._tree.refresh_counters(device)
            self._turns[device] = turns + 1
            if turns % _TURNS_UNTIL_A_LOOK == 0 and not self._tree.has_open_counters(device):
                del self._turns[device]
        self._due = self._clock() + _TURN_SECONDS
