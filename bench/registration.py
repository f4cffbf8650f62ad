"""What registering costs: plainly, with notices, and through the cache.

    python bench/registration.py [--rounds 20000]

Medians of chunks; each figure stands beside a probe that runs in the same turn, so that the ratios
mean the same on a busy machine and on a quiet one. The bounds: registering with notices costs at
most twice a plain registration plus one system call, deregistering likewise, and a hit of the cache
stays under a microsecond. That it makes no system call is shown by tests/invalidation.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import mmap
import os
import statistics
import struct
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

import softhca as hca
from softhca.testing import open_simulated

# Short ones, so that most are over before somebody else gets the processor.
CHUNKS = 400
PAGE = mmap.PAGESIZE
USERFAULTFD = 323
UFFDIO_API, UFFDIO_REGISTER, UFFDIO_UNREGISTER = 0xC018AA3F, 0xC020AA00, 0x8010AA01


class Probe:
    """The system calls of userfaultfd alone, on a mapping of its own."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.syscall(USERFAULTFD, os.O_CLOEXEC | os.O_NONBLOCK | 1)
        fcntl.ioctl(self.fd, UFFDIO_API, bytearray(struct.pack("=QQQ", 0xAA, 1 << 15, 0)))
        self.mapping = mmap.mmap(-1, 3 * PAGE)
        whole = ctypes.c_char.from_buffer(self.mapping)
        self.addr = ctypes.addressof(whole) + PAGE
        del whole
        self.request = bytearray(struct.pack("=QQQQ", self.addr, PAGE, 2, 0))
        self.range = struct.pack("=QQ", self.addr, PAGE)

    def watch(self) -> None:
        """The system call that watches a page."""
        fcntl.ioctl(self.fd, UFFDIO_REGISTER, self.request)

    def stop(self, _: object) -> None:
        """The one that stops."""
        fcntl.ioctl(self.fd, UFFDIO_UNREGISTER, self.range)


def chunk_ns(work: Callable[[], object], rounds: int) -> float:
    """Nanoseconds of one call, over a chunk of them."""
    times = range(rounds)
    begin = time.perf_counter_ns()
    for _ in times:
        work()
    return (time.perf_counter_ns() - begin) / rounds


def pair_ns(
    make: Callable[[], object], end: Callable[[Any], object], rounds: int
) -> tuple[float, float]:
    """Nanoseconds of making a thing and of ending it, each the median of a chunk."""
    now = time.perf_counter_ns
    made, ended = [], []
    for _ in range(rounds):
        begin = now()
        thing = make()
        middle = now()
        end(thing)
        ended.append(now() - middle)
        made.append(middle - begin)
    return statistics.median(made), statistics.median(ended)


def unmapping_ns(pd: hca.PD, channel: hca.InvalidationChannel, rounds: int) -> dict[str, float]:
    """Nanoseconds of unmapping a page: plain, and watched, when it waits for the notice."""
    now = time.perf_counter_ns
    took: dict[str, list[int]] = defaultdict(list)
    for _ in range(rounds):
        for name in ("unmapping, plain", "unmapping, watched"):
            mapping = mmap.mmap(-1, PAGE)
            mr = pd.reg_mr(mapping, invalidation=channel) if name.endswith("watched") else None
            begin = now()
            mapping.close()
            took[name].append(now() - begin)
            if mr is not None:
                mr.dereg()
    return {name: statistics.median(found) for name, found in took.items()}


def with_block(cache: hca.RegistrationCache, buffer: object) -> None:
    """A hit as most programs write it, and the call of this function."""
    with cache.registered(buffer):
        pass


def measure(rounds: int) -> dict[str, float]:
    """Medians in nanoseconds, of chunks that take turns."""
    mapping = mmap.mmap(-1, 3 * PAGE)
    first = ctypes.c_char.from_buffer(mapping)
    addr = ctypes.addressof(first) + PAGE
    del first
    array = np.zeros(1 << 16)
    raw = bytearray(1 << 16)
    probe = Probe()
    with open_simulated("10.0.0.1", seed=1) as device, device.alloc_pd() as pd:
        channel = device.create_invalidation_channel()
        page = channel.page
        with hca.RegistrationCache(pd) as cache:
            cache.put(cache.get(array))
            cache.put(cache.get(raw))
            works: dict[str, Callable[[], object]] = {
                "nothing": lambda: None,
                "generation": lambda: page[0],
                "hit bytearray": lambda: cache.put(cache.get(raw)),
                "hit numpy": lambda: cache.put(cache.get(array)),
                "hit in a with": lambda: with_block(cache, raw),
                "hit part": lambda: cache.put(cache.get(view)),
            }
            pairs: dict[str, tuple[Callable[[], object], Callable[[Any], object]]] = {
                "system call": (probe.watch, probe.stop),
                "plain": (lambda: pd.reg_mr(addr=addr, length=PAGE), hca.MR.dereg),
                "notices": (
                    lambda: pd.reg_mr(addr=addr, length=PAGE, invalidation=channel),
                    hca.MR.dereg,
                ),
            }
            view = memoryview(raw)[100:200]
            cache.put(cache.get(view))
            chunks: dict[str, list[float]] = defaultdict(list)
            size = max(1, rounds // CHUNKS)
            for _ in range(CHUNKS):
                for name, work in works.items():
                    chunks[name].append(chunk_ns(work, size))
                for name, (make, end) in pairs.items():
                    made, ended = pair_ns(make, end, size)
                    chunks[f"{name}, on"].append(made)
                    chunks[f"{name}, off"].append(ended)
            unmapping = unmapping_ns(pd, channel, max(1, rounds // 10))
    empty = statistics.median(chunks["nothing"])
    return {
        name: statistics.median(found) - (empty if name != "nothing" else 0)
        for name, found in chunks.items()
    } | unmapping


def main() -> None:
    """Prints the figures and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=20000)
    median = measure(parser.parse_args().rounds)
    for name, ns in median.items():
        print(f"{name:18} {ns:9.0f} ns")
    for part, what in (("on", "registering"), ("off", "deregistering")):
        bound = 2 * median[f"plain, {part}"] + median[f"system call, {part}"]
        ratio = median[f"notices, {part}"] / bound
        print(f"{what} with notices, of twice plain and the system call: {ratio:.2f}")
    for kind in ("bytearray", "numpy", "in a with", "part"):
        print(f"a hit, {kind}, of 1 us: {median[f'hit {kind}'] / 1000:.2f}")


if __name__ == "__main__":
    main()
