"""Other interpreters of the process, and one without its lock."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import textwrap

import pytest

FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


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
    # Since 3.12, Python itself refuses the import to one that does not share its lock, and to any
    # where there need be none.
    is_pythons = "does not support loading in subinterpreters" in refused
    if not is_pythons or (kind == "legacy" and not FREE_THREADED):
        assert "for the main interpreter" in refused
    assert port == "ACTIVE 16"
    assert argument == "cqe"


@pytest.mark.skipif(not FREE_THREADED, reason="this Python always has its lock")
def test_free_threaded_python_takes_its_lock_back() -> None:
    program = "import sys, softhca; print(sys._is_gil_enabled())"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=environment
    )
    assert done.stdout == "True\n"
    assert "RuntimeWarning: The global interpreter lock (GIL) has been enabled" in done.stderr
