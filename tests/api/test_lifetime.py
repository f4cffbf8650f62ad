"""Who keeps whom alive, what closing refuses, and what a leak says."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import softhca as hca
from softhca import QPType, VerbsError
from softhca.testing import Fabric, open_simulated
from softhca.verbs.lifetime import VerbsObject

from .callbacks import PATIENCE_S
from .hosts import Host, Pair


def make_tree(device: hca.Device) -> dict[str, VerbsObject]:
    """One of everything, each made from what stands before it."""
    pd = device.alloc_pd()
    cq = device.create_cq(8)
    xrcd = device.alloc_xrcd()
    srq = pd.create_srq(max_wr=4)
    return {
        "pd": pd,
        "cq": cq,
        "xrcd": xrcd,
        "mr": pd.reg_mr(bytearray(64)),
        "ah": pd.create_ah("10.0.0.1"),
        "srq": srq,
        "qp": pd.create_qp(QPType.RC, send_cq=cq, recv_cq=cq, srq=srq),
        "xrc_srq": xrcd.create_srq(pd, cq, max_wr=4),
        "target": xrcd.create_qp(),
    }


@pytest.mark.parametrize("parent", ["pd", "cq", "xrcd", "srq"])
def test_closing_what_is_used_is_refused_and_changes_nothing(
    device: hca.Device, parent: str
) -> None:
    tree = make_tree(device)
    with pytest.raises(VerbsError) as raised:
        tree[parent].close()
    assert (raised.value.errno, raised.value.argument) == (errno.EBUSY, parent)
    assert "is still used by" in raised.value.rule
    assert not tree[parent].closed
    for made in reversed(list(tree.values())):
        made.close()
    assert all(made.closed for made in tree.values())


def test_closing_a_device_with_children_is_refused() -> None:
    device = open_simulated()
    pd = device.alloc_pd()
    with pytest.raises(VerbsError, match=r"device: is still used by <PD 1>.*EBUSY"):
        device.close()
    pd.close()
    device.close()
    assert device.closed


def test_with_closes_what_was_made_from_the_object() -> None:
    with open_simulated() as device:
        tree = make_tree(device)
    assert device.closed
    assert all(made.closed for made in tree.values())


def test_with_closes_after_an_exception_too() -> None:
    with pytest.raises(KeyError), open_simulated() as device:
        tree = make_tree(device)
        raise KeyError
    assert all(made.closed for made in tree.values())


def test_with_closes_an_empty_region_too() -> None:
    with open_simulated() as device:
        mr = device.alloc_pd().reg_mr(bytearray())
    assert mr.closed


@pytest.mark.parametrize("first", ["target", "srq"])
def test_with_closes_a_domain_whose_peer_never_ends_its_message(first: str) -> None:
    with Fabric() as fabric:
        near, far = fabric.host(), fabric.host()
        near_pd, pd, cq = near.alloc_pd(), far.alloc_pd(), far.create_cq(8)
        sent = near_pd.reg_mr(bytearray(8192))
        received = pd.reg_mr(bytearray(8192), hca.Access.LOCAL_WRITE)
        asker = near_pd.create_qp(QPType.XRC_SEND, send_cq=near.create_cq(8))
        fabric.faults.drop(opcode="XRC_SEND_LAST")
        with far.alloc_xrcd() as xrcd:
            target = xrcd.create_qp() if first == "target" else None
            srq = xrcd.create_srq(pd, cq, max_wr=4)
            target = target or xrcd.create_qp()
            asker.connect(target.info(srq.srqn))
            target.connect(asker.info())
            srq.post_recv(hca.Recv(received[:]))
            asker.post_send(hca.Send(sent[:], srqn=srq.srqn))
            fabric.run_for(1_000_000)
            with pytest.raises(VerbsError, match="receiving a message"):
                srq.close()
        assert srq.closed
        assert target.closed


def test_with_closes_what_an_interrupt_left_half_made() -> None:
    with hca.open() as device:
        tree = make_tree(device)
        pd, buffer = device.alloc_pd(), bytearray(8)
        mr = pd.reg_mr(buffer)
        device.adapter.reg_mr(pd.handle, mr.addr, 8, mr.addr, 0)  # Of no Python object.
    assert device.closed
    assert pd.closed
    assert all(made.closed for made in tree.values())
    buffer.extend(b"free")
    hca.open(str(device.gid.ip)).close()


def test_one_of_several_threads_that_close_an_object_does() -> None:
    raised: list[Exception] = []

    def close(made: VerbsObject, start: threading.Barrier) -> None:
        start.wait(PATIENCE_S)
        try:
            made.close()
        except Exception as error:
            raised.append(error)

    with hca.open() as device:
        pd = device.alloc_pd()
        for _ in range(100):
            start = threading.Barrier(4)
            mr, cq = pd.reg_mr(bytearray(8)), device.create_cq(4)
            threads = [
                threading.Thread(target=close, args=(made, start)) for made in (mr, cq, mr, cq)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE_S)
    assert raised == []


def test_close_is_idempotent(device: hca.Device) -> None:
    for made in reversed(list(make_tree(device).values())):
        made.close()
        made.close()


def test_children_keep_their_parents_alive() -> None:
    device = open_simulated()
    pd = device.alloc_pd()
    mr = pd.reg_mr(bytearray(8))
    alive = weakref.ref(device)
    del device, pd
    gc.collect()
    assert alive() is not None
    assert mr[:].length == 8
    parent = alive()
    assert parent is not None
    parent.__exit__(None, None, None)
    assert mr.closed


@pytest.mark.parametrize("name", ["mr", "ah", "qp", "target", "xrc_srq"])
def test_a_leak_is_named_and_given_back(device: hca.Device, name: str) -> None:
    tree = make_tree(device)
    shown = repr(tree[name])
    with pytest.warns(ResourceWarning) as caught:
        del tree[name]
        gc.collect()
    assert [str(warning.message) for warning in caught] == [f"unclosed {shown}"]
    for made in reversed(list(tree.values())):
        made.close()


@pytest.mark.parametrize("first", ["region", "window"])
def test_a_region_and_its_window_go_together_in_whatever_order(simulated: Pair, first: str) -> None:
    """What peers can still reach is not let go of."""
    near, far = simulated.connected()
    buffer = bytearray(64)
    left = SimpleNamespace()
    left.itself = left
    for made in (first, "window" if first == "region" else "region"):
        if made == "region":
            left.mr = simulated.b.pd.reg_mr(
                buffer, hca.Access.LOCAL_WRITE | hca.Access.REMOTE_WRITE | hca.Access.MW_BIND
            )
        else:
            left.mw = simulated.b.pd.alloc_mw(hca.MwType.TYPE_1)
    far.bind_mw(left.mw, hca.BindInfo.of(left.mr, hca.Access.REMOTE_WRITE), signaled=True)
    assert simulated.completion(simulated.b).ok
    remote = left.mr.remote()
    with pytest.warns(ResourceWarning, match="unclosed <M"):
        del left
        gc.collect()
    near.post_send(hca.Write(simulated.a.mr[:8], remote=remote, signaled=True))
    assert simulated.completion(simulated.a).status is hca.WcStatus.REM_ACCESS_ERR
    buffer.append(1)  # It is let go of.


def test_what_went_in_a_cycle_is_given_back() -> None:
    """The collector comes to a protection domain before what is made of it."""
    with open_simulated(limits={"max_pd": 1, "max_cq": 1, "max_xrcd": 1}) as device:
        for _ in range(3):
            tree = make_tree(device)
            tree["itself"] = tree  # type: ignore[assignment]
            with pytest.warns(ResourceWarning):
                del tree
                gc.collect()


def test_a_leaked_device_frees_its_address() -> None:
    device = hca.open()
    address = str(device.gid.ip)
    with pytest.warns(ResourceWarning, match="unclosed <Device"):
        del device
        gc.collect()
    hca.open(address).close()


def descriptors() -> int:
    """How many the process has open."""
    return len(os.listdir("/proc/self/fd"))


def test_a_closed_device_holds_no_descriptor_though_it_had_callbacks() -> None:
    """While it is still referred to, and without the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        before = descriptors()
        with hca.open() as device:
            cq = device.alloc_cq(4, poll_context=hca.PollContext.WORKQUEUE)
            device.cq_pool_get(4)
        del cq
        assert device.closed
        assert descriptors() == before
    finally:
        gc.enable()


