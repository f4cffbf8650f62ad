"""Registers memory that is a file in memory, and moves bytes between two such regions.

`shared_memory.py`: under `softhca run`. Needs rdma-core's pyverbs. Says `mapped` of each kind that
the supervisor has mapped too, and fails where bytes are not what they should be.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import tempfile
from pathlib import Path

import verbs_enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

PAGE = mmap.PAGESIZE
LENGTH = 100 * PAGE
# Regions begin and end within pages.
FIRST, BYTES = 100, LENGTH - 300
RIGHTS = (
    e.IBV_ACCESS_LOCAL_WRITE
    | e.IBV_ACCESS_REMOTE_WRITE
    | e.IBV_ACCESS_REMOTE_READ
    | e.IBV_ACCESS_REMOTE_ATOMIC
)
OFFSET = 3 * PAGE


def of_memfd() -> tuple[mmap.mmap, str]:
    """A file without a name, whose descriptor stays."""
    descriptor = os.memfd_create("open-memfd")
    os.truncate(descriptor, OFFSET + LENGTH)
    return mmap.mmap(descriptor, LENGTH, offset=OFFSET), "open-memfd"


def of_name() -> tuple[mmap.mmap, str]:
    """A file with a name, whose descriptor is closed."""
    name = tempfile.mkstemp(dir="/dev/shm")[1]
    os.truncate(name, OFFSET + LENGTH)
    # Python keeps a descriptor of its own; the C library's call does not.
    descriptor = os.open(name, os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + 3 * [ctypes.c_int] + [ctypes.c_long]
    at = libc.mmap(None, LENGTH, 3, mmap.MAP_SHARED, descriptor, OFFSET)
    os.close(descriptor)
    return (ctypes.c_char * LENGTH).from_address(at), name


def of_nobody() -> tuple[mmap.mmap, str]:
    """Memory that is shared with children alone; only the privileged can map it."""
    return mmap.mmap(-1, LENGTH), ""


def of_itself() -> tuple[mmap.mmap, str]:
    """Memory of its own."""
    return mmap.mmap(-1, LENGTH, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), ""


def address_of(memory: object) -> int:
    """Where it is."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


class Side:
    """A queue pair."""

    def __init__(self, context: Context) -> None:
        self.pd = PD(context)
        self.cq = CQ(context, 8)
        cap = QPCap(max_send_wr=4, max_recv_wr=4, max_send_sge=1, max_recv_sge=1)
        wishes = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=1)
        self.qp = QP(self.pd, wishes)

    def connect(self, context: Context, other: Side) -> None:
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = (
            e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC
        )
        attr.dest_qp_num = other.qp.qp_num
        route = GlobalRoute(dgid=context.query_gid(1, 0), sgid_index=0)
        attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 4
        attr.min_rnr_timer, attr.path_mtu = 12, e.IBV_MTU_1024
        attr.timeout, attr.retry_cnt, attr.rnr_retry = 17, 7, 7
        self.qp.to_rts(attr)

    def run(self, wr: SendWR) -> int:
        """Posts a request; the status of its completion."""
        self.qp.post_send(wr)
        while True:
            count, completions = self.cq.poll()
            if count:
                return int(completions[0].status)


def check(side: Side, far: Side, kind, supervisor: int) -> str:
    """Moves bytes between two regions of a kind; whether the supervisor has them mapped."""
    (near, name), (other, far_name) = kind(), kind()
    near_at, far_at = address_of(near) + FIRST, address_of(other) + FIRST
    with MR(side.pd, BYTES, RIGHTS, near_at) as near_mr, MR(far.pd, BYTES, RIGHTS, far_at) as mr:
        pattern = os.urandom(BYTES)
        ctypes.memmove(near_at, pattern, BYTES)
        write = SendWR(
            opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(near_at, BYTES, near_mr.lkey)]
        )
        write.set_wr_rdma(mr.rkey, far_at)
        assert side.run(write) == e.IBV_WC_SUCCESS
        assert ctypes.string_at(far_at, BYTES) == pattern
        assert ctypes.string_at(far_at - FIRST, FIRST) == bytes(FIRST)
        read = SendWR(
            opcode=e.IBV_WR_RDMA_READ, num_sge=1, sg=[SGE(near_at, BYTES // 2, near_mr.lkey)]
        )
        read.set_wr_rdma(mr.rkey, far_at + BYTES // 2)
        assert side.run(read) == e.IBV_WC_SUCCESS
        assert ctypes.string_at(near_at, BYTES // 2) == pattern[BYTES // 2 : BYTES // 2 * 2]
        word = (far_at + 7) // 8 * 8
        before = int.from_bytes(ctypes.string_at(word, 8), sys.byteorder)
        add = SendWR(
            opcode=e.IBV_WR_ATOMIC_FETCH_AND_ADD, num_sge=1, sg=[SGE(near_at, 8, near_mr.lkey)]
        )
        add.set_wr_atomic(mr.rkey, word, 5, 0)
        assert side.run(add) == e.IBV_WC_SUCCESS
        after = int.from_bytes(ctypes.string_at(word, 8), sys.byteorder)
        assert after == (before + 5) % (1 << 64)
        named = name and name in Path(f"/proc/{supervisor}/maps").read_text()
        if kind is of_name:
            # Half of what is registered is cut off: the request fails, and nobody else.
            os.truncate(far_name, OFFSET + LENGTH // 2)
            write.set_wr_rdma(mr.rkey, far_at)
            assert side.run(write) == e.IBV_WC_REM_ACCESS_ERR
    for path in (name, far_name):
        if path.startswith("/"):
            os.unlink(path)
    return "mapped" if named else "not mapped"


def supervisor_of_this() -> int:
    """The process that answers: between it and the program is the guardian that starts this."""
    stat = Path(f"/proc/{os.getppid()}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


def main() -> int:
    """Tries each kind on queue pairs of its own."""
    supervisor = supervisor_of_this()
    context = Context(name="rxe0")
    for kind in (of_memfd, of_name, of_nobody, of_itself):
        side, far = Side(context), Side(context)
        side.connect(context, far)
        far.connect(context, side)
        print(kind.__name__, check(side, far, kind, supervisor), flush=True)
    left = Path(f"/proc/{supervisor}/maps").read_text()
    assert "open-memfd" not in left, "a region that is gone is mapped"
    return 0


if __name__ == "__main__":
    sys.exit(main())
