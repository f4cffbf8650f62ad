"""In a network namespace of its own: opens an IPv6 address that may not be used yet.

Prints what opening it says. Exits with 77 where a namespace or an interface may not be made.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
import sys
from pathlib import Path

from tests.two_processes.address_changes import LOOPBACK, SIOCSIFADDR, Interfaces, enter_namespace
from tests.two_processes.group_follows import OURS, PEER, add_pair

import softhca as hca

ADDRESS = "fd77::1"


def main() -> None:
    enter_namespace()
    interfaces = Interfaces()
    interfaces.set_up(LOOPBACK, True)
    try:
        add_pair()
        # So that looking for another owner takes longer than this program.
        transmits = Path("/proc/sys/net/ipv6/conf") / OURS.decode() / "dad_transmits"
        transmits.write_text("1000")
        for name in (OURS, PEER):
            interfaces.set_up(name, True)
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as ipv6:
            packed = socket.inet_pton(socket.AF_INET6, ADDRESS)
            index = socket.if_nametoindex(OURS.decode())
            fcntl.ioctl(ipv6, SIOCSIFADDR, struct.pack("16sIi", packed, 64, index))
    except OSError as error:
        print(os.strerror(error.errno or errno.EIO))
        sys.exit(77)
    try:
        hca.open(ADDRESS).close()
    except hca.VerbsError as error:
        print(error)


if __name__ == "__main__":
    main()
