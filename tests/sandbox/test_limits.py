"""Limits that a user reaches in all containers together."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from .refusing import UNAVAILABLE
from .sandboxed import SOFTHCA, run, words_inside


def limited(limit: str, count: int) -> tuple[str, ...]:
    """What goes before a command to run it where a user has only so many."""
    script = f'echo {count} > /proc/sys/user/{limit} && exec "$@"'
    return words_inside(script, "there is no such limit to be had")


@pytest.mark.parametrize(("doorbells", "count"), [("asked", 0), ("written", 0), ("written", 1)])
def test_the_limit_on_inotify_instances_is_named(doorbells: str, count: int) -> None:
    words = limited("max_inotify_instances", count)
    done = run(*words, *SOFTHCA, "run", "--doorbells", doorbells, "--", "true")
    assert done.returncode == 1
    assert "fs.inotify.max_user_instances" in done.stderr, done.stderr


def test_the_limit_on_inotify_watches_is_named() -> None:
    words = limited("max_inotify_watches", 0)
    command = ("run", "--refusals", "--doorbells", "asked", "--", "cat", "/dev/infiniband/uverbs0")
    done = run(*words, *SOFTHCA, *command)
    assert "fs.inotify.max_user_watches" in done.stderr, done.stderr


def test_a_supervisor_that_gets_no_thread_says_so() -> None:
    done = run(sys.executable, str(Path(__file__).with_name("without_threads.py")))
    if done.returncode == UNAVAILABLE:
        pytest.skip(f"threads cannot be refused here: {done.stdout.strip()}")
    assert done.stdout == "doorbells=0: cannot have a thread (EAGAIN)\n", done.stderr
