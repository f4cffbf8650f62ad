"""Runs commands where something is refused that containers and sandboxes refuse."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .refusing import UNAVAILABLE

_LONGEST_SECONDS = 120
_REFUSING = str(Path(__file__).with_name("refusing.py"))
SOFTHCA = (sys.executable, "-m", "softhca")


def words_without(*rules: str) -> list[str]:
    """What goes before a command to run it where the system calls of `rules` are refused."""
    words = [sys.executable, _REFUSING, *rules, "--"]
    tried = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    if tried.returncode == UNAVAILABLE:
        pytest.skip(f"system calls cannot be refused here: {tried.stdout.strip()}")
    return words


def words_inside(script: str, lacking: str, *namespaces: str) -> tuple[str, ...]:
    """What goes before a command to run it in new namespaces, which a shell script sets up.

    The script runs the command itself, as `"$@"`. Where it cannot, the test is skipped: `lacking`
    is the reason.
    """
    unshare = ("unshare", "--user", "--map-root-user", *namespaces)
    words = (*unshare, "sh", "-c", script, "sh")
    try:
        tried = run(*words, "true")
    except FileNotFoundError:
        pytest.skip("not installed: unshare")
    if tried.returncode != 0:
        pytest.skip(f"{lacking}: {tried.stderr.strip()}")
    return words


def run(
    *words: str, environment: dict[str, str] | None = None, directory: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    return subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=_LONGEST_SECONDS,
        check=False,
        env=environment,
        cwd=directory,
    )
