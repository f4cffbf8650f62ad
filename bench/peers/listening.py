"""Waiting for a program of somebody else's to listen."""

from __future__ import annotations

import itertools
import os
import subprocess
import time

from bench.peers.absent import AbsentError

START_SECONDS = 10.0

ports = itertools.count(20_000 + os.getpid() % 10_000)


def wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    """Waits until somebody listens at the TCP port.

    The programs take one connection only, so that trying to connect would use it up.

    Raises:
        AbsentError: If the server ends or takes too long.
    """
    wanted = f":{port:04X} "
    end = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < end:
        for path in ("/proc/net/tcp", "/proc/net/tcp6"):
            with open(path) as table:
                if any(wanted in line and " 0A " in line for line in table):
                    return
        time.sleep(0.005)
    raise AbsentError("its server does not listen")


def run_both(
    server: list[str], client: list[str], port: int, environment: dict[str, str], seconds: float
) -> str:
    """Starts the server, then the client, and returns what the client printed.

    Raises:
        AbsentError: If they do not end well in time.
    """
    variables = {**os.environ, **environment}
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(server, env=variables, stdout=quiet, stderr=quiet)
    try:
        wait_for(port, process)
        done = subprocess.run(
            client, env=variables, capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        raise AbsentError("it does not end in time") from None
    finally:
        process.kill()
        process.wait()
    if done.returncode != 0:
        raise AbsentError(f"it fails: {(done.stderr or done.stdout).strip()[-80:]}")
    return done.stdout
