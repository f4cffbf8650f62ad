"""Memory that is allocated to be registered, and advice about memory that is."""

from __future__ import annotations

import errno
import mmap
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import softhca as hca
from softhca import Advice, VerbsError
from softhca.verbs.mr_buffer import huge_page_bytes

from .hosts import Host, Pair

PEER = """
import mmap, sys
fd, length = map(int, sys.argv[1:])
mapping = mmap.mmap(fd, length)
assert mapping[:5] == b"hello"
mapping[:5] = b"world"
"""


@pytest.mark.parametrize("size", [1, 4096, 5000, 3 << 20])
def test_a_buffer_to_write_to(simulated: Pair, size: int) -> None:
    near, _ = simulated.connected()
    simulated.a.buffer[:1] = b"x"
    with simulated.b.pd.alloc_mr_buffer(size) as mr:
        assert mr.length == size
        assert mr.addr % mr.page_bytes == 0
        assert mr.mapped_length % mr.page_bytes == 0
        assert 0 <= mr.mapped_length - size < mr.page_bytes
        assert bytes(mr.buffer[:size]) == bytes(size)
        remote = mr.remote()[size - 1 :]
        near.post_send(hca.Write(simulated.a.mr[:1], remote=remote, signaled=True))
        simulated.completion(simulated.a).raise_for_status()
        assert mr.buffer[size - 1 : size] == b"x"
        assert mr.obj is mr.buffer


def test_huge_pages_that_a_container_may_not_have_are_not_taken(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A cgroup's limit on huge pages is asked when a page is touched, by which time its program is
    # killed by SIGBUS. Here ordinary memory stands for huge pages, and the limit for the cgroup's.
    make = os.memfd_create
    asked = []

    def refuse(fd: int, offset: int, length: int) -> None:
        asked.append((offset, length))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "memfd_create", lambda name, flags: make(name, flags & os.MFD_CLOEXEC))
    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with host.pd.alloc_mr_buffer(5 << 20) as mr:
        assert asked == [(0, 6 << 20)]
        assert mr.page_bytes == mmap.PAGESIZE
        mr.buffer[-1:] = b"x"


def test_nobody_who_has_the_descriptor_takes_the_memory_away(host: Host) -> None:
    # Neighbours are handed it, and the next look at the buffer would be a SIGBUS.
    with host.pd.alloc_mr_buffer(2 * mmap.PAGESIZE) as mr:
        with pytest.raises(PermissionError):
            os.ftruncate(mr.fd, 0)
        mr.buffer[-1:] = b"x"


def test_a_peer_process_maps_it(host: Host) -> None:
    with host.pd.alloc_mr_buffer(10_000) as mr:
        mr.buffer[:5] = b"hello"
        subprocess.run(
            [sys.executable, "-c", PEER, str(mr.fd), str(mr.mapped_length)],
            pass_fds=[mr.fd],
            check=True,
            timeout=60,
        )
        assert mr.buffer[:5] == b"world"


def test_what_looks_at_it_keeps_it(host: Host) -> None:
    mr = host.pd.alloc_mr_buffer(4096)
    array = np.frombuffer(mr.buffer, "u1")
    fd = mr.fd
    mr.close()
    mr.close()
    assert array.sum() == 0
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_closing_unmaps_it(host: Host) -> None:
    mr = host.pd.alloc_mr_buffer(4096)
    assert not mr.buffer.closed
    mr.close()
    assert mr.buffer.closed
    assert mr.fd == -1  # Not a number that is of another file by now.
    mr.close()
    assert mr.fd == -1


def test_huge_pages_where_there_are_any(host: Host) -> None:
    free = re.search(r"HugePages_Free:\s+(\d+)", Path("/proc/meminfo").read_text())
    huge = huge_page_bytes("/proc/meminfo") or 2 << 20
    with (
        host.pd.alloc_mr_buffer(huge) as mr,
        host.pd.alloc_mr_buffer(huge, huge_pages=False) as small,
    ):
        if free and int(free[1]) > 0:
            assert mr.page_bytes == huge
            assert os.fstatvfs(mr.fd).f_bsize == huge
        else:
            assert mr.page_bytes == mmap.PAGESIZE
        assert small.page_bytes == mmap.PAGESIZE
        mr.buffer[:] = bytes(len(mr.buffer))


