"""Hosts in virtual time: waits, polls, programs, callbacks."""

from __future__ import annotations

import errno

import pytest

import softhca as hca
from softhca.testing import (
    DeadlockError,
    Fabric,
    FabricError,
    LinkFaults,
    Pair,
    What,
    Wire,
    open_objects,
)

from .ends import End, connected, pair


def test_a_poll_that_finds_nothing_lets_packets_pass() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        b.qp.post_recv(hca.Recv(b.mr[:100]))
        a.buffer[:5] = b"hello"
        a.qp.post_send(hca.Send(a.mr[:5], signaled=True))
        while not (wcs := b.cq.poll()):
            pass
        assert wcs[0].ok
        assert b.buffer[:5] == b"hello"
        while not (wcs := a.cq.poll()):
            pass
        assert wcs[0].ok
        assert 2000 < fabric.now_ns < 3000  # There and back again.


def test_a_wait_for_an_event_lets_time_pass() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        b.qp.post_recv(hca.Recv(b.mr[:100]))
        a.qp.post_send(hca.Send(a.mr[:5], signaled=True))
        assert b.next().byte_len == 5
        assert a.next().ok
        with pytest.raises(TimeoutError):
            a.channel.get_event(timeout=2.5)
        assert 2.5e9 <= fabric.now_ns < 2.6e9


def test_a_long_retry_timeout_costs_little() -> None:
    with Fabric() as fabric:
        a, _ = pair(fabric, timeout=22, retry_cnt=2)  # 17 s each.
        with fabric.faults.drop(source=a.device) as dropped:
            a.qp.post_send(hca.Send(a.mr[:5], signaled=True))
            assert a.next().status is hca.WcStatus.RETRY_EXC_ERR
        assert fabric.now_ns > 50e9
        assert dropped.struck == 3
        assert fabric.counters["events"] < 100


def test_waiting_for_what_cannot_come_says_who_waits() -> None:
    with Fabric() as fabric:
        a, _ = pair(fabric)
        with pytest.raises(DeadlockError, match="a completion event of h1") as raised:
            a.channel.get_event()
        assert "RTS" in str(raised.value)


def test_polling_for_what_cannot_come_says_so() -> None:
    with Fabric() as fabric:
        a, _ = pair(fabric)
        with pytest.raises(DeadlockError, match="polls that found none"):
            while not a.cq.poll():
                pass


def test_programs_side_by_side() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)

        def client() -> list[int]:
            got = []
            for n in range(10):
                a.qp.post_recv(hca.Recv(a.mr[1000:1001]))
                a.buffer[0] = n
                a.qp.post_send(hca.Send(a.mr[:1]))
                assert a.next().ok
                got.append(a.buffer[1000])
            return got

        def server() -> None:
            for _ in range(10):
                b.qp.post_recv(hca.Recv(b.mr[:1]))
                while not b.cq.poll():
                    pass
                b.buffer[0] *= 2
                b.qp.post_send(hca.Send(b.mr[:1]))

        # Of two programs that start, the second has posted its receive before a packet comes.
        assert fabric.run(client, server)[0] == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18]


def test_deadlocked_programs_are_named() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)

        def left() -> None:
            a.channel.get_event()

        def right() -> None:
            b.device.get_async_event()

        with pytest.raises(DeadlockError) as raised:
            fabric.run(left, right)
        assert "left waits for a completion event of h1" in str(raised.value)
        assert "right waits for an asynchronous event of h2" in str(raised.value)


def test_a_program_that_fails_ends_the_others() -> None:
    with Fabric() as fabric:
        a, _ = pair(fabric)
        ended = []

        def waits() -> None:
            try:
                a.channel.get_event()
            finally:
                ended.append("waits")

        def fails() -> None:
            fabric.sleep(1)
            raise ValueError("on purpose")

        with pytest.raises(ValueError, match="on purpose"):
            fabric.run(waits, fails)
        assert ended == ["waits"]
        assert fabric.now_ns == 1_000_000_000


