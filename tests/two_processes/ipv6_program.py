"""In a network namespace of its own: a program with an ordinary IPv6 socket plays a peer.

Prints how many bytes of a datagram it got. Exits with 77 where a namespace or an address may not be
made.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
import sys

from tests.two_processes.address_changes import LOOPBACK, SIOCSIFADDR, Interfaces, enter_namespace

import softhca as hca

OURS, PEER = "fd78::1", "fd78::2"
PEER_QPN = 5


def add_address(address: str) -> None:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as ipv6:
        packed = socket.inet_pton(socket.AF_INET6, address)
        index = socket.if_nametoindex(LOOPBACK.decode())
        fcntl.ioctl(ipv6, SIOCSIFADDR, struct.pack("16sIi", packed, 64, index))
    # The kernel looks for others that have it when it comes to that, even here where none can be.
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as ipv6:
        while True:
            try:
                ipv6.bind((address, 0))
                return
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL:
                    raise
            os.sched_yield()


def main() -> None:
    enter_namespace()
    try:
        Interfaces().set_up(LOOPBACK, True)
        for address in (OURS, PEER):
            add_address(address)
    except OSError as error:
        print(os.strerror(error.errno or 0))
        sys.exit(77)
    with (
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as program,
        hca.open(OURS) as device,
        device.alloc_pd() as pd,
        device.create_cq(4) as cq,
        pd.create_qp(
            hca.QPType.UD, send_cq=cq, recv_cq=cq, max_send_wr=4, max_inline_data=64
        ) as qp,
        pd.create_ah(PEER) as ah,
    ):
        program.bind((PEER, 4791))
        program.settimeout(20)
        qp.activate()
        qp.post_send(hca.Send(b"to whom it may concern", inline=True, ah=ah, remote_qpn=PEER_QPN))
        print(len(program.recv(4096)))


if __name__ == "__main__":
    main()
