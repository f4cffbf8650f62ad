"""A cache of registrations is quick, bounded, and never stale."""

from __future__ import annotations

import copy
import ctypes
import errno
import mmap
import os
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import softhca as hca
from api.hosts import Host, Pair
from softhca import Access, RegistrationCache, VerbsError

from . import libc
from .libc import LARGE, PAGE

READ = Access.REMOTE_READ


@pytest.fixture
def cache(host: Host) -> Iterator[RegistrationCache]:
    """A cache of eight registrations."""
    with RegistrationCache(host.pd, size=8, dirty_watermark=2) as cache:
        yield cache


def view(address: int, size: int) -> ctypes.Array[ctypes.c_char]:
    """A buffer of memory that is somebody else's."""
    return (ctypes.c_char * size).from_address(address)


def counts(cache: RegistrationCache) -> tuple[int, int, int, int]:
    """Hits, misses, evictions, invalidations."""
    s = cache.statistics
    return s.hits, s.misses, s.evictions, s.invalidations


def test_a_buffer_is_registered_once(cache: RegistrationCache) -> None:
    buffer = bytearray(100)
    with cache.registered(buffer) as first:
        assert first.length == len(first) == 100
        with cache.registered(buffer) as second:
            assert second.mr is first.mr
            assert cache.statistics.in_use == 1
    with cache.registered(buffer) as third:
        assert third.mr is first.mr
    assert counts(cache) == (2, 1, 0, 0)
    assert cache.statistics.registered == 1
    assert cache.statistics.in_use == 0
    buffer.extend(b"resized, since the cache holds no export of it")


def test_what_is_lent_is_not_copied(cache: RegistrationCache) -> None:
    memory = bytearray(200)
    whole, part = cache.get(memory), cache.get(memoryview(memory)[:100])
    for thing in (whole, part):
        for reproduce in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="cannot pickle or copy"):
                reproduce(thing)
    cache.put(part)
    assert cache.statistics.in_use == 1
    cache.put(whole)


def test_what_is_lent_goes_into_work_requests(simulated: Pair) -> None:
    """As a region does: whole, and only what was asked for of the region under it."""
    near, far = simulated.connected(max_inline_data=64)
    whole = bytearray(b"0123456789" * 10)
    window = simulated.a.keep(simulated.a.pd.alloc_mw(hca.MwType.TYPE_2))
    rights = Access.LOCAL_WRITE | Access.MW_BIND
    with RegistrationCache(simulated.a.pd, size=2) as cache:
        lent = cache.get(whole, rights)
        part = cache.get(memoryview(whole)[20:30], rights)
        assert part.mr is lent.mr
        remote = simulated.b.mr.remote()
        for inline in (False, True):
            near.post_send(hca.Write(part, remote=remote, inline=inline, signaled=True))
            assert simulated.completion(simulated.a).ok
            assert simulated.b.buffer[:11] == b"0123456789\0"
            simulated.b.buffer[:11] = bytes(11)
        near.post_recv(hca.Recv([part]))
        far.post_send(hca.Send(b"received", inline=True))
        assert simulated.completion(simulated.a).byte_len == 8
        assert whole[20:30] == b"received89"
        bind = hca.BindMw(window, part, rkey=window.rkey, access=Access.REMOTE_READ, signaled=True)
        assert (bind.remote.addr, bind.remote.length) == (part.addr, 10)
        near.post_send([bind, hca.LocalInv(window.rkey, signaled=True)])
        assert simulated.completion(simulated.a).ok
        assert simulated.completion(simulated.a).ok
        for one in (lent, part):
            cache.put(one)


def test_a_part_is_found_in_the_whole(cache: RegistrationCache) -> None:
    whole = np.zeros(1000, "u1")
    with cache.registered(whole) as region, cache.registered(whole[100:200]) as part:
        assert part.mr is region.mr
        assert part.addr == region.addr + 100
        assert part[10:20].addr == region.addr + 110
        assert part.remote() == hca.RemoteMemory(part.addr, region.rkey, 100)
        with pytest.raises(VerbsError, match="101"):
            part[:101]
    with cache.registered(whole[100:200]), cache.registered(whole[999:]):
        pass
    assert counts(cache) == (3, 1, 0, 0)
    # One byte more than the whole, and the byte before it.
    raw = view(region.addr, 1001)
    with cache.registered(raw):
        pass
    assert cache.statistics.misses == 2


def test_rights_that_a_registration_has_not_need_another(cache: RegistrationCache) -> None:
    buffer = bytearray(64)
    with cache.registered(buffer, READ) as reading:
        assert reading.mr.access == READ
        with cache.registered(buffer, READ | Access.LOCAL_WRITE) as writing:
            assert writing.mr is not reading.mr
        with cache.registered(memoryview(buffer)[:32], Access.LOCAL_WRITE) as part:
            assert part.mr is writing.mr
    assert counts(cache) == (1, 2, 0, 0)


