"""DCQCN: marks, notifications, rates; and incast with and without it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

import softhca as hca
from softhca.testing import Fabric, LinkFaults, What

from .ends import connected

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "story_incast.py"
CNP = 0x81


def ends(fabric: Fabric, dcqcn: hca.Dcqcn | None) -> Any:
    a, b = fabric.hosts(2, dcqcn=dcqcn)
    return connected(fabric, a, b, path_mtu=hca.Mtu.MTU_1024)


def write(fabric: Fabric, a: Any, b: Any, count: int = 1) -> None:
    """Writes, and waits until it is done."""
    wr = hca.Write(a.mr[:1024], remote=b.mr.remote(), signaled=True)
    for _ in range(count):
        a.qp.post_send(wr)
        assert a.next().ok


def rate(end: Any) -> int:
    """Bits a second that a queue pair may send; 0 without a limit."""
    return int(end.device.adapter.qp_rate(end.qp.qpn))


def notifications(fabric: Fabric) -> int:
    return sum(r.what is What.SENT and r.data[0] == CNP for r in fabric.trace)


def test_incast_without_and_with_it() -> None:
    spec = importlib.util.spec_from_file_location("story_incast", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    story = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(story)
    without, controlled = story.incast(None), story.incast(hca.Dcqcn(gbps=story.GBPS))
    assert without.lost > 20
    assert controlled.lost == 0
    assert controlled.waiting < without.waiting / 3
    assert controlled.fairness > 0.98 > without.fairness
    assert controlled.gbps > 0.85 * story.GBPS


def test_nobody_is_told_anything_by_default() -> None:
    with Fabric() as fabric:
        a, b = ends(fabric, None)
        fabric.faults.mark(source=a.device)
        write(fabric, a, b, 5)
        assert notifications(fabric) == 0
        sent = [r for r in fabric.trace if r.what is What.SENT]
        assert {r.route.traffic_class & 3 for r in sent if r.route is not None} == {0}
        assert rate(a) == 0


def test_a_mark_slows_the_sender_down_and_it_comes_back() -> None:
    with Fabric() as fabric:
        a, b = ends(fabric, hca.Dcqcn(gbps=10))
        assert rate(a) == 0
        with fabric.faults.mark(opcode="RC_RDMA_WRITE*", times=1):
            write(fabric, a, b)
        assert (notifications(fabric), rate(a), rate(b)) == (1, 5_000_000_000, 0)
        assert b.device.counters.np_cnp_sent == 1
        assert b.device.counters.np_ecn_marked_roce_packets == 1
        assert a.device.counters.rp_cnp_handled == 1
        # Halfway back each 55 us, to where it was.
        rates = []
        for _ in range(4):
            fabric.run_for(60e-6)
            write(fabric, a, b)
            rates.append(rate(a))
        assert rates[0] == 7_500_000_000
        assert rates == sorted(rates)
        fabric.run_for(0.01)
        write(fabric, a, b)
        assert rate(a) == 0


def test_one_notification_in_its_interval() -> None:
    with Fabric() as fabric:
        a, b = ends(fabric, hca.Dcqcn(gbps=100, cnp_interval_us=1000))
        fabric.faults.mark(opcode="RC_RDMA_WRITE*")
        write(fabric, a, b, 50)
        assert fabric.now_ns < 1_000_000
        assert notifications(fabric) == 1
        fabric.run_for(0.001)
        write(fabric, a, b)
        assert notifications(fabric) == 2


def test_packets_keep_to_the_rate() -> None:
    with Fabric(gbps=100) as fabric:
        settings = hca.Dcqcn(gbps=1, increase_us=1e6, alpha_us=1e6, increase_bytes=1 << 30)
        a, b = ends(fabric, settings)
        with fabric.faults.mark(opcode="RC_RDMA_WRITE*", times=1):
            write(fabric, a, b)
        assert rate(a) == 500_000_000
        start_ns = fabric.now_ns
        a.qp.post_send(hca.Write(a.mr[:50_000], remote=b.mr.remote(), signaled=True))
        assert a.next().ok
        # 49 packets of 1024 bytes and their headers, at half a gigabit.
        assert 800_000 < fabric.now_ns - start_ns < 900_000
        # What comes the other way keeps its own pace, and acknowledgements do not wait.
        start_ns = fabric.now_ns
        write(fabric, b, a)
        assert fabric.now_ns - start_ns < 10_000


def test_a_notification_of_nobody() -> None:
    with Fabric() as fabric:
        a, b = ends(fabric, hca.Dcqcn(gbps=10))
        write(fabric, a, b)
        with fabric.faults.cnp(opcode="RC_RDMA_WRITE*", times=1):
            write(fabric, a, b)
        fabric.run_for(0.0001)
        assert a.device.counters.rp_cnp_handled == 1
        a.qp.modify(qp_state=hca.QPState.RESET)
        assert rate(a) == 0


@pytest.mark.parametrize(
    "options",
    [
        {"gbps": 0},
        {"gbps": 10, "gain": 0.3},
        {"gbps": 10, "least_gbps": 11},
        {"gbps": 10, "alpha_us": 0},
        {"gbps": 10, "increase_bytes": 0},
    ],
)
def test_settings_that_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(hca.VerbsError, match="EINVAL"):
        hca.Dcqcn(**options)


@pytest.mark.parametrize("name", ["gbps", "alpha_us", "increase_bytes", "fast_recovery", "gain"])
@pytest.mark.parametrize("wrong", ["10", None, [1]])
def test_what_is_no_number_is_refused_by_name(name: str, wrong: Any) -> None:
    with pytest.raises(TypeError, match=f"{name} must be a"):
        hca.Dcqcn(**{"gbps": 10, name: wrong})


def test_settings_may_be_numpy_s() -> None:
    numpy = pytest.importorskip("numpy")
    settings = hca.Dcqcn(
        gbps=numpy.float64(10), increase_bytes=numpy.int64(1000), fast_recovery=numpy.int32(3)
    )
    assert (
        settings.settings() == hca.Dcqcn(gbps=10, increase_bytes=1000, fast_recovery=3).settings()
    )


def test_on_the_wire() -> None:
    settings = hca.Dcqcn(gbps=10)
    faults = LinkFaults()
    faults.mark(opcode="RC_RDMA_WRITE*", on="receive")
    with hca.open(dcqcn=settings) as a, hca.open(dcqcn=settings, faults=faults) as b:
        made = []
        for device in (a, b):
            pd, cq = device.alloc_pd(), device.create_cq(16)
            qp = pd.create_qp(hca.QPType.RC, send_cq=cq, recv_cq=cq, max_send_wr=4)
            made.append((pd, cq, qp, pd.reg_mr(bytearray(100_000))))
        (_, cq, near, mr), (_, _, far, far_mr) = made
        near.connect(far.info())
        far.connect(near.info())
        near.post_send(hca.Write(mr[:], remote=far_mr.remote(), signaled=True))
        while not (wcs := cq.poll()):
            pass
        assert wcs[0].ok
        assert b.counters.np_cnp_sent >= 1
        assert a.counters.rp_cnp_handled >= 1
        with pytest.raises(TypeError, match="must be a Dcqcn"):
            hca.open(dcqcn=10)  # type: ignore[arg-type]
