"""Datagrams to itself, and at once a command that depends on them having completed.

`posts_and_commands.py QUEUE_PAIRS`: needs rdma-core's pyverbs.
"""

from __future__ import annotations

import errno
import sys

import verbs_enums as e
from pyverbs.addr import AH, GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

EACH = 3
QKEY = 0x11111111


def main() -> None:
    """A queue that holds completions cannot become smaller than they are many."""
    count = int(sys.argv[1])
    context = Context(name="rxe0")
    pd = PD(context)
    cq = CQ(context, EACH * count)
    mr = MR(pd, 64, e.IBV_ACCESS_LOCAL_WRITE)
    route = GlobalRoute(dgid=GID(str(context.query_gid(1, 0))), sgid_index=0)
    ah = AH(pd, attr=AHAttr(gr=route, is_global=1, port_num=1))
    wishes = QPInitAttr(
        qp_type=e.IBV_QPT_UD, scq=cq, rcq=cq, cap=QPCap(max_send_wr=EACH), sq_sig_all=1
    )
    attr = QPAttr(port_num=1)
    attr.qkey = QKEY
    queue_pairs = [QP(pd, wishes, attr) for _ in range(count)]
    for _ in range(EACH):
        for qp in queue_pairs:
            wr = SendWR(opcode=e.IBV_WR_SEND, num_sge=1, sg=[SGE(mr.buf, 8, mr.lkey)])
            wr.set_wr_ud(ah, qp.qp_num, QKEY)
            qp.post_send(wr)
    try:
        cq.resize(1)
    except PyverbsRDMAError as error:
        assert error.error_code == errno.EINVAL, error
    else:
        raise AssertionError("there was nothing in it")
    assert cq.poll(EACH * count + 1)[0] == EACH * count


if __name__ == "__main__":
    main()
