"""The ping-pong programs of libibverbs, both ends under one supervisor."""

from __future__ import annotations

import pytest

from .programs import needs, run_both_ends

pytestmark = needs("ibv_rc_pingpong")

ITERATIONS = "100"


@pytest.mark.parametrize(
    "options",
    [("--doorbells", "asked"), ("--write-abi",), ("--doorbells", "written")],
    ids=["ioctl", "write", "written"],
)
@pytest.mark.parametrize(
    "command",
    [
        "ibv_rc_pingpong -c",
        "ibv_rc_pingpong -e -c",
        "ibv_rc_pingpong -N -c",
        "ibv_rc_pingpong -N -e",
        "ibv_uc_pingpong -c",
        "ibv_uc_pingpong -e",
        "ibv_ud_pingpong -c",
        "ibv_ud_pingpong -e",
        "ibv_srq_pingpong -q 4",
        "ibv_srq_pingpong -e -q 4",
    ],
)
def test_messages_go_to_and_fro(command: str, options: tuple[str, ...]) -> None:
    printed = run_both_ends(*command.split(), "-g", "0", "-n", ITERATIONS, options=options)
    assert printed.count(f"{ITERATIONS} iters in") == 2
    assert "invalid data" not in printed


@pytest.mark.parametrize(
    ("flag", "says"), [("-o", "isn't ODP capable"), ("-t", "isn't completion timestamp capable")]
)
def test_what_there_is_not_is_said(flag: str, says: str) -> None:
    from .programs import run_under

    done = run_under("ibv_rc_pingpong", "-g", "0", flag, check=False)
    assert done.returncode == 1
    assert says in done.stderr
