"""A verb for which there is no memory is refused, and changes nothing."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
import resource
import softhca as hca
from softhca.testing import open_simulated

device = open_simulated(limits={"max_cq": 4, "max_cqe": 1 << 22, "max_qp_wr": 1 << 22})
pd, cq = device.alloc_pd(), device.create_cq(4)


def without_memory(verb):
    with open("/proc/self/statm") as statm:
        size = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + (8 << 20), resource.RLIM_INFINITY))
    try:
        verb()
    except MemoryError:
        return
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    raise AssertionError("there was memory")
"""

CASES = {
    "a queue that cannot grow loses no completion": """
        without_memory(lambda: cq.resize(1 << 22))
        assert cq.cqe == 4
        qp = pd.create_qp(hca.QPType.UD, send_cq=cq, recv_cq=cq, max_recv_wr=4)
        qp.activate()
        qp.post_recv([hca.Recv(wr_id=number) for number in range(4)])
        qp.modify(qp_state=hca.QPState.ERR)
        assert [wc.wr_id for wc in cq.poll()] == [0, 1, 2, 3]
        assert device.poll_async_event() is None
        qp.post_recv([hca.Recv(wr_id=number) for number in range(4)])
        qp.post_recv(hca.Recv(wr_id=4))
        assert device.poll_async_event().event_type is hca.EventType.CQ_ERR
        assert [wc.wr_id for wc in cq.poll()] == [0, 1, 2, 3]
    """,
    "a queue that was not made takes no place": """
        for _ in range(4):
            without_memory(lambda: device.create_cq(1 << 22))
        queues = [device.create_cq(1) for _ in range(3)]
        assert len({queue.handle for queue in [cq, *queues]}) == 4
    """,
    "a queue pair that was not made uses nothing": """
        many = {"max_send_wr": 1 << 22, "max_recv_wr": 1 << 22}
        create = lambda **sizes: pd.create_qp(hca.QPType.RC, send_cq=cq, recv_cq=cq, **sizes)
        without_memory(lambda: create(**many))
        create().close()
        for used in (cq, pd):
            used.close()
    """,
    "device memory that was not allocated is still there": """
        most = device.query_device().max_dm_size
        without_memory(lambda: device.alloc_dm(most))
        assert len(device.alloc_dm(most)) == most
    """,
}


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_changed(case: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM + textwrap.dedent(CASES[case])],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
