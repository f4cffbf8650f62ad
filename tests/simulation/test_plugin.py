"""The pytest plugin, by tests of users that it runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from softhca.testing import SavedTrace

TESTS = """
import pytest
import softhca as hca

def test_pair(rdma_pair):
    a, b = rdma_pair.a, rdma_pair.b
    a.qp.post_send(hca.Write(a.mr[:5], remote=b.mr.remote(), signaled=True))
    assert a.next().ok

@pytest.mark.rdma(loss=0.1, runs=3)
def test_loss(rdma_pair, rdma_seed):
    a, b = rdma_pair.a, rdma_pair.b
    a.qp.post_send(hca.Write(a.mr[:], remote=b.mr.remote(), signaled=True))
    assert a.next().ok

def test_device(rdma_device):
    with rdma_device.alloc_pd():
        pass

def test_fails(rdma_pair):
    a, b = rdma_pair.a, rdma_pair.b
    a.qp.post_send(hca.Write(a.mr[:5], remote=b.mr.remote(), signaled=True))
    assert a.next().ok
    assert False

def test_leaks(rdma_device):
    test_leaks.kept = rdma_device.alloc_pd()

def test_two_connected(rdma_fabric):
    from softhca.testing import Pair
    pair = Pair(rdma_fabric, timeout=10, retry_cnt=3)
    pair.a.qp.post_send(hca.Write(pair.a.mr[:5], remote=pair.b.mr.remote(), signaled=True))
    assert pair.a.next().ok

def test_leaks_beside(rdma_fabric):
    from softhca.testing import Pair
    pair = Pair(rdma_fabric)
    test_leaks_beside.kept = pair.a.pd.reg_mr(bytearray(8))

def test_forgets(rdma_device):
    pd = rdma_device.alloc_pd()
    cq = rdma_device.create_cq(8)
    cq.close()

@pytest.mark.rdma(leaks=False)
def test_may_leak(rdma_device):
    test_may_leak.kept = rdma_device.alloc_pd()

@pytest.mark.rdma(leaks=False)
def test_may_leak_and_forget(rdma_device):
    pd = rdma_device.alloc_pd()

def test_sometimes(rdma_fabric):
    from softhca.testing import Pair
    pair = Pair(rdma_fabric)
    rdma_fabric.faults.drop(probability=0.2, opcode="RC_RDMA_WRITE_ONLY")
    for n in range(10):
        pair.a.qp.post_send(hca.Write(pair.a.mr[:5], remote=pair.b.mr.remote(), signaled=True))
        assert pair.a.next().ok
    assert pair.a.device.counters.local_ack_timeout_err < 2

def test_often(rdma_pair):
    a, b = rdma_pair.a, rdma_pair.b
    rdma_pair.fabric.faults.drop(probability=0.2, opcode="RC_RDMA_WRITE_ONLY")
    a.qp.post_send(hca.Write(a.mr[:5], remote=b.mr.remote(), signaled=True))
    assert a.next().ok
    assert a.device.counters.local_ack_timeout_err == 0

@pytest.fixture
def my_hosts(rdma_fabric):
    return rdma_fabric.hosts(2)

def test_of_my_own(my_hosts, rdma_fabric):
    assert len(my_hosts) == 2
"""


def run(folder: Path, *words: str) -> str:
    """Runs the tests above in a process of their own."""
    (folder / "test_user.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\n")
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "softhca_pytest", "-q", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return done.stdout + done.stderr


def test_fixtures_and_marks(tmp_path: Path) -> None:
    printed = run(tmp_path, "-k", "pair or loss or device or may_leak")
    assert "7 passed" in printed, printed


def test_a_failure_tells_its_seed_and_trace(tmp_path: Path) -> None:
    printed = run(tmp_path, "-k", "test_fails")
    assert "1 failed" in printed, printed
    (seed,) = set(re.findall(r"--rdma-seed=(\d+)", printed))
    assert "RDMA_WRITE_ONLY" in printed
    for saved in re.findall(r"saved: (\S+)", printed):
        assert Path(saved).stat().st_size > 0
    again = run(tmp_path, "-k", "test_fails", f"--rdma-seed={seed}")
    # The same seed gives the same trace, line by line.
    ladder = re.compile(r"^ +\d+  .*$", re.M)
    assert ladder.findall(again) == ladder.findall(printed)
    assert ladder.findall(again)


def test_what_a_pair_made_for_itself_is_no_leak(tmp_path: Path) -> None:
    printed = run(tmp_path, "-k", "two_connected or leaks_beside")
    assert re.search(r"2 passed, .*1 error", printed), printed
    assert re.search(r"left open: <MR [^>]*> of h1$", printed, re.M), printed


def test_leaks_are_named(tmp_path: Path) -> None:
    printed = run(tmp_path, "-k", "test_leaks")
    assert re.search(r"left open: <PD 1> of h1", printed), printed
    assert re.search(r"again: pytest 'test_user.py::test_leaks' --rdma-seed=\d+\n", printed)


def test_what_only_a_local_variable_had_is_a_leak_too(tmp_path: Path) -> None:
    printed = run(tmp_path, "-k", "test_forgets")
    assert re.search(r"left open: <PD 1> of h1$", printed, re.M), printed


def test_leaks_are_named_of_explored_runs_too(tmp_path: Path) -> None:
    printed = run(tmp_path, "--rdma-explore=3", "-k", "test_forgets or may_leak or test_device")
    assert re.search(r"3 passed, .*1 failed|1 failed, 3 passed", printed), printed
    assert re.search(r"seed \d+ fails: Failed: left open: <PD 1> of h1$", printed, re.M), printed


@pytest.mark.parametrize("more", ["before", "behind"])
def test_the_command_names_a_test_that_there_is(tmp_path: Path, more: str) -> None:
    marks = ["@pytest.mark.rdma(runs=2)", "@pytest.mark.parametrize('word', ['a', 'b-c'])"]
    if more == "before":
        marks.reverse()
    (tmp_path / "test_words.py").write_text(
        "\n".join(["import pytest", *marks, "def test_it(rdma_device, word): assert word == 'a'"])
    )
    printed = run(tmp_path, "test_words.py")
    again = re.findall(r"again: pytest '(.*)' (--rdma-seed=\d+)\n", printed)
    assert len(again) == 2, printed
    for name, seed in again:
        assert "1 failed" in run(tmp_path, name, seed)


def test_tests_that_differ_by_a_sign_have_files_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "test_signs.py").write_text("""
import pytest

