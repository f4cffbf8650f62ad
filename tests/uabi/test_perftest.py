"""Perftest's programs, both ends under one supervisor."""

from __future__ import annotations

import os

import pytest

from .programs import needs, run_both_ends

pytestmark = needs("ib_write_bw")


@pytest.mark.parametrize(
    "command",
    [
        "ib_write_bw -n 50 -s 65536",
        "ib_write_lat -n 50",
        "ib_read_bw -n 50 -e -q 4",
        "ib_send_bw -n 50 -b -e",
        "ib_send_bw -n 50 --use-srq",
        "ib_send_lat -n 50 -c UD",
        "ib_send_bw -n 50 -c UC",
        "ib_write_bw -n 160 -l 16 -s 4096",
        "ib_atomic_bw -n 50",
        "ib_atomic_lat -n 50",
    ],
)
@pytest.mark.parametrize("doorbells", ["asked", "written"])
def test_perftest_measures(command: str, doorbells: str) -> None:
    # -F: whatever the processor's frequency does is not our business; -x: entry of the GID table.
    options = ("--doorbells", doorbells)
    printed = run_both_ends(*command.split(), "-F", "-x", "0", options=options)
    assert "client: 0" in printed


def test_perftest_sends_to_a_group() -> None:
    # A group of IPv4, as perftest wants it: sixteen bytes. Others who run this have another one.
    mapped = (*(0,) * 10, 255, 255, 239, *os.getpid().to_bytes(3, "big"))
    group = ":".join(map(str, mapped))
    command = ("ib_send_bw", "-c", "UD", "-g", "-M", group, "-n", "50", "-s", "1024")
    printed = run_both_ends(*command, "-F", "-x", "0")
    assert "client: 0" in printed
    # Of a multicast, perftest's server counts what came.
    assert printed.count("1024       50") == 2
