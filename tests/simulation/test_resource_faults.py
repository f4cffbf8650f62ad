"""Verbs that are refused, and hosts that fail."""

from __future__ import annotations

import errno
import mmap
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import softhca as hca
from softhca.testing import DeadlockError, Fabric

from .ends import End, connected, pair


def setup(device: hca.Device) -> str:
    """A program with an error path: it must leave nothing behind."""
    made: list[hca.PD | hca.CQ | hca.QP] = []
    try:
        pd = device.alloc_pd()
        made.append(pd)
        cq = device.create_cq(16)
        made.append(cq)
        for _ in range(3):
            made.append(pd.create_qp(hca.QPType.RC, send_cq=cq, recv_cq=cq))
        return "ready"
    except hca.VerbsError as error:
        return errno.errorcode[error.errno or 0]
    finally:
        for one in reversed(made):
            one.close()


@pytest.mark.parametrize(
    ("verb", "nth", "outcome"),
    [
        ("alloc_pd", 1, "ENOMEM"),
        ("create_cq", 1, "ENOMEM"),
        ("create_qp", 1, "ENOMEM"),
        ("create_qp", 3, "ENOMEM"),
        ("create_qp", 4, "ready"),
    ],
)
def test_the_nth_call_of_a_verb(verb: str, nth: int, outcome: str) -> None:
    with Fabric() as fabric:
        device = fabric.host()
        with fabric.faults.refuse(verb, nth=nth) as refusal:
            assert setup(device) == outcome
            assert refusal.struck == (outcome == "ENOMEM")
        assert setup(device) == "ready"
        noted = [r.text for r in fabric.trace if r.text.startswith("fault")]
        assert len(noted) == (outcome == "ENOMEM")


def test_posting_is_refused() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        fabric.faults.refuse("post_send", errno.EAGAIN, nth=[2, 3], host=a.device)
        wr = hca.Write(a.mr[:5], remote=b.mr.remote(), signaled=True)
        a.qp.post_send(wr)
        for _ in range(2):
            with pytest.raises(hca.VerbsError, match="refused by a fault"):
                a.qp.post_send(wr)
        a.qp.post_send(wr)
        assert a.next().ok
        assert a.next().ok


def test_every_way_to_post_and_to_poll_is_refused() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        wr = hca.Write(a.mr[:5], remote=b.mr.remote(), signaled=True)
        with fabric.faults.refuse("post_send", nth=None, host=a.device) as refusal:
            for post in (a.qp.post_send, a.qp.post_send_many):
                with pytest.raises(hca.VerbsError, match="refused by a fault"):
                    post(wr)
        assert refusal.struck == 2
        with fabric.faults.refuse("poll_cq", nth=None, host=a.device):
            for poll in (a.cq.poll, a.cq.poll_one, lambda: a.cq.poll_into(bytearray(72))):
                with pytest.raises(hca.VerbsError, match="refused by a fault"):
                    poll()


def test_a_refused_post_names_its_work_request() -> None:
    with Fabric() as fabric:
        a, _ = pair(fabric)
        sends = [hca.Send(a.mr[:1], wr_id=n) for n in (1, 2)]
        receives = [hca.Recv(a.mr[:1], wr_id=n) for n in (1, 2)]
        srq = a.pd.create_srq(max_wr=4)
        posts: list[tuple[str, Callable[[Any], object], Any, Any]] = [
            ("post_send", a.qp.post_send, sends, sends[0]),
            ("post_send", a.qp.post_send, sends[1], sends[1]),
            ("post_send", a.qp.post_send_many, sends[0], 0),
            ("post_recv", a.qp.post_recv, receives, receives[0]),
            ("post_recv", a.qp.post_recv_many, receives[0], 0),
            ("post_srq_recv", srq.post_recv, receives, receives[0]),
        ]
        for verb, post, wrs, bad in posts:
            with (
                fabric.faults.refuse(verb, host=a.device),
                pytest.raises(hca.VerbsError, match="refused by a fault") as refused,
            ):
                post(wrs)
            assert refused.value.bad_wr is bad


