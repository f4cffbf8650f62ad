"""Polling without an object for each completion: the same completions as with objects."""

from __future__ import annotations

import functools
import threading
from typing import Any

import numpy as np
import pytest

import softhca as hca
from softhca import (
    CompletionBuffer,
    Read,
    Recv,
    Send,
    SendImm,
    VerbsError,
    WcOpcode,
    WcStatus,
    Write,
)

from .fast_calls import flushed, receives, refused, sends
from .hosts import Host, Pair


def test_poll_into_fills_what_fits_and_no_more(pair: Pair) -> None:
    host = pair.a
    flushed(host, 150)
    room = np.zeros(70, hca.WC_DTYPE)
    assert host.cq.poll_into(room) == 70
    assert list(room["wr_id"]) == list(range(70))
    buffer = CompletionBuffer(100)
    assert host.cq.poll_into(buffer) == 80
    assert buffer.wr_ids(80) == list(range(70, 150))
    assert host.cq.poll_into(buffer) == 0
    assert buffer[0].wr_id == 70


def test_a_record_is_the_same_as_the_object(pair: Pair) -> None:
    near, far = pair.connected(max_send_wr=8, max_recv_wr=8)
    far.post_recv(Recv(pair.b.mr[0:64], wr_id=3))
    near.post_send(SendImm(pair.a.mr[0:64], imm=77, solicited=True))
    buffer = CompletionBuffer(np.zeros(1, hca.WC_DTYPE))
    pair.until(lambda: pair.b.cq.poll_into(buffer))
    wc = buffer[0]
    assert type(wc) is hca.WC
    assert (wc.wr_id, wc.byte_len, wc.imm_data, wc.opcode) == (3, 64, 77, WcOpcode.RECV)
    assert (wc.qp_num, wc.ok, wc.is_receive, wc.cqe) == (far.qpn, True, True, None)
    assert wc.timestamp_ns > 0
    far.post_recv(Recv(pair.b.mr[0:16], wr_id=4))
    near.post_send(Send(pair.a.mr[0:64], signaled=True))
    pair.until(lambda: pair.b.cq.poll_into(buffer))
    assert buffer[0].status is WcStatus.LOC_LEN_ERR
    assert buffer[0].reason is hca.Reason.TOO_LONG
    assert "LOC_LEN_ERR" in buffer[0].why
    assert buffer.first_error(1) == 0
    record = np.frombuffer(buffer, hca.WC_DTYPE)[0]
    for name in ("wr_id", "status", "reason", "by_peer", "psn", "key", "address", "length"):
        assert record[name] == getattr(buffer[0], name), name


def test_poll_one_takes_the_oldest(pair: Pair) -> None:
    flushed(pair.a, 3)
    taken = [pair.a.cq.poll_one() for _ in range(4)]
    assert [wc and wc.wr_id for wc in taken] == [0, 1, 2, None]
    assert type(taken[0]) is hca.WC


def test_a_completion_buffer_shows_what_came_last(pair: Pair) -> None:
    buffer = CompletionBuffer(4)
    view = np.frombuffer(buffer, hca.WC_DTYPE)
    assert len(buffer) == len(view) == 4
    flushed(pair.a, 2)
    assert pair.a.cq.poll_into(buffer) == 2
    assert list(view["wr_id"][:2]) == [0, 1]
    assert set(view["status"][:2]) == {WcStatus.WR_FLUSH_ERR}
    assert buffer.first_error(0) == -1
    assert "4" in repr(buffer)
    with pytest.raises(IndexError):
        buffer[4]
    with pytest.raises(IndexError):
        buffer[-1]
    assert "count=5: is above the room" in str(refused(lambda: buffer.wr_ids(5)))
    assert "count=5: is above the room" in str(refused(lambda: buffer.first_error(5)))
    for call in (buffer.wr_ids, buffer.first_error):
        assert "count=-1: must be 0 to" in str(refused(functools.partial(call, -1)))
        with pytest.raises(TypeError, match="count must be an integer, not str"):
            call("1")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="index must be an integer, not float"):
        buffer[0.5]  # type: ignore[index]
    for index in (4, (1 << 64) - 1):
        beyond = functools.partial(buffer.completion, index, hca.WC)
        assert f"index={index}: is beyond the room" in str(refused(beyond))


def test_a_completion_buffer_keeps_the_array_that_it_fills(pair: Pair) -> None:
    room = bytearray(72 * 2)
    buffer = CompletionBuffer(room)
    with pytest.raises(BufferError):
        room.clear()
    flushed(pair.a, 1)
    assert pair.a.cq.poll_into(buffer) == 1
    del buffer
    room.clear()


