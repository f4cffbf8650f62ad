"""Runs a program as server, and when that listens as client: `both_ends.py PROGRAM -p PORT`.

Exits with 0 if both did.
"""

from __future__ import annotations

import subprocess
import sys
import time

_DEADLINE_SECONDS = 60
_LISTENING = "0A"


def listens(port: int) -> bool:
    """Whether somebody listens on a port of TCP."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table) as lines:
            for line in lines:
                local, state = line.split()[1:4:2]
                if state == _LISTENING and local.endswith(f":{port:04X}"):
                    return True
    return False


def main() -> int:
    """Runs both, and prints what they printed."""
    command = sys.argv[1:]
    port = int(command[command.index("-p") + 1])
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not listens(port) and server.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    client = subprocess.run(
        [*command, "127.0.0.1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_DEADLINE_SECONDS,
        check=False,
    )
    printed = server.communicate(timeout=_DEADLINE_SECONDS)[0]
    print(f"server: {server.returncode}\n{printed}\nclient: {client.returncode}\n{client.stdout}")
    return 1 if client.returncode or server.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
