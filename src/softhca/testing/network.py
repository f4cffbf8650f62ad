"""Hosts, links and switches of a fabric, and who reaches whom."""

from __future__ import annotations

import errno
import itertools
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

from softhca import _adapter
from softhca.testing.errors import FabricError
from softhca.testing.links import Link, Switch, shape_of
from softhca.testing.simulation import simulated_hca
from softhca.verbs.checks import instance, unsigned
from softhca.verbs.congestion import Dcqcn, congestion_settings
from softhca.verbs.device import Device
from softhca.verbs.enums import IcrcLevel
from softhca.verbs.errors import VerbsError
from softhca.verbs.gid import GID, GIDLike
from softhca.verbs.opening import icrc_level

E = TypeVar("E")

# The same on every machine, unlike the number of its processors.
_VECTORS = 4
# Where buffers of the first host begin for its peers; the next host's begin so much later.
_ADDRESSES_PER_HOST = 1 << 40
_PAGE = 4096
# Objects that are named, of all that were left to the garbage collector.
_MOST_FORSAKEN = 100


def _demand_known(what: str, options: dict[str, Any], known: dict[str, Any] | None) -> None:
    """Refuses options that there are not, in words of who gave them: TypeError."""
    known = known or {}
    for name in options:
        if name not in known:
            raise TypeError(f"{name!r} is no option of {what}: {', '.join(known)}")


class _World:
    """A fabric as one of its devices knows it."""

    def __init__(self, fabric: Network, number: int) -> None:
        self._fabric = fabric
        self.num_comp_vectors = _VECTORS
        self._next_address = (number + 1) * _ADDRESSES_PER_HOST

    def wait(self, take: Callable[[], E | None], timeout: float | None, what: str) -> E:
        return self._fabric.wait(take, timeout, what)

    def passes_in(self, loop: object) -> bool:
        return loop in self._fabric.loops

    def left_open(self, told: str) -> None:
        if len(self._fabric.forsaken) < _MOST_FORSAKEN:
            self._fabric.forsaken.append(told)

    def address_for(self, address: int, length: int) -> int:
        if length > _ADDRESSES_PER_HOST:
            return address  # No room: as good as the whole address space.
        # What alignment within a word decides must be as it is in memory.
        first = self._next_address + address % 8
        self._next_address += (length + 8 + 2 * _PAGE - 1) // _PAGE * _PAGE
        return first


