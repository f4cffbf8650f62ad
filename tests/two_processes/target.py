"""A passive target: it connects, then computes or blocks, without a call to softhca."""

from __future__ import annotations

import json
import sys
import time

import softhca as hca
from softhca import QPInfo, QPType


def compute(seconds: float) -> int:
    """Holds the GIL in a pure Python loop for so long; returns how far it got."""
    until = time.monotonic() + seconds
    rounds = 0
    while time.monotonic() < until:
        rounds += sum(range(200)) & 1 | 1
    return rounds


def main() -> None:
    with (
        hca.open() as device,
        device.alloc_pd() as pd,
        device.create_cq(16) as cq,
        pd.create_qp(QPType.RC, send_cq=cq, recv_cq=cq, max_send_wr=4, max_recv_wr=4) as qp,
        pd.reg_mr(bytearray(1 << 16)) as memory,
    ):
        reply = {"info": qp.info().to_bytes().hex(), "remote": memory.remote().to_bytes().hex()}
        print(json.dumps(reply), flush=True)
        qp.connect(QPInfo.from_bytes(bytes.fromhex(json.loads(sys.stdin.readline())["info"])))
        print(json.dumps({"ready": True}), flush=True)
        for line in sys.stdin:
            order = json.loads(line)
            if "compute" in order:
                print(json.dumps({"computing": True}), flush=True)
                rounds = compute(order["compute"])
                print(json.dumps({"rounds": rounds, "until": time.monotonic()}), flush=True)
            else:
                print(json.dumps({"cpu": time.process_time()}), flush=True)


if __name__ == "__main__":
    main()
