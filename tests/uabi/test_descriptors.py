"""Descriptors of devices, as programs duplicate them."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from softhca.uabi.channels import Channel
from softhca.uabi.files import DeviceFile

from .programs import (
    SYSTEM_PYTHON,
    compiled,
    needs,
    needs_pyverbs,
    needs_verbs_headers,
    run_under,
)


def test_a_duplicate_has_no_number_below_the_one_that_is_asked_for() -> None:
    program = """
import errno, fcntl, os
device = os.open("/dev/infiniband/uverbs0", os.O_RDWR | os.O_CLOEXEC)
for command in (fcntl.F_DUPFD, fcntl.F_DUPFD_CLOEXEC):
    for least in (0, device + 40, device + 40):
        number = fcntl.fcntl(device, command, least)
        assert number >= least, (number, least)
        assert os.fstat(number).st_rdev == os.stat("/dev/infiniband/uverbs0").st_rdev
        assert os.get_inheritable(number) == (command == fcntl.F_DUPFD)
    for least in (1 << 30, -1):
        try:
            print(fcntl.fcntl(device, command, least))
        except OSError as error:
            assert error.errno == errno.EINVAL, error
print("well")
"""
    assert run_under(SYSTEM_PYTHON, "-c", program).stdout == "well\n"


def test_a_program_may_be_given_a_lower_limit() -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 512:
        pytest.skip("the hard limit leaves no room")
    program = """
import errno, fcntl, os, resource
path = "/dev/infiniband/uverbs0"
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
for limit in (512, 256, 240, 64):
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    got = []
    try:
        while True:
            got.append(os.open(path, os.O_RDWR))
            got.append(fcntl.fcntl(got[-1], fcntl.F_DUPFD, 0))
    except OSError as error:
        assert error.errno == errno.EMFILE, error
    assert all(number < limit for number in got)
    assert all(os.fstat(number).st_rdev == os.stat(path).st_rdev for number in got)
    print(len(got))
    for number in got:
        os.close(number)
"""
    assert run_under(SYSTEM_PYTHON, "-c", program).stdout.split() == ["32", "32", "16", "0"]


@needs_pyverbs
def test_a_device_that_is_opened_by_its_descriptor_stays_open() -> None:
    program = """
import mmap, os, stat
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
context = Context(name="rxe0")
pd = PD(context)
again = os.open(f"/proc/self/fd/{context.cmd_fd}", os.O_RDWR)
os.close(again)
MR(pd, 4096, 1).close()
# Nor does it matter that memory is registered which the queues lie in.
cq = CQ(context, 1)
with open("/proc/self/maps") as maps:
    (line,) = [line for line in maps if "uverbs" in line]
queue, end = (int(bound, 16) for bound in line.split()[0].split("-"))
MR(pd, end - queue, 1, queue).close()
assert stat.S_ISCHR(os.fstat(context.cmd_fd).st_mode)
MR(pd, 4096, 1).close()
print("well")
"""
    assert run_under(SYSTEM_PYTHON, "-c", program).stdout == "well\n"


def test_a_device_goes_with_the_last_description() -> None:
    file = DeviceFile()
    assert not file.is_open()
    first = file.open_again()
    second = os.open(f"/proc/self/fd/{first}", os.O_RDWR)
    os.close(first)
    assert file.is_open()
    queue = mmap.mmap(second, mmap.PAGESIZE)
    os.close(second)
    assert file.is_open()
    queue.close()
    assert not file.is_open()


@pytest.mark.parametrize("files", [1500, 2500])
def test_a_program_with_thousands_of_files_opens_a_device(files: int) -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 4096:
        pytest.skip("the hard limit leaves no room")
    program = f"""
import errno, fcntl, os, resource
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, hard))
for _ in range({files}):
    os.open("/dev/null", os.O_RDONLY)
device = os.open("/dev/infiniband/uverbs0", os.O_RDWR)
copies = [device, os.dup(device), fcntl.fcntl(device, fcntl.F_DUPFD, device + 2)]
assert len(set(copies)) == 3 and min(copies) > {files}, copies
for number in copies:
    assert os.fstat(number).st_rdev == os.stat("/dev/infiniband/uverbs0").st_rdev
    try:
        print(os.write(number, bytes(16)))
    except OSError as error:
        assert error.errno == errno.EINVAL, error  # It was read as a command.
try:
    print(fcntl.fcntl(device, fcntl.F_DUPFD, 4096))
except OSError as error:
    assert error.errno == errno.EINVAL, error
