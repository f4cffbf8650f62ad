"""Many adapters in one process, in virtual time: the same calls give the same packets."""

from __future__ import annotations

import errno
import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from softhca import _adapter
from softhca.verbs.checks import instance, unsigned
from softhca.verbs.congestion import Dcqcn, congestion_settings
from softhca.verbs.device import Device
from softhca.verbs.enums import IcrcLevel, Mtu
from softhca.verbs.errors import VerbsError
from softhca.verbs.gid import GID, GIDLike
from softhca.verbs.opening import icrc_level, is_windows_2a, mtu_code


def open_simulated(
    gid: GIDLike = "10.0.0.1",
    *,
    seed: int = 1,
    mtu: int = Mtu.MTU_4096,
    icrc: str | IcrcLevel = "strict",
    name: str | None = None,
    retry_early: bool = False,
    limits: dict[str, int] | None = None,
    windows: str = "2B",
    dcqcn: Dcqcn | None = None,
) -> Device:
    """Opens an adapter that has no socket, thread or clock.

    Its packets and its time are moved by a `Wire`, or by hand through `device.adapter`.

    Args:
        gid: Its address, which need not be one of this machine.
        seed: Decides queue pair numbers, keys and PSNs.
        mtu: MTU of its port, in bytes.
        icrc: As for `softhca.open`.
        name: As for `softhca.open`.
        retry_early: Probe for lost tails before the ACK timer runs out, as opened devices do.
        limits: Limits to lower or raise, by their names in `DeviceAttr`.
        windows: As for `softhca.open`.
        dcqcn: As for `softhca.open`.

    Raises:
        VerbsError: EINVAL, for arguments out of range and limits that there are not.
    """
    if name is not None:
        instance("name", name, str)
    hca = simulated_hca(
        gid,
        seed=unsigned("seed", seed, 63),
        mtu=mtu,
        icrc=icrc,
        retry_early=retry_early,
        limits=limits,
        windows=windows,
        dcqcn=dcqcn,
    )
    return Device(hca, name=name or f"simulated-{GID(gid).ip}", seed=seed)


class SimulatedHca(_adapter.Hca):
    """An adapter whose methods can be replaced one by one, which faults do."""

    def open_invalidation_channel(self) -> _adapter.InvalidationChannel:
        """Opens a channel of the process, as it is on every device."""
        return _adapter.InvalidationChannel.open()


def simulated_hca(
    gid: GIDLike,
    *,
    seed: int,
    mtu: int = Mtu.MTU_4096,
    icrc: str | IcrcLevel = "strict",
    retry_early: bool = False,
    limits: dict[str, int] | None = None,
    windows: str = "2B",
    dcqcn: Dcqcn | None = None,
) -> _adapter.Hca:
    """The native adapter of a simulated device; see `open_simulated`."""
    address = GID(gid)
    return SimulatedHca(
        gids=[address.raw],
        seed=seed,
        active_mtu=mtu_code(mtu),
        node_guid=int.from_bytes(address.raw[8:], "big"),
        udp_source_ports=[_adapter.own_port(address.raw)],
        icrc_level=icrc_level(icrc),
        pkeys=[0xFFFF],
        retry_early=bool(retry_early),
        limits=_checked(limits or {}),
        windows_2a=is_windows_2a(windows),
        congestion=congestion_settings(dcqcn),
    )


def _checked(limits: dict[str, int]) -> dict[str, int]:
    bits = _adapter.Hca.limit_bits()
    for name in instance("limits", limits, dict):
        if name not in bits:
            raise VerbsError(errno.EINVAL, "limits", name, "is the name of no limit")
    return {
        name: unsigned(f"limits[{name!r}]", value, bits[name]) for name, value in limits.items()
    }


@dataclass(order=True)
class Flying:
    """A packet on its way; hooks may look at it and change where and when it arrives."""

    arrives_ns: int
    order: int
    packet: _adapter.SentPacket = field(compare=False)
    datagram: bytes = field(compare=False)
    route: _adapter.Route = field(compare=False)

    @property
    def decoded(self) -> _adapter.Packet:
        """The packet, decoded."""
        return _adapter.Packet.decode(self.datagram)


# Takes a packet that was just sent; returns those that shall arrive: itself, none, or more.
Hook = Callable[[Flying], "list[Flying] | None"]


