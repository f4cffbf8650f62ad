"""Files of counters that a program keeps open."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, cast

import softhca
from softhca.uabi.kept_counters import KeptCounters
from softhca.uabi.shared_device import SharedDevice
from softhca.uabi.sysfs import SysfsTree

from .programs import SYSTEM_PYTHON, free_port, needs, run_under

DEVICE = cast(SharedDevice, object())


class Tree:
    """A tree whose counters are counted."""

    def __init__(self) -> None:
        self.refreshed = 0
        self.is_open = True

    def refresh_counters(self, device: SharedDevice) -> None:
        self.refreshed += device is DEVICE

    def has_open_counters(self, device: SharedDevice) -> bool:
        return self.is_open


def test_they_are_brought_up_to_date_until_nobody_has_them() -> None:
    tree, now = Tree(), [5.0]
    kept = KeptCounters(cast(Any, tree), lambda: now[0])
    assert (kept.shorten(None), kept.shorten(7.0)) == (None, 7.0)
    kept.opened(DEVICE)
    kept.take_turn()
    assert tree.refreshed == 0  # It was up to date when it was opened.
    for turn in range(100):
        assert kept.shorten(None) == kept.shorten(7.0) > 0
        assert kept.shorten(0.0) == 0
        now[0] += 0.011
        assert kept.shorten(7.0) == 0
        kept.take_turn()
        assert tree.refreshed == turn + 1
    tree.is_open = False
    while kept.shorten(None) is not None:
        now[0] += 0.011
        kept.take_turn()
        assert tree.refreshed < 200
    kept.take_turn()
    assert tree.refreshed < 200


def test_a_tree_knows_whether_somebody_reads_its_counters() -> None:
    with softhca.open() as adapter:
        tree = SysfsTree()
        try:
            (node,) = tree.make_nodes(1)
            device = SharedDevice(adapter, 0, node)
            tree.add(device)
            assert not tree.has_open_counters(device)
            counter = tree.top / "infiniband/rxe0/ports/1/hw_counters/sent_pkts"
            descriptor = os.open(counter, os.O_RDONLY)
            assert tree.has_open_counters(device)
            os.close(descriptor)
            assert not tree.has_open_counters(device)
        finally:
            tree.remove()


@needs("ibv_rc_pingpong")
def test_a_program_that_keeps_one_open_sees_it_change() -> None:
    program = """
import os, subprocess, sys
path = "/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts"
kept = os.open(path, os.O_RDONLY)
assert os.pread(kept, 99, 0) == b"0\\n"
subprocess.run(sys.argv[1:], check=True, capture_output=True)
with open(path, "rb") as fresh:
    after = fresh.read()
os.lseek(kept, 0, os.SEEK_SET)
assert os.read(kept, 99) == after != b"0\\n"
subprocess.run(sys.argv[1:], check=True, capture_output=True)
while os.pread(kept, 99, 0) == after:
    pass
print("well")
"""
    pair = [sys.executable, str(Path(__file__).with_name("pair.py"))]
    words = [*pair, "ibv_rc_pingpong", "-g", "0", "-n", "10", "-p", str(free_port())]
    assert run_under(SYSTEM_PYTHON, "-c", program, *words).stdout == "well\n"