def test_a_device_takes_no_more_descriptors_than_the_guide_says() -> None:
    """Programs with many hosts come to the usual limit, 1024 (docs/guide/errors.md)."""
    with hca.open():  # What the first one brings along stays for all.
        before = descriptors()
        with hca.open():
            assert descriptors() - before <= 16


def test_a_leaked_device_goes_with_its_last_reference() -> None:
    gc.collect()
    gc.disable()
    try:
        device = hca.open()
        address = str(device.gid.ip)
        device.alloc_cq(4).free()
        with pytest.warns(ResourceWarning, match="unclosed <Device"):
            del device
        hca.open(address).close()
    finally:
        gc.enable()


CALLS_ON_CLOSED: dict[str, list[Callable[[object], object]]] = {
    "pd": [
        lambda pd: pd.reg_mr(bytearray(1)),  # type: ignore[attr-defined]
        lambda pd: pd.create_ah("10.0.0.1"),  # type: ignore[attr-defined]
        lambda pd: pd.create_srq(max_wr=1),  # type: ignore[attr-defined]
    ],
    "cq": [
        lambda cq: cq.poll(),  # type: ignore[attr-defined]
        lambda cq: cq.resize(4),  # type: ignore[attr-defined]
        lambda cq: cq.req_notify(),  # type: ignore[attr-defined]
        lambda cq: cq.cqe,  # type: ignore[attr-defined]
    ],
    "srq": [
        lambda srq: srq.post_recv(hca.Recv()),  # type: ignore[attr-defined]
        lambda srq: srq.query(),  # type: ignore[attr-defined]
    ],
    "qp": [
        lambda qp: qp.post_send(hca.Send()),  # type: ignore[attr-defined]
        lambda qp: qp.post_recv(hca.Recv()),  # type: ignore[attr-defined]
        lambda qp: qp.query(),  # type: ignore[attr-defined]
        lambda qp: qp.state,  # type: ignore[attr-defined]
        lambda qp: qp.modify(qp_state=hca.QPState.ERR),  # type: ignore[attr-defined]
        lambda qp: qp.counters,  # type: ignore[attr-defined]
        lambda qp: qp.info(),  # type: ignore[attr-defined]
    ],
    "ah": [lambda ah: ah.query()],  # type: ignore[attr-defined]
    "xrcd": [lambda xrcd: xrcd.create_qp()],  # type: ignore[attr-defined]
}


