"""Programs find our adapters where Linux shows its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .programs import (
    SYSTEM_PYTHON,
    free_port,
    is_running,
    needs,
    needs_pyverbs,
    run_under,
    wait_until,
)

BOTH_FORMS = pytest.mark.parametrize("options", [(), ("--write-abi",)], ids=["ioctl", "write"])


# They list what is in a directory in different orders.
PLACES = [place for place in ("/tmp", "/dev/shm") if os.path.isdir(place)]


@needs("ibv_devices")
@pytest.mark.parametrize("place", PLACES)
def test_every_adapter_is_listed_in_order(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", place)
    listed = run_under("ibv_devices", options=("--devices", "4")).stdout
    names = [line.split()[0] for line in listed.splitlines()[2:]]
    assert names == ["rxe0", "rxe1", "rxe2", "rxe3"]


@needs("ibv_devinfo")
@BOTH_FORMS
def test_what_devinfo_shows(options: tuple[str, ...]) -> None:
    shown = run_under("ibv_devinfo", "-v", options=options).stdout
    for line in (
        "hca_id:\trxe0",
        "PORT_ACTIVE (4)",
        "max_mr_size:\t\t\t0xffffffffffffffff",
        "link_layer:\t\tEthernet",
        "ATOMIC_HCA (1)",
        "::ffff:127.",
    ):
        assert line in shown
    assert "RoCE v2" in shown


@needs_pyverbs
@BOTH_FORMS
def test_pyverbs_opens_and_queries(options: tuple[str, ...]) -> None:
    program = """
from pyverbs.device import Context
from pyverbs.pd import PD
with Context(name="rxe0") as context:
    print(context.query_device().max_qp, context.query_port(1).state, context.query_gid(1, 0))
    first, second = PD(context), PD(context)
    first.close()
    second.close()
"""
    printed = run_under(SYSTEM_PYTHON, "-c", program, options=options).stdout.split()
    assert int(printed[0]) > 1000
    assert printed[1] == "4"
    assert printed[2].startswith("0000:0000:0000:0000:0000:ffff:7f")


def test_sysfs_is_read_with_plain_calls() -> None:
    program = """
import os
top = "/sys/class/infiniband"
assert os.listdir(top) == ["rxe0"], os.listdir(top)
assert os.path.isdir(f"{top}/rxe0/ports/1/gids")
assert open(f"{top}/rxe0/node_type").read() == "1: CA\\n"
assert open("/sys//class/./infiniband/rxe0/ports/1/gid_attrs/types/0").read() == "RoCE v2\\n"
assert not os.path.exists(f"{top}/rxe1")
assert not os.path.exists(f"{top}/../nothing")
try:
    open(f"{top}/rxe0/node_desc", "w")
except PermissionError:
    print("read-only")
directory = os.open(top, os.O_DIRECTORY)
print(os.read(os.open("rxe0/ports/1/state", os.O_RDONLY, dir_fd=directory), 100).decode())
counters = f"{top}/rxe0/ports/1/hw_counters"
print(int(open(f"{counters}/rcvd_pkts").read()))
rxes = "sent_pkts rcvd_pkts duplicate_request out_of_seq_request rcvd_rnr_err send_rnr_err"
rxes += " rcvd_seq_err ack_deferred retry_exceeded_err retry_rnr_exceeded_err"
rxes += " completer_retry_err send_err link_downed rdma_recvs lifespan"
assert set(rxes.split()) <= set(os.listdir(counters)), os.listdir(counters)
"""
    printed = run_under(sys.executable, "-c", program).stdout.split("\n")
    assert printed == ["read-only", "4: ACTIVE", "", "0", ""]


def test_the_device_file_is_a_device() -> None:
    program = """
import os, stat
path = "/dev/infiniband/uverbs0"
assert os.access(path, os.R_OK | os.W_OK) and not os.access(path, os.X_OK)
descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
copies = [descriptor, os.dup(descriptor), os.open(path, os.O_RDWR)]
for status in [os.stat(path), *map(os.fstat, copies)]:
    assert stat.S_ISCHR(status.st_mode), status
    assert status.st_rdev == os.makedev(231, 192), status
assert len(set(copies)) == 3
assert not os.get_inheritable(descriptor)
for copy in copies:
    os.close(copy)
try:
    os.fstat(descriptor)
except OSError as error:
    print(error.errno)
"""
    assert run_under(sys.executable, "-c", program).stdout == "9\n"


def test_device_files_are_listed() -> None:
    program = """
