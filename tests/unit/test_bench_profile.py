"""What the benches make of samples, and what they print of them."""

from __future__ import annotations

import os
import shutil

import pytest
from bench import profile
from bench.findings import NANOSECONDS, Better, Finding, Goal
from bench.profile import LEAST_SHARE, none, place_of, profile_of
from bench.ratios import Turn, summarise
from bench.report import details

HERE, THERE = 11, 12
OURS = "/usr/lib/python3/softhca/_adapter.cpython-311-x86_64-linux-gnu.so"


def finding(figure: float, **more) -> Finding:
    summary = summarise([Turn(10e-9, figure, 10e-9)] * 7)
    goal = Goal(Better.LESS, 3)
    return Finding("a call", goal, "softhca", "c", NANOSECONDS, {"softhca": summary}, **more)


def missed(**more) -> Finding:
    return finding(50e-9, **more)


def line(pid: int, symbol: str, binary: str) -> str:
    return f"{pid:>8} {'7fa564cd3aed':>16} {symbol} ({binary})"


@pytest.mark.parametrize(
    ("symbol", "binary", "place"),
    [
        ("softhca::Engine::round(bool, bool)", OURS, ("softhca", "Engine::round")),
        ("softhca::(anonymous namespace)::look(int)", OURS, ("softhca", "look")),
        ("poll_each<softhca::poll_records>(int)", OURS, ("softhca", "poll_each")),
        ("softhca_copy", OURS, ("softhca", "copy of payload")),
        ("softhca_copy_fault", OURS, ("softhca", "copy of payload")),
        ("finish_task_switch.isra.0", "[kernel.kallsyms]", ("kernel", "finish_task_switch")),
        ("__vdso_clock_gettime", "[vdso]", ("C library", "__vdso_clock_gettime")),
        ("recvmsg", "/usr/lib/x86_64-linux-gnu/libc.so.6", ("C library", "recvmsg")),
        ("_PyEval_EvalFrameDefault", "/opt/lib/libpython3.11.so.1.0", ("Python", "")),
        ("main", "/opt/round_trip", ("round_trip", "")),
        ("softhca::Adapter::post_send(int)", "/opt/round_trip", ("softhca", "Adapter::post_send")),
    ],
)
def test_places_have_plain_names(symbol, binary, place):
    assert place_of(symbol, binary) == place


def test_shares_are_of_the_samples_of_each_side():
    lines = [line(HERE, "fetch", OURS)] * 30 + [line(HERE, "[unknown]", "[kernel]")] * 10
    lines += [line(THERE, "fetch", OURS)] * 5 + [line(99, "fetch", OURS), "no sample"]
    taken = profile_of(lines, {"near": HERE, "far": THERE})
    assert taken.samples == {"near": 40, "far": 5}
    assert taken.places["softhca", "fetch"] == {"near": 0.75, "far": 1.0}
    assert next(iter(taken.places)) == ("softhca", "fetch"), "the largest first"


def test_what_is_small_is_put_together():
    names = [f"small{number}" for number in range(100)]
    taken = profile_of([line(HERE, name, OURS) for name in names], {"near": HERE})
    assert LEAST_SHARE > 0.01
    assert taken.places == {("softhca", ""): {"near": pytest.approx(1.0)}}


def test_a_side_that_was_never_seen_makes_no_profile():
    taken = profile_of([line(HERE, "fetch", OURS)], {"near": HERE, "far": THERE})
    assert taken.missing
    assert not taken.places


def test_a_missed_goal_is_printed_with_its_reasons():
    lines = [line(HERE, "fetch", OURS)] * 3 + [line(HERE, "[unknown]", OURS)]
    text = details([missed(profile=profile_of(lines, {"near": HERE}), because="It waits.")])
    assert 'Why "a call" is missed: It waits.' in text
    assert "`fetch`" in text
    assert "75 %" in text
    assert "near, 4 samples" in text


def test_a_missed_goal_without_a_profile_says_why():
    text = details([missed(profile=none("perf is not installed"))])
    assert "No profile: perf is not installed." in text


def test_who_reached_the_goal_gives_no_reasons():
    assert "Why" not in details([finding(20e-9, because="It waits.")])


def test_without_perf_nothing_is_measured(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    taken = profile.sample({"near": HERE}, lambda: pytest.fail("was measured"))
    assert taken.missing == "perf is not installed"


def test_a_perf_that_may_not_look_says_why(monkeypatch, tmp_path):
    refusing = tmp_path / "perf"
    refusing.write_text("#!/bin/sh\necho You may not. >&2\nexit 1\n")
    refusing.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(profile, "SECONDS", 60.0)
    assert profile.sample({"near": os.getpid()}, lambda: 0.0).missing == "You may not."
