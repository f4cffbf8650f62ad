"""Every refusal of notices names its rule, and changes nothing."""

from __future__ import annotations

import errno
import mmap
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import softhca as hca
from api.hosts import Host
from softhca import InvalidationChannel, VerbsError

from . import libc
from .libc import PAGE

Attempt = Callable[[Host, InvalidationChannel], Any]
REFUSALS: dict[str, tuple[Attempt, int, str]] = {
    "cookie without channel": (
        lambda host, _: host.pd.reg_mr(bytearray(8), cookie=1),
        errno.EINVAL,
        "cookie=1: needs invalidation=, a channel (EINVAL)",
    ),
    "cookie too big": (
        lambda host, channel: host.pd.reg_mr(bytearray(8), invalidation=channel, cookie=1 << 64),
        errno.EINVAL,
        "cookie=18446744073709551616: must be 0 to 18446744073709551615 (EINVAL)",
    ),
    "kernel addresses": (
        lambda host, channel: host.pd.reg_mr(addr=1 << 63, length=8, invalidation=channel),
        errno.EINVAL,
        "addr=9223372036854775808: invalidation can only watch memory of this process",
    ),
    "nothing there": (
        lambda host, channel: host.pd.reg_mr(addr=PAGE, length=8, invalidation=channel),
        errno.EFAULT,
        "no memory that can be watched is mapped there",
    ),
    "limit": (lambda _, channel: channel.read(-1), errno.EINVAL, "limit=-1: must be 0 to"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(host: Host, channel: InvalidationChannel, case: str) -> None:
    attempt, number, text = REFUSALS[case]
    with pytest.raises(VerbsError) as refused:
        attempt(host, channel)
    assert refused.value.errno == number
    assert text in str(refused.value)


def test_what_is_no_channel(host: Host) -> None:
    wrong: Any = 3
    with pytest.raises(TypeError, match="invalidation must be InvalidationChannel, not int"):
        host.pd.reg_mr(bytearray(8), invalidation=wrong)


def test_a_closed_channel(host: Host, channel: InvalidationChannel) -> None:
    channel.close()
    # Its number may be another file's by now.
    with pytest.raises(VerbsError, match="invalidation_channel: is closed"):
        channel.fileno()
    with pytest.raises(VerbsError, match="invalidation_channel: is closed"):
        channel.read()
    with pytest.raises(VerbsError, match="invalidation: is closed"):
        host.pd.reg_mr(bytearray(8), invalidation=channel)


def test_a_shared_mapping_of_a_file_that_was_opened_read_only(
    host: Host, channel: InvalidationChannel, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(PAGE))
    with path.open("rb") as file:
        at = libc.map_pages(1, flags=mmap.MAP_SHARED, fd=file.fileno(), prot=mmap.PROT_READ)
    with pytest.raises(VerbsError, match="opened read-only") as refused:
        host.pd.reg_mr(addr=at, length=PAGE, access=0, invalidation=channel)
    assert refused.value.errno == errno.EACCES
    libc.unmap(at, PAGE)


def test_without_descriptors_there_is_no_channel(host: Host) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    channels: list[InvalidationChannel] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 7, hard))
        with pytest.raises(VerbsError, match="no descriptor or memory is left") as refused:
            for _ in range(1000):
                channels.append(host.device.create_invalidation_channel())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert refused.value.errno == errno.EMFILE
    for channel in channels:
        channel.close()


def test_a_refused_registration_leaves_no_watch(host: Host, channel: InvalidationChannel) -> None:
    with libc.pages(1) as at:
        with pytest.raises(VerbsError, match="LOCAL_WRITE"):
            host.pd.reg_mr(
                addr=at, length=PAGE, access=hca.Access.REMOTE_WRITE, invalidation=channel
            )
        generation = channel.generation
        libc.unmap(at, PAGE)
        assert channel.generation == generation


def test_a_region_with_notices_keeps_its_memory(host: Host, channel: InvalidationChannel) -> None:
    with libc.pages(2) as at:
        mr = host.keep(host.pd.reg_mr(addr=at, length=PAGE, invalidation=channel))
        with pytest.raises(VerbsError, match="register the other memory anew") as refused:
            mr.rereg(addr=at + PAGE, length=PAGE)
        assert (refused.value.errno, refused.value.argument) == (errno.EOPNOTSUPP, "addr")
        with pytest.raises(VerbsError, match=r"obj: .*register the other memory anew"):
            mr.rereg(bytearray(PAGE))
        mr.rereg(access=hca.Access.REMOTE_READ)
        libc.unmap(at, PAGE)
        assert mr.dereg() == 1


def test_the_whole_address_space_cannot_tell(host: Host, channel: InvalidationChannel) -> None:
    with pytest.raises(VerbsError, match="can only watch memory of this process"):
        host.pd.reg_mr(addr=0, length=(1 << 64) - 1, invalidation=channel)


FORBIDDEN = """
import ctypes, errno, platform, struct, sys
import softhca
from softhca.testing import open_simulated

# A filter that answers userfaultfd(2) with EPERM, as sandboxes do; and, told to, what stands for it
# too: an ioctl(2) of /dev/userfaultfd.
userfaultfd, ioctl = (282, 29) if platform.machine() == "aarch64" else (323, 16)
code = [
    (0x20, 0, 0, 0),
    (0x15, 3, 0, userfaultfd),
    (0x15, 0, 3, ioctl if sys.argv[1] == "neither" else userfaultfd),
    (0x20, 0, 0, 24),
    (0x15, 0, 1, 0xAA00),
    (0x06, 0, 0, 0x00050001),
    (0x06, 0, 0, 0x7fff0000),
]
program = b"".join(struct.pack("HBBI", *line) for line in code)
buffer = ctypes.create_string_buffer(program, len(program))
header = struct.pack("H6xP", len(code), ctypes.addressof(buffer))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, header, 0, 0) == 0
with open_simulated("10.0.0.1", seed=1) as device:
    try:
        device.create_invalidation_channel()
        print("there are notices")
    except softhca.VerbsError as error:
        assert error.errno == errno.EOPNOTSUPP
        print(error)
"""


def forbidden(what: str) -> str:
    words = [sys.executable, "-c", FORBIDDEN, what]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_where_userfaultfd_is_forbidden_the_refusal_says_so() -> None:
    text = forbidden("neither")
    for word in ("needs userfaultfd(2)", "seccomp", "invalidation: needs"):
        assert word in text
    assert "--device /dev/userfaultfd" in text


def test_where_the_call_is_forbidden_the_device_stands_for_it() -> None:
    # As of a container that was given it.
    if not os.access("/dev/userfaultfd", os.R_OK | os.W_OK):
        pytest.skip("there is no /dev/userfaultfd that may be opened")
    assert forbidden("call") == "there are notices\n"