def test_callbacks_are_called_while_time_passes() -> None:
    with Fabric() as fabric:
        device, other = fabric.hosts(2)
        cq = device.alloc_cq(16)
        pd = device.alloc_pd()
        qp = pd.create_qp(hca.QPType.RC, send_cq=cq, recv_cq=cq)
        peer = End(other, 4096)
        qp.connect(peer.qp.info())
        peer.qp.connect(qp.info())
        seen: list[int] = []
        peer.qp.post_recv([hca.Recv(peer.mr[:10])] * 3)
        for n in range(3):
            qp.post_send(
                hca.Send(wr_id=n, cqe=hca.Cqe(lambda cq, wc: seen.append(wc.wr_id)), signaled=True)
            )
        fabric.run_until(lambda: len(seen) == 3, timeout=1)
        assert seen == [0, 1, 2]


def test_asynchronous_events_are_waited_for() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        a.qp.post_send(hca.Write(a.mr[:8], remote=hca.RemoteMemory(1, 2, 8), signaled=True))
        with b.device.get_async_event() as event:
            assert event.event_type is hca.EventType.QP_ACCESS_ERR
        assert a.next().status is hca.WcStatus.REM_ACCESS_ERR


def test_a_step_does_not_go_back_in_time() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        fabric.run_for(1e-3)
        a.qp.post_send(hca.Write(a.mr[:5], remote=b.mr.remote(), signaled=True))
        assert not fabric.step(until_ns=10)
        assert fabric.now_ns == 1_000_000


def test_calls_at_a_time() -> None:
    with Fabric() as fabric:
        fabric.hosts(2)
        called = []
        fabric.after(0.5, lambda: called.append(fabric.now_ns))
        fabric.at(100, lambda: called.append(fabric.now_ns))
        fabric.run_for(1.0)
        assert called == [100, 500_000_000]
        assert fabric.now_ns == 1_000_000_000


def test_a_host_without_a_link_is_named() -> None:
    with Fabric() as fabric:
        a, b, _ = fabric.hosts(3)
        fabric.link(a, b)
        with pytest.raises(FabricError, match="no way leads from h3"):
            fabric.run_for(1)


def test_a_switch_without_links_is_named() -> None:
    with Fabric() as fabric:
        fabric.hosts(2)
        fabric.switch("lonely")
        with pytest.raises(FabricError, match="lonely"):
            fabric.run_for(1)


@pytest.mark.parametrize(
    "shape",
    [
        {"gbps": 0},
        {"gbps": -1},
        {"latency_ns": -1},
        {"mtu": 1500},
        {"queue_bytes": 5},
        {"mark_bytes": (5, 5)},
        {"mark_probability": 2},
    ],
)
def test_impossible_links(shape: dict[str, object]) -> None:
    with Fabric() as fabric:
        a, b = fabric.hosts(2)
        with pytest.raises(hca.VerbsError) as raised:
            fabric.link(a, b, **shape)
        assert raised.value.errno == errno.EINVAL


def test_ends_of_links_must_be_of_the_fabric() -> None:
    with Fabric() as fabric, Fabric() as other:
        (a,) = fabric.hosts(1)
        (b,) = other.hosts(1)
        for end in (b, other.switch(), a):
            with pytest.raises(hca.VerbsError):
                fabric.link(a, end)


def test_an_address_that_was_given_is_not_given_again() -> None:
    with Fabric() as fabric:
        given = fabric.host(gid="10.0.0.2")
        assert [device.gid for device in fabric.hosts(2)] == [
            hca.GID("10.0.0.3"),
            hca.GID("10.0.0.4"),
        ]
        assert given.gid == hca.GID("10.0.0.2")


def test_a_pair_that_is_refused_leaves_no_hosts() -> None:
    with Fabric() as fabric:
        with pytest.raises(hca.VerbsError) as raised:
            Pair(fabric, -1)
        assert (raised.value.errno, raised.value.argument) == (errno.EINVAL, "buffer_bytes")
        assert not fabric.devices


def test_a_pair_that_could_not_be_made_owns_nothing() -> None:
    with Fabric() as fabric:
        fabric.close()
        with pytest.raises(hca.VerbsError, match="is closed"):
            Pair(fabric)
        assert open_objects(fabric) == []


