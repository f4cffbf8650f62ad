"""A side in another process, in another network namespace."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from side import Side, gid_text


class RemoteSide(Side):
    """softhca in network namespace "peer"; every method is a call over a pipe."""

    name = "softhca"

    def __init__(self, address: str, *arguments: str) -> None:
        self.gid = gid_text(address)
        program = Path(__file__).with_name("softhca_side.py")
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", "peer", sys.executable, str(program), address, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def call(self, method: str, *arguments: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([method, arguments]) + "\n")
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"softhca died with status {self.process.wait()} in {method}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"softhca's {method} failed:\n{answer['error']}")
        return answer["value"]

    def close(self) -> int:
        """Ends the process; returns its exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(30)

    def create_qp(self, kind: str, depth: int) -> dict[str, Any]:
        return self.call("create_qp", kind, depth)

    def connect(
        self, qpn: int, other: dict[str, Any], mtu: int, attributes: dict[str, Any]
    ) -> None:
        self.call("connect", qpn, other, mtu, attributes)

    def state(self, qpn: int) -> str:
        return self.call("state", qpn)

    def close_qp(self, qpn: int) -> None:
        self.call("close_qp", qpn)

    def post_recv(self, qpn: int, offset: int, length: int, wr_id: int) -> None:
        self.call("post_recv", qpn, offset, length, wr_id)

    def post_send(self, qpn: int, wr: dict[str, Any]) -> None:
        self.call("post_send", qpn, wr)

    def wait(self, qpn: int, count: int, seconds: float) -> list[dict[str, Any]]:
        return self.call("wait", qpn, count, seconds)

    def bind(self, qpn: int, mw_type: int, offset: int, length: int, wr_id: int) -> dict[str, Any]:
        return self.call("bind", qpn, mw_type, offset, length, wr_id)

    def put(self, offset: int, octets: bytes) -> None:
        self.call("put", offset, base64.b64encode(octets).decode())

    def get(self, offset: int, length: int) -> bytes:
        return base64.b64decode(self.call("get", offset, length)["base64"])

    def counters(self) -> dict[str, int]:
        return self.call("counters")

    # Done over there, so that the bytes do not travel.

    def fill(self, offset: int, length: int, seed: int) -> None:
        self.call("fill", offset, length, seed)

    def clear(self) -> None:
        self.call("clear")

    def digest(self, offset: int, length: int) -> str:
        return self.call("digest", offset, length)
