"""Other interpreters of the process."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest


@pytest.mark.parametrize("kind", ["legacy", "isolated"])
def test_another_interpreter_is_refused_and_breaks_nothing(kind: str) -> None:
    program = f"""
        import sys
        if sys.version_info >= (3, 13):
            import _interpreters as interpreters
            other = interpreters.create({kind!r})
        else:
            import _xxsubinterpreters as interpreters
            other = interpreters.create(isolated={kind == "isolated"})
        import softhca as hca

        interpreters.run_string(other, '''if True:
            try:
                import softhca
            except ImportError as error:
                print(error, flush=True)
        ''')
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
    # Since 3.12, Python itself refuses the import to one that does not share its lock.
    if kind == "legacy" or "does not support loading in subinterpreters" not in refused:
        assert "for the main interpreter" in refused
    assert port == "ACTIVE 16"
    assert argument == "cqe"
