"""What callback queues refuse, by name, with nothing changed."""

from __future__ import annotations

import asyncio
import errno
import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest

import softhca as hca
from softhca import PollContext, VerbsError
from softhca.completion import crew

from .callbacks import THREADED, Note, Told, kept, no_connection, passes
from .hosts import Host

CONTEXTS = [PollContext.DIRECT, *THREADED]


def refused(call: Callable[[], object]) -> tuple[int | None, str]:
    """What a call is refused with."""
    with pytest.raises(VerbsError) as caught:
        call()
    return caught.value.errno, caught.value.argument


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"nr_cqe": 0}, "nr_cqe"),
        ({"nr_cqe": -1}, "nr_cqe"),
        ({"nr_cqe": 1 << 32}, "nr_cqe"),
        ({"poll_context": 4}, "poll_context"),
        ({"poll_context": -1}, "poll_context"),
        ({"poll_context": "DIRECT"}, "poll_context"),
        ({"poll_context": None}, "poll_context"),
        ({"comp_vector": -1}, "comp_vector"),
        ({"comp_vector": 1 << 16}, "comp_vector"),
    ],
)
def test_allocating(device: hca.Device, options: dict[str, Any], argument: str) -> None:
    assert refused(lambda: device.alloc_cq(**{"nr_cqe": 4, **options})) == (errno.EINVAL, argument)
    assert not device._cqs
    with pytest.raises(VerbsError, match=f"must be 0 to {device.num_comp_vectors - 1}"):
        device.alloc_cq(4, comp_vector=device.num_comp_vectors)
    device.close()


@pytest.mark.parametrize("context", THREADED)
@pytest.mark.parametrize("pooled", [False, True], ids=["own", "pooled"])
def test_no_thread_to_be_had(
    monkeypatch: pytest.MonkeyPatch, context: PollContext, pooled: bool
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with hca.open() as device:
        if pooled:
            allocate = functools.partial(device.cq_pool_get, 4, 0, context)
        else:
            allocate = functools.partial(device.alloc_cq, 4, poll_context=context)
        with monkeypatch.context() as full:
            full.setattr(threading.Thread, "start", refuse)
            for _ in range(2):
                assert refused(allocate) == (errno.EAGAIN, "poll_context")
                assert not device._cqs
        told = Told()
        qp = no_connection(device.alloc_pd(), allocate())
        qp.post_recv(hca.Recv(cqe=Note(told), wr_id=7))
        told.wait(1)
        assert told.wr_ids == [7]


def test_types_are_told(device: hca.Device) -> None:
    with device:
        for options, message in (
            ({"nr_cqe": "4"}, "nr_cqe must be an integer"),
            ({"nr_cqe": 4, "on_exception": 5}, "on_exception must be callable"),
            ({"nr_cqe": 4, "comp_vector": "0"}, "comp_vector must be an integer"),
        ):
            with pytest.raises(TypeError, match=message):
                device.alloc_cq(**options)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="done must be callable, not int"):
            hca.Cqe(5)
        with pytest.raises(TypeError, match="cqe must be Cqe, not function"):
            hca.Recv(cqe=lambda *_: None)  # type: ignore[arg-type]
        plain = device.create_cq(4)
        with pytest.raises(TypeError, match=r"must come from alloc_cq\(\), not be a CQ"):
            hca.process_cq_direct(plain)  # type: ignore[arg-type]


@pytest.mark.parametrize("context", CONTEXTS, ids=lambda context: context.name)
def test_polling_and_arming_are_the_contexts_own(host: Host, context: PollContext) -> None:
    cq = host.keep(host.device.alloc_cq(16, poll_context=context))
    qp = no_connection(host.pd, cq)
    told = Told()
    qp.post_recv(hca.Recv(cqe=Note(told)))
    for verb in (cq.poll, lambda: cq.poll(0), cq.req_notify, lambda: cq.req_notify(99)):
        assert refused(verb) == (errno.EINVAL, "cq")
    with pytest.raises(VerbsError, match="gives its completions to callbacks"):
        asyncio.run(cq.next())
    if context is PollContext.DIRECT:
        cq.process_direct()
    else:
        assert refused(cq.process_direct) == (errno.EINVAL, "cq")
        assert host.device.run_callbacks()
    assert len(told.wr_ids) == 1


@pytest.mark.parametrize("budget", [-2, 1 << 64])
def test_budgets(host: Host, budget: int) -> None:
    cq = host.keep(host.device.alloc_cq(16, poll_context=PollContext.DIRECT))
    qp = no_connection(host.pd, cq)
    told = Told()
    qp.post_recv(hca.Recv(cqe=Note(told)))
    assert refused(lambda: cq.process_direct(budget)) == (errno.EINVAL, "budget")
    with pytest.raises(TypeError, match="budget must be an integer"):
        cq.process_direct("all")  # type: ignore[arg-type]
    assert told.wr_ids == []
    assert cq.process_direct() == 1


