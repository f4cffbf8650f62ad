"""A passive target: it connects, then computes or blocks, without a call to softhca."""

from __future__ import annotations

import json
import sys
import time

import softhca as hca
from softhca import QPInfo, QPType


def compute(memory: bytearray) -> int:
    """Holds the GIL in a pure Python loop until a peer writes the last byte; returns its turns."""
    rounds = 0
    while not memory[-1]:
        rounds += sum(range(200)) & 1 | 1
    return rounds


def main() -> None:
    content = bytearray(1 << 16)
    with (
        hca.open() as device,
        device.alloc_pd() as pd,
        device.create_cq(16) as cq,
        pd.create_qp(QPType.RC, send_cq=cq, recv_cq=cq, max_send_wr=4, max_recv_wr=4) as qp,
        pd.reg_mr(content) as memory,
    ):
        reply = {"info": qp.info().to_bytes().hex(), "remote": memory.remote().to_bytes().hex()}
        print(json.dumps(reply), flush=True)
        qp.connect(QPInfo.from_bytes(bytes.fromhex(json.loads(sys.stdin.readline())["info"])))
        print(json.dumps({"ready": True}), flush=True)
        for line in sys.stdin:
            order = json.loads(line)
            if "compute" in order:
                print(json.dumps({"computing": True}), flush=True)
                print(json.dumps({"rounds": compute(content)}), flush=True)
            else:
                print(json.dumps({"cpu": time.process_time()}), flush=True)


if __name__ == "__main__":
    main()
