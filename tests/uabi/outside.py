"""Runs programs outside of the supervisor that it is called under.

`outside.py --serve SOCKET` waits for them there; `outside.py SOCKET PROGRAM...` has one run, which
prints where its caller prints, and ends as that does. A caller that ends early ends its program.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import threading


def _serve_one(connection: socket.socket) -> None:
    with connection:
        octets, descriptors, _, _ = socket.recv_fds(connection, 65536, 1)
        (out,) = descriptors
        process = subprocess.Popen(
            json.loads(octets), stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
        os.close(out)
        pidfd = os.pidfd_open(process.pid)
        # Nothing more is said: what can be read is the end.
        ready, _, _ = select.select([pidfd, connection], [], [])
        if pidfd not in ready:
            process.kill()
        os.close(pidfd)
        status = process.wait()
        if pidfd in ready:
            connection.send(str(status).encode())


def serve(path: str) -> None:
    """Runs what it is asked for, for ever."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()
        print("ready", flush=True)
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_serve_one, args=(connection,), daemon=True).start()


def main() -> int:
    """One of both."""
    if sys.argv[1] == "--serve":
        serve(sys.argv[2])
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(sys.argv[1])
        socket.send_fds(connection, [json.dumps(sys.argv[2:]).encode()], [1])
        status = connection.recv(16)
    return abs(int(status)) if status else 1


if __name__ == "__main__":
    sys.exit(main())
