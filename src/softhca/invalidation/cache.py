"""Registrations that are kept for the next time, and never outlive their memory."""

from __future__ import annotations

import errno
import os
import threading
import weakref
from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from operator import attrgetter

from softhca._adapter import buffer_key
from softhca.invalidation.cached_region import CachedRegion
from softhca.verbs.checks import instance, unsigned
from softhca.verbs.enums import Access
from softhca.verbs.errors import VerbsError
from softhca.verbs.lifetime import VerbsObject
from softhca.verbs.mr import (
    READ_ONLY_ACCESS,
    WRITABLE_ACCESS,
    WRITING,
    address_for,
    exported,
)
from softhca.verbs.pd import PD

_WRITABLE = int(WRITABLE_ACCESS)
_READ_ONLY = int(READ_ONLY_ACCESS)
# Parts of one registration that are found as fast as the whole.
_REMEMBERED_PARTS = 64
# Neighbours that are looked at for one that covers a buffer; with more, it is registered once more.
_LOOKED_AT = 32
_EVENTS = 1024

_address = attrgetter("_address")


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """What a cache has done, and holds.

    Attributes:
        hits: Buffers that were registered already.
        misses: Buffers that had to be registered.
        evictions: Registrations that made room for others.
        invalidations: Registrations whose memory went away.
        flushes: Times that what was dropped was deregistered.
        registered: Registrations that can be hit.
        in_use: Registrations that are lent.
        dirty: Registrations that were dropped and are still to be deregistered.
    """

    hits: int
    misses: int
    evictions: int
    invalidations: int
    flushes: int
    registered: int
    in_use: int
    dirty: int


