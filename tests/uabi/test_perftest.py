"""Perftest's programs, both ends under one supervisor."""

from __future__ import annotations

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