print("well")
"""
    assert run_under(SYSTEM_PYTHON, "-c", program).stdout == "well\n"


@needs_verbs_headers
@pytest.mark.parametrize("files", [224, 896])
def test_a_device_takes_no_number_that_a_thread_is_just_given(files: int, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = 256 if files == 224 else 1024
    if hard < limit:
        pytest.skip("the hard limit leaves no room")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))
    try:
        command = [
            "prlimit",
            f"--nofile={limit}:",
            compiled("crowded", tmp_path),
            str(files),
            "2000",
        ]
        assert run_under(*command).stdout == "0 lost, 0 refused\n"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_programs_may_together_have_more_descriptors_than_one_may() -> None:
    program = """
import os, resource, sys
print(*resource.getrlimit(resource.RLIMIT_NOFILE), flush=True)
ready, tell = os.pipe()
go_on, hold = os.pipe()
for _ in range(8):
    if not os.fork():
        os.close(hold)
        said = b"-"
        try:
            got = [os.open("/dev/infiniband/uverbs0", os.O_RDWR) for _ in range(16)]
            said = b"x"
        finally:
            os.write(tell, said)
        os.read(go_on, 1)  # All have theirs at once.
        os._exit(0)
os.close(tell)
print(*(os.read(ready, 1).decode() for _ in range(8)))
"""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard < 256:
        pytest.skip("the hard limit leaves no room")
    done = subprocess.run(
        [sys.executable, "-m", "softhca", "run", "--", SYSTEM_PYTHON, "-c", program],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard)),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == ["64", str(hard), *"xxxxxxxx"]


@needs("unshare")
@pytest.mark.parametrize("doorbells", ["asked", "written"])
def test_what_cannot_be_watched_is_not_opened(doorbells: str) -> None:
    program = """
import errno, os
for _ in range(3):
    got = []
    while True:
        try:
            got.append(os.open("/dev/infiniband/uverbs0", os.O_RDWR))
        except OSError as error:
            assert error.errno == errno.ENOSPC, error
            break
    print(len(got))
    for number in got:
        os.close(number)
"""
    # In a user namespace, limits of inotify are whoever's who made it.
    limited = 'echo 8 > /proc/sys/user/max_inotify_watches && exec "$@"'
    words = [sys.executable, "-m", "softhca", "run", "--doorbells", doorbells, "--"]
    done = subprocess.run(
        ["unshare", "-r", "sh", "-c", limited, "sh", *words, SYSTEM_PYTHON, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if "unshare" in done.stderr or "max_inotify_watches" in done.stderr:
        pytest.skip("there are no user namespaces to be had")
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    counts = done.stdout.split()
    assert len(counts) == 3
    assert len(set(counts)) == 1
    assert int(counts[0]) > 0


def test_there_is_no_channel_that_cannot_be_written_to() -> None:
    gc.collect()  # Nothing of other tests may be closed meanwhile.
    ends = os.pipe()
    for end in ends:
        os.close(end)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Both ends of a pipe have room, and nothing else.
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(ends) + 1, limits[1]))
    try:
        with pytest.raises(OSError, match="channel") as refusal:
            Channel()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert refusal.value.errno == errno.EMFILE
    again = os.pipe()
    for end in again:
        os.close(end)
    assert again == ends


def test_a_command_that_cannot_be_answered_leaves_no_descriptor() -> None:
    program = """
import ctypes, errno, mmap, os, struct
device = os.open("/dev/infiniband/uverbs0", os.O_RDWR)
room = mmap.mmap(-1, 8192)
there = ctypes.addressof(ctypes.c_char.from_buffer(room))
nowhere = there + 4096
assert not ctypes.CDLL(None).mprotect(ctypes.c_void_p(nowhere), ctypes.c_size_t(4096), 0)

def give(command, response):
    body = struct.pack("<QQ", response, 0)[: 8 if command == 0 else 16]
    os.write(device, struct.pack("<IHH", command, (8 + len(body)) // 4, 2) + body)

def has():
    listed = os.listdir("/proc/self/fd")  # With that of the listing itself.
    return {number for number in listed if os.path.lexists(f"/proc/self/fd/{number}")}

before = has()
for command in (0, 17):  # The context with its events, and a channel.
    for _ in range(3):
        try:
            give(command, nowhere)
        except OSError as error:
            assert error.errno == errno.EFAULT, error
        assert has() == before
    give(command, there)
    added = has() - before
    assert added == {str(struct.unpack_from("<I", room)[0])}, (command, added)
    before |= added
print("well")
"""
    assert run_under(SYSTEM_PYTHON, "-c", program).stdout == "well\n"