def test_the_least_recently_used_makes_room(cache: RegistrationCache) -> None:
    buffers = [bytearray(64) for _ in range(9)]
    for buffer in buffers[:8]:
        cache.put(cache.get(buffer))
    cache.put(cache.get(buffers[0]))
    cache.put(cache.get(buffers[8]))
    assert counts(cache) == (1, 9, 1, 0)
    cache.put(cache.get(buffers[0]))
    assert counts(cache) == (2, 9, 1, 0)
    cache.put(cache.get(buffers[1]))
    assert counts(cache) == (2, 10, 2, 0)
    assert cache.statistics.registered == 8


def test_all_lent(cache: RegistrationCache) -> None:
    buffers = [bytearray(64) for _ in range(9)]
    lent = [cache.get(buffer) for buffer in buffers[:8]]
    with pytest.raises(VerbsError, match="size=8: registrations are all lent") as refused:
        cache.get(buffers[8])
    assert refused.value.errno == errno.EAGAIN
    cache.put(lent.pop())
    lent.append(cache.get(buffers[8]))
    for region in lent:
        cache.put(region)


def test_memory_that_went_is_registered_anew(cache: RegistrationCache) -> None:
    with libc.pages(1) as at:
        buffer = view(at, PAGE)
        before = cache.get(buffer)
        cache.put(before)
        libc.unmap(at, PAGE)
        libc.map_pages(1, at=at)
        after = cache.get(buffer)
        assert after.mr is not before.mr
        assert counts(cache) == (0, 2, 0, 1)
        cache.put(after)
        with cache.registered(buffer) as again:
            assert again.mr is after.mr


def test_memory_that_went_while_it_was_lent(cache: RegistrationCache) -> None:
    with libc.pages(2) as at:
        lent = cache.get(view(at, 2 * PAGE))
        part = cache.get(view(at + PAGE, PAGE))
        libc.map_pages(1, at=at)
        fresh = cache.get(view(at + PAGE, PAGE))
        assert fresh.mr is not lent.mr
        assert not lent.mr.closed
        cache.put(lent)
        assert not lent.mr.closed
        assert cache.statistics.in_use == 2
        cache.put(part)
        cache.put(fresh)
        assert cache.statistics.dirty == 1
        cache.flush()
        assert lent.mr.closed
        assert cache.statistics.dirty == 0


def test_what_was_dropped_is_flushed_together(host: Host) -> None:
    flushed: list[int] = []
    with (
        libc.pages(6) as at,
        RegistrationCache(
            host.pd, dirty_watermark=3, flush=lambda c: flushed.append(c.statistics.dirty)
        ) as cache,
    ):
        for page in range(6):
            cache.put(cache.get(view(at + page * PAGE, PAGE)))
        libc.unmap(at, 2 * PAGE)
        cache.put(cache.get(view(at + 5 * PAGE, PAGE)))
        assert cache.statistics.dirty == 2
        assert flushed == []
        libc.unmap(at + 2 * PAGE, PAGE)
        cache.put(cache.get(view(at + 5 * PAGE, PAGE)))
        assert flushed == [0]
        assert cache.statistics.flushes == 1


def test_an_array_at_the_address_of_a_dead_one(host: Host) -> None:
    """Whatever lies at the address now is what a peer would reach."""
    with RegistrationCache(host.pd, size=1000) as cache:
        seen = {}
        for _ in range(30):
            array = np.zeros(LARGE, "u1")
            region = cache.get(array)
            cache.put(region)
            before = seen.get(region.addr)
            assert before is None or before is not region.mr
            seen[region.addr] = region.mr
            del array
        assert cache.statistics.invalidations == 29
        assert len(seen) < 30


def test_a_peer_reads_the_present_bytes(simulated: Pair) -> None:
    near, _ = simulated.connected()
    with libc.pages(1) as at, RegistrationCache(simulated.b.pd) as cache:
        for value in range(1, 6):
            libc.map_pages(1, at=at)
            buffer = view(at, PAGE)
            buffer[0] = value
            with cache.registered(buffer) as region:
                remote = region.remote()[:1]
                near.post_send(hca.Read(simulated.a.mr[:1], remote=remote, signaled=True))
                simulated.completion(simulated.a).raise_for_status()
            assert simulated.a.buffer[0] == value
        assert cache.statistics.misses == 5