@pytest.mark.parametrize("verb", ["reg_mr", "reg_dm_mr", "map_mr_sg"])
def test_every_way_to_register_is_refused(verb: str) -> None:
    with Fabric() as fabric, fabric.host() as device, device.alloc_pd() as pd:
        dm, fast = device.alloc_dm(8), pd.alloc_mr(hca.MrType.SG_GAPS, 1)
        ways: dict[str, list[Callable[[], object]]] = {
            "reg_mr": [lambda: pd.reg_mr(bytearray(8)), lambda: pd.alloc_mr_buffer(8)],
            "reg_dm_mr": [lambda: pd.reg_dm_mr(dm)],
            "map_mr_sg": [lambda: fast.map_mr_sg([bytearray(8)])],
        }
        with suppress(hca.VerbsError):  # Where the system cannot tell of memory that goes.
            channel = device.create_invalidation_channel()
            memory = mmap.mmap(-1, 4096)
            ways["reg_mr"].append(lambda: pd.reg_mr(memory, invalidation=channel))
        with fabric.faults.refuse(verb, nth=None) as refusal:
            for way in ways[verb]:
                with pytest.raises(hca.VerbsError, match="refused by a fault"):
                    way()
            assert refusal.struck == len(ways[verb])


def test_a_system_that_cannot_tell_of_memory_that_goes() -> None:
    with Fabric() as fabric, fabric.host() as device, device.alloc_pd() as pd:
        fabric.faults.refuse("create_invalidation_channel", errno.EOPNOTSUPP, nth=[1, 2])
        for way in (device.create_invalidation_channel, lambda: hca.RegistrationCache(pd)):
            with pytest.raises(hca.VerbsError, match="refused by a fault") as refused:
                way()
            assert refused.value.errno == errno.EOPNOTSUPP


def test_verbs_of_everything_else_are_refused_once() -> None:
    with Fabric() as fabric, fabric.host() as device, device.alloc_pd() as pd:
        cq = device.create_cq(8)
        qp = pd.create_qp(hca.QPType.UD, send_cq=cq, recv_cq=cq)
        ah, srq = pd.create_ah("10.0.0.9"), pd.create_srq(max_wr=4)
        dm, xrcd = device.alloc_dm(8), device.alloc_xrcd()
        calls: dict[str, Callable[[], object]] = {
            "modify_cq": lambda: cq.modify(cq_count=2, cq_period=1),
            "attach_mcast": lambda: qp.attach_mcast("239.1.2.3"),
            "detach_mcast": lambda: qp.detach_mcast("239.1.2.3"),
            "query_ah": ah.query,
            "destroy_ah": ah.close,
            "query_srq": srq.query,
            "destroy_srq": srq.close,
            "memcpy_to_dm": lambda: dm.memcpy_to(0, b"x"),
            "memcpy_from_dm": lambda: dm.memcpy_from(0, 1),
            "free_dm": dm.close,
            "dealloc_xrcd": xrcd.close,
        }
        for verb, call in calls.items():
            fabric.faults.refuse(verb, errno.ENXIO)
            with pytest.raises(hca.VerbsError) as refused:
                call()
            assert (refused.value.errno, refused.value.argument) == (errno.ENXIO, verb)
            call()


def test_refusals_that_can_strike_nothing() -> None:
    with Fabric() as fabric:
        with pytest.raises(hca.VerbsError, match="none yet"):
            fabric.faults.refuse("create_qp")
        fabric.host()
        for verb, error, nth in (
            ("create_pq", errno.ENOMEM, 1),
            ("create_qp", 12345, 1),
            ("create_qp", errno.ENOMEM, 0),
            ("create_qp", errno.ENOMEM, []),
        ):
            with pytest.raises(hca.VerbsError) as raised:
                fabric.faults.refuse(verb, error, nth=nth)  # type: ignore[arg-type]
            assert raised.value.errno == errno.EINVAL


def test_a_deadlock_is_told_though_queries_are_refused() -> None:
    with Fabric() as fabric:
        a, _ = pair(fabric)
        refusal = fabric.faults.refuse("query_qp", nth=None)
        with pytest.raises(DeadlockError, match=f"{a.qp!r} RTS"):
            a.next()
        assert refusal.calls == 0


