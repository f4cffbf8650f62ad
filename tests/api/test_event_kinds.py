"""Every kind of event that is told, by what really causes it.

COMM_EST, SQ_DRAINED and SRQ_LIMIT_REACHED are in test_events.py; those of the port and the device
in test_port_events.py and in tests/two_processes/test_address_changes.py; PATH_MIG_ERR in
tests/conformance/test_17_2_8_path_migration.py.
"""

from __future__ import annotations

import threading

import softhca as hca
from softhca import EventType, MigState, QPState, QPType, VerbsError

from .hosts import Host, Pair


def events(pair: Pair, host: Host, count: int) -> list[tuple[EventType, object]]:
    """Takes so many events of a host, waiting for them."""
    taken = [pair.event(host) for _ in range(count)]
    assert host.device.poll_async_event() is None
    return [(event.event_type, event.element) for event in taken]


def test_a_missing_right(pair: Pair) -> None:
    near, far = pair.connected()
    with pair.b.pd.reg_mr(bytearray(8), hca.Access.REMOTE_READ) as mr:
        near.post_send(hca.Write(pair.a.mr[:8], remote=mr.remote()))
        assert not pair.completion(pair.a).ok
        assert events(pair, pair.b, 1) == [(EventType.QP_ACCESS_ERR, far)]
    assert pair.a.device.poll_async_event() is None  # The requester has its completion.


def test_a_malformed_request(pair: Pair) -> None:
    near, far = pair.connected()
    near.post_send(hca.FetchAdd(pair.a.mr[:8], remote=pair.b.mr.remote()[1:9], add=1))
    assert not pair.completion(pair.a).ok
    assert events(pair, pair.b, 1) == [(EventType.QP_REQ_ERR, far)]


def test_an_overflow_is_fatal_to_every_queue_pair_of_the_queue(pair: Pair) -> None:
    small = pair.a.keep(pair.a.device.create_cq(1))
    near, _ = pair.connected()
    using = [pair.a.qp(send_cq=small) for _ in range(2)]
    idle = pair.a.qp(send_cq=small)
    for qp in using:
        far = pair.b.qp()
        qp.connect(far.info())
        far.connect(qp.info())
    write = hca.Write(remote=pair.b.mr.remote(), signaled=True)
    using[0].post_send([write] * (small.cqe + 1))
    told = events(pair, pair.a, 3)
    assert told[0] == (EventType.CQ_ERR, small)
    assert sorted(told[1:], key=repr) == sorted(
        [(EventType.QP_FATAL, qp) for qp in using], key=repr
    )
    assert (near.state, idle.state) == (QPState.RTS, QPState.RESET)


def test_the_last_receive_of_a_shared_queue(pair: Pair) -> None:
    srq = pair.b.keep(pair.b.pd.create_srq(max_wr=8))
    near = pair.a.qp()
    far = pair.b.qp(srq=srq)
    near.connect(far.info())
    far.connect(near.info())
    far.modify(qp_state=QPState.ERR)
    assert events(pair, pair.b, 1) == [(EventType.QP_LAST_WQE_REACHED, far)]


def test_a_migrated_path(pair: Pair) -> None:
    near, far = pair.connected()
    for qp, peer in ((near, pair.b), (far, pair.a)):
        other = hca.AHAttr(dgid=peer.device.gid, traffic_class=0x20)
        qp.modify(alt_ah_attr=other, path_mig_state=MigState.REARM)
    write = hca.Write(remote=pair.b.mr.remote(), signaled=True)
    near.post_send(write)
    assert pair.completion(pair.a).ok
    far.modify(path_mig_state=MigState.MIGRATED)
    near.post_send(write)
    assert events(pair, pair.b, 1) == [(EventType.PATH_MIG, far)]
    assert events(pair, pair.a, 1) == [(EventType.PATH_MIG, near)]
    assert pair.completion(pair.a).ok


def test_threads_share_the_events_while_their_objects_come_and_go() -> None:
    rounds, takers = 50, 4
    with hca.open() as device:
        host = Host(device)
        seen: list[tuple[EventType, hca.QP]] = []
        stopped = threading.Event()
        failures: list[BaseException] = []

        def take() -> None:
            try:
                while not stopped.is_set():
                    try:
                        with device.get_async_event(0.01) as event:
                            assert isinstance(event.element, hca.QP)
                            seen.append((event.event_type, event.element))
                    except TimeoutError:
                        pass
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=take) for _ in range(takers)]
        for thread in threads:
            thread.start()
        try:
            for number in range(rounds):
                srq = host.pd.create_srq(max_wr=4)
                qp = host.pd.create_qp(QPType.RC, send_cq=host.cq, recv_cq=host.cq, srq=srq)
                qp.connect(qp.info())
                qp.modify(qp_state=QPState.ERR)  # QP_LAST_WQE_REACHED.
                if number % 2:
                    while not any(element is qp for _, element in seen):
                        assert not failures
                qp.close()
                srq.close()
        finally:
            stopped.set()
            for thread in threads:
                thread.join(20)
        assert failures == []
        assert len({id(element) for _, element in seen}) == len(seen) >= rounds // 2
        assert {event_type for event_type, _ in seen} == {EventType.QP_LAST_WQE_REACHED}
        assert device.poll_async_event() is None


def test_a_handler_may_close_what_failed_after_acknowledging(pair: Pair) -> None:
    near, far = pair.connected()
    near.post_send(hca.Write(pair.a.mr[:8], remote=hca.RemoteMemory(0, 1, 8)))
    assert not pair.completion(pair.a).ok
    event = pair.event(pair.b)
    try:
        far.close()
    except VerbsError as error:
        assert "1 event of it was never acknowledged" in str(error)
    event.ack()
    far.close()
    assert far.closed
