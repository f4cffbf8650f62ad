"""A supervisor that outlives programs, and what is said where programs cannot be reached."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import pytest

import softhca
from softhca.uabi import yama
from softhca.uabi.serving import Door, Wire, connect, path_of
from softhca.uabi.supervisor import Supervisor

from .pair import listens
from .programs import SYSTEM_PYTHON, free_port, needs, needs_pyverbs, run_under, wait_until

NAME = "some-host"


class Serving:
    """A `softhca serve` that runs."""

    def __init__(self, *options: str, descriptors: int | None = None) -> None:
        def limit() -> None:
            if descriptors is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

        self.process = subprocess.Popen(
            [sys.executable, "-m", "softhca", "serve", *options, NAME],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=limit,
        )
        assert self.process.stdout is not None
        self.says = self.process.stdout.readline()

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Ends it; returns its status and what it complained of."""
        self.process.send_signal(number)  # None is sent to one that has ended.
        errors = ""
        if self.process.stderr is not None and not self.process.stderr.closed:
            errors = self.process.communicate(timeout=60)[1]
        return self.process.returncode, errors


@pytest.fixture
def own_directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Sockets and trees lie here alone; of a socket, the whole path has to fit into 107 bytes."""
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        monkeypatch.setenv("XDG_RUNTIME_DIR", place)
        monkeypatch.setenv("TMPDIR", place)
        yield Path(place)


@pytest.fixture
def serving(own_directory: Path) -> Iterator[Serving]:
    one = Serving()
    try:
        yield one
    finally:
        one.end(signal.SIGKILL)


ATTACHED = ("--attach", NAME)


@needs("ibv_rc_pingpong")
def test_programs_of_two_runs_share_its_adapters(serving: Serving, own_directory: Path) -> None:
    assert serving.says.startswith(f"{NAME} serves 127.")
    # One program after the other finds the same device.
    first, second = (run_under("ibv_devinfo", "-v", options=ATTACHED).stdout for _ in range(2))
    assert first == second
    assert "rxe0" in first
    port = free_port()
    command = ["ibv_rc_pingpong", "-g", "0", "-n", "100", "-c", "-p", str(port)]
    words = [sys.executable, "-m", "softhca", "run", *ATTACHED, "--", *command]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    wait_until(lambda: listens(port) or server.poll() is not None)
    client = run_under(*command, "127.0.0.1", options=ATTACHED).stdout
    server.communicate(timeout=60)
    assert server.returncode == 0
    assert "100 iters in" in client
    assert serving.end() == (0, "")
    assert not list((own_directory / "softhca").iterdir())
    assert [left.name for left in own_directory.iterdir()] == ["softhca"]


def test_it_says_in_json_what_it_serves(own_directory: Path) -> None:
    one = Serving("--json", "--devices", "2")
    try:
        told = json.loads(one.says)
        assert told["name"] == NAME
        assert all(address.startswith("127.") for address in told["addresses"])
        assert len(told["addresses"]) == 2
    finally:
        one.end(signal.SIGKILL)


def test_refusals_are_said_by_who_refuses(own_directory: Path) -> None:
    serving = Serving("--refusals")
    try:
        write = "import os; os.write(os.open('/dev/infiniband/uverbs0', os.O_RDWR), bytes(4))"
        done = run_under(SYSTEM_PYTHON, "-c", write, options=ATTACHED, check=False)
        assert "OSError: [Errno 22]" in done.stderr
        status, said = serving.end()
    finally:
        serving.end(signal.SIGKILL)
    assert status == 0
    assert re.fullmatch(r"softhca serve: task \d+: \[Errno 22\] write: .*\n", said)


@needs("ibv_devices")
def test_a_killed_program_and_a_killed_runner_leave_it_whole(serving: Serving) -> None:
    words = [sys.executable, "-m", "softhca", "run", *ATTACHED, "--", "sh", "-c"]
    done = subprocess.run([*words, "kill -9 $$"], timeout=60, check=False)
    assert done.returncode == 128 + signal.SIGKILL
    runner = subprocess.Popen([*words, "echo begins; exec sleep 1000"], stdout=subprocess.PIPE)
    assert runner.stdout is not None
    assert runner.stdout.readline() == b"begins\n"
    runner.kill()
    # Who held the pipe was killed too, or it would never end.
    assert runner.communicate(timeout=60)[0] == b""
    assert "rxe0" in run_under("ibv_devices", options=ATTACHED).stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_programs_end_with_it(serving: Serving, number: int) -> None:
    words = [sys.executable, "-m", "softhca", "run", *ATTACHED, "--"]
    runner = subprocess.Popen(
        [*words, "sh", "-c", "echo begins; exec sleep 1000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert runner.stdout is not None
    assert runner.stdout.readline() == b"begins\n"
    serving.end(number)
    errors = runner.communicate(timeout=60)[1]
    assert runner.returncode == 1
    assert b"has ended, and so has the program" in errors


@needs("ibv_devices")
@pytest.mark.usefixtures("own_directory")
def test_more_connections_than_it_has_descriptors_for_wait() -> None:
    most = 48
    serving = Serving(descriptors=most)
    connections = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(most)]
    for one in connections:
        one.connect(str(path_of(NAME)))
    has = Path(f"/proc/{serving.process.pid}/fd")
    wait_until(lambda: serving.process.poll() is not None or len(list(has.iterdir())) == most)
    while connections:
        for one in select.select(connections, [], [], 60)[0]:
            assert one.recv(100), "it has ended"
            one.close()
            connections.remove(one)
    assert "rxe0" in run_under("ibv_devices", options=ATTACHED).stdout
    assert serving.end() == (0, "")


class _CrowdedDoor(Door):
    """A door of a supervisor that has, as long as it is full, no descriptor left."""

    is_full = False
    times = 0

    def accept(self) -> Wire:
        self.times += 1
        if self.is_full:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().accept()


@pytest.mark.usefixtures("own_directory")
def test_it_does_not_ask_again_until_somebody_has_gone() -> None:
    with softhca.open() as device, Supervisor([device]) as supervisor:
        door = _CrowdedDoor(NAME)
        supervisor.open_door(door)
        first = connect(NAME)
        supervisor.serve_once(60)
        door.is_full = True
        second = connect(NAME)
        for _ in range(3):
            supervisor.serve_once(0)
        assert door.times == 2
        door.is_full = False
        first.connection.close()
        wait_until(lambda: supervisor.serve_once(0) or door.times == 3)
        assert second.hear() is not None
        second.connection.shutdown(socket.SHUT_WR)
        supervisor.serve_once(60)
        assert second.hear() is None
        second.connection.close()
        door.close()


class _OverloadedSupervisor(Supervisor):
    """One that may have no more threads."""

    def _listen(self, descriptor: int, *_: object, **__: object) -> NoReturn:
        os.close(descriptor)
        raise OSError(errno.EAGAIN, "cannot have a thread")


@pytest.mark.usefixtures("own_directory")
def test_a_program_that_is_not_taken_is_told_why() -> None:
    with softhca.open() as device, _OverloadedSupervisor([device]) as supervisor:
        door = Door(NAME)
        supervisor.open_door(door)
        words = [sys.executable, "-m", "softhca", "run", *ATTACHED, "--", "sleep", "1000"]
        runner = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: supervisor.serve_once(0) or runner.poll() is not None)
        assert runner.stderr is not None
        with runner.stderr as said:
            expected = f"the supervisor {NAME!r} does not take the program: [Errno 11] cannot have"
            assert expected in said.read()
        assert runner.returncode == 1
        door.close()


def _lingering() -> tuple[socket.socket, socket.socket]:
    """A TCP socket that whoever closes it last waits for, for an hour, and who is deaf to it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        given = socket.create_connection(server.getsockname())
        deaf = server.accept()[0]
    given.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
    given.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            given.send(bytes(65536))
    return given, deaf


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (b"[" * 60000, 1),
        (b"hello", 1),
        (b"[]", 2),
        (b'{"numbers": 1}', 1),
        (b'{"numbers": [[896, Infinity]]}', 1),
        (b'{"numbers": [[896, 1023]]}', 0),
        (b'{"numbers": [[896, 1023]]}', 1),
        (b'{"numbers": [[896, 1023]]}', 3),
    ],
)
@pytest.mark.usefixtures("own_directory")
def test_what_is_wrong_at_its_door_costs_it_nothing(words: bytes, count: int) -> None:
    """Whoever reaches the socket may have fewer rights than the supervisor, as in a container."""
    with softhca.open() as device, Supervisor([device]) as supervisor:
        door = Door(NAME)
        supervisor.open_door(door)
        before, threads = set(os.listdir("/proc/self/fd")), set(os.listdir("/proc/self/task"))
        wire = connect(NAME)
        supervisor.serve_once(60)
        assert wire.hear() is not None
        with open("/dev/zero", "rb") as endless:
            socket.send_fds(wire.connection, [words], [endless.fileno()] * count)
        supervisor.serve_once(60)
        answer = wire.hear()
        assert answer is not None
        assert answer[0]["refusal"]
        assert wire.hear() is None
        wire.connection.close()
        # Nothing is kept open, and nobody looks at what came along again and again.
        wait_until(lambda: set(os.listdir("/proc/self/fd")) <= before)
        wait_until(lambda: set(os.listdir("/proc/self/task")) <= threads)
        door.close()