def test_several_threads(host: Host) -> None:
    rounds, threads = 300, 4
    failures: list[BaseException] = []

    def work(at: int) -> None:
        try:
            for step in range(rounds):
                page = at + (step % 4) * PAGE
                with cache.registered(view(page, PAGE)) as region:
                    assert region.addr == page
                if step % 3 == 0:
                    libc.map_pages(1, at=page)
        except BaseException as failure:
            failures.append(failure)

    with libc.pages(4 * threads) as at, RegistrationCache(host.pd, size=12) as cache:
        workers = [threading.Thread(target=work, args=(at + 4 * n * PAGE,)) for n in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        statistics = cache.statistics
    assert not failures
    assert statistics.hits + statistics.misses == rounds * threads
    assert statistics.invalidations > 0


def test_closing(host: Host) -> None:
    cache = RegistrationCache(host.pd)
    buffer = bytearray(8)
    region = cache.get(buffer)
    with pytest.raises(VerbsError, match="registration_cache=1: registrations are lent") as refused:
        cache.close()
    assert refused.value.errno == errno.EBUSY
    cache.put(region)
    cache.close()
    cache.close()
    assert region.mr.closed
    with pytest.raises(VerbsError, match="registration_cache: is closed"):
        cache.get(buffer)


def test_the_end_of_a_block_takes_back_what_is_lent(host: Host) -> None:
    with libc.pages(1) as at:
        with RegistrationCache(host.pd) as cache:
            lent = cache.get(bytearray(8))
            gone = cache.get(view(at, PAGE))
            libc.unmap(at, PAGE)
            cache.flush()
        assert lent.mr.closed
        assert gone.mr.closed
    cache.put(lent)


def test_a_child_of_fork_gets_nothing(cache: RegistrationCache) -> None:
    buffer = bytearray(8)
    cache.put(cache.get(buffer))
    child = os.fork()
    if child == 0:
        try:
            cache.get(buffer)
        except VerbsError as error:
            os._exit(0 if error.errno == errno.EIO else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    cache.put(cache.get(buffer))
    assert cache.statistics.hits == 1


@pytest.mark.parametrize(
    ("buffer", "access", "number", "text"),
    [
        (b"constant", Access.LOCAL_WRITE, errno.EACCES, "buffer='bytes': is read-only"),
        (np.zeros((4, 4))[:, 1], None, errno.EINVAL, "is not contiguous"),
        (bytearray(8), Access.REMOTE_WRITE, errno.EINVAL, "LOCAL_WRITE"),
        (bytearray(8), Access.ZERO_BASED, errno.EINVAL, "ZERO_BASED names no address"),
    ],
)
def test_refusals_of_buffers(
    cache: RegistrationCache, buffer: Any, access: int | None, number: int, text: str
) -> None:
    with pytest.raises(VerbsError) as refused:
        cache.get(buffer, access)
    assert refused.value.errno == number
    assert text in str(refused.value)
    assert counts(cache) == (0, 0, 0, 0)


def test_other_refusals(host: Host, cache: RegistrationCache) -> None:
    with pytest.raises(TypeError, match="buffer protocol or DLPack"):
        cache.get(3)
    with pytest.raises(VerbsError, match="size=0: must be 1 or more"):
        RegistrationCache(host.pd, size=0)
    with pytest.raises(VerbsError, match="dirty_watermark=0: must be 1 or more"):
        RegistrationCache(host.pd, dirty_watermark=0)
    wrong: Any = host.device
    wrong_function: Any = 3
    with pytest.raises(TypeError, match="pd must be PD, not Device"):
        RegistrationCache(wrong)
    with pytest.raises(TypeError, match="flush must be callable, not int"):
        RegistrationCache(host.pd, flush=wrong_function)
    region = cache.get(bytearray(8))
    cache.put(region)
    with pytest.raises(VerbsError, match="region: was put back already"):
        cache.put(region)


def test_read_only_and_empty_buffers(cache: RegistrationCache) -> None:
    with cache.registered(b"constant") as region, cache.registered(bytearray()) as empty:
        assert region.mr.access == READ
        assert empty.length == 0
        assert empty
    with mmap.mmap(-1, PAGE) as mapping, cache.registered(mapping):
        pass


def test_a_registration_goes_back_to_the_cache_that_lent_it(host: Host) -> None:
    buffer = bytearray(4096)
    with RegistrationCache(host.pd) as lender, RegistrationCache(host.pd) as other:
        region = lender.get(buffer)
        with pytest.raises(VerbsError, match="region: is of another cache"):
            other.put(region)
        with pytest.raises(TypeError, match="region must be CachedRegion, not NoneType"):
            lender.put(None)  # type: ignore[arg-type]
        assert (lender.statistics.in_use, other.statistics.in_use) == (1, 0)
        lender.put(region)
        assert lender.get(buffer).lkey == region.lkey


@pytest.mark.parametrize("access", ["x", 1.0])
def test_rights_that_are_no_rights_are_refused_by_name(
    cache: RegistrationCache, access: Any
) -> None:
    with pytest.raises(TypeError, match="access must be an integer"):
        cache.get(bytearray(8), access)
    assert cache.statistics.registered == 0
