"""ZeroMQ between two processes."""

from __future__ import annotations

import importlib.util
import socket
import tempfile

from bench.peers.absent import AbsentError
from bench.two_sides import TwoSides


def sides(transport: str) -> TwoSides:
    """Starts both sides over ipc or tcp.

    Raises:
        AbsentError: Without pyzmq.
    """
    if importlib.util.find_spec("zmq") is None:
        raise AbsentError("no pyzmq")
    if transport == "ipc":
        return TwoSides("bench.peers.zmq_side", f"ipc://{tempfile.mktemp(prefix='bench-')}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return TwoSides("bench.peers.zmq_side", f"tcp://127.0.0.1:{port}")