def test_how_large_huge_pages_are_is_the_systems(tmp_path: Path) -> None:
    told = tmp_path / "meminfo"
    told.write_text("HugePages_Free:        7\nHugepagesize:      32768 kB\n")
    assert huge_page_bytes(str(told)) == 32 << 20
    told.write_text("MemTotal:       24105600 kB\n")
    assert huge_page_bytes(str(told)) == 0
    assert huge_page_bytes(str(tmp_path / "missing")) == 0


@pytest.mark.parametrize(
    ("size", "options", "number", "text"),
    [
        (0, {}, errno.EINVAL, "size=0: must be 1 or more"),
        (-1, {}, errno.EINVAL, "size=-1"),
        (1 << 62, {}, None, "bytes cannot be mapped"),
        (8, {"access": hca.Access.REMOTE_WRITE}, errno.EINVAL, "require LOCAL_WRITE"),
    ],
)
def test_refusals(
    host: Host, size: int, options: dict[str, Any], number: int | None, text: str
) -> None:
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(VerbsError, match=text) as refused:
        host.pd.alloc_mr_buffer(size, **options)
    assert number in (None, refused.value.errno)
    # What others have left may be collected meanwhile.
    assert set(os.listdir("/proc/self/fd")) <= before


def resident_pages(address: int) -> int:
    """Resident pages of the mapping that begins at an address."""
    blocks = re.split(
        r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.M
    )
    (block,) = [block for block in blocks if block.startswith(f"{address:x}-")]
    found = re.search(r"^Rss:\s+(\d+) kB", block, re.M)
    assert found
    return (int(found[1]) << 10) // mmap.PAGESIZE


def test_advice_to_bring_pages_in(host: Host) -> None:
    with host.pd.alloc_mr_buffer(64 * mmap.PAGESIZE, huge_pages=False) as mr:
        assert resident_pages(mr.addr) == 0
        part = memoryview(mr.buffer)[mmap.PAGESIZE - 1 : 10 * mmap.PAGESIZE + 1]
        with host.pd.reg_mr(part, advice=Advice.POPULATE_WRITE):
            assert resident_pages(mr.addr) == 11
        part.release()


def test_advice_by_address(host: Host) -> None:
    with host.pd.alloc_mr_buffer(4 * 4096, huge_pages=False) as mr:
        host.pd.reg_mr(addr=mr.addr, length=4096, advice=Advice.POPULATE_READ).close()
        host.pd.reg_mr(addr=mr.addr, length=10, advice=Advice.DONTDUMP).close()
        host.pd.reg_mr(addr=mr.addr, length=0, advice=Advice.SEQUENTIAL).close()


REFUSED_ADVICE: list[tuple[Callable[[Host], Any], int, str]] = [
    (
        lambda host: host.pd.reg_mr(bytearray(8), advice=4),
        errno.EINVAL,
        "advice=4: is none that leaves the content as it is",
    ),
    (
        lambda host: host.pd.reg_mr(addr=4096, length=8, advice=Advice.WILLNEED),
        errno.ENOMEM,
        "advice=3: is refused by the kernel for this memory",
    ),
    (lambda host: host.pd.reg_mr(bytearray(8), advice=-1), errno.EINVAL, "advice=-1"),
]


@pytest.mark.parametrize("case", range(len(REFUSED_ADVICE)))
def test_advice_that_is_refused(host: Host, case: int) -> None:
    attempt, number, text = REFUSED_ADVICE[case]
    with pytest.raises(VerbsError, match=text) as refused:
        attempt(host)
    assert refused.value.errno == number
