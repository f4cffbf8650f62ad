"""Other interpreters of the process."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest


def test_another_interpreter_is_refused_and_breaks_nothing() -> None:
    pytest.importorskip("_xxsubinterpreters")
    program = """
        import _xxsubinterpreters as interpreters
        import softhca as hca

        other = interpreters.create()
        try:
            interpreters.run_string(other, "import softhca")
        except interpreters.RunFailedError as error:
            print(error)
        interpreters.destroy(other)
        with hca.open() as device:
            print(device.query_port().state.name, device.create_cq(16).cqe)
            try:
                device.create_cq(0)
            except hca.VerbsError as error:
                print(error.argument)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60
    )
    refused, port, argument = done.stdout.splitlines()
    assert "for the main interpreter" in refused
    assert port == "ACTIVE 16"
    assert argument == "cqe"
