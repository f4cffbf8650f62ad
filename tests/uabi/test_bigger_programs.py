"""UCX, Open MPI and a program without shared libraries."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from .programs import SYSTEM_PYTHON, run_both_ends, run_under
from .ucx_modules import lacking_for_perftest, lacking_for_verbs

STATIC_PROGRAM = """
#include <infiniband/verbs.h>
#include <stdio.h>
int main(void) {
  int count = 0;
  struct ibv_device **list = ibv_get_device_list(&count);
  struct ibv_context *context = count == 1 ? ibv_open_device(list[0]) : NULL;
  if (context == NULL) return 1;
  struct ibv_pd *pd = ibv_alloc_pd(context);
  struct ibv_cq *cq = ibv_create_cq(context, 10, NULL, NULL, 0);
  if (pd == NULL || cq == NULL) return 2;
  printf("%s\\n", ibv_get_device_name(list[0]));
  return ibv_destroy_cq(cq) || ibv_dealloc_pd(pd) || ibv_close_device(context);
}
"""

MPI_PROGRAM = """
from mpi4py import MPI
world = MPI.COMM_WORLD
for size in (8, 1024, 65536):
    mine, all_of_them = bytearray([world.rank]) * (size * world.size), bytearray(size * world.size)
    world.Alltoall(mine, all_of_them)
    assert all_of_them == b"".join(bytes([rank]) * size for rank in range(world.size))
print(f"rank {world.rank}\\n", end="", flush=True)
"""


@pytest.mark.skipif(bool(lacking_for_perftest()), reason=lacking_for_perftest())
@pytest.mark.parametrize("test", ["tag_lat", "tag_bw", "ucp_get", "ucp_put_bw"])
def test_ucx_over_rc(test: str) -> None:
    # UCX connects RC through a channel of UD.
    environment = ["env", "UCX_TLS=rc_verbs,ud_verbs", "UCX_NET_DEVICES=rxe0:1"]
    # The strong fence of UCX 1.22 reads with a key that is none; older ones do not know the word.
    environment += ["UCX_FENCE_MODE=weak", "UCX_WARN_UNUSED_ENV_VARS=n"]
    command = [*environment, "ucx_perftest", "-t", test, "-n", "100", "-w", "10", "-s", "1024"]
    assert "client: 0" in run_both_ends(*command)


def has_mpi() -> bool:
    """Whether Open MPI and its Python binding are installed."""
    if shutil.which("mpirun") is None:
        return False
    command = [SYSTEM_PYTHON, "-c", "import mpi4py"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not has_mpi(), reason="not installed: openmpi-bin, python3-mpi4py")
@pytest.mark.skipif(bool(lacking_for_verbs()), reason=lacking_for_verbs())
def test_open_mpi_over_ucx(tmp_path: Path) -> None:
    environment = {"UCX_TLS": "rc_verbs,ud_verbs,self", "UCX_NET_DEVICES": "rxe0:1"}
    # Its runner crashes for a user whom neither the environment nor passwd(5) gives a home.
    environment["HOME"] = str(tmp_path)
    if os.geteuid() == 0:
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    words = [f"{name}={value}" for name, value in environment.items()]
    mpirun = ["mpirun", "--oversubscribe", "-np", "4", "--mca", "pml", "ucx"]
    program = [*mpirun, "--mca", "btl", "^openib,uct", SYSTEM_PYTHON, "-c", MPI_PROGRAM]
    printed = run_under("env", *words, *program).stdout
    assert sorted(printed.splitlines()) == [f"rank {rank}" for rank in range(4)]


def test_a_statically_linked_program(tmp_path: Path) -> None:
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(STATIC_PROGRAM)
    command = ["cc", "-static", "-o", str(program), str(source), "-Wl,--whole-archive"]
    libraries = ["-l:librxe-rdmav34.a", "-Wl,--no-whole-archive", "-libverbs", "-lnl-route-3"]
    if shutil.which("cc") is None:
        pytest.skip("not installed: cc")
    made = subprocess.run(
        [*command, *libraries, "-lnl-3", "-lpthread"], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("not installed: the static libraries of rdma-core 44")
    assert run_under(str(program)).stdout == "rxe0\n"
