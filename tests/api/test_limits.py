"""What is reported can be allocated; one more is refused; what is given back can be had again."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

import softhca as hca
from softhca import MwType, QPType, VerbsError
from softhca.testing import open_simulated

from .hosts import Host, Pair

MAKERS: dict[str, tuple[int, Callable[[Host], Any]]] = {
    # Limit to how many of them a fresh host has, and how to make another.
    "max_pd": (1, lambda host: host.device.alloc_pd()),
    "max_cq": (1, lambda host: host.device.create_cq(1)),
    "max_mr": (1, lambda host: host.pd.reg_mr(bytearray(8))),
    "max_mw": (0, lambda host: host.pd.alloc_mw(MwType.TYPE_2)),
    "max_ah": (0, lambda host: host.pd.create_ah("10.0.0.1")),
    "max_srq": (0, lambda host: host.pd.create_srq(max_wr=1)),
    "max_qp": (
        0,
        lambda host: host.pd.create_qp(QPType.RC, send_cq=host.cq, recv_cq=host.cq),
    ),
    "max_xrcd": (0, lambda host: host.device.alloc_xrcd()),
}


@pytest.mark.parametrize("name", MAKERS)
def test_objects(name: str) -> None:
    had, make = MAKERS[name]
    with open_simulated(limits={name: 5}) as device:
        host = Host(device)
        assert getattr(device.query_device(), name) == 5
        made = [make(host) for _ in range(5 - had)]
        with pytest.raises(VerbsError) as raised:
            make(host)
        assert raised.value.errno == errno.ENOMEM
        made.pop().close()
        made.append(make(host))
        for thing in made:
            thing.close()


def test_sizes_at_the_limit(host: Host) -> None:
    attr = host.device.query_device()
    qp = host.qp(
        max_send_wr=attr.max_qp_wr,
        max_recv_wr=attr.max_qp_wr,
        max_send_sge=attr.max_sge,
        max_recv_sge=attr.max_sge,
        max_inline_data=attr.max_inline_data,
    )
    cap = qp.init_attr.cap
    assert cap.max_send_wr >= attr.max_qp_wr
    assert host.keep(host.device.create_cq(attr.max_cqe)).cqe >= attr.max_cqe
    srq = host.keep(host.pd.create_srq(max_wr=attr.max_srq_wr, max_sge=attr.max_srq_sge))
    assert srq.query().max_wr >= attr.max_srq_wr
    with pytest.raises(VerbsError, match="max_send_wr"):
        host.qp(max_send_wr=attr.max_qp_wr + 1)
    with pytest.raises(VerbsError, match="max_inline_data"):
        host.qp(max_inline_data=attr.max_inline_data + 1)


def test_exactly_what_was_given_fits(simulated: Pair) -> None:
    near, far = simulated.connected(max_send_wr=5, max_recv_wr=5)
    cap = far.init_attr.cap
    for number in range(cap.max_recv_wr):
        far.post_recv(hca.Recv(wr_id=number))
    with pytest.raises(VerbsError, match="max_recv_wr"):
        far.post_recv(hca.Recv())
    for number in range(cap.max_send_wr):
        near.post_send(hca.Send(wr_id=number, signaled=number == cap.max_send_wr - 1))
    with pytest.raises(VerbsError, match="max_send_wr"):
        near.post_send(hca.Send())
    assert simulated.completion(simulated.a).wr_id == cap.max_send_wr - 1
    assert len(simulated.completions(simulated.b, cap.max_recv_wr)) == cap.max_recv_wr
    near.post_send([hca.Send() for _ in range(cap.max_send_wr)])


def test_mtu_is_limited_on_request() -> None:
    with open_simulated(mtu=1024) as device:
        assert device.query_port().active_mtu is hca.Mtu.MTU_1024
        host = Host(device)
        assert host.qp().info().mtu is hca.Mtu.MTU_1024
    with hca.open(mtu=512, name="small", seed=4) as device:
        assert (device.active_mtu, device.name) == (hca.Mtu.MTU_512, "small")
        host = Host(device)
        near, far = host.qp(), host.qp()
        near.connect(far.info())
        assert near.query().path_mtu is hca.Mtu.MTU_512