import glob, os, stat
top = "/dev/infiniband"
assert stat.S_ISDIR(os.stat(top).st_mode) and os.access(top, os.R_OK | os.X_OK)
assert sorted(os.listdir(top)) == ["uverbs0", "uverbs1"], os.listdir(top)
for path in glob.glob(top + "/*"):
    assert os.path.realpath(path) == path
    assert stat.S_ISCHR(os.stat(path).st_mode)
assert not os.path.exists(top + "/uverbs2")
for entry in os.scandir(top):
    assert not entry.is_dir() and not entry.is_file() and not entry.is_symlink(), entry
    assert os.major(entry.stat().st_rdev) == 231
# What is opened by way of the directory is no device, and does not pretend to be one.
directory = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
try:
    os.open("uverbs0", os.O_RDWR, dir_fd=directory)
except OSError as error:
    print(error.errno)
"""
    printed = run_under(sys.executable, "-c", program, options=("--devices", "2")).stdout
    assert printed == "6\n"  # ENXIO


def test_paths_may_begin_in_the_working_directory(tmp_path: Path) -> None:
    program = """
import os, stat, sys
def read(path):
    with open(path) as file:
        return file.read().strip()
os.chdir("/")
assert read("sys/class/infiniband/rxe0/node_type") == "1: CA"
assert read("./sys/class/infiniband/rxe0/ports/1/hw_counters/link_downed") == "0"
assert os.listdir("dev/infiniband") == ["uverbs0"]
os.chdir("/dev")
assert stat.S_ISCHR(os.stat("infiniband/uverbs0").st_mode)
device = os.open("infiniband/uverbs0", os.O_RDWR)
assert os.fstat(device).st_rdev == os.stat("infiniband/../infiniband/uverbs0").st_rdev
os.chdir("/sys/class/net")
assert os.access("../infiniband/rxe0", os.R_OK)
# What is elsewhere is as it was.
os.chdir(sys.argv[1])
os.mkdir("infiniband")
assert os.listdir("infiniband") == [] and not os.path.exists("infiniband/uverbs0")
print("well")
"""
    assert run_under(sys.executable, "-c", program, str(tmp_path)).stdout == "well\n"


def test_paths_may_be_as_long_as_the_kernels() -> None:
    program = """
import errno, os
name = "/dev/infiniband/uverbs0"
for length in (511, 512, 513, 4095):
    os.close(os.open("/" * (length - len(name)) + name, os.O_RDWR))
try:
    os.stat("/" * (4096 - len(name)) + name)
except OSError as error:
    print(errno.errorcode[error.errno])
"""
    assert run_under(sys.executable, "-c", program).stdout == "ENAMETOOLONG\n"


def test_a_device_file_is_no_directory_and_is_not_made() -> None:
    program = """
import errno, glob, os
path = "/dev/infiniband/uverbs0"
wrong = {os.O_DIRECTORY: errno.ENOTDIR, os.O_RDWR | os.O_CREAT | os.O_EXCL: errno.EEXIST}
for flags, expected in wrong.items():
    try:
        print(os.open(path, flags))
    except OSError as error:
        assert error.errno == expected, error
assert glob.glob(path + "/*") == []
os.close(os.open(path, os.O_RDWR | os.O_CREAT))
# Libraries look for this one, and say that there is an error unless it is missing.
try:
    os.open("/dev/infiniband/rdma_cm", os.O_RDWR)
except FileNotFoundError:
    print("missing")
print("well")
"""
    assert run_under(sys.executable, "-c", program).stdout == "missing\nwell\n"


def test_an_absolute_path_needs_no_directory() -> None:
    """As hwloc passes them: with a descriptor that is none."""
    program = """
import os, stat
top = "/sys/class/infiniband"
assert os.listdir(os.open(top, os.O_RDONLY | os.O_DIRECTORY, dir_fd=-1)) == ["rxe0"]
assert stat.S_ISCHR(os.stat("/dev/infiniband/uverbs0", dir_fd=-1).st_mode)
assert os.access(top, os.R_OK, dir_fd=-7)
os.close(os.open("/dev/infiniband/uverbs0", os.O_RDWR, dir_fd=-1))
os.chdir("/sys/class")
try:
    os.stat("infiniband", dir_fd=-1)
except OSError as error:
    print(error.errno)
"""
    assert run_under(sys.executable, "-c", program).stdout == "9\n"  # EBADF


def test_paths_may_be_opened_to_begin_others_there() -> None:
    """As libraries do that follow a path part by part (O_PATH), beside which few flags count."""
    program = """