@pytest.mark.parametrize("sign", ["+", "-"])
def test_it(rdma_fabric, sign):
    rdma_fabric.host(sign)
    assert not sign
""")
    saved = re.findall(r"saved: (\S+)\.trace", run(tmp_path, "test_signs.py"))
    assert [SavedTrace(f"{name}.trace").hosts for name in saved] == [["+"], ["-"]]


def test_explore_shrinks(tmp_path: Path) -> None:
    printed = run(tmp_path, "-k", "test_sometimes", "--rdma-explore=200", "--rdma-seed=1")
    assert re.search(r"seed \d+ fails: AssertionError", printed), printed
    strikes = re.findall(r"E +drop #1 strikes its match (\d+)", printed)
    assert len(strikes) == 2, printed
    # The report is of the run that failed, and the command that it gives fails as well.
    assert "x fault" in printed
    (seed,) = set(re.findall(r"--rdma-seed=(\d+) --rdma-explore=1", printed))
    again = run(tmp_path, "-k", "test_sometimes", "--rdma-explore=1", f"--rdma-seed={seed}")
    assert f"seed {seed} fails: AssertionError" in again, again


def test_explore_makes_fixtures_anew(tmp_path: Path) -> None:
    printed = run(tmp_path, "-k", "test_often", "--rdma-explore=50", "--rdma-seed=1")
    assert re.search(r"seed \d+ fails: AssertionError", printed), printed
    printed = run(tmp_path, "-k", "of_my_own", "--rdma-explore=50")
    assert "my_hosts cannot be made anew for each seed" in printed
    assert "1 passed" in printed, printed


# Each of them fails wherever its body runs, or runs with what its fixtures did not prepare.
ONCE = """
import unittest
import pytest
import softhca as hca

class TestPrepared:
    @pytest.fixture(autouse=True)
    def prepared(self, rdma_fabric):
        rdma_fabric.faults.drop(opcode="RC_SEND_ONLY", nth=1, name="prepared")

    def test_autouse(self, rdma_pair):
        assert [fault.name for fault in rdma_pair.fabric.faults.all] == ["prepared"]

class TestOfMyOwn:
    @pytest.fixture
    def rdma_fabric(self, rdma_seed):
        from softhca.testing import Fabric
        with Fabric(rdma_seed, latency_ns=12345) as fabric:
            yield fabric

    def test_override(self, rdma_pair):
        a, b = rdma_pair.a, rdma_pair.b
        a.qp.post_send(hca.Write(a.mr[:5], remote=b.mr.remote(), signaled=True))
        assert a.next().ok
        assert rdma_pair.fabric.now_ns > 2 * 12345

    def test_failing_override(self, rdma_pair):
        assert False

async def test_coroutine(rdma_pair):
    assert False

@pytest.fixture
def hosts(rdma_fabric):
    return rdma_fabric.hosts(2)

def test_indirect(hosts):
    assert len(hosts) == 2

