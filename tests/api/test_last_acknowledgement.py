"""What a program has received is acknowledged, however soon it is done with the queue pair."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection

import pytest

import softhca as hca
from softhca import WcStatus

from .hosts import Host, Pair

# As long as it takes until acknowledgements wait for what a polling program sends next.
ROUNDS = 1000


ENDS: dict[str, Callable[[hca.QP], object]] = {
    "destroyed": hca.QP.close,
    "reset": lambda qp: qp.modify(qp_state=hca.QPState.RESET),
    "failed": lambda qp: qp.modify(qp_state=hca.QPState.ERR),
    "left to the device": lambda qp: None,
}


@pytest.mark.parametrize("link", ["udp", "auto"])
@pytest.mark.parametrize("end", ENDS)
def test_a_receiver_may_end_at_once(end: str, link: str) -> None:
    with hca.open(link=link) as near:
        with hca.open(link=link) as far:
            pair = Pair(Host(near), Host(far), None)
            a, b = pair.connected()
            send_a = hca.Send(pair.a.mr[:64], signaled=True)
            send_b = hca.Send(pair.b.mr[:64], signaled=True)
            for qp, host in ((a, pair.a), (b, pair.b)):
                qp.post_recv([hca.Recv(host.mr[:64])] * 4)
            for _ in range(ROUNDS):
                a.post_send(send_a)
                pair.completion(pair.b)  # Received.
                b.post_send(send_b)
                pair.completions(pair.a, 2)
                pair.completion(pair.b)  # Sent.
                a.post_recv(hca.Recv(pair.a.mr[:64]))
                b.post_recv(hca.Recv(pair.b.mr[:64]))
            a.post_send(send_a)
            assert pair.completion(pair.b).status is hca.WcStatus.SUCCESS
            ENDS[end](b)
        assert pair.completion(pair.a).status is hca.WcStatus.SUCCESS


@pytest.mark.parametrize("link", ["udp", "auto"])
def test_what_came_before_a_refused_invalidation_is_acknowledged(link: str) -> None:
    with hca.open(link=link) as near, hca.open(link=link) as far:
        pair = Pair(Host(near), Host(far), None)
        a, b = pair.a.qp(), pair.b.qp()
        a.connect(b.info())  # Retries that end sooner end for a peer that gets no processor, too.
        b.connect(a.info())
        b.post_recv([hca.Recv(pair.b.mr[:64])] * 2)
        a.post_send(
            [
                hca.Send(pair.a.mr[:64], wr_id=1),
                hca.SendInv(pair.a.mr[:64], rkey=0x7FFFFF00, wr_id=2, signaled=True),
            ]
        )
        came = [wc.status for wc in pair.completions(pair.b, 2)]
        assert came == [WcStatus.SUCCESS, WcStatus.REM_INV_REQ_ERR]
        failed = pair.completion(pair.a)
        assert (failed.wr_id, failed.status) == (2, WcStatus.RETRY_EXC_ERR)


_kept: list[object] = []


def _receive_and_end(pipe: Connection) -> None:
    host = Host(hca.open(link="udp"))
    qp = host.qp()
    _kept.extend((host, qp))
    pipe.send(qp.info())
    qp.connect(pipe.recv())
    pair = Pair(host, host, None)
    send = hca.Send(host.mr[:64], signaled=True)
    qp.post_recv([hca.Recv(host.mr[:64])] * 4)
    pipe.send(None)
    for _ in range(ROUNDS):
        pair.completion(host)
        qp.post_recv(hca.Recv(host.mr[:64]))
        qp.post_send(send)
        pair.completion(host)
    pair.completion(host)


def test_a_worker_that_keeps_its_device_may_end_at_once() -> None:
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    worker = context.Process(target=_receive_and_end, args=(there,))
    worker.start()
    with hca.open(link="udp") as device:
        host = Host(device)
        qp = host.qp()
        qp.connect(here.recv())
        here.send(qp.info())
        here.recv()
        pair = Pair(host, host, None)
        send = hca.Send(host.mr[:64], signaled=True)
        for _ in range(ROUNDS):
            qp.post_recv(hca.Recv(host.mr[:64]))
            qp.post_send(send)
            pair.completions(host, 2)
        qp.post_send(send)
        assert pair.completion(host).status is hca.WcStatus.SUCCESS
    worker.join()
    assert worker.exitcode == 0