def test_what_a_test_prints_says_what_it_is() -> None:
    with Fabric() as fabric:
        made = Pair(fabric, 64)
        fabric.faults.drop(name="acks")
        assert repr(made.a) == f"<End h1: {made.a.qp!r}, 64 bytes>"
        assert repr(made) == f"<Pair {made.a!r} and {made.b!r}>"
        assert repr(fabric.faults) == "<FabricFaults [<Fault acks: struck 0 of 0>]>"
        assert repr(LinkFaults()) == "<LinkFaults []>"
        assert repr(fabric.trace) == f"<Trace of {fabric!r}: {len(fabric.trace)} records>"
        assert repr(fabric.watch_memory()) == "<MemoryWatch of 2 hosts: 0 races>"
        assert repr(Wire()) == "<Wire of 0 devices at 0 ns>"


def test_a_closed_fabric_has_no_new_hosts() -> None:
    with Fabric() as fabric:
        fabric.host()
    for add in (fabric.host, lambda: fabric.hosts(1), lambda: Pair(fabric)):
        with pytest.raises(hca.VerbsError, match=r"fabric: is closed \(EINVAL\)"):
            add()
    assert len(fabric.devices) == 1


def test_addresses_are_unique() -> None:
    with Fabric() as fabric:
        fabric.host(gid="10.9.9.9")
        with pytest.raises(hca.VerbsError) as raised:
            fabric.host(gid="10.9.9.9")
        assert raised.value.errno == errno.EADDRINUSE


def test_names_are_unique() -> None:
    """What a trace and a refusal tell of a host goes by its name."""
    with Fabric() as fabric:
        fabric.host("server")
        fabric.switch("middle")
        for add in (fabric.host, fabric.switch):
            for name in ("server", "middle"):
                with pytest.raises(hca.VerbsError) as raised:
                    add(name)
                assert raised.value.errno == errno.EEXIST
                assert str(raised.value).startswith(f"name='{name}': is that of another host")
        assert (len(fabric.devices), len(fabric.switches)) == (1, 1)


def test_a_name_that_was_given_is_not_given_again() -> None:
    with Fabric() as fabric:
        fabric.host("h2")
        assert [device.name for device in fabric.hosts(2)] == ["h3", "h4"]
        fabric.switch("s2")
        assert fabric.switch().name == "s3"


@pytest.mark.parametrize("gid", ["239.1.2.3", "ff02::1", "0.0.0.0", "::"])
def test_addresses_of_no_host_are_refused(gid: str) -> None:
    with Fabric() as fabric:
        with pytest.raises(hca.VerbsError, match=r"gid=.*must be the address of one host"):
            fabric.host(gid=gid)
        assert not fabric.devices


def test_many_hosts_behind_a_switch() -> None:
    with Fabric() as fabric:
        devices = fabric.star(8, gbps=10, latency_ns=500)
        ends = [connected(fabric, devices[i], devices[(i + 1) % 8]) for i in range(8)]
        for near, far in ends:
            far.qp.post_recv(hca.Recv(far.mr[:4096]))
            near.qp.post_send(hca.Send(near.mr[:4096], signaled=True))
        for near, far in ends:
            assert far.next().ok
            assert near.next().ok
        # Two links of 500 ns, twice 4096 bytes at 10 Gb/s, and the acknowledgement's way back.
        assert 8_500 < fabric.now_ns < 11_000


def test_a_queue_that_is_full_loses_packets_and_they_come_again() -> None:
    with Fabric() as fabric:
        devices = fabric.star(5, gbps=10, queue_bytes=20_000)
        ends = [connected(fabric, devices[i], devices[4], size=1 << 18) for i in range(4)]
        for near, far in ends:
            near.buffer[:] = bytes(range(256)) * 1024
            near.qp.post_send(hca.Write(near.mr[:], remote=far.mr.remote(), signaled=True))
        for near, far in ends:
            assert near.next().ok
            assert far.buffer == near.buffer
        counters = fabric.links[4].counters["b to a"]
        assert counters["overflows"] > 0
        assert counters["most_queued_bytes"] <= 20_000


