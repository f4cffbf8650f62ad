"""Opens devices and moves a message where netlink sockets are forbidden, as in some sandboxes.

Exits with 77 where that cannot be arranged.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
import struct
import sys

import softhca as hca

PR_SET_NO_NEW_PRIVS = 38
PR_SET_SECCOMP = 22
SECCOMP_MODE_FILTER = 2
SECCOMP_RET_ALLOW = 0x7FFF0000
SECCOMP_RET_ERRNO = 0x00050000
# Numbers of socket(2).
SOCKET_CALL = {"x86_64": 41, "aarch64": 198}


class Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def forbid_netlink(call: int) -> None:
    def load(offset: int) -> bytes:
        return struct.pack("HBBI", 0x20, 0, 0, offset)

    def skip_unless_equal(value: int, skipped: int) -> bytes:
        return struct.pack("HBBI", 0x15, 0, skipped, value)

    def answer(value: int) -> bytes:
        return struct.pack("HBBI", 0x06, 0, 0, value)

    instructions = [
        load(0),  # seccomp_data.nr
        skip_unless_equal(call, 3),
        load(16),  # The low half of seccomp_data.args[0]: the family.
        skip_unless_equal(socket.AF_NETLINK, 1),
        answer(SECCOMP_RET_ERRNO | errno.EAFNOSUPPORT),
        answer(SECCOMP_RET_ALLOW),
    ]
    program = Program(len(instructions), b"".join(instructions))
    libc = ctypes.CDLL(None, use_errno=True)
    if (
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
        or libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program)) != 0
    ):
        print(os.strerror(ctypes.get_errno()))
        sys.exit(77)


def main() -> None:
    call = SOCKET_CALL.get(platform.machine())
    if call is None:
        print(f"the number of socket(2) on {platform.machine()} is not known")
        sys.exit(77)
    forbid_netlink(call)
    try:
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    except OSError as error:
        assert error.errno == errno.EAFNOSUPPORT
    with hca.open() as once:
        address = str(once.gid.ip)
    with hca.open() as a, hca.open(address) as b:
        assert a.query_port().state.name == "ACTIVE"
        queue_pairs = []
        for device in (a, b):
            cq = device.create_cq(4)
            qp = device.alloc_pd().create_qp(hca.QPType.RC, send_cq=cq, recv_cq=cq)
            queue_pairs.append((qp, cq))
        (near, cq), (far, far_cq) = queue_pairs
        near.connect(far.info())
        far.connect(near.info())
        far.post_recv(hca.Recv())
        near.post_send(hca.Send(signaled=True))
        while not (completions := cq.poll()):
            pass
        print(completions[0].status.name, len(far_cq.poll()))
    for address in ("192.0.2.1", "eth0"):
        try:
            hca.open(address)
        except hca.VerbsError as error:
            print(error.argument, errno.errorcode[error.errno or 0])


if __name__ == "__main__":
    main()
