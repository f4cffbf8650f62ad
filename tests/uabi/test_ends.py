"""Programs and supervisors that end, in whatever way."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import pty
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest

import softhca
from softhca.uabi.supervisor import Supervisor
from softhca.uabi.sysfs import SysfsTree

from .programs import (
    FINDS_WHAT_LIES_HERE,
    SYSTEM_PYTHON,
    free_port,
    needs,
    needs_pyverbs,
    run_under,
    wait_until,
)

# The queue pair of a program that is killed is gone: whoever talks to it runs out of retries.
PEER = (
    FINDS_WHAT_LIES_HERE
    + """
import os, signal, sys, time
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR
import verbs_enums as e

context = Context(name="rxe0")
pd = PD(context)
cq = CQ(context, 16)
access = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
mr = MR(pd, 4096, access)
cap = QPCap(max_send_wr=4, max_recv_wr=4, max_send_sge=1, max_recv_sge=1)
qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=cap, sq_sig_all=1))

def connect(number):
    attr = QPAttr(port_num=1)
    attr.qp_access_flags = e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
    attr.dest_qp_num = number
    route = GlobalRoute(dgid=context.query_gid(1, 0), sgid_index=0)
    attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
    attr.min_rnr_timer, attr.path_mtu = 12, e.IBV_MTU_1024
    # Half a second: a peer that gets no processor is no dead one.
    attr.timeout, attr.retry_cnt, attr.rnr_retry = 14, 7, 0
    qp.to_rts(attr)

def move(opcode, address, rkey):
    opcode = getattr(e, "IBV_WR_RDMA_" + opcode)
    wr = SendWR(opcode=opcode, num_sge=1, sg=[SGE(mr.buf, 4096, mr.lkey)])
    wr.set_wr_rdma(rkey, address)
    qp.post_send(wr)
    while True:
        count, completions = cq.poll()
        if count:
            return completions[0].status
"""
)


@needs_pyverbs
@pytest.mark.parametrize("opcode", ["WRITE", "READ"])
def test_the_peer_of_a_killed_program_runs_out_of_retries(opcode: str) -> None:
    # At whatever moment it dies: what its peer sends meanwhile is answered as ever, or not at all.
    both = f"""
import os, signal, subprocess, sys
peer = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=-1, stdout=-1, text=True)
{PEER}
number, address, rkey = map(int, peer.stdout.readline().split())
peer.stdin.write(f"{{qp.qp_num}}\\n")
peer.stdin.flush()
assert peer.stdout.readline() == "connected\\n"
connect(number)
for _ in range(100):
    assert move("{opcode}", address, rkey) == 0
peer.send_signal(signal.SIGKILL)
while (status := move("{opcode}", address, rkey)) == 0:
    pass
print(status)
"""
    victim = f"""{PEER}
print(qp.qp_num, mr.buf, mr.rkey, flush=True)
connect(int(sys.stdin.readline()))
print("connected", flush=True)
time.sleep(1000)
"""
    for _ in range(5):
        printed = run_under(SYSTEM_PYTHON, "-c", both, victim).stdout.split()
        assert printed == ["12"]  # IBV_WC_RETRY_EXC_ERR


@needs_pyverbs
def test_programs_that_are_killed_at_random_leave_nothing() -> None:
    """A thousand of them: `killed_at_random.py SEED 1000`."""
    seed = random.SystemRandom().getrandbits(31)
    program = str(Path(__file__).with_name("killed_at_random.py"))
    done = run_under(SYSTEM_PYTHON, program, str(seed), "10")
    assert "nothing is left" in done.stdout, done.stdout
    assert not done.stderr


@needs("ibv_rc_pingpong")
@pytest.mark.parametrize("write_only", [False, True], ids=["ioctl", "write"])
def test_what_a_program_had_goes_at_once(
    write_only: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without waiting for a collector of garbage, which may not come for a long time."""

    def had() -> Counter[str]:
        links: Counter[str] = Counter()
        for one in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # Closed meanwhile.
                links[os.readlink(one)] += 1
        return Counter(
            {
                link: times
                for link, times in links.items()
                if link.startswith("/memfd:uverbs") or link.endswith("/mem")
            }
        )

    with softhca.open() as device, Supervisor([device], write_only=write_only) as supervisor:
        before = had()  # Of other tests, too, whose own may go meanwhile.
        gc.disable()
        try:
            pair = [str(Path(__file__).with_name("pair.py")), "ibv_rc_pingpong", "-g", "0", "-e"]
            words = [sys.executable, *pair, "-p", str(free_port())]
            assert supervisor.serve(supervisor.launch(sys.executable, words)) == 0
            wait_until(lambda: supervisor.serve_once(0) or had() <= before)
        finally:
            gc.enable()
    assert capfd.readouterr().out.count("1000 iters in") == 2


