"""What `import softhca` brings with it: what few programs use is imported when it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

LATER = ("asyncio", "numpy", "trio", "matplotlib", "pytest")


@pytest.mark.parametrize("module", ["softhca", "softhca.tools.main"])
def test_importing_softhca_imports_nothing_that_takes_long(module: str) -> None:
    program = f"import sys, {module}; print([name for name in {LATER} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("option", ["-I", "-O", "-OO", "-Werror"])
def test_importing_softhca_with_options_of_python(option: str) -> None:
    program = "import softhca, softhca.testing, softhca.tools.main; print(softhca.CQ.poll.__name__)"
    done = subprocess.run([sys.executable, option, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("poll\n", "")
