"""A read-only root, as by `docker run --read-only`: no directory of temporary files to write to."""

from __future__ import annotations

import os
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


def test_a_demo_says_that_there_is_no_room_for_its_capture(tmp_path: Path) -> None:
    # A limit on the size of files is full as a file system is.
    limited = ("sh", "-c", 'ulimit -f 100; exec "$@"', "sh")
    done = run(*limited, *SOFTHCA, "demo", "--capture", "demo.pcapng", directory=tmp_path)
    assert done.returncode == 1
    assert "softhca demo: the capture demo.pcapng ended early: File too large" in done.stderr, done
