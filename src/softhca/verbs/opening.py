"""From an address to a device."""

from __future__ import annotations

import errno
import os
from typing import Protocol, runtime_checkable

from softhca import _adapter
from softhca.verbs.checks import instance, unsigned
from softhca.verbs.congestion import Dcqcn, congestion_settings
from softhca.verbs.device import Device
from softhca.verbs.enums import IcrcLevel, Mtu
from softhca.verbs.errors import VerbsError


def mtu_code(mtu: int) -> Mtu:
    """Returns the code of an MTU that is given as one or in bytes.

    Raises:
        VerbsError: EINVAL, if it is neither.
    """
    by_bytes = {128 << code: code for code in Mtu}
    try:
        return Mtu(by_bytes.get(mtu, mtu) if not isinstance(mtu, bool) else 0)
    except (TypeError, ValueError):  # What has no hash is no number either.
        raise VerbsError(
            errno.EINVAL, "mtu", mtu, "must be 256, 512, 1024, 2048 or 4096 bytes"
        ) from None


def icrc_level(icrc: str | IcrcLevel) -> IcrcLevel:
    """Returns the level of a name: strict, solve or off; EINVAL if there is no such level."""
    if isinstance(icrc, IcrcLevel):
        return icrc
    try:
        return IcrcLevel[icrc.upper()]
    except (KeyError, AttributeError):
        raise VerbsError(errno.EINVAL, "icrc", icrc, "must be strict, solve or off") from None


def is_windows_2a(windows: str) -> bool:
    """Whether type 2 windows are to be of kind 2A; EINVAL if they are neither that nor 2B."""
    if windows not in ("2A", "2B"):
        raise VerbsError(errno.EINVAL, "windows", windows, "must be '2A' or '2B'")
    return windows == "2A"


_Rates = tuple[float, float, float, float]
_NO_FAULTS: _Rates = (0.0, 0.0, 0.0, 0.0)


@runtime_checkable
class BadNetwork(Protocol):
    """What `open` asks of `softhca.testing.Faults`."""

    def rates(self) -> tuple[_Rates, _Rates, int]:
        """Probabilities for sent and for received datagrams, and the seed."""
        ...


def _stays_off_sockets(link: str | None) -> bool:
    name = "link"
    if link is None:
        name, link = "SOFTHCA_LINK", os.environ.get("SOFTHCA_LINK", "auto")
    if link not in ("auto", "udp"):
        raise VerbsError(errno.EINVAL, name, link, 'must be "auto" or "udp"')
    return link == "auto"


def _text(name: str, text: str) -> str:
    """Text that the system takes as it is: it would end a name at a null character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise VerbsError(errno.EINVAL, name, text, "must be UTF-8") from None
    if not text or "\0" in text:
        raise VerbsError(errno.EINVAL, name, text, "must be a name, without null characters")
    return text


def _path(name: str, path: str | os.PathLike[str]) -> str:
    try:
        text = os.fsdecode(path)
    except TypeError:
        raise TypeError(f"{name} must be a str or os.PathLike, not {type(path).__name__}") from None
    return _text(name, text)


@runtime_checkable
class FaultWords(Protocol):
    """What `open` asks of `softhca.testing.LinkFaults`."""

    @property
    def shared(self) -> _adapter.SharedFaults:
        """The rules."""
        ...


def open(
    address: str | None = None,
    *,
    capture: str | os.PathLike[str] | None = None,
    faults: BadNetwork | FaultWords | None = None,
    icrc: str | IcrcLevel = "solve",
    mtu: int | None = None,
    seed: int | None = None,
    name: str | None = None,
    windows: str = "2B",
    trains: bool = True,
    link: str | None = None,
    dcqcn: Dcqcn | None = None,
) -> Device:
    """Opens an adapter of its own on UDP port 4791 of an address.

    Args:
        address: A local IPv4 or IPv6 address, or the name of an interface; by default a free
            loopback address, 127.x.y.z, so that every adapter of a machine is a host of its own.
        capture: File to write all packets to, as pcapng.
        faults: `softhca.testing.Faults` or `LinkFaults`: a bad network around this adapter.
        icrc: How much of an ICRC is demanded of peers: "strict", "solve" (IPv4: whatever
            identification explains it) or "off".
        mtu: Largest path MTU to use, in bytes; by default what the interface carries.
        seed: Makes queue pair numbers, keys and PSNs the same on every run; by default they are
            the system's entropy.
        name: What tools call the device; by default `softhca-` and its address.
        windows: Kind of its type 2 memory windows: "2B", or "2A" to test code that has to live
            with them: a queue pair cannot be closed while such a window is bound to it.
        trains: Equal packets to one peer go to the kernel as one message (UDP_SEGMENT), which is
            several times faster. A capture of the machine's own shows them as one long packet.
            Over IPv4 to those alone that have sent something, and are no program behind an
            ordinary socket: it could not check the ICRCs.
        link: "auto": what stays on this host goes through memory, with the same rights, order,
            errors and counters; "udp": everything goes through sockets, for who wants to see it
            there. By default what the environment variable SOFTHCA_LINK says, or "auto". With
            `capture` or `faults` everything goes through sockets.
        dcqcn: Congestion control, for networks whose switches mark packets; by default none.

    Raises:
        VerbsError: EADDRINUSE, if the address or its port is taken, with who holds it;
            EADDRNOTAVAIL or ENODEV, if it is no address or interface of this machine; EINVAL,
            for arguments out of range; what opening the capture's file raises.
    """
    rules = faults.shared if isinstance(faults, FaultWords) else None
    if rules is not None:
        faults = None
    if faults is not None and not isinstance(faults, BadNetwork):
        raise TypeError(f"faults must be softhca.testing.Faults, not {type(faults).__name__}")
    if address is not None:
        instance("address", address, str)
        _text("address", address)
    if name is not None:
        instance("name", name, str)
    send_faults, receive_faults, fault_seed = (
        faults.rates() if faults is not None else (_NO_FAULTS, _NO_FAULTS, 1)
    )
    capture_path = _path("capture", capture) if capture is not None else ""
    try:
        hca = _adapter.Hca.open(
            address=address or "",
            capture_path=capture_path,
            send_faults=send_faults,
            receive_faults=receive_faults,
            fault_seed=fault_seed,
            # 0 would take the system's entropy.
            seed=0 if seed is None else 1 + unsigned("seed", seed, 63),
            icrc_level=icrc_level(icrc),
            max_mtu=Mtu.MTU_4096 if mtu is None else mtu_code(mtu),
            limits={},
            windows_2a=is_windows_2a(windows),
            trains=bool(trains),
            shortcut=_stays_off_sockets(link),
            fault_rules=rules,
            congestion=congestion_settings(dcqcn),
        )
    except VerbsError:
        raise
    except OSError as error:
        message = str(error.strerror)
        about_capture = capture_path and capture_path in message
        argument, value = ("capture", capture_path) if about_capture else ("address", address)
        raise VerbsError(error.errno or errno.EIO, argument, value, message) from None
    return Device(hca, name=name, seed=seed)
