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


def test_importing_softhca_anew_is_refused_and_breaks_nothing() -> None:
    program = """if True:
        import sys, softhca
        names = [name for name in sys.modules if name.split(".")[0] == "softhca"]
        kept = {name: sys.modules.pop(name) for name in names}
        try:
            import softhca
        except ImportError as error:
            print(error)
        sys.modules.update(kept)
        with softhca.open() as device:
            print(device.create_cq(16).poll())
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    refused = "softhca can be imported once in a process, and was imported before"
    assert (done.stdout, done.stderr) == (f"{refused}\n[]\n", "")
