"""Programs that have much of something, of which others shall not be the slower."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import softhca
from softhca.uabi.channels import Channel
from softhca.uabi.supervisor import Supervisor

from .programs import SYSTEM_PYTHON, needs_pyverbs, run_under

# What the supervisor does while a program runs is seen from there.
BEGIN = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from shared_memory import supervisor_of_this
import mmap, os
import verbs_enums as e
from pyverbs.cq import CompChannel
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD

context = Context(name="rxe0")
pd = PD(context)
supervisor = supervisor_of_this()
"""

CHANNELS = f"""{BEGIN}
channels = [CompChannel(context) for _ in range(200)]
os._exit(0)
"""

PROCESSES = f"""{BEGIN}
def held():
    return len(os.listdir(f"/proc/{{supervisor}}/fd"))

def run_processes():
    for _ in range(40):
        child = os.fork()
        if not child:
            MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE).close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0

run_processes()
before = held()
run_processes()
print(before, held(), flush=True)
os._exit(0)
"""

MAPPINGS = f"""{BEGIN}
def read():
    with open(f"/proc/{{supervisor}}/io") as counters:
        return int(counters.readline().split()[1])

# Each is a file of its own, so that none becomes one with the next. The first lies highest.
many = [mmap.mmap(-1, mmap.PAGESIZE) for _ in range(3000)]
before = read()
for _ in range(20):
    MR(pd, 100, e.IBV_ACCESS_LOCAL_WRITE, address=ADDRESS).close()
print(read() - before, flush=True)
os._exit(0)
"""


def kernel() -> tuple[int, ...]:
    """The version of Linux."""
    return tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])


@needs_pyverbs
def test_a_channel_is_not_looked_at_for_each_that_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    is_deserted = Channel.is_deserted.fget
    assert is_deserted is not None

    def look(channel: Channel) -> bool:
        nonlocal looks
        looks += 1
        assert is_deserted is not None
        return is_deserted(channel)

    monkeypatch.setattr(Channel, "is_deserted", property(look))
    with softhca.open() as device, Supervisor([device]) as supervisor:
        words = [SYSTEM_PYTHON, "-c", CHANNELS]
        assert supervisor.serve(supervisor.launch(SYSTEM_PYTHON, words)) == 0
    assert looks <= 2 * 200


@needs_pyverbs
def test_processes_that_have_ended_take_no_descriptors() -> None:
    before, after = run_under(SYSTEM_PYTHON, "-c", PROCESSES).stdout.split()
    # As many as are not looked at yet, each with two.
    assert int(after) <= int(before) + 2 * 16


@needs_pyverbs
@pytest.mark.skipif(kernel() < (6, 11), reason="Linux lists mappings, and cannot be asked for one")
def test_registering_does_not_read_of_all_mappings() -> None:
    highest = (
        "max(int(line.split('-')[0], 16) for line in open('/proc/self/maps') if '[stack]' in line)"
    )
    program = MAPPINGS.replace("ADDRESS", highest)
    assert int(run_under(SYSTEM_PYTHON, "-c", program).stdout) < 1_000_000
