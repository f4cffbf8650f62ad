"""A read-only root, as by `docker run --read-only`: no directory of temporary files to write to."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from .sandboxed import SOFTHCA, run, words_inside

# Whoever looks for a directory takes the working one in the end. What is mounted below comes along,
# as it must in a namespace of a user's own.
READ_ONLY = """
for place in {places}; do
  [ ! -d $place ] || { mount --rbind $place $place && mount -o remount,bind,ro $place; } || exit 77
done
cd /tmp
exec "$@"
"""
TEMPORARY = "/tmp /var/tmp /usr/tmp"
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if name not in ("TMPDIR", "TEMP", "TMP", "XDG_RUNTIME_DIR")
}


def without(places: str) -> tuple[str, ...]:
    """What goes before a command to run it where these directories are read-only."""
    script = READ_ONLY.replace("{places}", places)
    return words_inside(script, "no directory can be made read-only here", "--mount")


def test_programs_run_with_shared_memory_alone() -> None:
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("there is no /dev/shm to write to")
    words = without(TEMPORARY)
    command = ("run", "--", "ls", "/sys/class/infiniband")
    done = run(*words, *SOFTHCA, *command, environment=ENVIRONMENT)
    assert done.stdout == "rxe0\n", done.stderr
    done = run(*words, *SOFTHCA, "demo", environment=ENVIRONMENT)
    assert "every ICRC right" in done.stdout, done.stdout + done.stderr
    capture = Path(done.stdout.partition("Capture: ")[2].partition(",")[0])
    capture.unlink()
    capture.parent.rmdir()


def test_what_to_set_is_said_where_nothing_can_be_written() -> None:
    words = without(f"{TEMPORARY} /dev/shm")
    for command in (("run", "--", "true"), ("serve", "lab"), ("demo",)):
        done = run(*words, *SOFTHCA, *command, environment=ENVIRONMENT)
        assert done.returncode == 1
        assert "have TMPDIR name one that can" in done.stderr, done.stderr


def test_where_there_is_no_room_is_said(tmp_path: Path) -> None:
    # The directory holds what is tried whether it can be written, and no more.
    small = f'mount -t tmpfs -o size=4k none {tmp_path} && TMPDIR={tmp_path} exec "$@"'
    words = words_inside(small, "no small directory can be made here", "--mount")
    done = run(*words, *SOFTHCA, "run", "--", "true", environment=ENVIRONMENT)
    assert done.returncode == 1
    assert f"No space left on device: '{tmp_path}/softhca-sysfs-" in done.stderr, done.stderr


@pytest.mark.parametrize(
    "words",
    [("demo",), ("pingpong", "--self"), ("perf", "write_bw", "--self", "--iters", "20")],
    ids=lambda words: words[0],
)
def test_what_has_no_room_for_its_capture_says_so(words: tuple[str, ...], tmp_path: Path) -> None:
    # A limit on the size of files is full as a file system is.
    limited = ("sh", "-c", 'ulimit -f 100; exec "$@"', "sh")
    done = run(*limited, *SOFTHCA, *words, "--capture", "all.pcapng", directory=tmp_path)
    assert done.returncode == 1
    why = f"softhca {words[0]}: the capture all.pcapng ended early: File too large"
    assert why in done.stderr.splitlines(), done


# Two of one host, each to its turn.
PINGPONG = """
set -e
ibv_rc_pingpong -g 0 >&2 &
tries=0
until ibv_rc_pingpong -g 0 127.0.0.1 2>/dev/null; do tries=$((tries+1)); [ $tries -lt 500 ]; done
wait
"""


def test_a_program_whose_capture_has_no_room_has_its_own_status(tmp_path: Path) -> None:
    if shutil.which("ibv_rc_pingpong") is None:
        pytest.skip("ibv_rc_pingpong is not installed")
    small = f'mount -t tmpfs -o size=64k none {tmp_path} && exec "$@"'
    words = words_inside(small, "no small directory can be made here", "--mount")
    capture = tmp_path / "all.pcapng"
    done = run(*words, *SOFTHCA, "run", "--capture", str(capture), "--", "sh", "-c", PINGPONG)
    assert done.returncode == 0, done
    why = f"softhca run: the capture {capture} ended early: No space left on device"
    assert why in done.stderr.splitlines(), done