class RegistrationCache(VerbsObject):
    """Keeps buffers registered after their use, for the next (after the kernel's ib_fmr_pool.h).

    ```python
    with RegistrationCache(pd, size=256) as cache:
        with cache.registered(buffer) as mr:
            qp.post_send(Write(mr[:], remote=far))
    ```

    A buffer that lies in a kept registration with the rights that are asked for needs no new one.
    The cache holds no buffer: memory may be freed, unmapped and mapped again at the same address at
    any time. Each registration asks for notices, and a registration whose memory went is never
    given out again. All methods may be called from several threads.

    Attributes:
        pd: The protection domain.
        size: Registrations that are kept at most, lent ones included.
        dirty_watermark: So many dropped registrations are deregistered together.
    """

    __slots__ = (
        *("_by_cookie", "_by_range", "_channel", "_cookies", "_dirty", "_evictions", "_flush"),
        *("_flushes", "_hits", "_idle", "_invalidations", "_lock", "_longest", "_misses", "_page"),
        *("_lent_dropped", "_seen", "_sorted", "_untold", "dirty_watermark", "pd", "size"),
    )

    kind = "registration_cache"

    def __init__(
        self,
        pd: PD,
        size: int = 1024,
        dirty_watermark: int = 32,
        flush: Callable[[RegistrationCache], object] | None = None,
    ) -> None:
        """Makes an empty cache.

        Args:
            pd: Where buffers are registered.
            size: Registrations that are kept at most.
            dirty_watermark: Registrations that are dropped, since their memory went, are
                deregistered when there are so many of them.
            flush: Is called with the cache each time that was done, by whoever caused it. It may
                use the cache; what it raises reaches its caller, who has then got nothing.

        Raises:
            VerbsError: EOPNOTSUPP, where the system cannot tell that memory goes away; EINVAL, for
                a size or watermark of 0.
        """
        self.pd: PD = instance("pd", pd, PD)
        self.size: int = _positive("size", size)
        self.dirty_watermark: int = _positive("dirty_watermark", dirty_watermark)
        if flush is not None and not callable(flush):
            raise TypeError(f"flush must be callable, not {type(flush).__name__}")
        self._flush = flush
        self._channel = pd.device.create_invalidation_channel()
        self._page = self._channel.page
        self._seen = self._page[0]
        self._cookies = count(1)
        self._hits = self._misses = self._evictions = self._invalidations = self._flushes = 0
        # An RLock: what is freed in the middle may put something back.
        self._lock = threading.RLock()
        self._start_empty()
        super().__init__(pd._hca, pd)
        _caches.add(self)

    def _start_empty(self) -> None:
        # By address, length and rights of a buffer; parts of registrations too.
        self._by_range: dict[tuple[int, int, int], CachedRegion] = {}
        self._by_cookie: dict[int, CachedRegion] = {}
        self._sorted: list[CachedRegion] = []  # Whole registrations by address.
        self._longest = 0
        self._idle: OrderedDict[int, CachedRegion] = OrderedDict()  # By cookie; oldest use first.
        # Dropped ones by cookie: still lent; and to be deregistered.
        self._lent_dropped: dict[int, CachedRegion] = {}
        self._dirty: dict[int, CachedRegion] = {}
        self._untold = 0  # Flushes that `flush` is to be called for, once the lock is let go.

    def get(self, buffer: object, access: int | None = None) -> CachedRegion:
        """Returns a registration of `buffer`; it is to be put back, or used in a `with` block.

        Args:
            buffer: As for `pd.reg_mr()`. The caller keeps it until the last work request that uses
                the registration has completed.
            access: Rights that are needed, as for `pd.reg_mr()`.

        Raises:
            VerbsError: EAGAIN, if `size` registrations are lent; what `pd.reg_mr()` raises.
        """
        try:
            key = buffer_key(buffer)
        except (TypeError, ValueError, BufferError):
            export, addr, length, read_only = exported(buffer)
            export.release()
            key = (addr, length, _READ_ONLY if read_only else _WRITABLE)
        if access is not None:
            access = unsigned("access", access, 32)
            if key[2] == _READ_ONLY and access & WRITING:
                rule = "is read-only: ask for no right to write"
                raise VerbsError(errno.EACCES, "buffer", type(buffer).__name__, rule)
            key = (key[0], key[1], access)
        with self._lock:
            if self._page[0] != self._seen:
                self._drop_gone()
            region = self._by_range.get(key)
            if region is None:
                region = self._find_covering(key)
            if region is None:
                region = self._register(key)
            else:
                owner = region._owner
                owner._users += 1
                self._idle.pop(owner._cookie, None)
                self._hits += 1
        if self._untold:
            try:
                self._tell_of_flushes()
            except BaseException:
                self.put(region)
                raise
        return region

    def put(self, region: CachedRegion) -> None:
        """Takes a registration back, to keep it for the next time.

        Args:
            region: What `get` returned.

        Raises:
            VerbsError: EINVAL, if it is not lent, or by another cache.
        """
        if instance("region", region, CachedRegion)._cache is not self:
            raise VerbsError(errno.EINVAL, "region", None, "is of another cache")
        with self._lock:
            if self._closed:
                return
            owner = region._owner
            if not owner._users:
                raise VerbsError(errno.EINVAL, "region", None, "was put back already")
            owner._users -= 1
            if owner._users:
                return
            if not owner._dropped:
                self._idle[owner._cookie] = owner
            elif self._lent_dropped.pop(owner._cookie, None) is not None:
                self._dirty[owner._cookie] = owner
                self._deregister_if_many()
        if self._untold:
            self._tell_of_flushes()

    # For `with` blocks, which put it back themselves.
    registered = get

    def flush(self) -> None:
        """Deregisters now what was dropped and is no longer lent (ib_flush_fmr_pool).

        What a memory window is still bound to has to wait until it no longer is.
        """
        with self._lock:
            self._demand_open()
            if self._page[0] != self._seen:
                self._drop_gone()
            self._deregister_dirty()
        self._tell_of_flushes()

    @property
    def statistics(self) -> CacheStatistics:
        """What the cache has done, and holds."""
        with self._lock:
            registered = len(self._by_cookie)
            return CacheStatistics(
                hits=self._hits,
                misses=self._misses,
                evictions=self._evictions,
                invalidations=self._invalidations,
                flushes=self._flushes,
                registered=registered,
                in_use=self._lent(),
                dirty=len(self._dirty),
            )

    def _lent(self) -> int:
        return len(self._by_cookie) - len(self._idle) + len(self._lent_dropped)

    def _find_covering(self, key: tuple[int, int, int]) -> CachedRegion | None:
        """Returns the part of a kept registration that is this buffer, if one covers it."""
        addr, length, access = key
        at = bisect_right(self._sorted, addr, key=_address)
        for whole in reversed(self._sorted[max(0, at - _LOOKED_AT) : at]):
            if addr + length - whole._address > self._longest:
                break
            if addr + length > whole._address + whole.length:
                continue
            if whole.mr.access & access == access:
                part = CachedRegion(self, whole.mr, addr, length, whole)
                if len(whole._keys) < _REMEMBERED_PARTS:
                    whole._keys.append(key)
                    self._by_range[key] = part
                return part
        return None

    def _register(self, key: tuple[int, int, int]) -> CachedRegion:
        self._demand_open()
        addr, length, access = key
        if access & Access.ZERO_BASED:
            rule = "ZERO_BASED names no address: a cache cannot tell buffers apart by it"
            raise VerbsError(errno.EINVAL, "access", Access(access), rule)
        self._make_room()
        cookie = next(self._cookies)
        mr = self.pd.reg_mr(
            addr=addr,
            length=length,
            iova=address_for(self.pd, addr, length),
            access=access,
            invalidation=self._channel,
            cookie=cookie,
        )
        region = CachedRegion(self, mr, addr, length)
        region._cookie = cookie
        region._users = 1
        region._keys.append(key)
        self._by_range[key] = region
        self._by_cookie[cookie] = region
        insort(self._sorted, region, key=_address)
        self._longest = max(self._longest, length)
        self._misses += 1
        return region

    def _make_room(self) -> None:
        while len(self._by_cookie) + len(self._lent_dropped) + len(self._dirty) >= self.size:
            evicts = bool(self._idle)
            if evicts:
                _, oldest = self._idle.popitem(last=False)
                self._evictions += 1
                self._drop(oldest)
                self._dirty[oldest._cookie] = oldest
            if not self._deregister_dirty() and not evicts:
                rule = "registrations are all lent, or windows bound to them: put some back"
                raise VerbsError(errno.EAGAIN, "size", self.size, rule)

    def _drop_gone(self) -> None:
        """Drops registrations whose memory went, as far as the generation tells."""
        self._demand_open()
        self._seen = self._page[0]
        while events := self._channel.read(_EVENTS):
            for event in events:
                region = self._by_cookie.get(event.cookie)
                if region is None:  # Dropped already.
                    continue
                self._invalidations += 1
                # First, for it may be put back in the middle.
                self._lent_dropped[region._cookie] = region
                self._drop(region)
                if not region._users and self._lent_dropped.pop(region._cookie, None) is not None:
                    self._idle.pop(region._cookie, None)
                    self._dirty[region._cookie] = region
        self._deregister_if_many()

    def _drop(self, region: CachedRegion) -> None:
        """Lets nobody find it any more."""
        region._dropped = True
        del self._by_cookie[region._cookie]
        for key in region._keys:
            if (found := self._by_range.get(key)) is not None and found._owner is region:
                del self._by_range[key]
        at = bisect_right(self._sorted, region._address, key=_address) - 1
        while self._sorted[at] is not region:
            at -= 1
        del self._sorted[at]

    def _deregister_if_many(self) -> None:
        if len(self._dirty) >= self.dirty_watermark:
            self._deregister_dirty()

    def _deregister_dirty(self) -> int:
        """Deregisters what was dropped, but what windows are bound to; returns how many."""
        done = 0
        for cookie in list(self._dirty):
            try:
                done += self._deregister(cookie)
            except VerbsError as refusal:
                if refusal.errno != errno.EBUSY:
                    raise
        if done:
            self._flushes += 1
            self._untold += self._flush is not None
        return done

    def _deregister(self, cookie: int) -> bool:
        """Deregisters what was dropped; False, if what was freed in the middle has done so."""
        region = self._dirty.pop(cookie, None)
        if region is None:
            return False
        try:
            region.mr.close()
        except BaseException:
            self._dirty[cookie] = region
            raise
        return True

    def _tell_of_flushes(self) -> None:
        """Calls `flush` with no lock held: it may wait for others that use the cache."""
        while True:
            with self._lock:
                if not self._untold:
                    return
                self._untold -= 1
            if self._flush is not None:
                self._flush(self)

    def _demand_open(self) -> None:
        if self._inherited():
            raise VerbsError(
                errno.EIO, self.kind, None, "belongs to the parent process: make one after fork()"
            )
        if self._closed:
            raise VerbsError(errno.EINVAL, self.kind, None, "is closed")

    def close(self) -> None:
        """Deregisters everything. Does nothing the second time.

        Raises:
            VerbsError: EBUSY, while registrations are lent or windows bound to them; the cache
                stays open.
        """
        with self._lock:
            lent = 0 if self._closed or self._inherited() else self._lent()
            if lent:
                raise VerbsError(errno.EBUSY, self.kind, lent, "registrations are lent")
            super().close()

    def _close_now(self) -> None:
        # Before the lock of closing objects, which deregistering takes under this one.
        with self._lock:
            super()._close_now()

    def _let_go(self) -> None:
        with self._lock:
            self._idle.update(self._by_cookie)
            self._dirty.update(self._lent_dropped)
            self._lent_dropped.clear()

    def _destroy(self) -> None:
        with self._lock:
            for region in list(self._by_cookie.values()):
                self._drop(region)
                self._dirty[region._cookie] = region
            self._idle.clear()
            for cookie in list(self._dirty):
                # Refused with a window: the cache stays open, without the rest.
                self._deregister(cookie)
            self._start_empty()
            self._channel.close()

    def __repr__(self) -> str:
        return f"<RegistrationCache {len(self._by_cookie)} of {self.size}>"


def _positive(argument: str, value: int) -> int:
    number = unsigned(argument, value, 32)
    if number == 0:
        raise VerbsError(errno.EINVAL, argument, number, "must be 1 or more")
    return number


_caches: weakref.WeakSet[RegistrationCache] = weakref.WeakSet()


def _empty_in_child() -> None:
    # The registrations are the parent's, and so may be the thread that held the lock.
    for cache in _caches:
        cache._lock = threading.RLock()
        cache._start_empty()


os.register_at_fork(after_in_child=_empty_in_child)
