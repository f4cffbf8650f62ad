#!/usr/bin/env python3
"""What systems say to verbs that are nearly right, compared.

Exits with 1 if they differ in something that is not explained.

    tests/uabi/verbs_lists.py SEED FIRST COUNT               softhca's modes with each other
    tests/uabi/verbs_lists.py --kernel SEED FIRST COUNT      softhca with Linux's rxe, in a guest

Cases are chosen by the seed; 16 in a row are of all kinds. The guest is that of tests/interop/run,
and is skipped where that is. `--mode` chooses modes, `--keep` names a directory for their lists.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from verbs_compare import compare  # noqa: E402

SOURCES = sorted((HERE / "verbs_list").glob("*.c"))
FIRST = "asked"
# Options of `softhca run` by the mode, and what the program is given besides. Each is compared with
# the first.
MODES = {
    FIRST: (("--doorbells", "asked"), ()),
    "written": (("--doorbells", "written"), ()),
    "write-abi": (("--write-abi",), ()),
    "two-devices": (("--doorbells", "asked", "--devices", "2"), ("two",)),
}


def build(program: Path) -> bool:
    """Builds the program; whether that can be done here."""
    if shutil.which("cc") is None or not Path("/usr/include/infiniband/verbs.h").exists():
        return False
    words = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, *SOURCES, "-libverbs"]
    subprocess.run(words, check=True)
    return True


def run(program: Path, mode: str, cases: list[str]) -> None:
    """Makes the list of a mode, beside the program."""
    options, more = MODES[mode]
    words = [sys.executable, "-m", "softhca", "run", *options, "--", str(program), *cases, *more]
    with program.with_name(mode).open("w") as file:
        subprocess.run(words, stdout=file, check=True)


def compare_modes(modes: list[str], cases: list[str], directory: Path) -> int:
    """Each mode with the first one; 1, if one differs."""
    program = directory / "verbs_list"
    if not build(program):
        print("skipped: no C compiler or no libibverbs-dev")
        return 0
    # At once: they wait more than they work.
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda mode: run(program, mode, cases), [FIRST, *modes]))
    failed = 0
    for mode in modes:
        print(f"{FIRST} and {mode}:", flush=True)
        failed |= compare(mode, directory / FIRST, directory / mode)
    return failed


def main() -> int:
    """Compares what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernel", action="store_true", help="against Linux's rxe, in a guest")
    parser.add_argument("numbers", nargs=3, type=int, metavar="SEED FIRST COUNT")
    parser.add_argument("--mode", action="append", choices=list(MODES)[1:], metavar="MODE")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY")
    arguments = parser.parse_args()
    cases = [str(number) for number in arguments.numbers]
    if arguments.kernel:
        guest = HERE.parent / "interop" / "run"
        # In this process's place: whoever ends this ends the guest.
        os.execv(sys.executable, [sys.executable, str(guest), "--script", "verbs.sh", *cases])
    modes = arguments.mode or list(MODES)[1:]
    with tempfile.TemporaryDirectory(prefix="softhca-verbs-") as temporary:
        return compare_modes(modes, cases, arguments.keep or Path(temporary))


if __name__ == "__main__":
    sys.exit(main())
