"""Hooks that raise or wait, windows that stay, threads that close: the cache goes on."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
from itertools import count
from typing import Any

import pytest

import softhca as hca
from api.hosts import Host, Pair
from softhca import Access, KeyState, MwType, RegistrationCache, VerbsError

from . import libc
from .libc import PAGE
from .test_cache import view

BINDABLE = Access.LOCAL_WRITE | Access.REMOTE_READ | Access.MW_BIND


def test_a_hook_that_raises_costs_no_notice(host: Host) -> None:
    raising = True

    def hook(cache: RegistrationCache) -> None:
        if raising:
            raise LookupError("of the hook")

    with (
        libc.pages(4) as at,
        RegistrationCache(host.pd, dirty_watermark=1, flush=hook) as cache,
    ):
        for page in range(4):
            cache.put(cache.get(view(at + page * PAGE, PAGE)))
        libc.unmap(at, 3 * PAGE)
        with pytest.raises(LookupError):
            cache.get(view(at + 3 * PAGE, PAGE))
        statistics = cache.statistics
        assert (statistics.invalidations, statistics.registered) == (3, 1)
        assert statistics.in_use == 0
        raising = False
        libc.map_pages(3, at=at)
        for page in range(3):
            cache.put(cache.get(view(at + page * PAGE, PAGE)))
        assert cache.statistics.misses == 7


def test_a_hook_may_wait_for_others_that_use_the_cache(host: Host) -> None:
    buffers = [bytearray(PAGE) for _ in range(3)]
    waited: list[bool] = []

    def use(cache: RegistrationCache) -> None:
        cache.put(cache.get(buffers[1]))

    def hook(cache: RegistrationCache) -> None:
        other = threading.Thread(target=use, args=(cache,), daemon=True)
        other.start()
        other.join(20)
        waited.append(not other.is_alive())

    with RegistrationCache(host.pd, size=2, flush=hook) as cache:
        for buffer in buffers:
            cache.put(cache.get(buffer))
    assert waited
    assert all(waited)


def test_a_window_holds_up_nobody_else(simulated: Pair) -> None:
    host = simulated.a
    qp, _ = simulated.connected()
    buffers = [bytearray(PAGE) for _ in range(6)]
    with RegistrationCache(host.pd, size=2) as cache, host.pd.alloc_mw(MwType.TYPE_1) as window:
        bound = cache.get(buffers[0], access=BINDABLE)
        qp.bind_mw(window, hca.BindInfo.of(bound[:8], Access.REMOTE_READ))
        simulated.until(lambda: window.state is KeyState.VALID)
        cache.put(bound)
        for buffer in buffers[1:]:
            cache.put(cache.get(buffer))
        assert (cache.statistics.registered, cache.statistics.dirty) == (1, 1)
        last = cache.get(buffers[1])
        with pytest.raises(VerbsError, match="windows bound") as refused:
            cache.get(buffers[2])
        assert refused.value.errno == errno.EAGAIN
        cache.put(last)
        with pytest.raises(VerbsError, match="windows are bound"):
            cache.close()
        assert not cache.closed
        cache.put(cache.get(buffers[1]))
        window.close()
        cache.flush()
        assert bound.mr.closed
        assert cache.statistics.dirty == 0


def is_put_back_at_line(host: Host, line: int) -> bool:
    """Puts what is lent back when so many lines have run; whether there are as many."""
    lines = count()

    def put_back(*event: object) -> Any:
        if event[1] == "line" and next(lines) == line:
            for region in lent:
                cache.put(region)
        return put_back

    with libc.pages(5) as at:
        cache = RegistrationCache(host.pd, size=3, dirty_watermark=1)
        lent = [cache.get(view(at + page * PAGE, PAGE)) for page in (0, 4)]
        cache.put(cache.get(view(at + PAGE, PAGE)))
        libc.map_pages(2, at=at)
        before = sys.gettrace()
        sys.settrace(put_back)
        try:
            with cache:
                for page in (4, 2, 3):
                    cache.put(cache.get(view(at + page * PAGE, PAGE)))
                in_use = cache.statistics.in_use
        finally:
            sys.settrace(before)
    assert all(region.mr.closed for region in lent)
    assert in_use >= 0
    return next(lines) > line


def test_what_is_freed_in_the_middle_may_put_something_back(host: Host) -> None:
    """The garbage collector may do so at any place."""
    line = 0
    while is_put_back_at_line(host, line):
        line += 1
    assert line > 100


CLOSED_IN_USE = """
import sys, threading
import softhca as hca

sys.setswitchinterval(1e-6)
buffers = [bytearray(100) for _ in range(16)]
with hca.open() as device, device.alloc_pd() as pd:
    for _ in range(300):
        busy = threading.Event()

        def use():
            try:
                while True:
                    for buffer in buffers:
                        cache.put(cache.get(buffer))
                    busy.set()
            except hca.VerbsError:
                busy.set()

        user = threading.Thread(target=use)
        with hca.RegistrationCache(pd, size=1) as cache:
            user.start()
            busy.wait()
        user.join()
"""


def test_a_cache_is_closed_while_others_use_it() -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", CLOSED_IN_USE], check=True, timeout=120)