class Network(ABC):
    """The part of a fabric that says what there is.

    Attributes:
        seed: Of everything that is drawn.
        devices: The devices of the hosts, in order.
        switches: In order.
        links: In order.
        forsaken: What programs forgot without closing it, and the garbage collector closed.
    """

    def __init__(self, native: _adapter.Fabric, seed: int, link: dict[str, Any]) -> None:
        self.seed: int = seed
        self._defaults = link
        self._native = native
        self.devices: list[Device] = []
        self.switches: list[Switch] = []
        self.links: list[Link] = []
        self.forsaken: list[str] = []
        self._checked_links = 0
        self._believes_damage = False  # Some host does not look at the ICRC.
        # Event loops that let its time pass: asyncio's, and tokens of trio's.
        self.loops: set[object] = set()

    @abstractmethod
    def wait(self, take: Callable[[], E | None], timeout: float | None, what: str) -> E:
        """Lets things happen until `take()` gives something; what blocking waits of devices do."""

    @abstractmethod
    def _polled_nothing(self) -> None:
        """A poll found nothing: something may happen meanwhile."""

    def host(
        self, name: str | None = None, *, gid: GIDLike | None = None, **options: Any
    ) -> Device:
        """Adds a host with an adapter, and returns the device.

        Args:
            name: What traces and messages call it; by default h1, h2 and so on, but for those that
                others were given.
            gid: Its address; by default 10.0.0.1, 10.0.0.2 and so on, but for those that other
                hosts were given.
            options: As for `open_simulated`: mtu, icrc, limits, retry_early, windows, dcqcn.

        Raises:
            VerbsError: EADDRINUSE, if another host has the address; EEXIST, if another host or
                switch has the name; EINVAL, for an address that no host can have, and once the
                fabric is closed.
        """
        _demand_known("a host", options, simulated_hca.__kwdefaults__)
        number = len(self.devices)
        name = self._name_for(name, "h", number + 1)
        address = gid if gid is not None else self._free_address(number + 1)
        ip = GID(address).ip
        if ip.is_multicast or ip.is_unspecified:
            raise VerbsError(errno.EINVAL, "gid", gid, "must be the address of one host")
        options.setdefault("mtu", self._defaults["mtu"])
        seed = (self.seed * 1_000_003 + number) % (1 << 63)
        if GID(address) in self._taken_addresses():
            raise VerbsError(errno.EADDRINUSE, "gid", address, "is another host's")
        hca = simulated_hca(address, seed=seed, **options)
        self._native.add_host(hca)
        self._believes_damage |= icrc_level(options.get("icrc", "strict")) is IcrcLevel.OFF
        device = Device(hca, name=name, seed=seed, world=_World(self, number))
        self.devices.append(device)
        fabric = weakref.ref(self)  # The adapter must not keep what keeps it.

        def idle() -> None:
            here = fabric()
            if here is not None:
                here._polled_nothing()

        device.adapter.set_idle(idle)
        return device

    def _name_for(self, given: str | None, letter: str, first: int) -> str:
        """The name of a host or switch to be, which no other has: what is told of them goes by it.

        Raises:
            VerbsError: EEXIST, for one that is taken.
        """
        ends: list[Device | Switch] = [*self.devices, *self.switches]
        taken = {end.name for end in ends}
        if given is not None and instance("name", given, str) in taken:
            raise VerbsError(errno.EEXIST, "name", given, "is that of another host or switch")
        names = (f"{letter}{n}" for n in itertools.count(first))
        return given or next(name for name in names if name not in taken)

    def _taken_addresses(self) -> set[GID]:
        """Addresses that hosts were given, and those that they have now."""
        taken = {device.gid for device in self.devices}
        for device in self.devices:
            if not device.closed:
                taken |= {GID(raw) for raw in device.adapter.gids}
        return taken

    def _free_address(self, first: int) -> str:
        taken = self._taken_addresses()
        addresses = (f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in itertools.count(first))
        return next(address for address in addresses if GID(address) not in taken)

    def hosts(self, count: int, **options: Any) -> list[Device]:
        """Adds several hosts and returns their devices."""
        return [self.host(**options) for _ in range(unsigned("count", count, 24))]

    def switch(self, name: str | None = None) -> Switch:
        """Adds a switch; `link` joins it to hosts and other switches.

        Args:
            name: What messages call it; by default s1, s2 and so on, but for those that others were
                given.

        Raises:
            VerbsError: EEXIST, if another host or switch has the name.
        """
        name = self._name_for(name, "s", len(self.switches) + 1)
        made = Switch(self._native.add_switch(), name)
        self.switches.append(made)
        return made

    def link(self, a: Device | Switch, b: Device | Switch, **shape: Any) -> Link:
        """Joins two hosts or switches.

        With the first link, hosts reach each other only where links lead. Packets take the shortest
        way; of several that are as short, a flow keeps to one.

        Args:
            a: One end.
            b: The other.
            shape: gbps, latency_ns, mtu; queue_bytes, the most that waits for the link at a switch;
                mark_bytes, (from, to): congestion marks begin at so much waiting, and all packets
                are marked beyond the second.

        Raises:
            VerbsError: EINVAL, for an end of another fabric, or the same twice.
        """
        if a is b:
            raise VerbsError(errno.EINVAL, "b", b, "is the same as a")
        values = self._shape(shape)
        number = self._native.connect(self._node("a", a), self._node("b", b), values)
        made = Link(self._native, number, a, b, values)
        self.links.append(made)
        return made

    def _shape(self, given: dict[str, Any]) -> _adapter.LinkShape:
        _demand_known("a link", given, shape_of.__kwdefaults__)
        return shape_of(**{**self._defaults, **given})

    def star(self, count: int, *, dcqcn: Dcqcn | None = None, **shape: Any) -> list[Device]:
        """Adds hosts around a new switch, and returns their devices.

        Args:
            count: How many.
            dcqcn: Of the hosts.
            shape: Of the links; see `link`.
        """
        count = unsigned("count", count, 24)
        # Before there is a switch, to which nothing would lead.
        self._shape(shape)
        congestion_settings(dcqcn)
        middle = self.switch()
        devices = self.hosts(count, dcqcn=dcqcn)
        for device in devices:
            self.link(device, middle, **shape)
        return devices

    def _node(self, argument: str, end: Device | Switch) -> int:
        if isinstance(end, Switch):
            if end in self.switches:
                return end.node
        elif end in self.devices:
            return self._native.node_of_host(self.devices.index(end))
        raise VerbsError(errno.EINVAL, argument, end, "must be a host or switch of this fabric")

    def host_number(self, device: Device) -> int:
        """Number of a host, from 0.

        Raises:
            VerbsError: EINVAL, if it is of another fabric.
        """
        if device not in self.devices:
            raise VerbsError(errno.EINVAL, "device", device, "is no host of this fabric")
        return self.devices.index(device)

    def name_of(self, host: int) -> str:
        """Name of a host by its number, from 0; EINVAL if there are not so many."""
        return self.devices[unsigned("host", host, 63, most=len(self.devices) - 1)].name

    def _check_links(self) -> None:
        """Refuses a topology in which somebody can reach nobody, before packets are lost to it."""
        known = len(self.links) + len(self.devices) + len(self.switches)
        if known == self._checked_links:
            return
        self._checked_links = known
        if not self.links:
            if self.switches:
                raise FabricError(f"switch {self.switches[0].name} is linked to nothing")
            return
        joined: set[int] = set()
        waiting: list[Device | Switch] = [self.links[0].a]
        ends = [(id(link.a), id(link.b), link) for link in self.links]
        while waiting:
            one = waiting.pop()
            if id(one) in joined:
                continue
            joined.add(id(one))
            for a, b, link in ends:
                if id(one) in (a, b):
                    waiting.append(link.b if a == id(one) else link.a)
        everybody: list[Device | Switch] = [*self.devices, *self.switches]
        alone = [end.name for end in everybody if id(end) not in joined]
        if alone:
            raise FabricError(
                f"no way leads from {', '.join(alone)} to {self.links[0].a.name}: link them"
            )