class TestCase(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def keep(self, rdma_pair):
        self.pair = rdma_pair

    def test_method(self):
        assert self.pair.a.qp

    @pytest.mark.rdma(runs=3)
    def test_many_runs(self):
        assert self.pair.a.qp
"""


def test_what_cannot_be_explored_runs_once_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "test_once.py").write_text(ONCE)
    chosen = "autouse or (override and not failing) or indirect or method or coroutine"
    printed = run(tmp_path, "test_once.py", "-k", chosen, "--rdma-explore=5")
    assert "1 failed, 4 passed" in printed, printed
    assert "FAILED test_once.py::test_coroutine" in printed, printed
    for why in (
        "prepared cannot be made anew",
        "rdma_fabric cannot be made anew",
        "hosts cannot be made anew",
        "tests of a TestCase cannot be called again",
        "an async function cannot be called again",
    ):
        assert f"--rdma-explore: {why}" in printed, printed


def test_a_fabric_of_the_users_own_is_that_of_the_pair(tmp_path: Path) -> None:
    (tmp_path / "test_once.py").write_text(ONCE)
    printed = run(tmp_path, "test_once.py", "-k", "override")
    assert "1 failed, 1 passed" in printed, printed
    assert re.search(r"seed \d+, 0 ns of virtual time", printed), printed


OWN = """
import pytest
import softhca as hca
from softhca.testing import Fabric, Pair

class TestMade:
    @pytest.fixture
    def rdma_fabric(self, rdma_seed):
        with Fabric(rdma_seed, gbps=10) as fabric:
            yield fabric

    @pytest.mark.rdma(loss=1)
    def test_loses(self, rdma_pair):
        assert [fault.name for fault in rdma_pair.fabric.faults.all] == ["loss"]

    def test_leaks(self, rdma_device):
        self.kept = rdma_device.alloc_pd()

    @pytest.mark.rdma(leaks=False)
    def test_may_leak(self, rdma_device):
        rdma_device.alloc_pd()

    def test_fails_without_a_pair(self, rdma_fabric):
        Pair(rdma_fabric)
        assert False

class TestPrepared:
    @pytest.fixture
    def rdma_fabric(self, rdma_fabric):
        rdma_fabric.host("mine")
        return rdma_fabric

    @pytest.mark.rdma(loss=1)
    def test_loses_once(self, rdma_pair):
        assert [fault.name for fault in rdma_pair.fabric.faults.all] == ["loss"]
"""


def test_a_fabric_of_the_users_own_does_what_the_mark_says(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text(OWN)
    printed = run(tmp_path, "test_own.py")
    assert "1 failed, 4 passed, 1 error" in printed, printed
    assert "ERROR test_own.py::TestMade::test_leaks - Failed: left open: <PD" in printed, printed
    assert "again: pytest 'test_own.py::TestMade::test_fails_without_a_pair'" in printed, printed


def test_a_test_case_has_one_run(tmp_path: Path) -> None:
    (tmp_path / "test_once.py").write_text(ONCE)
    printed = run(tmp_path, "test_once.py", "-k", "test_many_runs")
    assert "runs=3: a TestCase" in printed, printed


BROKEN_OFF = """
import pytest

@pytest.fixture
def given_up(rdma_device):
    given_up.kept = rdma_device.alloc_pd()
    pytest.skip("not here")

def test_set_up(given_up):
    pass

def test_skipped(rdma_device):
    test_skipped.kept = rdma_device.alloc_pd()
    pytest.skip("not here")

def test_expected(rdma_device):
    test_expected.kept = rdma_device.alloc_pd()
    pytest.xfail("known")
"""


def test_what_was_broken_off_leaks_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_broken_off.py").write_text(BROKEN_OFF)
    printed = run(tmp_path, "test_broken_off.py")
    assert "2 skipped, 1 xfailed in" in printed, printed


def test_wrong_words_of_marks(tmp_path: Path) -> None:
    wrong = (
        "seed='abc'",
        "seed=-1",
        "seed=1.5",
        "runs=0",
        "runs='x'",
        "loss=2",
        "loss=-1",
        "leaks=3",
    )
    for number, words in enumerate(wrong):
        (tmp_path / f"test_wrong_{number}.py").write_text(
            f"import pytest\n@pytest.mark.rdma({words})\ndef test_it(rdma_fabric): pass\n"
        )
    printed = run(tmp_path, "-k", "test_wrong", "--continue-on-collection-errors")
    for words in wrong:
        assert f"rdma mark: {words}: must be" in printed, printed


@pytest.mark.parametrize("wrong", ["rdma(1)", "rdma(sed=1)"])
def test_wrong_marks(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "test_wrong.py").write_text(
        f"import pytest\n@pytest.mark.{wrong}\ndef test_it(rdma_fabric): pass\n"
    )
    printed = run(tmp_path, "test_wrong.py")
    assert "the mark is rdma(" in printed


@pytest.mark.parametrize(
    "wrong", ["--rdma-seed=-1", "--rdma-seed=x", "--rdma-explore=-1", "--rdma-explore=x"]
)
def test_wrong_options_are_refused_before_any_test_runs(tmp_path: Path, wrong: str) -> None:
    printed = run(tmp_path, wrong)
    assert re.search(rf"error: argument {wrong.partition('=')[0]}: ", printed)
    assert "passed" not in printed
    assert "failed" not in printed


def test_it_costs_nothing_unless_used() -> None:
    code = "import softhca_pytest, sys; print('softhca' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n"
