"""The methods of post and poll that parse no keywords are the functions that they stand for."""

from __future__ import annotations

import errno
import inspect
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

import softhca as hca
from softhca import (
    CompletionBuffer,
    Recv,
    Send,
)

from .fast_calls import flushed, refused
from .hosts import Pair


def test_quick_methods_look_like_the_functions_they_stand_for() -> None:
    assert str(inspect.signature(hca.QP.post_send)) == "(self, /, wrs)"
    assert str(inspect.signature(hca.CQ.poll)) == "(self, /, max_entries=16)"
    assert inspect.getdoc(hca.QP.post_send).startswith("Posts a work request")  # type: ignore[union-attr]
    assert hca.QP.post_send.__name__ == "post_send"


def test_quick_methods_take_keywords_too(pair: Pair) -> None:
    qp = flushed(pair.a, 0)
    qp.post_recv(wrs=Recv(wr_id=1))
    qp.post_recv(wrs=[Recv(wr_id=2), Recv(wr_id=3)])
    assert [wc.wr_id for wc in pair.a.cq.poll(max_entries=2)] == [1, 2]
    for wrong in (lambda: qp.post_recv(), lambda: qp.post_recv(Recv(), Recv())):  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="post_recv"):
            wrong()
    with pytest.raises(TypeError):
        qp.post_recv(*[Recv()] * 20)  # type: ignore[call-arg]
    assert [wc.wr_id for wc in pair.a.cq.poll()] == [3]


def test_quick_methods_refuse_as_the_functions_do(pair: Pair) -> None:
    near, _far = pair.connected(max_send_wr=1, max_recv_wr=1)
    wr = Send(wr_id=9)
    near.post_send(wr)
    error = refused(lambda: near.post_send(wr))
    assert (error.errno, error.argument, error.bad_wr) == (errno.ENOMEM, "max_send_wr", wr)
    with pytest.raises(TypeError, match="wrs must be a work request of this queue"):
        near.post_send(Recv())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="wrs must be a work request of this queue"):
        near.post_send(Send.__new__(Send))
    assert "max_entries=-1: must be 0 to" in str(refused(lambda: pair.a.cq.poll(-1)))
    assert "max_entries" in str(refused(lambda: pair.a.cq.poll(1 << 64)))
    with pytest.raises(TypeError):
        pair.a.cq.poll("x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="max_entries must be an integer, not True"):
        pair.a.cq.poll(True)


def test_a_quick_method_is_not_for_other_objects(pair: Pair) -> None:
    with pytest.raises(TypeError):
        hca.QP.post_send(pair.a.cq, Send())  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        hca.QP.post_send(object(), Send())  # type: ignore[arg-type]
    half_made = hca.CQ.__new__(hca.CQ)
    with pytest.raises(AttributeError):
        half_made.poll()


def test_quick_methods_of_closed_objects_are_refused(pair: Pair) -> None:
    near, far = pair.connected(max_send_wr=4, max_recv_wr=4)
    buffer = CompletionBuffer(1)
    cq = pair.a.device.create_cq(4)
    near.close()
    far.close()
    cq.close()
    calls: list[Callable[[], object]] = [
        lambda: near.post_send(Send()),
        lambda: near.post_recv(Recv()),
        lambda: near.post_send_many([Send()]),
        lambda: near.post_recv_many(Recv(), range(3)),
        lambda: cq.poll(),
        lambda: cq.poll_one(),
        lambda: cq.poll_into(buffer),
    ]
    for call in calls:
        error = refused(call)
        assert (error.errno, error.rule) == (errno.EINVAL, "is closed")


def test_quick_methods_know_a_fork() -> None:
    program = """
import os, softhca as hca
with hca.open() as device, device.alloc_pd() as pd, device.create_cq(4) as cq:
    qp = pd.create_qp(hca.QPType.RC, send_cq=cq, recv_cq=cq, max_send_wr=4, max_recv_wr=4)
    buffer = hca.CompletionBuffer(1)
    child = os.fork()
    if child == 0:
        said = set()
        for call in (
            lambda: qp.post_send(hca.Send()), lambda: qp.post_recv(hca.Recv()), cq.poll,
            cq.poll_one, lambda: cq.poll_into(buffer), lambda: qp.post_send_many([hca.Send()]),
        ):
            try:
                call()
            except hca.VerbsError as error:
                said.add(str(error))
        os._exit(0 if said == {
            "device: belongs to the parent process: open one after fork() (EIO)"} else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert cq.poll() == []
"""
    environment = {**os.environ, "PYTHONWARNINGS": "ignore::DeprecationWarning"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment, timeout=60)