import os, stat
top = os.open("/sys/class/infiniband", os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
assert stat.S_ISDIR(os.stat(top).st_mode)
port = os.open("rxe0/ports/1", os.O_PATH | os.O_DIRECTORY, dir_fd=top)
with open(os.open("state", os.O_RDONLY, dir_fd=port)) as state:
    print(state.read(), end="")
state = os.open("/sys/class/infiniband/rxe0/ports/1/state", os.O_PATH | os.O_RDWR)
assert stat.S_ISREG(os.stat(state).st_mode)
devices = os.open("/dev/infiniband", os.O_PATH | os.O_CLOEXEC)
assert os.listdir(f"/proc/self/fd/{devices}") == ["uverbs0"]
device = os.open("/dev/infiniband/uverbs0", os.O_PATH | os.O_CREAT | os.O_EXCL)
assert stat.S_ISCHR(os.stat(device).st_mode)
"""
    assert run_under(sys.executable, "-c", program).stdout == "4: ACTIVE\n"


@needs("ibv_rc_pingpong")
def test_counters_are_up_to_date_however_they_are_opened() -> None:
    program = """
import os, subprocess, sys
device = "/sys/class/infiniband/rxe0"
def read(file, directory=None):
    descriptor = os.open(file, os.O_RDONLY, dir_fd=directory)
    try:
        return int(os.read(descriptor, 100))
    finally:
        os.close(descriptor)
counters = f"{device}/ports/1/hw_counters"
last = 0
for top in (os.path.dirname(device), device, f"{device}/ports", counters, f"/{counters}"):
    subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
    directory = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    below = os.path.relpath(counters, os.path.normpath(top.replace("//", "/")))
    count = read(f"{below}/rcvd_pkts", directory)
    assert count > last, (top, count, last)
    assert count == read(f"{counters}/rcvd_pkts") == read(f"/{counters}/rcvd_pkts")
    last = count
os.close(os.open("//dev/infiniband/uverbs0", os.O_RDWR))
print("well")
"""
    pair = [sys.executable, str(Path(__file__).with_name("pair.py"))]
    words = [*pair, "ibv_rc_pingpong", "-g", "0", "-n", "10", "-p", str(free_port())]
    assert run_under(sys.executable, "-c", program, *words).stdout == "well\n"


def test_files_have_no_extended_attributes() -> None:
    program = """
import os
for path in ("/dev/infiniband/uverbs0", "/dev/infiniband", "/sys/class/infiniband/rxe0/fw_ver"):
    for follows in (True, False):
        print(os.listxattr(path, follow_symlinks=follows))
        try:
            os.getxattr(path, "system.posix_acl_access", follow_symlinks=follows)
        except OSError as error:
            print(error.errno)
try:
    os.listxattr("/dev/infiniband/uverbs1")
except FileNotFoundError:
    print("none")
"""
    printed = run_under(sys.executable, "-c", program).stdout
    assert printed == "[]\n61\n" * 6 + "none\n"  # ENODATA
    listed = run_under("ls", "-lR", "/dev/infiniband", "/sys/class/infiniband")
    assert not listed.stderr
    assert "231, 192" in listed.stdout


def test_every_user_may_read_what_is_shown() -> None:
    """Programs may become another user than who has started them."""
    program = """
import os
for top in ("/sys/class/infiniband", "/sys/class/infiniband_verbs", "/dev/infiniband"):
    for place, _, files in os.walk(top):
        assert os.stat(place).st_mode & 0o555 == 0o555, place
        for path in (os.path.join(place, name) for name in files):
            assert os.stat(path).st_mode & 0o444 == 0o444, path
print("well")
"""
    before = os.umask(0o077)
    try:
        assert run_under(SYSTEM_PYTHON, "-c", program).stdout == "well\n"
    finally:
        os.umask(before)


def test_what_is_above_a_tree_can_be_listed_from_below() -> None:
    listed = run_under("ls", "-la", "/dev/infiniband", "/sys/class/infiniband")
    assert not listed.stderr
    program = """
import os
for path in ("/dev/infiniband", "/sys/class/infiniband", "/sys/class/infiniband/rxe0/.."):
    above = os.path.dirname(os.path.normpath(path))
    for ask in (os.stat, os.lstat):
        assert os.path.samestat(ask(path + "/.."), os.stat(above)), path
    assert os.access(path + "/..", os.R_OK | os.X_OK)
assert not os.path.exists("/dev/infiniband/../nothing")
print("well")
"""
    assert run_under(SYSTEM_PYTHON, "-c", program).stdout == "well\n"


@needs("unshare")
def test_paths_may_begin_in_the_working_directory_of_a_chroot(tmp_path: Path) -> None:
    program = """
import os, stat, sys
os.mkdir(sys.argv[1] + "/dev")
os.chroot(sys.argv[1])
for directory, path in (("/dev", "infiniband/uverbs0"), ("/", "dev/infiniband/uverbs0")):
    os.chdir(directory)
    assert stat.S_ISCHR(os.stat(path).st_mode), path
    os.close(os.open(path, os.O_RDWR))
print("well")
"""
    # Whoever makes a user namespace may change its root.
    words = ["unshare", "-r", SYSTEM_PYTHON, "-c", program, str(tmp_path)]
    done = run_under(*words, check=False)
    if "unshare" in done.stderr:
        pytest.skip("there are no user namespaces to be had")
    assert done.stdout == "well\n", done.stderr


def test_the_status_is_the_programs() -> None:
    assert run_under("sh", "-c", "exit 7", check=False).returncode == 7
    assert run_under("sh", "-c", "kill -9 $$", check=False).returncode == 128 + 9
    assert run_under("/nowhere/at/all", check=False).returncode == 2


@pytest.mark.skipif(
    sys.getfilesystemencoding() != "utf-8", reason="needs names that are no text in UTF-8"
)
def test_names_may_be_of_any_bytes(tmp_path: Path) -> None:
    place = tmp_path / os.fsdecode(b"\xff")
    place.mkdir()
    program = place / os.fsdecode(b"\xfe")
    # It says no interpreter: the shell runs it, as after execvp(3).
    program.write_text('printf %s "$1" "$WORD" && ls /sys/class/infiniband')
    program.chmod(0o755)
    words = [sys.executable, "-m", "softhca", "run", "--", str(program), os.fsdecode(b"a\xfd")]
    done = subprocess.run(
        words,
        env={**os.environ, "WORD": os.fsdecode(b"\xfc"), "TMPDIR": str(place)},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == b"a\xfd\xfcrxe0\n", done.stderr
    counter = "/sys/class/infiniband/rxe0/ports/1/hw_counters/"
    missing = run_under(SYSTEM_PYTHON, "-c", f"open(b'{counter}\\xff')", check=False)
    assert "FileNotFoundError" in missing.stderr, missing.stderr


def test_no_netlink_of_rdma_is_to_be_had() -> None:
    program = """
import socket
socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).close()
try:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 20)
except OSError as error:
    print(error.errno)