@pytest.mark.parametrize(
    ("room", "words"),
    [
        (0, "room=0: must be for 1 completion or more"),
        (-1, "room=-1: must be 0 to"),
        (b"", "room='bytes': is read-only"),
        (bytes(72), "room='bytes': is read-only"),
        (bytearray(), "room=0: must be for 1 completion or more"),
        (bytearray(71), "room=71: must be bytes of records of 72"),
        (np.zeros(3, "f8"), r"room.dtype='float64': must be numpy.dtype\(softhca.WC_DTYPE\)"),
        (np.zeros(4, hca.WC_DTYPE)[::2], "room='ndarray': must be contiguous"),
    ],
)
def test_room_that_cannot_be_filled_is_refused_by_name(pair: Pair, room: Any, words: str) -> None:
    flushed(pair.a, 1)
    with pytest.raises(VerbsError, match=words):
        CompletionBuffer(room)
    if not isinstance(room, int):
        with pytest.raises(VerbsError, match=words.replace("room", "buffer", 1)):
            pair.a.cq.poll_into(room)
    assert len(pair.a.cq.poll()) == 1


def test_read_only_room_takes_nothing(pair: Pair) -> None:
    flushed(pair.a, 1)
    room = np.zeros(4, hca.WC_DTYPE)
    room.flags.writeable = False
    with pytest.raises(VerbsError, match=r"is read-only: completions are written into it"):
        pair.a.cq.poll_into(room)
    with pytest.raises(TypeError, match=r"must be an array of softhca.WC_DTYPE or bytes, not str"):
        pair.a.cq.poll_into("room")  # type: ignore[arg-type]
    assert len(pair.a.cq.poll()) == 1


def test_callbacks_that_are_polled_as_records_are_let_go(pair: Pair) -> None:
    class Noted(hca.Cqe):
        pass

    import weakref

    cqe = Noted()
    gone = weakref.ref(cqe)
    qp = flushed(pair.a, 0)
    qp.post_recv(Recv(cqe=cqe))
    del cqe
    assert gone() is not None
    assert pair.a.cq.poll_into(CompletionBuffer(2)) == 1
    assert gone() is None
    assert pair.a.device._hca.cqes_under_way == 0


def test_tasks_have_what_they_await_and_records_the_rest(pair: Pair, run: Any) -> None:
    if pair.wire is not None:
        pytest.skip("tasks need time that passes by itself")
    near, far = pair.connected(max_send_wr=16, max_recv_wr=16)

    async def body() -> None:
        buffer = CompletionBuffer(8)
        waiting = far.recv(pair.b.mr[:8], wr_id=500)
        far.post_recv_many(receives(pair.b, 2))
        near.post_send_many(sends(pair.a, 3))
        wc = await waiting
        assert wc.wr_id == 500
        seen: list[int] = []
        while len(seen) < 2:
            seen += buffer.wr_ids(pair.b.cq.poll_into(buffer))
        assert seen == [1000, 1001]
        assert pair.b.cq.poll_one() is None

    run(body)


def test_many_threads_post_and_poll_at_once() -> None:
    with hca.open() as device:
        host = Host(device)
        cq = device.create_cq(4096)
        near = host.qp(send_cq=cq, recv_cq=cq, max_send_wr=256, max_recv_wr=256)
        far = host.qp(max_recv_wr=256)
        near.connect(far.info())
        far.connect(near.info())
        wr = Write(host.mr[0:64], remote=host.mr.remote()[64:128], signaled=True)
        credits = threading.Semaphore(200)
        left, lock = 2000, threading.Lock()
        numbers: list[int] = []

        def post(first: int) -> None:
            for number in range(first, first + 500, 5):
                for _ in range(5):
                    credits.acquire()
                near.post_send_many(wr, range(number, number + 5))

        def take() -> None:
            nonlocal left
            buffer = CompletionBuffer(7)
            while left > 0:
                count = cq.poll_into(buffer)
                assert buffer.first_error(count) == -1
                with lock:
                    left -= count
                    numbers.extend(buffer.wr_ids(count))
                if count:
                    credits.release(count)

        threads = [threading.Thread(target=post, args=(500 * n,)) for n in range(4)]
        threads += [threading.Thread(target=take) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert sorted(numbers) == list(range(2000))


def test_a_reused_work_request_reads_each_time_anew(pair: Pair) -> None:
    near, _far = pair.connected(max_send_wr=4, max_recv_wr=4)
    wr = Read(pair.a.mr[0:8], remote=pair.b.mr.remote()[0:8], signaled=True)
    for text in (b"first...", b"second.."):
        pair.b.buffer[0:8] = text
        near.post_send(wr)
        assert pair.completion(pair.a).ok
        assert pair.a.buffer[0:8] == text


@pytest.mark.parametrize("number", [16, np.int64(16), True])
def test_a_number_is_no_buffer_and_loses_no_completion(pair: Pair, number: Any) -> None:
    """As `poll(16)` would have it: nobody could look at what was polled."""
    flushed(pair.a, 2)
    with pytest.raises((TypeError, VerbsError), match=r"^buffer\b"):
        pair.a.cq.poll_into(number)
    assert [wc.wr_id for wc in pair.a.cq.poll(4)] == [0, 1]
