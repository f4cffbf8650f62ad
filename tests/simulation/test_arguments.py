"""What `softhca.testing` refuses, and that the refusal names the argument."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import softhca as hca
from softhca.testing import End, Fabric, Faults, Pair, Wire, explore, open_objects, open_simulated
from softhca.tools.main import main

NAN, INFINITE = float("nan"), float("inf")


def star(fabric: Fabric, **shape: Any) -> list[hca.Device]:
    return fabric.star(2, **shape)


WRONG: dict[str, tuple[Callable[[Fabric], object], type[Exception], str]] = {
    "no such limit": (lambda _: open_simulated(limits={"bogus": 1}), hca.VerbsError, "limits"),
    "a negative limit": (
        lambda _: open_simulated(limits={"max_qp": -1}),
        hca.VerbsError,
        "limits['max_qp']",
    ),
    "a limit of too many bits": (
        lambda _: open_simulated(limits={"max_qp": 1 << 32}),
        hca.VerbsError,
        "limits['max_qp']",
    ),
    "a limit that is no number": (
        lambda _: open_simulated(limits={"max_qp": "1"}),  # type: ignore[dict-item]
        TypeError,
        "limits['max_qp']",
    ),
    "a host's limit": (lambda fabric: fabric.host(limits={"x": 1}), hca.VerbsError, "limits"),
    "limits in a list": (lambda _: open_simulated(limits=[1]), TypeError, "limits"),  # type: ignore[arg-type]
    "a rate that is no number": (lambda _: Faults(drop="x"), TypeError, "drop"),  # type: ignore[arg-type]
    "a rate of NaN": (lambda _: Faults(corrupt=NAN), hca.VerbsError, "corrupt"),
    "a rate above 1": (lambda _: Faults(reorder=2), hca.VerbsError, "reorder"),
    "an endless time": (lambda fabric: fabric.run_for(INFINITE), hca.VerbsError, "seconds"),
    "a huge time": (lambda fabric: fabric.run_for(1e30), hca.VerbsError, "seconds"),
    "a time of NaN": (lambda fabric: fabric.sleep(NAN), hca.VerbsError, "seconds"),
    "a time in words": (lambda fabric: fabric.run_for("1"), TypeError, "seconds"),  # type: ignore[arg-type]
    "before now": (lambda fabric: fabric.after(-1, print), hca.VerbsError, "seconds"),
    "a call that is none": (lambda fabric: fabric.at(1, None), TypeError, "call"),  # type: ignore[arg-type]
    "a later call that is none": (lambda fabric: fabric.after(1, None), TypeError, "call"),  # type: ignore[arg-type]
    "a time-out in words": (
        lambda fabric: fabric.run_until(bool, timeout="1"),  # type: ignore[arg-type]
        TypeError,
        "timeout",
    ),
    "a time-out of NaN": (
        lambda fabric: fabric.run_until(bool, timeout=NAN),
        hca.VerbsError,
        "timeout",
    ),
    "one mark": (lambda fabric: star(fabric, mark_bytes=5), TypeError, "mark_bytes"),
    "marks that are no numbers": (
        lambda fabric: star(fabric, mark_bytes="ab"),
        TypeError,
        "mark_bytes",
    ),
    "marks the wrong way round": (
        lambda fabric: star(fabric, mark_bytes=(2, 1)),
        hca.VerbsError,
        "mark_bytes",
    ),
    "a speed in words": (lambda fabric: star(fabric, gbps="x"), TypeError, "gbps"),
    "no speed": (lambda fabric: star(fabric, gbps=0), hca.VerbsError, "gbps"),
    "a chance in words": (
        lambda fabric: star(fabric, mark_probability="x"),
        TypeError,
        "mark_probability",
    ),
    "a step into the past": (lambda fabric: fabric.step(-1), hca.VerbsError, "until_ns"),
    "fewer than no runs": (lambda _: explore(print, runs=-1), hca.VerbsError, "runs"),
    "a test that is none": (lambda _: explore(None), TypeError, "test"),  # type: ignore[arg-type]
    "a first seed in words": (lambda _: explore(print, 2, seed="a"), TypeError, "seed"),  # type: ignore[arg-type]
    "a last seed too large": (
        lambda _: explore(print, 2, seed=(1 << 63) - 1),
        hca.VerbsError,
        "seed",
    ),
    "less than no jitter": (lambda _: explore(print, 1, jitter_ns=-1), hca.VerbsError, "jitter_ns"),
    "less than no delay": (
        lambda _: explore(print, 1, ack_delay_ns=-1),
        hca.VerbsError,
        "ack_delay_ns",
    ),
    "a program that is none": (lambda fabric: fabric.run(print, 5), TypeError, "programs[1]"),  # type: ignore[arg-type]
    "a pair of no fabric": (lambda _: Pair(None), TypeError, "fabric"),  # type: ignore[arg-type]
    "fewer than no hosts": (lambda fabric: fabric.hosts(-1), hca.VerbsError, "count"),
    "a star of fewer than none": (lambda fabric: fabric.star(-1), hca.VerbsError, "count"),
    "a simulated seed in words": (
        lambda _: open_simulated(seed="x"),  # type: ignore[arg-type]
        TypeError,
        "seed",
    ),
    "a simulated seed below 0": (lambda _: open_simulated(seed=-1), hca.VerbsError, "seed"),
    "a wire between words": (lambda _: Wire("x"), TypeError, "device"),  # type: ignore[arg-type]
    "a wire into the past": (lambda _: Wire(delay_ns=-1), hca.VerbsError, "delay_ns"),
    "a hook that is none": (lambda _: Wire(hook=5), TypeError, "hook"),  # type: ignore[arg-type]
    "a wire's time in words": (lambda _: Wire().run_for("x"), TypeError, "duration_ns"),  # type: ignore[arg-type]
    "a wire's question": (lambda _: Wire().run_until(5), TypeError, "done"),  # type: ignore[arg-type]
    "a packet without a way": (lambda _: Wire().inject(b"", None), TypeError, "route"),  # type: ignore[arg-type]
    "a question that is none": (lambda fabric: fabric.run_until(5), TypeError, "done"),  # type: ignore[arg-type]
    "a record in words": (lambda fabric: fabric.run_to_record("x"), TypeError, "number"),  # type: ignore[arg-type]
    "a record before all": (lambda fabric: fabric.run_to_record(-1), hca.VerbsError, "number"),
    "no coroutine": (lambda fabric: fabric.run_async(print), TypeError, "main"),  # type: ignore[arg-type]
    "no async function": (lambda fabric: fabric.run_trio(5), TypeError, "main"),  # type: ignore[arg-type]
    "one name": (lambda fabric: fabric.run(print, names="x"), TypeError, "names"),
    "no names": (lambda fabric: fabric.run(print, names=None), TypeError, "names"),  # type: ignore[arg-type]
    "a host that is not there": (lambda fabric: fabric.name_of(0), hca.VerbsError, "host"),
    "a remark that is none": (lambda fabric: fabric.trace.note(5), TypeError, "text"),  # type: ignore[arg-type]
    "completions in words": (lambda fabric: Pair(fabric).a.poll("x"), TypeError, "count"),  # type: ignore[arg-type]
    "an end of no device": (lambda _: End("x", 8), TypeError, "device"),  # type: ignore[arg-type]
    "objects of no fabric": (lambda _: open_objects(None), TypeError, "fabric"),  # type: ignore[arg-type]
    "an option of no host": (lambda fabric: fabric.host(nope=1), TypeError, "'nope' is no option"),
    "an option of no link": (lambda fabric: star(fabric, nope=1), TypeError, "'nope' is no option"),
    "a host by its name": (lambda fabric: fabric.trace.writes_to("h1", 0), TypeError, "host"),  # type: ignore[arg-type]
    "writes to no host": (lambda fabric: fabric.trace.writes_to(0, 0), hca.VerbsError, "host"),
    "writes below memory": (
        lambda fabric: fabric.host() and fabric.trace.writes_to(0, -1),
        hca.VerbsError,
        "address",
    ),
    "fewer than no lines": (lambda fabric: fabric.trace.text(-1), hca.VerbsError, "limit"),
    "fewer than no arrows": (lambda fabric: fabric.trace.svg(-1), hca.VerbsError, "limit"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_refusal_names_the_argument(name: str) -> None:
    call, kind, argument = WRONG[name]
    with Fabric() as fabric, pytest.raises(kind) as caught:
        call(fabric)
    if isinstance(caught.value, hca.VerbsError):
        assert (caught.value.argument, caught.value.errno) == (argument, errno.EINVAL)
    assert str(caught.value).startswith(argument)


def test_what_is_refused_leaves_nothing_behind() -> None:
    with Fabric() as fabric:
        with pytest.raises(hca.VerbsError):
            fabric.star(-1)
        for wrong in ({"gbps": "x"}, {"dcqcn": 5}, {"nope": 1}):
            with pytest.raises(TypeError):
                fabric.star(2, **wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            fabric.at(1, None)  # type: ignore[arg-type]
        assert not fabric.step()
        assert (fabric.devices, fabric.switches, fabric.now_ns) == ([], [], 0)


def test_limits_that_there_are() -> None:
    with open_simulated(limits={"max_qp": 1, "max_mr_size": 1 << 40}) as device:
        limits = device.query_device()
        assert (limits.max_qp, limits.max_mr_size) == (1, 1 << 40)


def test_a_trace_is_shown_in_no_fewer_than_no_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.trace"
    with Fabric() as fabric:
        fabric.host()
        fabric.trace.save(file)
    with pytest.raises(SystemExit):
        main(["trace", str(file), "--limit", "-1"])
    assert "argument --limit: -1 is not from 0" in capsys.readouterr().err


def test_a_trace_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "/nonexistent.trace"]) == 2
    assert capsys.readouterr().err == (
        "softhca trace: /nonexistent.trace: No such file or directory\n"
    )