@pytest.mark.parametrize("heard", [True, False])
@pytest.mark.usefixtures("own_directory")
def test_files_that_come_through_its_door_are_not_waited_for(heard: bool) -> None:
    """In a process of its own, which would hang."""
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        with softhca.open() as device, Supervisor([device]) as supervisor:
            door = Door(NAME)
            supervisor.open_door(door)
            wire = connect(NAME)
            supervisor.serve_once(60)
            given, deaf = _lingering()
            if not heard:  # Another message is refused before.
                wire.tell({})
            socket.send_fds(wire.connection, [b"{}"], [given.fileno()])
            given.close()
            supervisor.serve_once(60)
            # Where something was left unheard, the end may overtake the refusal.
            is_told = wire.hear() is not None or not heard
            os._exit(0 if is_told and deaf.fileno() >= 0 else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_name_is_one_supervisors(serving: Serving) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "softhca", "serve", NAME], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert f"there is a supervisor of the name '{NAME}'" in done.stderr


def test_the_name_of_a_killed_supervisor_is_free(serving: Serving) -> None:
    serving.end(signal.SIGKILL)
    again = Serving()
    assert again.says.startswith(NAME)
    assert again.end() == (0, "")


@pytest.mark.usefixtures("own_directory")
def test_supervisors_that_come_and_go_at_once_do_not_take_each_others_name() -> None:
    begin = threading.Barrier(4)
    wrong: list[OSError] = []

    def come_and_go() -> None:
        for _ in range(500):
            begin.wait(60)
            try:
                door = Door(NAME)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    wrong.append(error)
                continue
            try:
                connect(NAME).connection.close()
                door.accept().connection.close()
            except OSError as error:
                wrong.append(error)
            door.close()

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.usefixtures("own_directory")
def test_a_name_at_whose_door_too_many_wait_is_taken() -> None:
    door = Door(NAME)
    waiting = []
    try:
        while True:
            waiting.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            waiting[-1].setblocking(False)
            waiting[-1].connect(str(path_of(NAME)))
    except BlockingIOError:
        pass
    with pytest.raises(OSError, match="there is a supervisor of the name"):
        Door(NAME)
    for one in waiting:
        one.close()
    door.close()


