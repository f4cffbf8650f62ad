"""Every way in which memory goes away gives the exact range, once, before the call returns."""

from __future__ import annotations

import errno
import mmap
import os
import select
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import softhca as hca
from api.hosts import Host
from softhca import InvalidationChannel, InvalidationKind
from softhca.verbs.mr_buffer import huge_page_bytes

from . import libc
from .libc import LARGE, PAGE

UNMAP, REMAP, REMOVE = InvalidationKind.UNMAP, InvalidationKind.REMAP, InvalidationKind.REMOVE
Told = tuple[InvalidationKind, int, int, int]


def told(channel: InvalidationChannel) -> list[Told]:
    """What the channel says, with offset and length in pages."""
    return [(e.kind, e.offset // PAGE, e.length // PAGE, e.count) for e in channel.read()]


def register(
    host: Host, channel: InvalidationChannel, addr: int, pages: int, cookie: int = 7
) -> hca.MR:
    """Registers pages with notices."""
    mr = host.pd.reg_mr(addr=addr, length=pages * PAGE, invalidation=channel, cookie=cookie)
    return host.keep(mr)


@pytest.fixture(
    params=["anonymous", "shared", "memfd", "file", "private-file", "private-readonly-file"]
)
def mapped(request: pytest.FixtureRequest, tmp_path: Path) -> int:
    """Ten pages of each kind of mapping, which stay: see `libc.pages`."""
    kind = request.param
    flags = mmap.MAP_SHARED if kind in ("shared", "memfd", "file") else mmap.MAP_PRIVATE
    fd = -1
    if kind in ("anonymous", "shared"):
        flags |= mmap.MAP_ANONYMOUS
    elif kind == "memfd":
        fd = os.memfd_create("mapped")
        os.truncate(fd, 10 * PAGE)
    else:
        path = tmp_path / "mapped"
        path.write_bytes(bytes(10 * PAGE))
        fd = os.open(path, os.O_RDONLY if kind == "private-readonly-file" else os.O_RDWR)
    address = libc.map_pages(10, flags=flags, fd=fd)
    if fd >= 0:
        os.close(fd)
    return address


def test_every_change_of_every_mapping(
    host: Host, channel: InvalidationChannel, mapped: int
) -> None:
    mr = register(host, channel, mapped + PAGE, 8)
    at = mapped + PAGE
    generation = channel.generation
    libc.unmap(at + 2 * PAGE, PAGE)
    assert channel.generation != generation
    assert told(channel) == [(UNMAP, 2, 1, 1)]

    generation = channel.generation
    libc.advise(at + 3 * PAGE, PAGE, mmap.MADV_DONTNEED)
    assert channel.generation != generation
    assert told(channel) == [(REMOVE, 3, 1, 1)]

    generation = channel.generation
    over = libc.map_pages(1, at=at + 4 * PAGE)
    assert channel.generation != generation
    assert told(channel) == [(UNMAP, 4, 1, 1)]

    generation = channel.generation
    moved = libc.remap(at + 5 * PAGE, PAGE, 2 * PAGE)
    assert channel.generation != generation
    assert told(channel) == [(REMAP, 5, 1, 1)]

    # What is gone says nothing more, and neither does what was never registered.
    libc.unmap(over, PAGE)
    libc.unmap(moved, 2 * PAGE)
    libc.unmap(mapped, PAGE)
    assert told(channel) == []
    libc.unmap(mapped, 10 * PAGE)
    # Page 3 lost its content before, and goes with its neighbours now.
    assert told(channel) == [(UNMAP, 0, 2, 1), (UNMAP, 6, 2, 1)]
    assert mr.dereg() == 6


@pytest.mark.parametrize(
    ("flags", "pages", "expected"),
    [
        pytest.param(libc.MREMAP_MAYMOVE, 8, (REMAP, 0, 4, 1), id="grown elsewhere"),
        pytest.param(0, 1, (UNMAP, 1, 3, 1), id="cut off"),
        pytest.param(
            libc.MREMAP_MAYMOVE | libc.MREMAP_FIXED, 4, (REMAP, 0, 4, 1), id="moved to a place"
        ),
        pytest.param(
            libc.MREMAP_MAYMOVE | libc.MREMAP_FIXED | libc.MREMAP_DONTUNMAP,
            *(4, (REMAP, 0, 4, 1)),
            id="moved, and empty where it was",
        ),
    ],
)
def test_every_mremap(
    host: Host, channel: InvalidationChannel, flags: int, pages: int, expected: Told
) -> None:
    # What lies behind it keeps it from growing in its place.
    at, place = libc.map_pages(5), libc.map_pages(4)
    mr = register(host, channel, at, 4)
    libc.map_pages(1, at=at + 4 * PAGE, prot=mmap.PROT_READ)
    generation = channel.generation
    libc.remap(at, 4 * PAGE, pages * PAGE, flags, place)
    assert channel.generation != generation
    assert told(channel) == [expected]
    assert mr.dereg() == 1


def test_a_mapping_that_is_moved_onto_it(host: Host, channel: InvalidationChannel) -> None:
    at, other = libc.map_pages(4), libc.map_pages(2)
    mr = register(host, channel, at, 4)
    libc.remap(other, 2 * PAGE, 2 * PAGE, libc.MREMAP_MAYMOVE | libc.MREMAP_FIXED, at + PAGE)
    assert told(channel) == [(UNMAP, 1, 2, 1)]
    assert mr.dereg() == 1


def test_memory_that_is_freed_lazily(host: Host, channel: InvalidationChannel) -> None:
    with libc.pages(4) as at:
        mr = register(host, channel, at, 4)
        libc.advise(at + PAGE, 2 * PAGE, mmap.MADV_FREE)
        assert told(channel) == [(REMOVE, 1, 2, 1)]
        assert mr.dereg() == 1


def test_a_hole_punched_by_madvise(host: Host, channel: InvalidationChannel) -> None:
    at = libc.map_pages(4, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
    mr = register(host, channel, at, 4)
    libc.advise(at + PAGE, 2 * PAGE, mmap.MADV_REMOVE)
    assert told(channel) == [(REMOVE, 1, 2, 1)]
    assert mr.dereg() == 1
    libc.unmap(at, 4 * PAGE)


def test_a_big_block_is_freed(host: Host, channel: InvalidationChannel) -> None:
    block = libc.allocate(LARGE)
    mr = host.pd.reg_mr(addr=block, length=LARGE, invalidation=channel, cookie=1)
    libc.free(block)
    (event,) = channel.read()
    assert event == hca.InvalidationEvent(1, UNMAP, block, LARGE, 0, 1, True)
    assert mr.dereg() == 1


def test_an_array_goes_away(host: Host, channel: InvalidationChannel) -> None:
    array = np.zeros(LARGE, "u1")
    mr = host.pd.reg_mr(array, invalidation=channel, cookie=(1 << 64) - 1)
    assert mr.obj is None
    generation = channel.generation
    size = array.nbytes
    del array
    assert channel.generation != generation
    (event,) = channel.read()
    assert (event.cookie, event.kind, event.length) == ((1 << 64) - 1, UNMAP, size)
    assert mr.dereg() == 1


def test_a_mapping_is_closed(host: Host, channel: InvalidationChannel) -> None:
    mapping = mmap.mmap(-1, 3 * PAGE)
    mr = host.pd.reg_mr(mapping, invalidation=channel)
    mapping.close()
    assert told(channel) == [(UNMAP, 0, 3, 1)]
    assert mr.dereg() == 1


def test_the_range_is_clipped_to_the_region(host: Host, channel: InvalidationChannel) -> None:
    with libc.pages(4) as at:
        mr = host.pd.reg_mr(addr=at + 100, length=2 * PAGE, invalidation=channel)
        libc.unmap(at, PAGE)
        libc.unmap(at + 2 * PAGE, PAGE)
        assert [(e.addr, e.offset, e.length) for e in channel.read()] == [
            (at + 100, 0, PAGE - 100),
            (at + 2 * PAGE, 2 * PAGE - 100, 100),
        ]
        assert mr.dereg() == 2


def test_notices_in_one_piece_are_one_event_while_unread(
    host: Host, channel: InvalidationChannel
) -> None:
    with libc.pages(8) as at:
        mr = register(host, channel, at, 8)
        for page in (2, 3, 1):
            libc.unmap(at + page * PAGE, PAGE)
        libc.advise(at + 4 * PAGE, PAGE, mmap.MADV_DONTNEED)
        assert told(channel) == [(UNMAP, 1, 3, 3), (REMOVE, 4, 1, 1)]
        assert mr.raised == 4
        libc.unmap(at + 5 * PAGE, PAGE)
        assert told(channel) == [(UNMAP, 5, 1, 1)]
        assert mr.dereg() == 5
        assert mr.dereg() == 5


def test_every_other_page_goes(host: Host, channel: InvalidationChannel) -> None:
    count = 2000
    with libc.pages(count) as at:
        mr = register(host, channel, at, count)
        for page in range(0, count, 2):
            libc.unmap(at + page * PAGE, PAGE)
            (event,) = channel.read()
            assert (event.offset, event.length, event.exact) == (page * PAGE, PAGE, True)
        libc.unmap(at, count * PAGE)
        events = channel.read()
        assert sum(event.count for event in events) == count // 2
        assert mr.dereg() == count


def test_a_mapping_that_is_watched_in_part_does_not_grow(
    host: Host, channel: InvalidationChannel
) -> None:
    with libc.pages(4) as at:
        mr = register(host, channel, at + PAGE, 1)
        with pytest.raises(OSError, match="Bad address"):
            libc.remap(at, 4 * PAGE, 8 * PAGE)
        assert mr.dereg() == 0
        libc.remap(at, 4 * PAGE, 8 * PAGE)


def test_regions_that_share_pages_are_told_each(host: Host, channel: InvalidationChannel) -> None:
    other_channel = host.keep(host.device.create_invalidation_channel())
    with libc.pages(4) as at:
        first = host.pd.reg_mr(addr=at, length=100, invalidation=channel, cookie=1)
        second = host.pd.reg_mr(addr=at + 200, length=PAGE, invalidation=channel, cookie=2)
        third = register(host, other_channel, at, 4, cookie=3)
        assert first.dereg() == 0
        libc.unmap(at, 2 * PAGE)
        assert [(e.cookie, e.offset, e.length) for e in channel.read()] == [(2, 0, PAGE)]
        assert told(other_channel) == [(UNMAP, 0, 2, 1)]
        assert second.dereg() == third.dereg() == 1


def test_changes_that_leave_the_mapping_say_nothing(
    host: Host, channel: InvalidationChannel
) -> None:
    with mmap.mmap(-1, 2 * PAGE) as mapping:
        mr = host.pd.reg_mr(mapping, invalidation=channel)
        mapping.madvise(mmap.MADV_WILLNEED)
        mapping[:10] = b"0123456789"
        assert channel.read() == []
        assert mr.dereg() == 0


def test_the_descriptor_is_readable_while_there_are_events(
    host: Host, channel: InvalidationChannel
) -> None:
    poller = select.poll()
    poller.register(channel, select.POLLIN)
    with libc.pages(4) as at:
        mr = register(host, channel, at, 4)
        assert not poller.poll(0)
        libc.unmap(at, PAGE)
        libc.unmap(at + 2 * PAGE, PAGE)
        assert poller.poll(0)
        assert len(channel.read(1)) == 1
        assert poller.poll(0)
        assert [event.offset for event in channel.wait(timeout=20)] == [2 * PAGE]
        assert not poller.poll(0)
        with pytest.raises(TimeoutError):
            channel.wait(timeout=0)
        mr.dereg()


def test_unread_events_outlive_their_region(host: Host, channel: InvalidationChannel) -> None:
    with libc.pages(2) as at:
        mr = register(host, channel, at, 2, cookie=5)
        libc.unmap(at, PAGE)
        assert mr.dereg() == 1
        again = register(host, channel, at + PAGE, 1, cookie=6)
        libc.unmap(at + PAGE, PAGE)
        assert [(e.cookie, e.count) for e in channel.read()] == [(5, 1), (6, 1)]
        assert again.dereg() == 1


PYTHON_READER = """
import mmap, struct, sys
fd = int(sys.argv[1])
page = mmap.mmap(fd, 4096, mmap.MAP_SHARED, mmap.PROT_READ)
for line in sys.stdin:
    print(struct.unpack_from('=Q', page)[0], flush=True)
try:
    mmap.mmap(fd, 4096)
except PermissionError:
    print('read-only')
"""

C_READER = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

int main(int argc, char **argv) {
  int fd = atoi(argv[argc - 1]);
  const volatile uint64_t *generation = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
  if (generation == MAP_FAILED) return 1;
  while (getchar() != EOF) {
    printf("%llu\\n", (unsigned long long)*generation);
    fflush(stdout);
  }
  if (mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED) puts("read-only");
  return 0;
}
"""


def c_reader(directory: Path) -> list[str]:
    """Compiles the reader in C."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    source = directory / "reader.c"
    source.write_text(C_READER)
    subprocess.run([compiler, "-o", directory / "reader", source], check=True)
    return [str(directory / "reader")]


@pytest.mark.parametrize("language", ["python", "c"])
def test_another_process_sees_the_generation(
    host: Host, channel: InvalidationChannel, tmp_path: Path, language: str
) -> None:
    command = [sys.executable, "-c", PYTHON_READER] if language == "python" else c_reader(tmp_path)
    fd = channel.generation_fd
    with subprocess.Popen(
        [*command, str(fd)],
        pass_fds=[fd],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin
        assert stdout

        def seen() -> int:
            stdin.write("\n")
            stdin.flush()
            return int(stdout.readline())

        with libc.pages(1) as at:
            mr = register(host, channel, at, 1)
            assert seen() == channel.generation
            libc.unmap(at, PAGE)
            assert seen() == channel.generation == channel.page[0]
            assert mr.dereg() == 1
        stdin.close()
        assert stdout.read() == "read-only\n"


def test_a_thousand_regions_on_one_channel(host: Host, channel: InvalidationChannel) -> None:
    count = 1000
    with libc.pages(2 * count) as at:
        regions = [register(host, channel, at + 2 * PAGE * n, 1, cookie=n) for n in range(count)]
        libc.unmap(at + 2 * PAGE * 300, PAGE)
        assert [event.cookie for event in channel.read()] == [300]
        libc.unmap(at, 2 * count * PAGE)
        cookies = [event.cookie for event in channel.read(count)]
        assert sorted(cookies) == [n for n in range(count) if n != 300]
        assert [mr.dereg() for mr in regions] == [1] * count


def test_a_channel_may_be_closed_before_its_regions(
    host: Host, channel: InvalidationChannel
) -> None:
    with libc.pages(2) as at:
        mr = register(host, channel, at, 2)
        libc.unmap(at, PAGE)
        channel.close()
        libc.unmap(at + PAGE, PAGE)
        assert mr.dereg() == 2


def test_fork_leaves_the_notices_with_the_parent(host: Host, channel: InvalidationChannel) -> None:
    with libc.pages(2) as at:
        mr = register(host, channel, at, 2)
        child = os.fork()
        if child == 0:
            libc.unmap(at, PAGE)
            try:
                channel.read()
            except hca.VerbsError as error:
                os._exit(0 if error.errno == errno.EIO else 2)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert channel.read() == []
        libc.unmap(at, PAGE)
        assert mr.dereg() == 1


def test_parts_of_huge_pages(host: Host, channel: InvalidationChannel) -> None:
    huge = huge_page_bytes("/proc/meminfo") or 2 << 20
    with host.pd.alloc_mr_buffer(2 * huge) as buffer:
        if buffer.page_bytes == PAGE:
            pytest.skip("no huge pages are reserved: vm.nr_hugepages")
        at, most = buffer.addr, huge + huge // 2
        first = host.pd.reg_mr(addr=at + 3 * PAGE, length=100, invalidation=channel, cookie=1)
        second = host.pd.reg_mr(addr=at + 9 * PAGE, length=most, invalidation=channel, cookie=2)
        libc.advise(at, huge, mmap.MADV_DONTNEED)
        told = [(e.cookie, e.offset, e.length) for e in channel.read()]
        assert told == [(1, 0, 100), (2, 0, huge - 9 * PAGE)]
        assert first.dereg() == 1
        libc.unmap(at + huge, huge)
        assert second.dereg() == 2


def test_everything_works_without_privilege() -> None:
    if os.getuid() != 0:
        pytest.skip("this process has no privilege to drop")
    program = (
        "import mmap, os\n"
        "from softhca.testing import open_simulated\n"
        "with open_simulated('10.0.0.1', seed=1) as device, device.alloc_pd() as pd:\n"
        "    os.setgid(65534)\n"
        "    os.setuid(65534)\n"
        "    channel = device.create_invalidation_channel()\n"
        "    mapping = mmap.mmap(-1, 4096)\n"
        "    mr = pd.reg_mr(mapping, invalidation=channel)\n"
        "    mapping.close()\n"
        "    assert mr.dereg() == len(channel.read()) == 1\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