@pytest.mark.parametrize("name", CALLS_ON_CLOSED)
def test_a_closed_object_refuses_by_name(device: hca.Device, name: str) -> None:
    tree = make_tree(device)
    for made in reversed(list(tree.values())):
        made.close()
    for call in CALLS_ON_CLOSED[name]:
        with pytest.raises(VerbsError, match=f"{name}: is closed") as raised:
            call(tree[name])
        assert raised.value.errno == errno.EINVAL


def test_the_key_of_a_closed_region_stays_what_it_was(host: Host) -> None:
    mr = host.pd.alloc_mr(hca.MrType.SG_GAPS, 1)
    key = mr.rkey
    mr.close()
    with pytest.raises(VerbsError, match="mr: is closed"):
        mr.update_fast_reg_key((key + 1) & 0xFF)
    assert mr.rkey == key


def test_a_closed_object_is_refused_as_an_argument(host: Host) -> None:
    ah = host.pd.create_ah("10.0.0.1")
    ah.close()
    with pytest.raises(VerbsError, match="ah: is closed"):
        hca.Send(ah=ah)


def test_a_closed_object_is_not_taken_for_another_devices(device: hca.Device) -> None:
    pd, cq, xrcd = device.alloc_pd(), device.create_cq(8), device.alloc_xrcd()
    xrcd.close()
    with pytest.raises(VerbsError, match="xrcd: is closed"):
        xrcd.create_srq(pd, cq, max_wr=4)
    pd.close()
    with pytest.raises(VerbsError, match="pd: is closed"):
        pd.create_qp(QPType.RC, send_cq=cq, recv_cq=cq)
    cq.close()


def test_a_closed_device_refuses_by_name() -> None:
    device = open_simulated()
    device.close()
    for call in (
        device.alloc_pd,
        device.query_device,
        device.alloc_xrcd,
        device.poll_async_event,
        device.create_comp_channel,
        device.create_invalidation_channel,
        lambda: device.create_cq(1),
        lambda: device.counters,
    ):
        with pytest.raises(VerbsError, match="device: is closed"):
            call()
    assert device.gid == hca.GID("10.0.0.1")


def test_a_number_used_again_does_not_revive_a_closed_object(device: hca.Device) -> None:
    old = device.create_cq(4)
    handle = old.handle
    old.close()
    for _ in range(5000):
        with device.create_cq(4) as new:
            if new.handle == handle:
                break
    else:
        return  # Numbers are not used again so soon.
    with pytest.raises(VerbsError, match="cq: is closed"):
        old.poll()


def test_buffer_stays_exported_until_dereg(host: Host) -> None:
    buffer = bytearray(16)
    mr = host.pd.reg_mr(buffer)
    with pytest.raises(BufferError):
        buffer.extend(b"more")
    mr.dereg()
    buffer.extend(b"more")
    assert len(buffer) == 20


def test_a_refused_registration_lets_go_of_the_buffer(host: Host) -> None:
    buffer = bytearray(16)
    with pytest.raises(VerbsError):
        host.pd.reg_mr(buffer, hca.Access.REMOTE_WRITE)
    buffer.extend(b"more")


def test_a_mapping_cannot_be_closed_while_it_is_registered(host: Host) -> None:
    mapping = mmap.mmap(-1, 4096)
    with host.pd.reg_mr(mapping), pytest.raises(BufferError):
        mapping.close()
    mapping.close()


