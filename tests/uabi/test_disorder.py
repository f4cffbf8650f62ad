"""Programs that leave things in another order than they made them in."""

from __future__ import annotations

from .programs import SYSTEM_PYTHON, needs_pyverbs, run_under
from .test_ends import PEER

# The program's end, without closing anything; and then another one that finds all in order.
ALONE = """
import os
def leave(make):
    child = os.fork()
    if not child:
        make()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


@needs_pyverbs
def test_a_window_on_a_younger_region_goes_with_its_program() -> None:
    program = f"""{ALONE}
from pyverbs.device import Context
from pyverbs.pd import PD

def make():
    scope = {{}}
    exec({PEER!r} + '''
from pyverbs.mr import MW, MWBind, MWBindInfo
mw = MW(pd, e.IBV_MW_TYPE_1)
younger = MR(pd, 4096, access | e.IBV_ACCESS_MW_BIND)
connect(qp.qp_num)
info = MWBindInfo(younger, younger.buf, 4096, e.IBV_ACCESS_REMOTE_WRITE)
qp.bind_mw(mw, MWBind(info, e.IBV_SEND_SIGNALED))
while not (polled := cq.poll())[0]:
    pass
print("bound", polled[1][0].status, flush=True)
''', scope)
    os._exit(0)

leave(make)
PD(Context(name="rxe0"))
print("alive")
"""
    assert run_under(SYSTEM_PYTHON, "-c", program).stdout.split() == ["bound", "0", "alive"]


@needs_pyverbs
def test_a_queue_outlives_the_descriptor_of_its_channel() -> None:
    program = f"""{ALONE}
from pyverbs.cq import CQ, CompChannel
from pyverbs.device import Context
from pyverbs.pd import PD

def is_pipe(number):
    try:
        return os.readlink(f"/proc/self/fd/{{number}}").startswith("pipe:")
    except OSError:
        return False

def pipes():
    return set(filter(is_pipe, range(3, 256)))

def make():
    context = Context(name="rxe0")
    before = pipes()
    channel = CompChannel(context)
    cq = CQ(context, 16, None, channel, 0)
    (number,) = pipes() - before
    os.close(number)
    other = CompChannel(context)
    cq.close()
    print("closed", flush=True)
    os._exit(0)

leave(make)
PD(Context(name="rxe0"))
print("alive")
"""
    assert run_under(SYSTEM_PYTHON, "-c", program).stdout.split() == ["closed", "alive"]