def test_a_program_that_cannot_be_executed() -> None:
    script = Path(sys.executable).with_name("no-such-program")
    done = run_under(str(script), check=False)
    assert done.returncode == 2
    assert "no such program" in done.stderr


def test_what_is_no_program_is_not_said_to_be_missing(tmp_path: Path) -> None:
    file = tmp_path / "script"
    file.write_text("#!/bin/sh\n")
    for path in (file, tmp_path):
        done = run_under(str(path), check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"softhca run: {path}: this cannot be executed\n"


def test_a_name_alone_is_looked_for_in_the_path_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "no-such-program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    done = run_under("no-such-program", check=False)
    assert done.stderr == "softhca run: no-such-program: there is no such program\n"


def test_a_script_without_its_interpreter_says_so(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\r\n")  # As of another system's editor.
    script.chmod(0o755)
    done = run_under(str(script), check=False)
    says = f"{script}: this cannot be executed: there is no such interpreter"
    assert (done.returncode, done.stderr) == (2, f"softhca run: {says}\n")


def test_what_a_killed_supervisor_left_goes_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / "softhca-sysfs-left"
    (left / "infiniband").mkdir(parents=True)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    run_under("true")
    assert list(tmp_path.iterdir()) == []


def test_what_another_user_left_keeps_nobody_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / "softhca-sysfs-left"
    (left / "infiniband").mkdir(parents=True)
    with monkeypatch.context() as other_user:
        user = os.geteuid()
        other_user.setattr(os, "geteuid", lambda: user + 1)
        SysfsTree().remove()
    assert (left / "infiniband").exists()
    SysfsTree().remove()
    assert not left.exists()


def test_a_tree_that_is_too_deep_to_remove_keeps_nobody_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    top = tmp_path / "softhca-sysfs-left"
    top.mkdir()
    at = os.open(top, os.O_RDONLY)
    for _ in range(2 * sys.getrecursionlimit()):
        os.mkdir("a", dir_fd=at)
        below = os.open("a", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    SysfsTree().remove()
    subprocess.run(["rm", "-rf", top], check=True)


def test_a_supervisor_keeps_its_tree_while_others_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    flock = fcntl.flock

    def come_first(descriptor: int, operation: int) -> None:
        """Another one looks for stale trees before this one has locked its own."""
        monkeypatch.setattr(fcntl, "flock", flock)
        SysfsTree().remove()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", come_first)
    tree = SysfsTree()
    SysfsTree().remove()
    assert (tree.top / "infiniband_verbs" / "abi_version").read_text() == "6\n"
    tree.remove()
    assert list(tmp_path.iterdir()) == []


def test_what_clears_up_by_age_finds_the_tree_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tree = SysfsTree()
    # tmpfiles.d(5): a directory that somebody has a lock of is left alone, with all below it.
    directory = os.open(tree.top, os.O_RDONLY | os.O_DIRECTORY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    tree.remove()
    os.close(directory)


def test_signals_are_passed_on_to_the_program() -> None:
    program = """
import signal
names = "SIGINT", "SIGQUIT", "SIGHUP", "SIGTERM", "SIGUSR1", "SIGUSR2"
numbers = [signal.Signals[name] for name in names]
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
print("ready", flush=True)
for _ in numbers:
    print(signal.sigwait(numbers).name, flush=True)
"""
    # In a session without a terminal, as of whatever runs tests.
    runner = subprocess.Popen(
        [sys.executable, "-m", "softhca", "run", "--", sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert runner.stdout is not None
        assert runner.stdout.readline() == "ready\n"
        for name in ("SIGUSR1", "SIGINT", "SIGQUIT", "SIGHUP", "SIGUSR2", "SIGTERM"):
            runner.send_signal(signal.Signals[name])
            assert runner.stdout.readline() == f"{name}\n"
        assert runner.wait(60) == 0
    finally:
        runner.kill()
        runner.communicate()


def test_a_signal_is_passed_on_though_the_program_is_known_here_later_than_elsewhere() -> None:
    program = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGINT])
os.write(int(sys.argv[1]), b"r")
for _ in range(2):
    print(signal.sigwait([signal.SIGUSR1, signal.SIGINT]).name, flush=True)
"""
    # Somebody hears that the program runs and sends signals while its runner gets no processor.
    runner = """
import os, signal, sys
from softhca.tools.main import main
from softhca.uabi.supervisor import Supervisor

ready, says = os.pipe()
os.set_inheritable(says, True)
launch = Supervisor.launch

def launch_late(*words):
    launched = launch(*words)
    os.read(ready, 1)
    os.kill(os.getpid(), signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGINT)
    return launched

Supervisor.launch = launch_late
sys.exit(main(["run", "--", sys.executable, "-c", sys.argv[1], str(says)]))
"""
    done = subprocess.run(
        [sys.executable, "-c", runner, program],
        capture_output=True,
        text=True,
        timeout=120,
        start_new_session=True,
        check=False,
    )
    assert sorted(done.stdout.split()) == ["SIGINT", "SIGUSR1"], done.stderr
    assert done.returncode == 0


def test_what_is_typed_at_a_terminal_reaches_a_program_once() -> None:
    program = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
print("ready", flush=True)
print(signal.sigwait([signal.SIGINT]).name, flush=True)
# By the time of this answer, the supervisor has done with the signal.
open("/sys/class/infiniband/rxe0/ports/1/hw_counters/link_downed").close()
print("twice" if signal.SIGINT in signal.sigpending() else "once", flush=True)
"""
    process, terminal = pty.fork()
    if not process:
        words = [sys.executable, "-m", "softhca", "run", "--", sys.executable, "-c", program]
        os.execv(sys.executable, words)
    with open(terminal, "r+b", buffering=0) as typing:
        said = b""
        while b"ready" not in said:
            said += typing.read(100) or b""
        typing.write(b"\x03")
        while b"once" not in said and b"twice" not in said:
            said += typing.read(100) or b""
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    assert b"SIGINT" in said
    assert b"once" in said


def test_a_program_that_has_the_terminal_for_itself_does_not_stop_its_supervisor() -> None:
    # What is in the background may not print there, and --refusals does.
    program = """
import fcntl, os, signal, termios
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTOU])
modes = termios.tcgetattr(0)
modes[3] |= termios.TOSTOP
termios.tcsetattr(0, termios.TCSANOW, modes)
os.setpgid(0, 0)
os.tcsetpgrp(0, os.getpid())
device = os.open("/dev/infiniband/uverbs0", os.O_RDWR)
try:
    fcntl.ioctl(device, 0xC0181B01, bytes(24))
except OSError:
    print("refused", flush=True)
os.stat("/sys/class/infiniband")
"""
    process, terminal = pty.fork()
    if not process:  # What a shell does: only below one of the same session anybody is stopped.
        run = [sys.executable, "-m", "softhca", "run", "--refusals", "--"]
        runner = subprocess.Popen([*run, sys.executable, "-c", program], process_group=0)
        _, status = os.waitpid(runner.pid, os.WUNTRACED)
        os._exit(99 if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status))
    said = b""
    with open(terminal, "rb", buffering=0) as shown, contextlib.suppress(OSError):
        while more := shown.read(4096):  # EIO at the end.
            said += more
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0, said
    assert b"refused" in said
    assert b"0 bytes for 0 attributes" in said


def test_a_program_ignores_the_signals_that_its_supervisor_was_told_to() -> None:
    # As nohup does, and shells for what they start in the background.
    ignored, heeded = (signal.SIGHUP, signal.SIGINT), (signal.SIGQUIT, signal.SIGTERM)

    def dispose() -> None:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)
        for number in heeded:
            signal.signal(number, signal.SIG_DFL)

    done = subprocess.run(
        [sys.executable, "-m", "softhca", "run", "--", "cat", "/proc/self/status"],
        preexec_fn=dispose,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    (mask,) = (line.split()[1] for line in done.stdout.splitlines() if line.startswith("SigIgn"))
    assert [number for number in (*ignored, *heeded) if int(mask, 16) >> number - 1 & 1] == [
        *ignored
    ]
