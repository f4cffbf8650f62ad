"""The receiving end of a lossy stream: checks every byte, and says what it counted."""

from __future__ import annotations

import json
import sys

import softhca as hca
from softhca import QPInfo, QPType, Recv

from .blocks import BLOCK_BYTES, DEPTH, block, expected


def main() -> None:
    settings = json.loads(sys.stdin.readline())
    seed, count = settings["seed"], settings["count"]
    memory = bytearray(DEPTH * BLOCK_BYTES)
    with (
        hca.open() as device,
        device.alloc_pd() as pd,
        device.create_cq(4 * DEPTH) as cq,
        pd.create_qp(QPType.RC, send_cq=cq, recv_cq=cq, max_send_wr=4, max_recv_wr=DEPTH) as qp,
        pd.reg_mr(memory) as landing,
        pd.reg_mr(block(seed, 0)) as readable,
    ):
        receives = [
            Recv(landing[slot * BLOCK_BYTES : (slot + 1) * BLOCK_BYTES], wr_id=slot)
            for slot in range(DEPTH)
        ]
        reply = {"info": qp.info().to_bytes().hex(), "remote": readable.remote().to_bytes().hex()}
        print(json.dumps(reply), flush=True)
        qp.connect(
            QPInfo.from_bytes(bytes.fromhex(json.loads(sys.stdin.readline())["info"])),
            **settings["connect"],
        )
        qp.post_recv(receives)
        print(json.dumps({"ready": True}), flush=True)
        number = wrong = 0
        while number < count:
            for wc in cq.poll(DEPTH):
                wc.raise_for_status()
                slot = wc.wr_id
                came = memory[slot * BLOCK_BYTES : slot * BLOCK_BYTES + wc.byte_len]
                wrong += came != expected(seed, number)
                number += 1
                qp.post_recv(receives[slot])
        counters = {name: value for name, value in qp.counters.items() if value}
        print(json.dumps({"messages": number, "wrong": wrong, "counters": counters}), flush=True)
        # The last acknowledgements may be lost: stay until the other side has heard them.
        sys.stdin.readline()
        state = qp.query().qp_state.name
        print(json.dumps({"state": state}), flush=True)


if __name__ == "__main__":
    main()
