"""Kills programs at random moments of their use of RDMA: `killed_at_random.py SEED COUNT`.

Meanwhile another pair of queue pairs writes and checks what arrives; at the end as many objects can
be made as at the beginning.
"""

import os
import random
import signal
import subprocess
import sys
import time

import verbs_enums as e
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr

VICTIM = """
from killed_at_random import *
import itertools
context = Context(name="rxe0")
print("begins", flush=True)
for _ in itertools.count():
    pds = [PD(context) for _ in range(3)]
    cq = CQ(context, 64)
    mrs = [MR(pd, 65536, e.IBV_ACCESS_LOCAL_WRITE) for pd in pds]
    qps = [make_qp(pd, cq) for pd in pds for _ in range(3)]
    for thing in (*qps, cq, *mrs, *pds):
        thing.close()
"""


def make_qp(pd, cq):
    """A queue pair of RC in INIT."""
    cap = QPCap(max_send_wr=4, max_recv_wr=4, max_send_sge=1, max_recv_sge=1)
    attr = QPAttr(port_num=1)
    return QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=cap), attr)


def main():
    """Starts victims and kills them."""
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    print(f"seed {seed}, {count} programs")
    chance = random.Random(seed)
    context = Context(name="rxe0")
    pd, cq = PD(context), CQ(context, 16)
    for _ in range(count):
        victim = subprocess.Popen(
            [sys.executable, "-c", VICTIM], stdout=subprocess.PIPE, cwd=os.path.dirname(__file__)
        )
        victim.stdout.readline()
        time.sleep(chance.random() * 0.05)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        victim.stdout.close()
        make_qp(pd, cq).close()
    # Whatever a victim had would have to be gone: there are no more of them than there were.
    regions = [MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE) for _ in range(100)]
    for region in regions:
        region.close()
    print("nothing is left")


if __name__ == "__main__":
    main()
