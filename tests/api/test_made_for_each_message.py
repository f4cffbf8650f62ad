"""Work requests and completions are made for each message, in memory of those that are gone."""

from __future__ import annotations

import copy
import errno
import gc
import pickle
import sys
import weakref
from typing import Any

import pytest

import softhca as hca
from softhca import WC, CmpSwap, CompletionBuffer, Recv, Send, SendImm, VerbsError, Write

from .fast_calls import flushed, receives
from .hosts import Host, Pair


def test_many_completions_at_once_are_each_their_own(pair: Pair) -> None:
    flushed(pair.a, 250)
    kept = pair.a.cq.poll(200)
    assert [wc.wr_id for wc in kept] == list(range(200))
    del kept[::2]
    later = pair.a.cq.poll(50)
    assert [wc.wr_id for wc in kept] == list(range(1, 200, 2))
    assert [wc.wr_id for wc in later] == list(range(200, 250))


def test_completions_leave_no_reference_behind(pair: Pair) -> None:
    flushed(pair.a, 150)
    things = [WC, hca.WcStatus.WR_FLUSH_ERR]
    pair.a.cq.poll(1)
    gc.collect()  # What other tests have left refers to them, too.
    before = [sys.getrefcount(thing) for thing in things]
    wcs = pair.a.cq.poll(149)
    assert [sys.getrefcount(thing) for thing in things] == [count + 149 for count in before]
    del wcs
    assert [sys.getrefcount(thing) for thing in things] == before


def test_a_completion_is_a_value(pair: Pair) -> None:
    flushed(pair.a, 1)
    (wc,) = pair.a.cq.poll()
    for name in ("wr_id", "status", "opcode", "cqe", "other"):
        with pytest.raises(AttributeError):
            setattr(wc, name, 5)
    for refused in (lambda: WC(), lambda: WC.__new__(WC), lambda: object.__new__(WC)):
        with pytest.raises(TypeError):
            refused()
    assert copy.copy(wc) is wc
    assert copy.deepcopy([wc])[0] is wc
    assert wc.status is hca.WcStatus.WR_FLUSH_ERR
    assert (wc == wc, len({wc, wc})) == (True, 1)


FIELDS = [name for name, _ in hca.WC_DTYPE if name not in ("ip_version", "reserved")]


def test_a_completion_and_its_error_come_to_other_processes_whole(pair: Pair) -> None:
    near, far = pair.connected()
    far.post_recv(Recv(pair.b.mr[0:64], wr_id=3))
    near.post_send(SendImm(pair.a.mr[0:8], imm=0xCAFE, signaled=True, wr_id=1 << 60))
    nowhere = hca.RemoteMemory(1 << 40, 77, 8)
    near.post_send(Write(pair.a.mr[0:8], remote=nowhere, cqe=Kept(), signaled=True))
    wcs = [pair.completion(pair.b), *pair.completions(pair.a, 2)]
    assert wcs[-1].cqe is not None
    for wc in wcs:
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            sent = pickle.loads(pickle.dumps(wc, protocol))
            assert type(sent) is WC
            assert [getattr(sent, name) for name in FIELDS] == [
                getattr(wc, name) for name in FIELDS
            ]
            assert (repr(sent), sent.cqe) == (repr(wc), None)
    with pytest.raises(hca.CompletionError) as raised:
        wcs[-1].raise_for_status()
    error = pickle.loads(pickle.dumps(raised.value))
    assert type(error) is hca.CompletionError
    assert (error.errno, str(error), repr(error.wc)) == (
        errno.EIO,
        str(raised.value),
        repr(wcs[-1]),
    )


class Kept(hca.Cqe):
    def done(self, cq: Any, wc: WC) -> None:
        raise AssertionError


class Noted(WC):
    note: str


def test_a_class_derived_from_completions_keeps_its_own_in_a_pickle(pair: Pair) -> None:
    flushed(pair.a, 1)
    buffer = CompletionBuffer(1)
    assert pair.a.cq.poll_into(buffer) == 1
    noted = buffer.completion(0, Noted)
    noted.note = "mine"
    sent = pickle.loads(pickle.dumps(noted))
    assert (type(sent), sent.note, repr(sent)) == (Noted, "mine", repr(noted))