def test_a_path_that_no_socket_has_room_for(
    own_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = own_directory / ("long" * 30)
    place.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
    for command in (["serve", NAME], ["run", *ATTACHED, "--", "true"]):
        done = subprocess.run(
            [sys.executable, "-m", "softhca", *command],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 1
        assert f"{NAME} is too long for a socket" in done.stderr


@pytest.mark.usefixtures("own_directory")
def test_a_name_that_nobody_has() -> None:
    done = run_under("true", options=ATTACHED, check=False)
    assert done.returncode == 1
    assert f"there is no supervisor of the name '{NAME}'" in done.stderr
    wrong = run_under("true", options=("--attach", "../there"), check=False)
    assert "is no name for a supervisor" in wrong.stderr
    # As of a variable that is not set: not adapters of its own, of which nobody knows.
    empty = run_under("true", options=("--attach", ""), check=False)
    assert empty.returncode == 1
    assert "'' is no name for a supervisor" in empty.stderr


def test_adapters_are_described_where_they_are_made(serving: Serving) -> None:
    done = run_under("true", options=("--devices", "2", *ATTACHED), check=False)
    assert done.returncode == 2
    assert "--devices is for the `softhca serve`" in done.stderr


# --- Yama


@pytest.mark.parametrize("rule", ["2", "3"])
def test_yama_may_forbid_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    scope = tmp_path / "ptrace_scope"
    scope.write_text(rule)
    monkeypatch.setattr(yama, "_SCOPE", scope)
    monkeypatch.setattr(yama, "_is_privileged", lambda: False)
    with pytest.raises(PermissionError, match=f"ptrace_scope is {rule}"):
        yama.demand_reach()


def test_yama_may_forbid_what_is_no_descendant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scope = tmp_path / "ptrace_scope"
    scope.write_text("1\n")
    monkeypatch.setattr(yama, "_SCOPE", scope)
    yama.demand_reach()
    assert "not what they start in turn" in yama.explain(1, is_descendant=False)
    assert "ptrace_scope is 1" in yama.explain(1, is_descendant=True)
    scope.write_text("0\n")
    for word in ("another user's", "docker run --cap-add SYS_PTRACE"):
        assert word in yama.explain(1, is_descendant=True)


@needs_pyverbs
def test_a_program_that_cannot_be_reached_is_told_of() -> None:
    # Root reaches everybody: this is run by nobody, whose program is not dumpable.
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root, to become nobody")
    program = (
        "import ctypes, os; ctypes.CDLL(None).prctl(4, 0)\n"
        "print(os.path.exists('/dev/infiniband/uverbs0'))"
    )
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]

    def run_as_nobody(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*nobody, sys.executable, *words],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd="/",
            env={**os.environ, "HOME": "/", "TMPDIR": "/tmp"},
        )

    if run_as_nobody("-c", "import softhca").returncode:
        pytest.skip("nobody may not run this Python, or not read this checkout")
    done = run_as_nobody("-m", "softhca", "run", "--", SYSTEM_PYTHON, "-c", program)
    assert done.stdout == "False\n", done.stderr
    assert done.stderr.count("may not be reached") == 1
