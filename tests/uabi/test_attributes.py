"""What programs ask of queue pairs without looking at what an adapter can do."""

from __future__ import annotations

from .programs import FINDS_WHAT_LIES_HERE, SYSTEM_PYTHON, needs_pyverbs, run_under


@needs_pyverbs
def test_timers_and_counts_are_made_to_fit() -> None:
    """Linux's rxe refuses none of them, and DLSlime gives a timer of 32."""
    program = """
import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr

context = Context(name="rxe0")
pd, cq = PD(context), CQ(context, 8)
for timer, retries, fits in ((31, 7, (31, 7, 7)), (32, 8, (0, 7, 7)), (255, 255, (31, 7, 7))):
    qp = QP(pd, QPInitAttr(e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap()))
    route = GlobalRoute(dgid=context.query_gid(1, 0), sgid_index=0)
    attr = QPAttr(port_num=1)
    attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
    attr.dest_qp_num, attr.path_mtu, attr.min_rnr_timer = qp.qp_num, e.IBV_MTU_1024, timer
    attr.timeout, attr.retry_cnt, attr.rnr_retry = 14, retries, retries
    qp.to_rts(attr)
    found, _ = qp.query(e.IBV_QP_MIN_RNR_TIMER | e.IBV_QP_RETRY_CNT | e.IBV_QP_RNR_RETRY)
    assert (found.min_rnr_timer, found.retry_cnt, found.rnr_retry) == fits, (timer, retries)
print("well")
"""
    assert run_under(SYSTEM_PYTHON, "-c", program).stdout == "well\n"


@needs_pyverbs
def test_queues_have_room_for_as_many_as_programs_ask_for_without_looking() -> None:
    """Programs give 16,384 as a number of their own; an entry of each ring stays free."""
    program = """
import pyverbs.enums as e
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.pd import PD
from pyverbs.qp import QP, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr

context = Context(name="rxe0")
pd, cq = PD(context), CQ(context, 8)
SRQ(pd, SrqInitAttr(SrqAttr(max_wr=16384)))
cap = QPCap(max_send_wr=16384, max_recv_wr=16384)
QP(pd, QPInitAttr(e.IBV_QPT_RC, scq=cq, rcq=cq, cap=cap))
print("well")
"""
    assert run_under(SYSTEM_PYTHON, "-c", program).stdout == "well\n"


@needs_pyverbs
def test_extended_completion_queues_tell_all_but_times() -> None:
    """As with Linux's rxe, whose provider makes them of ordinary ones."""
    program = (
        FINDS_WHAT_LIES_HERE
        + """
import errno
import verbs_enums as e
from pyverbs.cq import CQEX, CqInitAttrEx
from pyverbs.device import Context
from pyverbs.pyverbs_error import PyverbsRDMAError

context = Context(name="rxe0")
CQEX(context, CqInitAttrEx(cqe=8, wc_flags=e.IBV_WC_STANDARD_FLAGS)).close()
try:
    CQEX(context, CqInitAttrEx(cqe=8, wc_flags=e.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP))
except PyverbsRDMAError as error:
    print(error.error_code == errno.EOPNOTSUPP)
"""
    )
    assert run_under(SYSTEM_PYTHON, "-c", program).stdout == "True\n"
