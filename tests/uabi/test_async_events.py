"""Descriptors of asynchronous events, of which a device may have several."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any, cast

from softhca.uabi.context import Context
from softhca.uabi.events import AsyncPipe

from .programs import run_under

PIPES = 200
QUEUE_PAIRS = 16384


def test_events_come_where_they_are_wanted() -> None:
    program = str(Path(__file__).with_name("two_event_files.py"))
    done = run_under(sys.executable, program, options=("--refusals",))
    assert (done.stdout, done.stderr) == ("[10] [11] [1, 1, 0]\n", "")


def test_descriptors_of_events_that_nobody_reads_are_let_go_of() -> None:
    nothing = cast(Any, None)
    context = Context(nothing, nothing, nothing)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(PIPES):
        pipe = AsyncPipe()
        pipe.given()  # What was the program's end is closed.
        context.add_async_pipe(pipe)
    assert len(os.listdir("/proc/self/fd")) - before < PIPES / 4
    context.close()


def test_what_was_read_of_a_descriptor_is_known_when_it_is_let_go_of() -> None:
    pipe = AsyncPipe()
    for element in (1, 1, 2):
        pipe.put(16, element)
    os.read(pipe.for_program, 16)
    pipe.given()
    assert pipe.is_deserted
    pipe.desert()
    pipe.put(16, 1)  # Is heard by nobody.
    assert [pipe.forget(element) for element in (1, 2, 3)] == [1, 0, 0]


def test_what_nobody_can_read_any_more_was_not_read() -> None:
    pipe = AsyncPipe()
    for element in (1, 2, 1, 3):
        pipe.put(16, element)
    os.read(pipe.for_program, 16)
    pipe.given()
    assert [pipe.forget(element) for element in (2, 1, 3)] == [0, 1, 0]
    pipe.close()


def test_as_many_events_wait_as_there_can_be_queue_pairs() -> None:
    """All of a program's may be told of at once, and be waited for before they are destroyed."""
    pipe = AsyncPipe()
    for element in range(QUEUE_PAIRS):
        pipe.put(16, element)
    assert pipe.forget(QUEUE_PAIRS - 1) == 0
    os.set_blocking(pipe.for_program, False)
    read = 0
    with contextlib.suppress(BlockingIOError):
        while os.read(pipe.for_program, 16):
            read += 1
    assert read == QUEUE_PAIRS - 1
    pipe.close()
