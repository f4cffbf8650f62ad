"""What happens to an adapter as a whole, by order: for tests of a program's event handlers."""

from __future__ import annotations

from softhca.verbs.checks import instance, unsigned
from softhca.verbs.device import Device
from softhca.verbs.gid import GID, GIDLike


def set_port(device: Device, *, active: bool) -> None:
    """Takes the device's port down, or brings it up again.

    Raises PORT_ERR or PORT_ACTIVE, if that is a change. While the port is down, packets are lost
    in both directions, and counted in `port_down_drops`.

    Args:
        device: Which.
        active: False for down, True for up.
    """
    instance("device", device, Device).adapter.set_port_active(bool(active))


def set_gid(device: Device, gid: GIDLike | None, index: int = 0) -> None:
    """Replaces an entry of the device's GID table; None empties it.

    Raises GID_CHANGE, if that is a change. Address vectors that are made from then on need the
    new entry; what was made before keeps the old one.

    Args:
        device: Which.
        gid: The new GID or address; None for none.
        index: Of the entry.

    Raises:
        VerbsError: EINVAL, if `index` is of an entry that was never in use.
    """
    raw = GID(gid).raw if gid is not None else bytes(16)
    number = unsigned("index", index, 32)
    instance("device", device, Device).adapter.set_gid(number, raw)


def fail_device(device: Device) -> None:
    """Makes the device fail for good, as if its sockets had been lost.

    Raises DEVICE_FATAL. Every queue pair goes to ERR, and none leaves it but to RESET.
    """
    instance("device", device, Device).adapter.fail_device()