def test_a_class_derived_from_completions_may_keep_more(pair: Pair) -> None:
    class Marked(WC):
        mark: Any

    flushed(pair.a, 1)
    buffer = CompletionBuffer(1)
    assert pair.a.cq.poll_into(buffer) == 1
    marked = buffer.completion(0, Marked)
    marked.mark = [marked]
    assert (type(marked), marked.wr_id, marked.ok) == (Marked, 0, False)
    gone = weakref.ref(marked)
    del marked
    gc.collect()
    assert gone() is None
    with pytest.raises(TypeError):
        buffer.completion(0, int)  # type: ignore[type-var]


def test_a_status_that_is_none_is_refused(pair: Pair) -> None:
    buffer = CompletionBuffer(1)
    memoryview(buffer)[62] = 200  # The status.
    with pytest.raises(ValueError, match="WcStatus"):
        _ = buffer[0].status


def test_many_work_requests_at_once_are_each_their_own(pair: Pair) -> None:
    near, far = pair.connected(max_send_wr=300, max_recv_wr=4)
    sge, remote = pair.a.mr[0:8], pair.b.mr.remote()
    wrs = [Write(sge, remote=remote, wr_id=i, signaled=True) for i in range(150)]
    del wrs[::2]
    wrs += [Write(sge, remote=remote, wr_id=i, signaled=True) for i in range(150, 300)]
    near.post_send(wrs)
    assert [wr.wr_id for wr in wrs] == [*range(1, 150, 2), *range(150, 300)]
    assert [wc.wr_id for wc in pair.completions(pair.a, 225)] == [wr.wr_id for wr in wrs]
    assert far.qpn


def test_nothing_of_one_work_request_is_in_the_next(host: Host) -> None:
    remote, sge = host.mr.remote(), host.mr[0:8]
    told = hca.Cqe(print)
    plain = {name: getattr(Send(), name) for name in dir(Send) if name[0] != "_"}
    for _ in range(3):
        # Each is gone before the next is made.
        SendImm(sge, sge, imm=5, wr_id=7, fence=True, solicited=True, signaled=True, cqe=told)
        CmpSwap(sge, remote=remote, compare=1, swap=2, cqe=told)
        Write(sge, remote=remote, wr_id=9)
        Send.__new__(Send).__init__(sge, srqn=9, remote_qpn=7, remote_qkey=3)  # type: ignore[misc]
        wr = Send()
        assert {name: getattr(wr, name) for name in plain} == plain
        assert wr._kept == ()


def test_work_requests_leave_no_reference_behind(host: Host) -> None:
    remote, sge, told = host.mr.remote(), host.mr[0:8], hca.Cqe(print)
    things = [Write, Recv, remote, sge, told]
    gc.collect()  # What other tests have left refers to them, too.
    before = [sys.getrefcount(thing) for thing in things]
    for _ in range(3):
        wrs = [Write(sge, remote=remote, cqe=told) for _ in range(200)]
        wrs += [Recv(sge, sge, cqe=told) for _ in range(200)]
        with pytest.raises(VerbsError):
            Write(sge, sge, remote=remote[0:4], cqe=told)
        del wrs
    gc.collect()  # Tracebacks.
    assert [sys.getrefcount(thing) for thing in things] == before


def test_a_work_request_is_a_value(host: Host) -> None:
    wr = Write(host.mr[0:8], remote=host.mr.remote(), wr_id=4)
    for name in ("wr_id", "cqe", "ah", "byte_count", "_kept", "other"):
        with pytest.raises(AttributeError):
            setattr(wr, name, 5)
    with pytest.raises(TypeError, match="made once"):
        wr.__init__(host.mr[0:16], remote=host.mr.remote())  # type: ignore[misc]
    assert (wr.wr_id, wr.byte_count, wr.cqe, wr.ah) == (4, 8, None, None)
    for refused in (lambda: copy.copy(wr), lambda: pickle.dumps(wr)):
        with pytest.raises(TypeError, match="cannot pickle"):
            refused()


def test_a_class_derived_from_work_requests_may_keep_more(pair: Pair) -> None:
    class Named(Recv):
        def __init__(self, *buffers: Any, name: str) -> None:
            super().__init__(*buffers, wr_id=8)
            self.name = name
            self.itself = self

    qp = flushed(pair.a, 0)
    named = Named(name="first")
    qp.post_recv(named)
    receives(pair.a, 1)
    assert [wc.wr_id for wc in pair.a.cq.poll()] == [8]
    assert (named.name, named.wr_id, named.byte_count) == ("first", 8, 0)
    gone = weakref.ref(named)
    del named
    gc.collect()
    assert gone() is None
