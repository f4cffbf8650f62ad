"""Memory that a neighbour fetches again and again comes to lie in a huge page."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
from pathlib import Path

import pytest
from tests.two_processes.one_sided import Initiator, Target

from softhca import RemoteMemory, Write

HUGE = 2 << 20
PIECE = 1 << 16
COPIES = 8
COLLAPSE = 25  # MADV_COLLAPSE, Linux 6.1.
SETTINGS = Path("/sys/kernel/mm/transparent_hugepage")


def huge_kilobytes(address: int) -> int:
    """Of the mapping at this address."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if place := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(place[1], 16) <= address < int(place[2], 16)
        elif inside and line.startswith("AnonHugePages:"):
            return int(line.split()[1])
    return 0


def page_of(area: mmap.mmap) -> int:
    """Where the first whole huge page of it begins."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    return -address % HUGE


def area_of_small_pages() -> mmap.mmap:
    # A mapping of its own, which the kernel puts together with no other.
    area = mmap.mmap(-1, 3 * HUGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    area.madvise(mmap.MADV_DONTDUMP)
    area[:] = bytes(range(256)) * (len(area) // 256)
    return area


@pytest.fixture
def area() -> mmap.mmap:
    if os.environ.get("SOFTHCA_LINK") == "udp":
        pytest.skip("nobody fetches over sockets")
    enabled = SETTINGS / "enabled"
    if not enabled.exists() or "[never]" in enabled.read_text():
        pytest.skip("huge pages are switched off here")
    if int((SETTINGS / "hpage_pmd_size").read_text()) != HUGE:
        pytest.skip("huge pages have another size here")
    tried = area_of_small_pages()
    try:
        tried.madvise(COLLAPSE, page_of(tried), HUGE)
    except OSError as error:
        pytest.skip(f"the kernel makes no huge page here: {error.strerror}")
    return area_of_small_pages()


def test_what_is_written_from_again_and_again(
    pair: tuple[Initiator, Target, RemoteMemory], area: mmap.mmap
) -> None:
    initiator, _, far = pair
    page = page_of(area)
    mr = initiator.pd.reg_mr(area)
    if huge_kilobytes(mr.addr):
        pytest.skip("the kernel makes huge pages by itself here")
    for _ in range(COPIES):
        for at in range(page, page + HUGE, PIECE):
            initiator.do(Write(mr[at : at + PIECE], remote=far[0:PIECE], signaled=True))
    assert huge_kilobytes(mr.addr + page) == HUGE >> 10
    assert area[:] == bytes(range(256)) * (len(area) // 256)
    mr.dereg()
