"""A target that does what it is told: memory of its own, receives, and its completions."""

from __future__ import annotations

import ctypes
import json
import mmap
import sys
from typing import Any

import softhca as hca
from softhca import QPInfo, QPType

BYTES = 1 << 18
DEPTH = 32
CQ_DEPTH = 8
libc = ctypes.CDLL(None, use_errno=True)


def own_memory() -> mmap.mmap:
    """Private memory, which no other process can map."""
    return mmap.mmap(-1, BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def unmap(address: int, length: int) -> None:
    if libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(length)) != 0:
        raise OSError(ctypes.get_errno(), "munmap")


def main() -> None:
    content = own_memory()
    with (
        hca.open() as device,
        device.alloc_pd() as pd,
        device.create_cq(DEPTH) as send_cq,
        device.create_cq(CQ_DEPTH) as recv_cq,
        pd.create_qp(
            QPType.RC, send_cq=send_cq, recv_cq=recv_cq, max_send_wr=DEPTH, max_recv_wr=DEPTH
        ) as qp,
        pd.reg_mr(content) as mr,
    ):

        def answer(order: dict[str, Any]) -> Any:
            if "connect" in order:
                qp.connect(QPInfo.from_bytes(bytes.fromhex(order["connect"])))
                return None
            if "receive" in order:
                qp.post_recv([hca.Recv(mr[at : at + size]) for at, size in order["receive"]])
                return None
            if "unmap" in order:
                unmap(mr.addr + order["unmap"], mmap.PAGESIZE)
                return None
            begin, end = order["content"]
            return content[begin:end].hex()

        here = {"info": qp.info().to_bytes().hex(), "remote": mr.remote().to_bytes().hex()}
        print(json.dumps(here), flush=True)
        for line in sys.stdin:
            print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