class Wire:
    """Moves packets between simulated devices, in virtual time.

    Attributes:
        now_ns: The time, for all devices.
        delay_ns: How long a packet takes.
        hook: Called with each packet that is sent. It returns the packets that shall arrive: none
            loses it. None as a hook passes everything.
        sent: Every packet that was sent, lost ones included.
    """

    def __init__(self, *devices: Device, delay_ns: int = 1000, hook: Hook | None = None) -> None:
        self.now_ns: int = 0
        self.delay_ns: int = unsigned("delay_ns", delay_ns, 48)
        if hook is not None and not callable(hook):
            raise TypeError(f"hook must be callable with a packet, not {type(hook).__name__}")
        self.hook: Hook | None = hook
        self.sent: list[Flying] = []
        self._devices: dict[bytes, Device] = {}
        for device in devices:
            self.add(device)
        self._flying: list[Flying] = []
        self._order = itertools.count()

    def __repr__(self) -> str:
        return f"<Wire of {len(self._devices)} devices at {self.now_ns} ns>"

    def add(self, device: Device) -> None:
        """Connects another device."""
        self._devices[instance("device", device, Device).gid.raw] = device

    def run_until(self, done: Callable[[], object], *, within_ns: int = 10_000_000_000) -> None:
        """Moves packets and time until `done()` is true.

        Raises:
            AssertionError: If it is not true `within_ns` later, or can never become true because
                nothing more will happen.
        """
        if not callable(done):
            raise TypeError(f"done must be callable, not {type(done).__name__}")
        end_ns = self.now_ns + unsigned("within_ns", within_ns, 63)
        while True:
            self._collect()
            if done():
                return
            next_ns = self._next_ns()
            if next_ns is None:
                raise AssertionError(f"nothing more happens after {self.now_ns} ns")
            if next_ns > end_ns:
                raise AssertionError(f"not done within {within_ns} ns of virtual time")
            self._advance(next_ns)

    def run_for(self, duration_ns: int) -> None:
        """Moves packets and time for a span of virtual time.

        Args:
            duration_ns: In nanoseconds.
        """
        end_ns = self.now_ns + unsigned("duration_ns", duration_ns, 63)
        while True:
            self._collect()
            next_ns = self._next_ns()
            if next_ns is None or next_ns > end_ns:
                break
            self._advance(next_ns)
        self.now_ns = end_ns

    def settle(self) -> None:
        """Moves packets, without letting timers run out, until none is on its way."""
        self._collect()
        while self._flying:
            self._advance(self._flying[0].arrives_ns, timers=False)
            self._collect()

    def inject(self, datagram: bytes, route: _adapter.Route) -> _adapter.ReceiveReport | None:
        """Delivers a packet at once, as if somebody had sent it.

        Args:
            datagram: BTH to ICRC.
            route: The IP and UDP headers around it, which say whom it goes to.

        Returns:
            What became of it; None if nobody is there.
        """
        device = self._devices.get(instance("route", route, _adapter.Route).destination)
        return device.adapter.receive(route, datagram, self.now_ns) if device else None

    def _open_devices(self) -> list[Device]:
        return [device for device in self._devices.values() if not device.closed]

    def _receivers(self, destination: bytes) -> list[Device]:
        """Whom a packet reaches; as on a network, a multicast one reaches its sender too."""
        ip = GID(destination).ip
        devices = self._open_devices()
        return [d for d in devices if ip.is_multicast or d.gid.raw == destination]

    def _collect(self) -> None:
        for device in self._open_devices():
            while device.run_callbacks():
                pass
        for device in self._open_devices():
            while (packet := device.adapter.next_packet(self.now_ns)) is not None:
                flying = Flying(
                    self.now_ns + self.delay_ns,
                    next(self._order),
                    packet,
                    packet.datagram,
                    packet.route,
                )
                self.sent.append(flying)
                arriving = [flying] if self.hook is None else self.hook(flying)
                for one in arriving or []:
                    heapq.heappush(self._flying, one)

    def _next_ns(self) -> int | None:
        deadlines = [
            deadline
            for device in self._open_devices()
            if (deadline := device.adapter.next_deadline_ns) is not None
        ]
        if self._flying:
            deadlines.append(self._flying[0].arrives_ns)
        return max(self.now_ns, min(deadlines)) if deadlines else None

    def _advance(self, now_ns: int, *, timers: bool = True) -> None:
        self.now_ns = now_ns
        while self._flying and self._flying[0].arrives_ns <= now_ns:
            flying = heapq.heappop(self._flying)
            for device in self._receivers(flying.route.destination):
                device.adapter.receive(flying.route, flying.datagram, now_ns)
        if timers:
            for device in self._open_devices():
                device.adapter.advance(now_ns)
