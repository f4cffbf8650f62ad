"""Events of the port and of the device, by order."""

from __future__ import annotations

import errno

import pytest

import softhca as hca
from softhca import EventType, QPState, VerbsError, WcStatus
from softhca.testing import fail_device, set_gid, set_port
from softhca.verbs.enums import PortState

from .hosts import Host, Pair


def test_a_port_that_goes_down_and_comes_up(pair: Pair) -> None:
    near, far = pair.a.qp(), pair.b.qp()
    near.connect(far.info(), timeout=18)  # Eight tries of a second each, while the port is down.
    far.connect(near.info())
    device = pair.b.device
    set_port(device, active=False)
    assert device.query_port().state is PortState.DOWN
    event = pair.event(pair.b)
    assert (event.event_type, event.element) == (EventType.PORT_ERR, 1)
    near.post_send(hca.Write(remote=pair.b.mr.remote(), signaled=True))
    pair.until(lambda: device.counters["port_down_drops"] > 0)
    assert pair.a.cq.poll() == []
    set_port(device, active=True)
    assert device.query_port().state is PortState.ACTIVE
    event = pair.event(pair.b)
    assert (event.event_type, event.element) == (EventType.PORT_ACTIVE, 1)
    assert pair.completion(pair.a).ok


def test_a_port_that_is_down_already_says_nothing(pair: Pair) -> None:
    set_port(pair.a.device, active=True)
    assert pair.a.device.poll_async_event() is None


def test_a_gid_that_goes_and_comes_back(pair: Pair) -> None:
    device = pair.a.device
    before = device.query_gid()
    set_gid(device, None)
    assert device.query_gid() == hca.GID(bytes(16))
    event = pair.event(pair.a)
    assert (event.event_type, event.element) == (EventType.GID_CHANGE, 1)
    with pytest.raises(VerbsError, match="sgid_index=0: names no entry of the GID table"):
        pair.a.pd.create_ah(pair.b.device.gid)
    set_gid(device, before)
    assert device.query_gid() == before
    assert pair.event(pair.a).event_type is EventType.GID_CHANGE
    pair.a.keep(pair.a.pd.create_ah(pair.b.device.gid))
    with pytest.raises(VerbsError, match="index=1"):
        set_gid(device, before, 1)


def test_a_device_that_fails(pair: Pair) -> None:
    near, far = pair.connected()
    near.post_recv(hca.Recv(pair.a.mr[:8], wr_id=7))
    device = pair.a.device
    fail_device(device)
    event = pair.event(pair.a)
    assert (event.event_type, event.element) == (EventType.DEVICE_FATAL, device)
    assert near.state is QPState.ERR
    assert far.state is QPState.RTS
    wc = pair.completion(pair.a)
    assert (wc.wr_id, wc.status) == (7, WcStatus.WR_FLUSH_ERR)
    near.modify(qp_state=QPState.RESET)
    with pytest.raises(VerbsError, match="device: has failed for good: close it") as raised:
        near.connect(far.info())
    assert raised.value.errno == errno.EIO
    event.ack()


def test_orders_go_to_open_devices(device: hca.Device) -> None:
    with pytest.raises(TypeError, match="device must be Device, not int"):
        fail_device(3)  # type: ignore[arg-type]
    device.close()
    for order in (
        lambda: fail_device(device),
        lambda: set_port(device, active=False),
        lambda: set_gid(device, None),
    ):
        with pytest.raises(VerbsError, match="device: is closed"):
            order()


def test_a_flapping_port_leaves_the_truth_last(host: Host) -> None:
    for _ in range(10):
        set_port(host.device, active=False)
        set_port(host.device, active=True)
    set_port(host.device, active=False)
    taken = []
    while (event := host.device.poll_async_event()) is not None:
        taken.append(event.event_type)
    assert taken == [EventType.PORT_ACTIVE, EventType.PORT_ERR]
