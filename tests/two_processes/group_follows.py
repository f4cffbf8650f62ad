"""In a network namespace of its own: replaces the interface under an adapter that is in a group.

Prints one JSON line for each message that the adapter has heard. Exits with 77 where a namespace
or an interface may not be made.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
import sys
import time

from tests.two_processes.address_changes import ADDRESS, LOOPBACK, Interfaces, enter_namespace

import softhca as hca

GROUP = "239.7.7.7"
OURS, PEER = b"ours77", b"theirs77"
GRH_BYTES = 40

RTM_NEWLINK, RTM_DELLINK = 16, 17
REQUEST_ACK = 1 | 4
CREATE_EXCLUSIVELY = 0x200 | 0x400
NLMSG_ERROR = 2
IFLA_IFNAME, IFLA_LINKINFO = 3, 18
IFLA_INFO_KIND, IFLA_INFO_DATA = 1, 2
VETH_INFO_PEER = 1


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def ask(kind: int, flags: int, body: bytes) -> None:
    """One request of rtnetlink, which `ip link` makes too, but need not be installed."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        header = struct.pack("=IHHII", 16 + len(body), kind, REQUEST_ACK | flags, 1, 0)
        netlink.send(header + body)
        answer = netlink.recv(65536)
    answered, error = struct.unpack_from("=4xH10xi", answer)
    assert answered == NLMSG_ERROR
    if error:
        raise OSError(-error, os.strerror(-error))


def any_interface() -> bytes:
    return struct.pack("=BxHiII", socket.AF_UNSPEC, 0, 0, 0, 0)


def add_pair() -> None:
    peer = any_interface() + attribute(IFLA_IFNAME, PEER + b"\0")
    info = attribute(IFLA_INFO_KIND, b"veth") + attribute(
        IFLA_INFO_DATA, attribute(VETH_INFO_PEER, peer)
    )
    named = attribute(IFLA_IFNAME, OURS + b"\0") + attribute(IFLA_LINKINFO, info)
    ask(RTM_NEWLINK, CREATE_EXCLUSIVELY, any_interface() + named)


def remove_pair() -> None:
    ask(RTM_DELLINK, 0, any_interface() + attribute(IFLA_IFNAME, OURS + b"\0"))


def bring_up(interfaces: Interfaces) -> None:
    interfaces.set_address(OURS, ADDRESS)
    interfaces.set_up(OURS, True)
    interfaces.set_up(PEER, True)


def wait_for(device: hca.Device, present: bool) -> None:
    """Until the adapter has, or has lost, its address and its carrier."""
    while (
        device.query_port().state is not hca.PortState.ACTIVE or device.query_gid().raw == bytes(16)
    ) == present:
        with device.get_async_event(20):
            pass


class Member:
    """A queue pair in the group, which hears what it says itself."""

    def __init__(self, device: hca.Device) -> None:
        pd = device.alloc_pd()
        self._cq = device.create_cq(16)
        self._memory = bytearray(4096)
        self._mr = pd.reg_mr(self._memory)
        self._qp = pd.create_qp(hca.QPType.UD, send_cq=self._cq, recv_cq=self._cq)
        self._qp.activate()
        self._qp.attach_mcast(GROUP)
        self._options = {
            "ah": pd.create_ah(GROUP),
            "remote_qpn": 0xFFFFFF,
            "remote_qkey": self._qp.query().qkey,
        }

    def say(self, text: bytes) -> None:
        self._memory[: len(text)] = text
        self._qp.post_recv(hca.Recv(self._mr[2048:4096]))
        self._qp.post_send(hca.Send(self._mr[: len(text)], signaled=True, **self._options))
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            for wc in self._cq.poll(2):
                wc.raise_for_status()
                if wc.is_receive:
                    heard = self._memory[2048 + GRH_BYTES : 2048 + wc.byte_len]
                    print(json.dumps(heard.decode()), flush=True)
                    return

    def leave(self) -> None:
        self._qp.detach_mcast(GROUP)


def main() -> None:
    enter_namespace()
    interfaces = Interfaces()
    interfaces.set_up(LOOPBACK, True)
    try:
        add_pair()
    except OSError as error:
        print(os.strerror(error.errno or errno.EIO))
        sys.exit(77)
    bring_up(interfaces)
    with hca.open(ADDRESS) as device:
        wait_for(device, True)
        member = Member(device)
        member.say(b"before")
        remove_pair()
        wait_for(device, False)
        add_pair()
        bring_up(interfaces)
        wait_for(device, True)
        member.say(b"after")
        member.leave()


if __name__ == "__main__":
    main()