def test_processing_within_itself(host: Host) -> None:
    cq = host.keep(host.device.alloc_cq(16, poll_context=PollContext.DIRECT))
    qp = no_connection(host.pd, cq)
    told = Told()
    seen: list[Any] = []
    nested = Note(told, lambda *_: seen.append(refused(cq.process_direct)))
    qp.post_recv([hca.Recv(cqe=nested), hca.Recv(cqe=Note(told))])
    assert cq.process_direct() == 2
    assert seen == [(errno.EBUSY, "cq")]


def test_processing_another_queue_in_a_callback_is_fine(host: Host) -> None:
    cqs = [host.keep(host.device.alloc_cq(16, poll_context=PollContext.DIRECT)) for _ in range(2)]
    qps = [no_connection(host.pd, cq) for cq in cqs]
    told = Told()
    qps[1].post_recv(hca.Recv(cqe=Note(told), wr_id=1))
    qps[0].post_recv(hca.Recv(cqe=Note(told, lambda *_: cqs[1].process_direct()), wr_id=0))
    assert cqs[0].process_direct() == 1
    assert told.wr_ids == [1, 0]


@pytest.mark.parametrize("context", CONTEXTS, ids=lambda context: context.name)
def test_freed_queues(host: Host, context: PollContext) -> None:
    cq = host.device.alloc_cq(16, poll_context=context)
    cq.free()
    cq.free()
    assert cq.closed
    for verb in (
        cq.process_direct,
        lambda: cq.process_direct(1),
        lambda: cq.resize(4),
        lambda: cq.modify(cq_count=1, cq_period=1),
        lambda: host.qp(send_cq=cq),
    ):
        assert refused(verb)[0] == errno.EINVAL
    with pytest.raises(VerbsError, match="is closed"):
        host.qp(send_cq=cq)


@pytest.mark.parametrize("context", CONTEXTS, ids=lambda context: context.name)
def test_freeing_while_queue_pairs_use_it(host: Host, context: PollContext) -> None:
    cq = host.keep(host.device.alloc_cq(16, poll_context=context))
    qp = no_connection(host.pd, cq)
    assert refused(cq.free) == (errno.EBUSY, "cq")
    assert not cq.closed
    told = Told()
    qp.post_recv(hca.Recv(cqe=Note(told)))
    if context is PollContext.DIRECT:
        cq.process_direct()
    else:
        host.device.run_callbacks()
    assert len(told.wr_ids) == 1
    qp.close()
    cq.free()


def test_a_queue_of_another_device(host: Host, device: hca.Device) -> None:
    with device:
        foreign = device.alloc_cq(4)
        assert refused(lambda: host.qp(send_cq=foreign)) == (errno.EINVAL, "send_cq")


def test_running_callbacks_is_for_simulated_devices() -> None:
    with hca.open() as device:
        kept.append(device.alloc_cq(4))
        assert refused(device.run_callbacks) == (errno.EOPNOTSUPP, "device")


def test_a_queue_without_callbacks_takes_callbacks_anyway(host: Host) -> None:
    """`wc.cqe` comes back from poll(), where the program dispatches itself."""
    qp = no_connection(host.pd, host.cq)
    told = Told()
    note = Note(told)
    qp.post_recv([hca.Recv(cqe=note), hca.Recv()])
    first, second = host.cq.poll()
    assert first.cqe is note
    assert second.cqe is None
    assert told.wr_ids == []


def test_a_class_without_done(host: Host) -> None:
    class Lazy(hca.Cqe):
        pass

    heard: list[BaseException] = []
    cq = host.keep(
        host.device.alloc_cq(
            16,
            poll_context=PollContext.DIRECT,
            on_exception=lambda error, wc, wr: heard.append(error),
        )
    )
    qp = no_connection(host.pd, cq)
    qp.post_recv(hca.Recv(cqe=Lazy()))
    cq.process_direct()
    assert [str(error) for error in heard] == ["Lazy has no done()"]


def test_closing_a_device_with_a_callback_that_never_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The device does not wait for ever, and neither does whoever frees the queue later."""
    monkeypatch.setattr(crew, "LONGEST_WAIT_S", 0.2)
    release = threading.Event()
    inside = threading.Event()
    told = Told()

    def hang(*_: object) -> None:
        inside.set()
        passes(release)

    with hca.open() as device:
        cq = device.alloc_cq(4, poll_context=PollContext.WORKQUEUE)
        qp = no_connection(device.alloc_pd(), cq)
        qp.post_recv(hca.Recv(cqe=Note(told, hang)))
        assert passes(inside)
    assert device.closed
    assert cq.closed
    assert told.wr_ids == []
    release.set()
    cq.free()
    told.wait(1)
