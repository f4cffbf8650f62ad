"""What container runtimes refuse of system calls, and what is made of it."""

from __future__ import annotations

from .sandboxed import SOFTHCA, run, words_without


def test_a_program_ends_where_close_range_is_refused() -> None:
    # Whoever watches over the program would keep the supervisor's end of their socket open, and
    # never hear of its end.
    done = run(*words_without("close_range=EPERM"), *SOFTHCA, "run", "--", "sh", "-c", "exit 3")
    assert done.returncode == 3, done.stderr
