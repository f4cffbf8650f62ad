"""In a network namespace of its own: takes addresses and interfaces away, and sees what is told.

Prints one JSON line for each step. Exits with 77 where a namespace may not be made.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import socket
import struct
import sys

import softhca as hca

ADDRESS = "10.77.0.1"
# An address of its own on the loopback interface, so that nothing else need exist.
ALIAS = b"lo:77"
LOOPBACK = b"lo"

CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
SIOCGIFFLAGS = 0x8913
SIOCSIFFLAGS = 0x8914
SIOCSIFADDR = 0x8916
SIOCSIFMTU = 0x8922
SIOCSIFNETMASK = 0x891C
IFF_UP = 1


def enter_namespace() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0 and libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0:
        print(os.strerror(ctypes.get_errno()))
        sys.exit(77)


class Interfaces:
    """What `ip address` and `ip link` do, which need not be installed."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def set_address(self, name: bytes, address: str) -> None:
        packed = struct.pack("16sHH4s8x", name, socket.AF_INET, 0, socket.inet_aton(address))
        fcntl.ioctl(self._socket, SIOCSIFADDR, packed)

    def set_host_mask(self, name: bytes) -> None:
        packed = struct.pack("16sHH4s8x", name, socket.AF_INET, 0, b"\xff" * 4)
        fcntl.ioctl(self._socket, SIOCSIFNETMASK, packed)

    def set_up(self, name: bytes, up: bool) -> None:
        asked = fcntl.ioctl(self._socket, SIOCGIFFLAGS, struct.pack("16sh14x", name, 0))
        flags = struct.unpack("16sh14x", asked)[1]
        flags = flags | IFF_UP if up else flags & ~IFF_UP
        fcntl.ioctl(self._socket, SIOCSIFFLAGS, struct.pack("16sh14x", name, flags))

    def set_mtu(self, name: bytes, mtu: int) -> None:
        fcntl.ioctl(self._socket, SIOCSIFMTU, struct.pack("16si12x", name, mtu))

    def add(self) -> None:
        self.set_address(ALIAS, ADDRESS)
        self.set_host_mask(ALIAS)

    def remove(self) -> None:
        self.set_up(ALIAS, False)  # The end of an alias.


def agreed_mtu(device: hca.Device) -> hca.Mtu:
    """The path MTU of two queue pairs that are connected now; without an address, what they say."""
    with device.alloc_pd() as pd, device.create_cq(1) as cq:
        near = pd.create_qp(hca.QPType.RC, send_cq=cq, recv_cq=cq)
        far = pd.create_qp(hca.QPType.RC, send_cq=cq, recv_cq=cq)
        if device.query_gid() != device.gid:
            return far.info().mtu
        near.connect(far.info())
        return near.query().path_mtu


def say(device: hca.Device, step: str) -> None:
    with device.get_async_event(20) as event:
        port = device.query_port()
        heard = {
            "step": step,
            "event": event.event_type.name,
            "element": event.element,
            "port": port.state.name,
            "mtu": port.active_mtu.name,
            "agreed": agreed_mtu(device).name,
            "gid": str(device.query_gid()),
        }
        print(json.dumps(heard), flush=True)


def main() -> None:
    enter_namespace()
    interfaces = Interfaces()
    interfaces.set_up(LOOPBACK, True)
    interfaces.add()
    with hca.open(ADDRESS) as device:
        interfaces.set_mtu(LOOPBACK, 1500)
        interfaces.set_up(LOOPBACK, False)
        say(device, "interface smaller, and down")
        interfaces.set_mtu(LOOPBACK, 65536)
        interfaces.set_up(LOOPBACK, True)
        say(device, "interface larger, and up")
        interfaces.remove()
        say(device, "address removed")
        interfaces.add()
        say(device, "address added")
        assert device.poll_async_event() is None


if __name__ == "__main__":
    main()
