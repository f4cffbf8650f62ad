"""Rdma-core's own Python tests: none fails, and each that is skipped is in a list with its reason.

`rdma_core_44_skipped.txt` has a line for each: what Debian's rdma-core 44 skips, and why. Linux's
rxe skips the same, but for what its machine has (huge pages, a graphics card, an interface). Of
other versions' there is no list; none fails there either.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from pathlib import Path

import pytest

from .programs import SYSTEM_PYTHON, needs_pyverbs, run_under

INSTALLED = Path("/usr/share/doc/rdma-core/tests")
SKIPPED = Path(__file__).with_name("rdma_core_44_skipped.txt")
# Of 273 tests, those that need no hardware of a kind; Linux 6.1's rxe passes 86 without rdma_cm.
FEWEST_PASSED = 86
# Over write(2) the library cannot ask for what the first two ask. A doorbell that nobody answers
# cannot be refused, which the last expects.
EXCEPTIONS: dict[tuple[str, ...], set[str]] = {
    ("--write-abi",): {
        "tests.test_device.DeviceTest.test_query_gid_table",
        "tests.test_device.DeviceTest.test_query_gid_ex_bad_flow",
    },
    ("--doorbells", "written"): {
        "tests.test_qpex.QpExTestCase.test_post_send_qp_state_bad_flow",
    },
}

pytestmark = [
    needs_pyverbs,
    pytest.mark.skipif(not INSTALLED.exists(), reason=f"no tests of rdma-core in {INSTALLED}"),
]


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the package of tests, unpacked."""
    if not installed_version():
        pytest.skip("dpkg does not know which version of rdma-core there is")
    top = tmp_path_factory.mktemp("rdma-core")
    (top / "tests").mkdir()
    for file in INSTALLED.iterdir():
        octets = file.read_bytes()
        if file.suffix == ".gz":
            (top / "tests" / file.stem).write_bytes(gzip.decompress(octets))
        elif file.suffix == ".py":
            (top / "tests" / file.name).write_bytes(octets)
    # From 46 on they ask iproute2 for the interface of a device, which asks the kernel's netlink.
    (top / "bin").mkdir()
    stand_in = top / "bin" / "rdma"
    stand_in.write_text("#!/bin/sh\necho '[]'\n")
    stand_in.chmod(0o755)
    return top


def installed_version() -> str:
    """Of rdma-core; empty, where there is none of dpkg's."""
    return subprocess.run(
        ["dpkg-query", "-W", "-f", "${Version}", "rdma-core"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout


def has_list() -> bool:
    """Whether it is the version whose tests are in the list."""
    return installed_version().startswith("44.")


def outcomes(suite: Path, *options: str) -> dict[str, tuple[str, str]]:
    """Runs all of them: outcome and reason by name."""
    runner = Path(__file__).with_name("rdma_core_runner.py")
    path = f"PATH={suite / 'bin'}:{os.environ['PATH']}"
    garbage = [] if has_list() else ["LEAVES_GARBAGE=1"]
    command = ["env", path, *garbage, SYSTEM_PYTHON, str(runner), str(suite)]
    printed = run_under(*command, options=options).stdout
    lines = [json.loads(line) for line in printed.splitlines() if line.startswith('["')]
    return {name: (outcome, reason) for name, outcome, reason in lines}


def listed() -> dict[str, str]:
    """Reasons by name."""
    lines = SKIPPED.read_text().splitlines()
    return dict(line.split(": ", 1) for line in lines if line and not line.startswith("#"))


@pytest.mark.parametrize(
    "options",
    [("--doorbells", "asked"), ("--write-abi",), ("--doorbells", "written")],
    ids=["ioctl", "write", "written"],
)
def test_none_fails_and_each_skip_has_its_reason(suite: Path, options: tuple[str, ...]) -> None:
    found = outcomes(suite, *options)
    passed = [name for name, (outcome, _) in found.items() if outcome == "passed"]
    skipped = {name: why for name, (outcome, why) in found.items() if outcome == "skipped"}
    exceptions = EXCEPTIONS.get(options, set())
    wrong = {
        name: why
        for name, (outcome, why) in found.items()
        if outcome not in ("passed", "skipped") and name not in exceptions
    }
    assert not wrong, "\n".join(f"{name}: {why}" for name, why in wrong.items())
    if has_list():
        assert set(skipped) <= set(listed()), sorted(set(skipped) - set(listed()))
    assert len(passed) >= FEWEST_PASSED - len(exceptions)
