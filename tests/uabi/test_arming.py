"""Programs that wait for events arm a queue for each: what that costs, they wait longer."""

from __future__ import annotations

import os
import select
from pathlib import Path

import pytest

import softhca
from softhca.uabi.supervisor import Supervisor

from .programs import compiled, needs_verbs_headers

PATIENCE_S = 100


@needs_verbs_headers
@pytest.mark.parametrize("write_only", [False, True], ids=["ioctl", "write"])
@pytest.mark.parametrize("written", [False, True], ids=["asked", "written"])
def test_a_queue_is_armed_while_the_supervisor_does_something_else(
    tmp_path: Path, write_only: bool, written: bool
) -> None:
    program = compiled("arms_alone", tmp_path)
    told, tells = os.pipe()
    asked, asks = os.pipe()
    for descriptor in (tells, asked):
        os.set_inheritable(descriptor, True)
    with (
        softhca.open() as device,
        Supervisor([device], doorbells_are_written=written, write_only=write_only) as supervisor,
    ):
        running = supervisor.launch(program, [program, str(tells), str(asked)])
        while not select.select([told], [], [], 0)[0]:
            supervisor.serve_once(0.1)
            assert running.status is None
        assert os.read(told, 1) == b"q"
        os.write(asks, b"g")
        # From here on nobody serves.
        assert select.select([told], [], [], PATIENCE_S)[0], "it waits for the supervisor"
        assert os.read(told, 1) == b"d"
        assert supervisor.serve(running) == 0
    for descriptor in (told, tells, asked, asks):
        os.close(descriptor)