def test_an_sge_keeps_its_region_registered(simulated: Pair) -> None:
    near, _ = simulated.connected()
    source = bytearray(b"kept")
    wr = hca.Write(simulated.a.pd.reg_mr(source)[:], remote=simulated.b.mr.remote(), signaled=True)
    gc.collect()
    near.post_send(wr)
    assert simulated.completion(simulated.a).ok
    assert simulated.b.buffer[:4] == b"kept"
    with pytest.warns(ResourceWarning, match="unclosed <MR"):
        del wr
        gc.collect()


def test_what_is_posted_keeps_its_region_with_a_callback_alone(simulated: Pair) -> None:
    near, _ = simulated.connected()
    for cqe, status in ((hca.Cqe(), hca.WcStatus.SUCCESS), (None, hca.WcStatus.LOC_PROT_ERR)):
        source = simulated.a.pd.reg_mr(bytearray(b"kept"))[:]
        near.post_send(hca.Write(source, remote=simulated.b.mr.remote(), signaled=True, cqe=cqe))
        with pytest.warns(ResourceWarning, match="unclosed <MR"):
            del source
            gc.collect()
            assert simulated.completion(simulated.a).status is status
            gc.collect()


def test_dereg_between_post_and_execution_is_an_error_completion(simulated: Pair) -> None:
    near, _ = simulated.connected()
    mr = simulated.a.pd.reg_mr(bytearray(8))
    near.post_send(hca.Send(mr[:], wr_id=4))
    mr.close()
    wc = simulated.completion(simulated.a)
    assert (wc.wr_id, wc.status) == (4, hca.WcStatus.LOC_PROT_ERR)
    assert wc.reason is hca.Reason.UNKNOWN_KEY


def test_dereg_of_what_a_peer_writes_is_a_refusal(simulated: Pair) -> None:
    near, far = simulated.connected()
    with simulated.b.pd.reg_mr(bytearray(8)) as mr:
        remote = mr.remote()
    near.post_send(hca.Write(simulated.a.mr[:8], remote=remote, wr_id=1))
    wc = simulated.completion(simulated.a)
    assert (wc.status, wc.by_peer) == (hca.WcStatus.REM_ACCESS_ERR, True)
    event = simulated.event(simulated.b)
    assert (event.event_type, event.element) == (hca.EventType.QP_ACCESS_ERR, far)


def test_an_event_of_an_object_that_is_gone(simulated: Pair) -> None:
    near, far = simulated.connected()
    with simulated.b.pd.reg_mr(bytearray(8)) as mr:
        remote = mr.remote()
    near.post_send(hca.Write(simulated.a.mr[:8], remote=remote))
    simulated.completion(simulated.a)
    far.close()
    assert simulated.b.device.poll_async_event() is None


def test_destroying_a_queue_pair_removes_its_completions(host: Host) -> None:
    near, far = host.qp(), host.qp()
    near.connect(far.info())
    near.post_recv([hca.Recv(host.mr[:4], wr_id=i) for i in range(3)])
    near.modify(qp_state=hca.QPState.ERR)
    near.close()
    assert host.cq.poll() == []


def test_a_member_of_a_group_is_busy_but_a_with_block_ends_it(host: Host) -> None:
    with host.pd.create_qp(QPType.UD, send_cq=host.cq, recv_cq=host.cq) as qp:
        qp.attach_mcast("239.0.0.1")
        with pytest.raises(VerbsError, match="multicast") as raised:
            qp.close()
        assert raised.value.errno == errno.EBUSY
    assert qp.closed


def group_sockets() -> int:
    """How many sockets this process has at 239.0.0.1; others may have theirs."""
    table = [line.split() for line in Path("/proc/self/net/udp").read_text().splitlines()[1:]]
    at_group = {f"socket:[{columns[9]}]" for columns in table if columns[1].startswith("010000EF:")}
    links = [os.readlink(one) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
    return len(at_group.intersection(links))


def test_a_member_that_attaches_again_leaves_its_group_at_once() -> None:
    with hca.open() as device:
        host = Host(device)
        with host.pd.create_qp(QPType.UD, send_cq=host.cq, recv_cq=host.cq) as qp:
            assert group_sockets() == 0
            qp.attach_mcast("239.0.0.1")
            assert group_sockets() == 1
            qp.attach_mcast("239.0.0.1")
            assert group_sockets() == 1
            qp.detach_mcast("239.0.0.1")
            assert group_sockets() == 0


def test_closing_while_another_thread_polls() -> None:
    device = hca.open()
    cq = device.create_cq(4)
    started = threading.Event()
    refusals: list[VerbsError] = []

    def poll() -> None:
        try:
            while True:
                cq.poll()
                started.set()
        except VerbsError as error:
            refusals.append(error)

    thread = threading.Thread(target=poll)
    thread.start()
    assert started.wait(PATIENCE_S)
    device.__exit__(None, None, None)
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert len(refusals) == 1