def test_a_port_that_goes_down_for_a_while() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric, timeout=12)
        fabric.faults.port_down(b.device, at_ns=500, for_ns=20_000_000)
        a.qp.post_send(hca.Write(a.mr[:5], remote=b.mr.remote(), signaled=True))
        assert a.next().ok
        assert fabric.now_ns > 20_000_000
        kinds = []
        while (event := b.device.poll_async_event()) is not None:
            kinds.append(event.event_type)
            event.ack()
        assert hca.EventType.PORT_ACTIVE in kinds


def test_a_device_that_fails() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric, timeout=8, retry_cnt=2)
        fabric.faults.device_fatal(b.device, at_ns=100)
        a.qp.post_send(hca.Write(a.mr[:5], remote=b.mr.remote(), signaled=True))
        assert a.next().status is hca.WcStatus.RETRY_EXC_ERR
        with b.device.get_async_event() as event:
            assert event.event_type is hca.EventType.DEVICE_FATAL


def test_a_peer_that_resets() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric, timeout=8, retry_cnt=2)
        fabric.faults.reset(b.qp, at_ns=10)
        a.qp.post_send(hca.Write(a.mr[:5], remote=b.mr.remote(), signaled=True))
        assert a.next().status is hca.WcStatus.RETRY_EXC_ERR


def test_a_peer_resets_though_its_program_may_not_modify() -> None:
    with Fabric() as fabric:
        _, b = pair(fabric)
        refusal = fabric.faults.refuse("modify_qp", nth=None)
        fabric.faults.reset(b.qp)
        assert b.qp.state is hca.QPState.RESET
        assert refusal.calls == 0


ENDS: dict[str, Callable[[Fabric, End], object]] = {
    "port_down": lambda fabric, end: fabric.faults.port_down(end.device, at_ns=1, for_ns=5000),
    "gid_change": lambda fabric, end: fabric.faults.gid_change(end.device, "10.7.7.7", at_ns=5000),
    "device_fatal": lambda fabric, end: fabric.faults.device_fatal(end.device, at_ns=5000),
    "cq_overflow": lambda fabric, end: fabric.faults.cq_overflow(end.cq, at_ns=5000),
    "reset": lambda fabric, end: fabric.faults.reset(end.qp, at_ns=5000),
}


@pytest.mark.parametrize("word", ENDS)
def test_what_is_closed_before_its_fault_is_due_is_not_struck(word: str) -> None:
    with Fabric() as fabric:
        _, b = pair(fabric)
        ENDS[word](fabric, b)
        fabric.run_for(2e-6)
        with b.device:
            pass  # Closes all that was made from it, too.
        fabric.run_for(1e-5)
        assert not [r for r in fabric.trace if "fault" in r.text and r.at_ns > 2000]
        with pytest.raises(hca.VerbsError, match="is closed"):
            ENDS[word](fabric, b)


def test_a_gid_that_changes() -> None:
    with Fabric() as fabric:
        device = fabric.host()
        fabric.faults.gid_change(device, "10.7.7.7")
        with device.get_async_event() as event:
            assert event.event_type is hca.EventType.GID_CHANGE


def test_after_a_change_of_gid_a_host_is_reached_at_the_new_one() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        fabric.faults.gid_change(b.device, "10.7.7.7", at_ns=500)
        with b.device.get_async_event() as event:
            assert event.event_type is hca.EventType.GID_CHANGE
        # What is connected stays so.
        a.qp.post_send(hca.Write(a.mr[:5], remote=b.mr.remote(), signaled=True))
        assert a.next().ok
        near, far = connected(fabric, a.device, b.device, timeout=8, retry_cnt=2)
        assert str(far.qp.info().gid) == str(hca.GID("10.7.7.7"))
        for one, other in ((near, far), (far, near)):
            wr = hca.Write(one.mr[:5], remote=other.mr.remote(), signaled=True)
            one.qp.post_send(wr)
            assert one.next().ok


def test_faults_know_a_host_by_its_new_gid_too() -> None:
    """And by the one that what was connected before keeps."""
    with Fabric() as fabric:
        a, b = pair(fabric, timeout=8, retry_cnt=1)
        fabric.faults.gid_change(b.device, "10.7.7.7")
        near, far = connected(fabric, a.device, b.device, timeout=8, retry_cnt=1)
        lost = [fabric.faults.drop(destination=b.device, times=1), fabric.faults.mute(b.device)]
        for times, (one, other) in enumerate(((near, far), (a, b)), 1):
            before = lost[1].struck
            wr = hca.Write(one.mr[:5], remote=other.mr.remote(), signaled=True)
            one.qp.post_send(wr)
            assert one.next().status is hca.WcStatus.RETRY_EXC_ERR
            assert lost[1].struck > before
            assert lost[0].matched > times
        assert lost[0].struck == 1
        with pytest.raises(hca.VerbsError, match="passes no link: can match nothing"):
            fabric.faults.drop(source=b.device, destination=b.device)


