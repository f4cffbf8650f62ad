"""Completion events of many queues through one channel: none is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from .programs import compiled, needs_verbs_headers, run_under

MESSAGES = 200

pytestmark = needs_verbs_headers


@pytest.mark.parametrize("doorbells", ["asked", "written"])
def test_every_event_comes_when_eight_pairs_send_both_ways(tmp_path: Path, doorbells: str) -> None:
    program = compiled("many_events", tmp_path)
    done = run_under(program, str(MESSAGES), options=("--doorbells", doorbells))
    assert done.stdout.startswith(f"{2 * 2 * 8 * MESSAGES} completions")
