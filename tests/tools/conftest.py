"""What the tests of the command line share."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from softhca.tools.main import main


@pytest.fixture
def run_json(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Runs a command with --json: its status, and the object that it printed."""

    def run(*arguments: object) -> tuple[int, dict[str, Any]]:
        status = main([str(word) for word in arguments] + ["--json"])
        return status, json.loads(capsys.readouterr().out.splitlines()[-1])

    return run