@pytest.mark.parametrize("word", ["source", "destination", "qp"])
def test_faults_made_before_know_a_host_by_its_new_gid_too(word: str) -> None:
    """A device stands for its host, whatever addresses that has, or has left to another one."""
    with Fabric() as fabric:
        a, b = pair(fabric)
        before = b.device.gid
        near, far = (fabric.keep(End(end.device, 64)) for end in (a, b))
        known = fabric.faults.mark(**{word: far.qp if word == "qp" else b.device})
        fabric.faults.gid_change(b.device, "10.7.7.7")
        near.qp.connect(far.qp.info())
        far.qp.connect(near.qp.info())
        near.qp.post_send(hca.Write(near.mr[:5], remote=far.mr.remote(), signaled=True))
        assert near.next().ok
        assert known.struck == 1
        # Who has the address now is another host.
        other = fabric.host()
        fabric.faults.gid_change(other, before)
        struck = known.struck
        one, two = connected(fabric, a.device, other)
        one.qp.post_send(hca.Write(one.mr[:5], remote=two.mr.remote(), signaled=True))
        assert one.next().ok
        assert known.struck == struck


def test_the_first_packet_to_a_new_address_arrives() -> None:
    with Fabric() as fabric:
        client, server = fabric.hosts(2)
        fabric.faults.gid_change(server, "10.7.7.7")
        near, far = connected(fabric, client, server)
        near.qp.post_send(hca.Write(near.mr[:5], remote=far.mr.remote(), signaled=True))
        assert near.next().ok
        assert client.counters.local_ack_timeout_err == 0
        with pytest.raises(hca.VerbsError, match="is another host's"):
            fabric.host(gid="10.7.7.7")


def test_another_host_takes_an_address_over() -> None:
    with Fabric() as fabric:
        client, first, second = fabric.hosts(3)
        address = first.gid
        fabric.faults.gid_change(first, None)
        fabric.faults.gid_change(second, address)
        near, far = connected(fabric, client, second, timeout=8, retry_cnt=2)
        assert far.qp.info().gid == address
        near.qp.post_send(hca.Write(near.mr[:5], remote=far.mr.remote(), signaled=True))
        assert near.next().ok


def test_a_completion_queue_that_overflows() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        wr = hca.Write(a.mr[:5], remote=b.mr.remote(), signaled=True)
        a.qp.post_send(wr)
        fabric.run_for(0.001)
        a.cq.req_notify()
        fabric.faults.cq_overflow(a.cq, at_ns=fabric.now_ns + 500)
        a.qp.post_send(wr)
        a.channel.get_event()  # Who sleeps on the queue is woken.
        a.cq.ack_events()
        kinds = []
        while (event := a.device.poll_async_event()) is not None:
            kinds.append(event.event_type)
            event.ack()
        assert kinds == [hca.EventType.CQ_ERR, hca.EventType.QP_FATAL]
        assert a.qp.state is hca.QPState.ERR
        # What was in the queue is not lost; the second one is, which was under way.
        assert [wc.status for wc in a.poll()] == [hca.WcStatus.SUCCESS]
        assert a.poll() == []
        noted = [r.text for r in fabric.trace if "overflows" in r.text]
        assert len(noted) == 1


def test_refusals_end_in_any_order() -> None:
    with Fabric() as fabric:
        host = fabric.host()
        first = fabric.faults.refuse("alloc_pd", errno.ENOMEM, nth=None)
        second = fabric.faults.refuse("alloc_pd", errno.EPERM, nth=None)
        first.remove()
        with pytest.raises(hca.VerbsError) as raised:
            host.alloc_pd()
        assert raised.value.errno == errno.EPERM
        second.remove()
        host.alloc_pd().close()
        assert (first.calls, second.calls) == (0, 1)
