"""A run is a function of its seed and its program.

SOFTHCA_SEEDS in the environment runs more seeds, and SOFTHCA_OTHER_PYTHON names another Python that
has the package, to compare with.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SEEDS = int(os.environ.get("SOFTHCA_SEEDS", "40"))
TESTS = Path(__file__).resolve().parents[1]


def run(python: str, hash_seed: int, threads: bool) -> list[str]:
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(TESTS)}
    if "PYTHONPATH" in os.environ:
        environment["PYTHONPATH"] += os.pathsep + os.environ["PYTHONPATH"]
    code = "import sys; sys.setswitchinterval(1e-6); " if threads else ""
    code += f"import sys; sys.argv = ['', '1', '{SEEDS}']; import runpy; "
    code += "runpy.run_module('simulation.random_run', run_name='__main__')"
    done = subprocess.run(
        [python, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_same_seeds_give_the_same_traces() -> None:
    first = run(sys.executable, 1, False)
    assert len(first) == SEEDS
    assert len({line.split()[1] for line in first}) == SEEDS  # And others, others.
    other = os.environ.get("SOFTHCA_OTHER_PYTHON", sys.executable)
    assert run(other, 2, True) == first


# Memory whose addresses differ from process to process, by every way to register it.
REGISTERS = """
import mmap, sys
import softhca as hca
from softhca import Access
from softhca.testing import Fabric, Pair

kept = bytearray(int(sys.argv[1]))
with Fabric(seed=3) as fabric:
    pair = Pair(fabric)
    a, b = pair.a, pair.b
    rights = Access.LOCAL_WRITE | Access.REMOTE_WRITE
    fast = b.pd.alloc_mr(hca.MrType.SG_GAPS, 4)
    fast.map_mr_sg([bytearray(10), bytearray(20)])
    b.qp.post_send(hca.RegMr(fast, access=rights, signaled=True))
    assert b.next().ok
    regions = [fast, b.pd.alloc_mr_buffer(64)]
    memory = mmap.mmap(-1, 8192)
    try:
        channel = b.device.create_invalidation_channel()
    except hca.VerbsError:
        print("no notices")
    else:
        regions.append(b.pd.reg_mr(memory, invalidation=channel))
        cache = hca.RegistrationCache(b.pd)
        whole, part = cache.get(memory), cache.get(memoryview(memory)[100:200])
        regions += [whole, part]
    for mr in regions:
        far = mr.remote()[5:25]
        a.qp.post_send(hca.Write(a.mr[:20], remote=far, signaled=True))
        assert a.next().ok
    for record in fabric.trace:
        print(record.at_ns, record.what, record.a, record.number, record.data.hex())
"""


def test_no_address_of_the_process_is_in_a_trace() -> None:
    told = []
    for size in ("8", "3000000"):
        command = [sys.executable, "-c", REGISTERS, size]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        told.append(done.stdout)
    assert told[0] == told[1]
    assert len(told[0].splitlines()) > 20
