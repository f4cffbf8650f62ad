"""Commands whose output or errors nobody can be told: what they do, and how they end."""

from __future__ import annotations

import io
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from softhca.tools.command import print_error
from softhca.tools.main import main

RunJson = Callable[..., tuple[int, dict[str, Any]]]


def test_a_command_whose_output_nobody_wants_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["devinfo"]) == 0


# What can be said of it goes to the other stream, in one line, and buffered or not is the same.
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["devinfo"], ["devinfo", "--json"], ["dump", "/nosuch", "--json"]],
    ids=" ".join,
)
def test_output_that_cannot_be_written(arguments: list[str], closed: bool, unbuffered: str) -> None:
    if closed:
        reader, descriptor = os.pipe()
        os.close(reader)
    else:
        descriptor = os.open("/dev/full", os.O_WRONLY)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "softhca", *arguments],
            stdout=descriptor,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )
    finally:
        os.close(descriptor)
    if closed:
        assert (done.returncode, done.stderr) == (141, "")
    else:
        assert done.returncode == 1
        assert re.fullmatch(r"softhca.*: .*No space left on device.*\n", done.stderr)


# What Python 3.14 does on its way out, for all of them to see.
STRICT_EXIT = """
import atexit, os, sys
from softhca.tools.main import main

@atexit.register
def flush_once_more():
    try:
        sys.stderr.flush()
    except OSError:
        os._exit(120)

sys.exit(main())
"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("arguments", "status"),
    [(["nothing-of-ours"], 2), (["dump", "/nosuch"], 2), (["devinfo"], 0)],
    ids=str,
)
def test_errors_that_cannot_be_written_change_no_status(
    arguments: list[str], status: int, unbuffered: str
) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", STRICT_EXIT, *arguments],
            stdout=subprocess.DEVNULL,
            stderr=full,
            timeout=60,
            check=False,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )
    assert done.returncode == status


# What `2>&-`, a full file system and `2>&1 | head -0` make of it.
@pytest.mark.parametrize("stderr", ["closed", "full", "without a reader"])
@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["dump", "/nosuch"], 2),
        (["perf", "write_bw", "--self", "--iters", "5"], 0),
        (["devinfo", "nonsense"], 1),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_where_errors_cannot_go_commands_do_the_same(
    arguments: list[str], status: int, stderr: str
) -> None:
    words = [sys.executable, "-m", "softhca", *arguments]
    reader, writer = os.pipe()
    os.close(reader)
    with open("/dev/full", "wb") as full, open(writer, "wb") as broken:
        if stderr == "closed":
            words = ["sh", "-c", 'exec "$@" 2>&-', "sh", *words]
        there = {"closed": None, "full": full, "without a reader": broken}[stderr]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=there, timeout=60, check=False)
    assert done.returncode == status
    assert (b"MsgRate" in done.stdout) == (status == 0)
    if status == 0:
        assert len(done.stdout.splitlines()) == 3, done.stdout


def test_a_server_waits_though_it_cannot_say_so(run_json: RunJson) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    out: dict[str, Any] = {}
    with (
        open("/dev/full", "wb") as full,
        subprocess.Popen(
            [sys.executable, "-m", "softhca", "pingpong", "--json", "--port", str(port)],
            stdout=subprocess.PIPE,
            stderr=full,
        ) as process,
    ):
        try:
            status = 2
            while status == 2 and process.poll() is None:  # It is refused until there is a server.
                status, out = run_json("pingpong", "localhost", "--port", port, "--iters", 5)
            assert status == 0, out
            printed, _ = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 0
    assert json.loads(printed) == {"served": True}


def test_an_error_is_written_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ends of a command may have something to say, at the same time and in the same place."""
    pieces: list[str] = []

    class Errors(io.StringIO):
        def write(self, text: str) -> int:
            pieces.append(text)
            return len(text)

    monkeypatch.setattr(sys, "stderr", Errors())
    print_error("softhca: so it is")
    assert [piece for piece in pieces if piece] == ["softhca: so it is\n"]