"""
    assert run_under(sys.executable, "-c", program).stdout == "93\n"  # EPROTONOSUPPORT


def test_inside_another_supervisor_it_says_so() -> None:
    inner = run_under(sys.executable, "-m", "softhca", "run", "true", check=False)
    assert inner.returncode == 1
    assert "another seccomp notifier is in the way" in inner.stderr


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    run_under("true")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("whole_group", [False, True], ids=["supervisor", "group"])
def test_a_supervisor_that_is_killed_takes_everything_along(
    tmp_path: Path, whole_group: bool
) -> None:
    program = """
import os, sys, tempfile, time
if os.fork():
    os.setsid()
with open(sys.argv[1], "a") as out:
    out.write(f"{os.getpid()}\\n")
time.sleep(1000)
"""
    started = tmp_path / "started"
    places = {"TMPDIR": str(tmp_path / "places")}
    (tmp_path / "places").mkdir()
    supervisor = subprocess.Popen(
        [sys.executable, "-m", "softhca", "run", "--", sys.executable, "-c", program, str(started)],
        env={**os.environ, **places},
        start_new_session=True,
    )
    wait_until(lambda: started.exists() and len(started.read_text().split()) == 2)
    processes = [int(word) for word in started.read_text().split()]
    if whole_group:
        os.killpg(supervisor.pid, signal.SIGKILL)
    else:
        supervisor.kill()
    supervisor.wait()
    wait_until(lambda: not any(is_running(process) for process in processes))
    wait_until(lambda: not list((tmp_path / "places").iterdir()))


def test_a_counter_is_never_empty_while_another_program_opens_it() -> None:
    program = """
import os
path = "/sys/class/infiniband/rxe0/ports/1/hw_counters/link_downed"
counter = os.open(path, os.O_RDONLY)
child = os.fork()
if not child:
    for _ in range(2000):
        os.close(os.open(path, os.O_RDONLY))
    os._exit(0)
read = {os.pread(counter, 100, 0)}
while os.waitpid(child, os.WNOHANG) == (0, 0):
    read.add(os.pread(counter, 100, 0))
print(read)
"""
    assert run_under(sys.executable, "-c", program).stdout == "{b'0\\n'}\n"
