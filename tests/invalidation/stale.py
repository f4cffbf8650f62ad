"""Rounds of mapping, registering through a cache, lending, unmapping, and mapping again.

    python -m tests.invalidation.stale --rounds 100000 --seed 7

Several threads own memory at addresses that stay the same while what is mapped there changes; a
peer in another process reads and writes it. Every access through a registration that the cache gave
for what is there now moves just these bytes, and every key of what is gone is refused. With
`--careless` the registrations ask for no notices, and something stale is reached soon.
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import multiprocessing
import random
import sys
import threading
import time
from collections import Counter, deque
from typing import Any

import softhca as hca
from softhca import Access, BindInfo, BindMw, LocalInv, MwType, WcStatus

from . import libc, stale_peer
from .libc import PAGE

OWNERS = 3
PAGES = 4
# Far from where the kernel puts mappings, and free under the address sanitizer.
ZONE = 0x7E90_0000_0000
ACCESS = Access.LOCAL_WRITE | Access.REMOTE_READ | Access.REMOTE_WRITE | Access.MW_BIND
REFUSED = (WcStatus.REM_ACCESS_ERR, WcStatus.REM_OP_ERR)


class StaleError(AssertionError):
    """Something was reached that must not be, or not reached that must."""


def demand(good: object, *what: object) -> None:
    if not good:
        raise StaleError(*what)


class Careless:
    """A cache that trusts addresses, as many do."""

    def __init__(self, pd: hca.PD) -> None:
        self.pd = pd
        self.kept: dict[tuple[int, int], hca.MR] = {}

    def get(self, view: Any, access: Access) -> hca.MR:
        at = ctypes.addressof(view)
        key = (at, len(view))
        if key not in self.kept:
            self.kept[key] = self.pd.reg_mr(addr=at, length=len(view), access=access)
        return self.kept[key]

    def put(self, _: object) -> None:
        pass


class Owner(threading.Thread):
    """Owns a few pages, whose mapping it changes all the time."""

    def __init__(self, pd: hca.PD, cache: Any, pipe: Any, number: int, seed: int) -> None:
        super().__init__(daemon=True)
        self.cache, self.pipe = cache, pipe
        self.random = random.Random(f"{seed}/{number}")
        self.line = stale_peer.Line(pd, pd.device.create_cq(64))
        self.mw = pd.alloc_mw(MwType.TYPE_2)
        self.at = ZONE + (number << 32)
        self.stamp = number << 48
        self.gone: deque[hca.RemoteMemory] = deque(maxlen=4)
        self.lent: list[hca.RemoteMemory] = []
        self.counts: Counter[str] = Counter()
        self.rounds = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self.connect()
            self.map(0, PAGES)
            for _ in range(self.rounds):
                self.change()
                self.access()
                if self.gone and self.random.random() < 0.3:
                    self.reach_what_is_gone()
        except BaseException as failure:
            self.failure = failure
        finally:
            self.pipe.send(("end",))

    def ask(self, *words: Any) -> Any:
        self.pipe.send(words)
        demand(self.pipe.poll(stale_peer.PATIENCE_S), "the peer says nothing to", words[0])
        return self.pipe.recv()

    def connect(self) -> None:
        near = self.line.renew()
        far, self.scratch = self.ask("connect", near)
        assert self.line.qp is not None
        self.line.qp.connect(far, timeout=stale_peer.TIMEOUT_CODE)

    # --- mappings

    def view(self, first: int, pages: int) -> Any:
        return (ctypes.c_char * (pages * PAGE)).from_address(self.at + first * PAGE)

    def map(self, first: int, pages: int) -> None:
        libc.map_pages(pages, at=self.at + first * PAGE)
        self.fill(first, pages)

    def fill(self, first: int, pages: int) -> None:
        self.stamp += 1
        self.view(first, pages).raw = self.stamp.to_bytes(8, "little") * (pages * PAGE // 8)

    def some_pages(self) -> tuple[int, int]:
        first = self.random.randrange(PAGES)
        return first, self.random.randint(1, PAGES - first)

    def change(self) -> None:
        """Changes the mapping of some pages, or of none; others have their bytes from then on."""
        first, pages = self.some_pages()
        at, size = self.at + first * PAGE, pages * PAGE
        how = self.random.choice(("unmap", "over", "dontneed", "free", "move", "nothing"))
        self.counts[how] += 1
        if how == "unmap":
            libc.unmap(at, size)
            self.map(first, pages)
        elif how == "over":
            self.map(first, pages)
        elif how == "dontneed":
            libc.advise(at, size, mmap.MADV_DONTNEED)
            self.fill(first, pages)
        elif how == "free":
            libc.advise(at, size, mmap.MADV_FREE)
            self.fill(first, pages)
        elif how == "move":
            # One page: several may be several mappings, which do not move at once.
            libc.unmap(libc.remap(at, PAGE, 2 * PAGE), 2 * PAGE)
            self.map(first, 1)
            pages = 1
        if how == "nothing":
            return
        stop = at + pages * PAGE
        for remote in self.lent:
            start, end = max(at, remote.addr), min(stop, remote.addr + remote.length)
            if start < end:
                self.gone.append(remote[start - remote.addr : end - remote.addr])
        self.lent = [r for r in self.lent if r.addr >= stop or r.addr + r.length <= at]

    # --- accesses

    def access(self) -> None:
        first, pages = self.some_pages()
        view = self.view(first, pages)
        region = self.cache.get(view, ACCESS)
        remote = hca.RemoteMemory(ctypes.addressof(view), region.rkey, len(view))
        how = self.random.choice(("read", "write", "window", "own"))
        self.counts[how] += 1
        if how == "read":
            status, content = self.ask("read", remote)
            demand(status is WcStatus.SUCCESS, how, status)
            demand(content == view.raw, how, "other bytes than the mapping has")
        elif how == "write":
            self.written_by_peer(view, remote)
        elif how == "window":
            self.lend(view, region)
        else:
            wc = self.line.run(
                hca.Write(
                    hca.Sge(remote.addr, remote.length, region.lkey),
                    remote=self.scratch[: remote.length],
                    signaled=True,
                )
            )
            demand(wc.ok, how, wc.why)
            demand(self.ask("show", remote.length) == view.raw, how, "other bytes")
        self.cache.put(region)
        self.lent.append(remote)
        del self.lent[:-4]

    def written_by_peer(self, view: Any, remote: hca.RemoteMemory) -> None:
        self.stamp += 1
        content = self.stamp.to_bytes(8, "little") * (len(view) // 8)
        status, _ = self.ask("write", remote, content)
        demand(status is WcStatus.SUCCESS, "write", status)
        demand(view.raw == content, "write", "did not arrive in the mapping")

    def lend(self, view: Any, region: Any) -> None:
        mr = getattr(region, "mr", region)
        info = BindInfo(mr, ctypes.addressof(view), len(view), Access.REMOTE_WRITE)
        bind = BindMw(self.mw, info, rkey=hca.inc_rkey(self.mw.rkey), signaled=True)
        wc = self.line.run(bind)
        demand(wc.ok, "bind", wc.why)
        self.written_by_peer(view, bind.remote)
        wc = self.line.run(LocalInv(self.mw.rkey, signaled=True))
        demand(wc.ok, "invalidate", wc.why)

    def reach_what_is_gone(self) -> None:
        remote = self.gone.popleft()
        before = self.view(0, PAGES).raw
        if self.random.random() < 0.5:
            status, content = self.ask("read", remote)
            demand(not any(content), "gone", "bytes came by a key of what is gone")
        else:
            status, _ = self.ask("write", remote, b"\xee" * remote.length)
        demand(status in REFUSED, "gone", status)
        demand(self.view(0, PAGES).raw == before, "gone", "written by a key of what is gone")
        self.counts["refused"] += 1
        self.connect()


def run(rounds: int, seed: int, *, careless: bool = False) -> tuple[str, dict[str, Any]]:
    """One run; returns what went wrong, or nothing, and figures."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(OWNERS)]
    far = context.Process(
        target=stale_peer.main, args=([there for _, there in pipes],), daemon=True
    )
    began = time.monotonic()
    far.start()
    trouble = ""
    counts: Counter[str] = Counter()
    try:
        with hca.open() as device, device.alloc_pd() as pd:
            with hca.RegistrationCache(pd, size=2 * OWNERS, dirty_watermark=3) as cache:
                used = Careless(pd) if careless else cache
                owners = [Owner(pd, used, here, n, seed) for n, (here, _) in enumerate(pipes)]
                for number, owner in enumerate(owners):
                    owner.rounds = (rounds + number) // OWNERS
                    owner.start()
                for owner in owners:
                    owner.join()
                    counts.update(owner.counts)
                    trouble = trouble or (repr(owner.failure) if owner.failure else "")
                    owner.mw.close()
                statistics = cache.statistics
            for owner in owners:
                libc.unmap(owner.at, PAGES * PAGE)
    finally:
        far.join(10)
        far.kill()
    figures = {
        "seconds": round(time.monotonic() - began, 1),
        "rounds": rounds,
        **dict(sorted(counts.items())),
        "hits": statistics.hits,
        "misses": statistics.misses,
        "invalidations": statistics.invalidations,
        "evictions": statistics.evictions,
    }
    return trouble, figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--careless", action="store_true", help="without notices, and stale")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    trouble, figures = run(options.rounds, options.seed, careless=options.careless)
    print(figures)
    if trouble:
        print(f"FAILED with seed {options.seed}: {trouble}", file=sys.stderr)
    return 1 if trouble else 0


if __name__ == "__main__":
    sys.exit(main())