def test_bandwidth_is_kept() -> None:
    with Fabric(gbps=1) as fabric:
        a, b = pair(fabric, size=1 << 20)
        a.qp.post_send(hca.Write(a.mr[:], remote=b.mr.remote(), signaled=True))
        assert a.next().ok
        assert 8.4e6 < fabric.now_ns < 9.5e6  # A mebibyte and its headers at 1 Gb/s.


def test_packets_longer_than_the_mtu_of_a_link_are_lost() -> None:
    with Fabric() as fabric:
        a, b = fabric.hosts(2)
        fabric.link(a, b, mtu=1024)
        near, far = connected(fabric, a, b, timeout=1, retry_cnt=1)
        near.qp.post_send(hca.Write(near.mr[:1024], remote=far.mr.remote(), signaled=True))
        assert near.next().ok
        near.qp.post_send(hca.Write(near.mr[:1028], remote=far.mr.remote(), signaled=True))
        assert near.next().status is hca.WcStatus.RETRY_EXC_ERR
        assert any(r.text == "longer than the link's MTU" for r in fabric.trace)


def test_ways_around_a_link_that_went_down() -> None:
    with Fabric() as fabric:
        a, b = fabric.hosts(2)
        left, right = fabric.switch(), fabric.switch()
        short = fabric.link(a, b)
        for end in (a, b):
            fabric.link(end, left)
            fabric.link(end, right)
        near, far = connected(fabric, a, b)
        for is_up in (True, False, True):
            short.set_up(is_up)
            near.qp.post_send(hca.Write(near.mr[:100], remote=far.mr.remote(), signaled=True))
            assert near.next().ok
        assert short.counters["a to b"]["packets"] == 2


def test_multicast_reaches_members() -> None:
    with Fabric() as fabric:
        devices = fabric.star(3)
        ends = [End(device, 4096, qp_type=hca.QPType.UD) for device in devices]
        for end in ends:
            end.qp.activate()
        for end in ends[1:]:
            end.qp.attach_mcast("239.1.2.3")
            end.qp.post_recv(hca.Recv(end.mr[:200]))
        ah = ends[0].pd.create_ah(hca.AHAttr(dgid=hca.GID("239.1.2.3")))
        ends[0].buffer[:4] = b"many"
        ends[0].qp.post_send(
            hca.Send(
                ends[0].mr[:4], ah=ah, remote_qpn=0xFFFFFF, remote_qkey=0x11111111, signaled=True
            )
        )
        for end in ends[1:]:
            assert end.next().byte_len == 44
            assert end.buffer[40:44] == b"many"


def test_the_trace_tells_what_happened() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        fabric.faults.drop(opcode="RC_RDMA_WRITE_ONLY", nth=1, name="the first one")
        a.qp.post_send(hca.Write(a.mr[:8], remote=b.mr.remote(), signaled=True))
        assert a.next().ok
        records = list(fabric.trace)
        assert len(records) == len(fabric.trace)
        (fault,) = [r for r in records if r.what is What.FAULT]
        assert fault.text == "the first one"
        sent = [r for r in records if r.what is What.SENT]
        assert sent[0].packet == fault.packet
        assert sent[0].host == 0
        assert sent[0].route is not None
        delivered = [r for r in records if r.what is What.DELIVERED]
        assert [r.host for r in delivered] == [1, 0]


def test_a_trace_keeps_no_more_than_it_may() -> None:
    with Fabric(trace=2 << 20) as fabric:
        a, b = pair(fabric, size=1 << 20)
        for _ in range(8):
            a.qp.post_send(hca.Write(a.mr[:], remote=b.mr.remote(), signaled=True))
            assert a.next().ok
        kept = list(fabric.trace)
        assert fabric.trace.forgotten > 0
        assert len(kept) == len(fabric.trace) - fabric.trace.forgotten


def test_without_a_trace() -> None:
    with Fabric(trace=False) as fabric:
        a, b = pair(fabric)
        a.qp.post_send(hca.Write(a.mr[:8], remote=b.mr.remote(), signaled=True))
        assert a.next().ok
        assert list(fabric.trace) == []
