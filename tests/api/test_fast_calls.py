"""Calls without an object for each message: order, bytes and completions as with objects."""

from __future__ import annotations

import array
import errno
import inspect
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import softhca as hca
from softhca import (
    CompletionBuffer,
    QPState,
    QPType,
    Read,
    Recv,
    Send,
    SendFlags,
    SendImm,
    VerbsError,
    WcOpcode,
    WcStatus,
    Write,
    WrOpcode,
)

from .hosts import Host, Pair

SIGNALED = int(SendFlags.SIGNALED)


def sends(host: Host, count: int, **fields: Any) -> Any:
    """Records of SENDs of eight bytes each, one after the other in the host's buffer."""
    wrs = np.zeros(count, hca.SEND_DTYPE)
    wrs["opcode"] = WrOpcode.SEND
    wrs["send_flags"] = SIGNALED
    wrs["wr_id"] = np.arange(count)
    wrs["addr"] = host.mr.addr + 8 * np.arange(count, dtype="u8")
    wrs["length"] = 8
    wrs["lkey"] = host.mr.lkey
    for name, value in fields.items():
        wrs[name] = value
    return wrs


def receives(host: Host, count: int) -> Any:
    """Records of receives of eight bytes each, one after the other in the host's buffer."""
    wrs = np.zeros(count, hca.RECV_DTYPE)
    wrs["wr_id"] = 1000 + np.arange(count)
    wrs["addr"] = host.mr.addr + 8 * np.arange(count, dtype="u8")
    wrs["length"] = 8
    wrs["lkey"] = host.mr.lkey
    return wrs


def polled(pair: Pair, host: Host, count: int) -> Any:
    """Waits for so many completions, as records."""
    found = np.zeros(count, hca.WC_DTYPE)
    so_far = 0

    def enough() -> bool:
        nonlocal so_far
        so_far += host.cq.poll_into(found[so_far:]) if so_far < count else 0
        return so_far == count

    pair.until(enough)
    return found


def refused(call: Callable[[], object]) -> VerbsError:
    with pytest.raises(VerbsError) as refusal:
        call()
    return refusal.value


# --- layouts


@pytest.mark.parametrize("name", ["SEND", "RECV", "WC"])
def test_layouts_are_the_same_for_numpy_and_struct(name: str) -> None:
    dtype, code = np.dtype(getattr(hca, f"{name}_DTYPE")), getattr(hca, f"{name}_FORMAT")
    assert dtype.itemsize == struct.calcsize(code)
    values = tuple(range(1, len(dtype.names or ()) + 1))
    record = np.frombuffer(struct.pack(code, *values), dtype)[0]
    assert tuple(map(int, record)) == tuple(
        1 if dtype[i] == np.dtype("?") else value for i, value in enumerate(values)
    )


# --- posting records


def test_records_move_the_same_bytes_as_objects(pair: Pair) -> None:
    near, far = pair.connected(max_send_wr=64, max_recv_wr=64)
    pair.a.buffer[:320] = bytes(range(64)) * 5
    far.post_recv_many(receives(pair.b, 40))
    assert near.post_send_many(sends(pair.a, 40)) is None
    done = polled(pair, pair.a, 40)
    came = polled(pair, pair.b, 40)
    assert pair.b.buffer[:320] == pair.a.buffer[:320]
    assert list(done["wr_id"]) == list(range(40))
    assert set(done["opcode"]) == {WcOpcode.SEND}
    assert list(came["wr_id"]) == list(range(1000, 1040))
    assert set(came["byte_len"]) == {8}
    assert set(came["status"]) == {WcStatus.SUCCESS}
    assert came["is_receive"].all()
    assert set(came["qp_num"]) == {far.qpn}


def test_a_record_says_what_an_object_says(pair: Pair) -> None:
    near, far = pair.connected(max_send_wr=64, max_recv_wr=64)
    pair.b.buffer[512:520] = (7).to_bytes(8, sys.byteorder)
    remote = pair.b.mr.remote()
    wrs = sends(pair.a, 5, rkey=remote.rkey, remote_addr=remote.addr + 512)
    wrs["opcode"] = [
        WrOpcode.RDMA_READ,
        WrOpcode.ATOMIC_FETCH_AND_ADD,
        WrOpcode.ATOMIC_CMP_AND_SWP,
        WrOpcode.RDMA_WRITE,
        WrOpcode.SEND_WITH_IMM,
    ]
    wrs["compare_add"] = [0, 5, 12, 0, 0]
    wrs["swap"] = [0, 0, 99, 0, 0]
    wrs["imm"][4] = 0xDEADBEEF
    wrs["remote_addr"][3] += 8
    wrs["remote_addr"][0] += 16
    pair.b.buffer[528:536] = (3).to_bytes(8, sys.byteorder)
    pair.a.buffer[24:32] = b"written!"
    far.post_recv(Recv(pair.b.mr[1024:1032]))
    near.post_send_many(wrs)
    done = polled(pair, pair.a, 5)
    assert set(done["status"]) == {0}
    read = [int.from_bytes(pair.a.buffer[8 * i : 8 * i + 8], sys.byteorder) for i in range(3)]
    assert read == [3, 7, 12]
    assert int.from_bytes(pair.b.buffer[512:520], sys.byteorder) == 99
    assert pair.b.buffer[520:528] == b"written!"
    (came,) = polled(pair, pair.b, 1)
    assert came["immediate_or_rkey"] == 0xDEADBEEF
    assert came["wc_flags"] == hca.WcFlags.WITH_IMM


def test_records_of_ud_name_an_address_handle(pair: Pair) -> None:
    qps = [host.qp(QPType.UD, max_send_wr=8, max_recv_wr=8) for host in (pair.a, pair.b)]
    for qp in qps:
        qp.activate(qkey=0x11)
    ah = pair.a.keep(pair.a.pd.create_ah(pair.b.device.gid))
    qps[1].post_recv([Recv(pair.b.mr[0:48])] * 3)
    pair.a.buffer[:24] = b"datagramdatagramdatagram"
    wrs = sends(pair.a, 3, ah=ah.handle, remote_qpn=qps[1].qpn, remote_qkey=0x11)
    qps[0].post_send_many(wrs)
    assert set(polled(pair, pair.a, 3)["status"]) == {0}
    assert set(polled(pair, pair.b, 3)["src_qp"]) == {qps[0].qpn}
    assert pair.b.buffer[40:48] == b"datagram"


def test_bytes_without_numpy_are_records(pair: Pair) -> None:
    near, far = pair.connected(max_send_wr=8, max_recv_wr=8)
    packed = b"".join(
        struct.pack(hca.RECV_FORMAT, number, pair.b.mr.addr, 8, pair.b.mr.lkey) for number in (5, 6)
    )
    far.post_recv_many(bytearray(packed))
    near.post_send_many(sends(pair.a, 2).tobytes())
    room = bytearray(2 * struct.calcsize(hca.WC_FORMAT))
    so_far = 0

    def enough() -> bool:
        nonlocal so_far
        so_far += pair.b.cq.poll_into(memoryview(room)[72 * so_far :]) if so_far < 2 else 0
        return so_far == 2

    pair.until(enough)
    assert [one[0] for one in struct.iter_unpack(hca.WC_FORMAT, room)] == [5, 6]


def test_an_unaligned_array_is_read_as_it_lies(pair: Pair) -> None:
    near, far = pair.connected(max_send_wr=8, max_recv_wr=8)
    shifted = np.frombuffer(b"x" + receives(pair.b, 3).tobytes(), hca.RECV_DTYPE, offset=1)
    far.post_recv_many(shifted)
    near.post_send_many(sends(pair.a, 3))
    assert list(polled(pair, pair.b, 3)["wr_id"]) == [1000, 1001, 1002]


@pytest.mark.parametrize("empty", [[], (), b"", np.zeros(0, hca.SEND_DTYPE)])
def test_nothing_is_posted_of_an_empty_batch(pair: Pair, empty: Any) -> None:
    near, far = pair.connected(max_send_wr=4, max_recv_wr=4)
    near.post_send_many(empty)
    near.post_send_many(empty, wr_ids=7)
    if not isinstance(empty, np.ndarray):
        far.post_recv_many(empty)
    near.post_send_many(Send(), wr_ids=[])
    assert pair.a.cq.poll() == []


# --- numbers


@pytest.mark.parametrize(
    "ids",
    [
        pytest.param(70, id="first"),
        pytest.param(np.int64(70), id="numpy's first"),
        pytest.param(range(70, 75), id="range"),
        pytest.param([70, 71, 72, 73, 74], id="list"),
        pytest.param(array.array("Q", range(70, 75)), id="array"),
        pytest.param(np.arange(70, 75, dtype="u8"), id="numpy u8"),
        pytest.param(np.arange(70, 75, dtype="i8"), id="numpy i8"),
    ],
)
@pytest.mark.parametrize("kind", ["records", "list", "one"])
def test_wr_ids_take_the_place_of_those_of_the_wrs(pair: Pair, ids: Any, kind: str) -> None:
    near, far = pair.connected(max_send_wr=16, max_recv_wr=16)
    wr, receive = Send(pair.a.mr[:8], signaled=True, wr_id=1), Recv(pair.b.mr[:8])
    if kind == "one" and isinstance(ids, int | np.integer):
        with pytest.raises(TypeError, match="one each, for a single work request"):
            near.post_send_many(wr, ids)
        return
    wrs: Any = {"records": sends(pair.a, 5), "list": [wr] * 5, "one": wr}[kind]
    received: Any = {"records": receives(pair.b, 5), "list": (receive,) * 5, "one": receive}[kind]
    far.post_recv_many(received, wr_ids=ids)
    near.post_send_many(wrs, ids)
    assert list(polled(pair, pair.a, 5)["wr_id"]) == [70, 71, 72, 73, 74]
    assert list(polled(pair, pair.b, 5)["wr_id"]) == [70, 71, 72, 73, 74]
    assert wr.wr_id == 1


@pytest.mark.parametrize(
    ("ids", "error", "words"),
    [
        ([1, 2], VerbsError, "wr_ids=2: must be as many as the work requests"),
        (-1, VerbsError, "wr_ids=0: must be 0 to 18446744073709551615"),
        ((1 << 64) - 2, VerbsError, "is too large a first number"),
        (1 << 64, VerbsError, "wr_ids=0: must be 0 to"),
        (np.array([-1, 0, 1], "i8"), VerbsError, "wr_ids=0: must be 0 to"),
        (np.zeros(3, "u4"), TypeError, "wr_ids must be an integer, a sequence"),
        (np.zeros(3, "f8"), TypeError, "wr_ids must be an integer, a sequence"),
        ([1, "2", 3], TypeError, "wr_ids must be an integer, a sequence"),
        (1.5, TypeError, "wr_ids must be an integer, a sequence"),
    ],
)
def test_bad_wr_ids_post_nothing(pair: Pair, ids: Any, error: type[Exception], words: str) -> None:
    near, _ = pair.connected(max_send_wr=16, max_recv_wr=16)
    for wrs in (sends(pair.a, 3), [Send(signaled=True)] * 3):
        with pytest.raises(error, match=words):
            near.post_send_many(wrs, ids)
    near.modify(qp_state=QPState.ERR)
    assert pair.a.cq.poll() == []


# --- refusals


def test_a_refusal_says_how_many_were_posted(pair: Pair) -> None:
    near, _far = pair.connected(max_send_wr=70, max_recv_wr=16)
    error = refused(lambda: near.post_send_many(sends(pair.a, 100)))
    assert (error.errno, error.argument, error.bad_wr) == (errno.ENOMEM, "max_send_wr", 70)
    near.modify(qp_state=QPState.ERR)
    assert list(polled(pair, pair.a, 70)["wr_id"]) == list(range(70))
    assert pair.a.cq.poll() == []


@pytest.mark.parametrize("at", [0, 3, 40])
@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("opcode", WrOpcode.BIND_MW, "opcode=8: is not for records"),
        ("opcode", WrOpcode.SEND | 256, "opcode=258: is not for records"),
        ("opcode", 77, "opcode=77: is not for records"),
        ("send_flags", 32, "send_flags=32: has bits that are no send flag"),
    ],
)
def test_what_came_before_a_bad_record_stays_posted(
    pair: Pair, at: int, field: str, value: int, words: str
) -> None:
    near, _far = pair.connected(max_send_wr=64, max_recv_wr=64)
    wrs = sends(pair.a, 50)
    wrs[field][at] = value
    error = refused(lambda: near.post_send_many(wrs))
    assert words in str(error)
    assert (error.errno, error.bad_wr) == (errno.EINVAL, at)
    near.modify(qp_state=QPState.ERR)
    if at:
        assert list(polled(pair, pair.a, at)["wr_id"]) == list(range(at))
    assert pair.a.cq.poll() == []


def test_a_list_says_the_index_too(pair: Pair) -> None:
    near, far = pair.connected(max_send_wr=2, max_recv_wr=2)
    assert refused(lambda: near.post_send_many([Send()] * 3)).bad_wr == 2
    assert refused(lambda: far.post_recv_many([Recv()] * 3)).bad_wr == 2
    assert refused(lambda: far.post_recv_many([Recv()], 7)).bad_wr == 0


def test_wr_ids_are_not_for_callbacks(pair: Pair) -> None:
    near, _far = pair.connected(max_send_wr=8, max_recv_wr=2)
    wrs = [Send(), Send(cqe=hca.Cqe(print)), Send()]
    error = refused(lambda: near.post_send_many(wrs, 5))
    assert (error.argument, error.value, error.bad_wr) == ("wr_ids", 6, 1)


def test_callbacks_of_a_list_are_called() -> None:
    done: list[int] = []
    with (
        hca.open() as device,
        device.alloc_pd() as pd,
        device.alloc_cq(16, poll_context=hca.PollContext.DIRECT) as cq,
    ):
        qp = pd.create_qp(QPType.RC, send_cq=cq, recv_cq=cq, max_recv_wr=4)
        qp.modify(qp_state=QPState.INIT, pkey_index=0, port_num=1, qp_access_flags=0)
        qp.modify(qp_state=QPState.ERR)
        cqe = hca.Cqe(lambda cq, wc: done.append(wc.wr_id))
        qp.post_recv_many([Recv(wr_id=number, cqe=cqe) for number in range(3)])
        qp.post_recv(Recv(wr_id=3, cqe=cqe))
        while len(done) < 4:
            cq.process_direct()
        assert done == [0, 1, 2, 3]
        for poll in (cq.poll_one, lambda: cq.poll_into(CompletionBuffer(1))):
            assert "has callbacks" in str(refused(poll))


@pytest.mark.parametrize(
    ("wrs", "words"),
    [
        (np.zeros(2, "u8"), r"wrs.dtype='uint64': must be numpy.dtype\(softhca.SEND_DTYPE\)"),
        (np.zeros(2, hca.RECV_DTYPE), r"wrs.dtype=.*softhca.SEND_DTYPE"),
        (np.zeros(4, hca.SEND_DTYPE)[::2], r"wrs='ndarray': must be contiguous"),
        (bytes(81), r"wrs=81: must be bytes of records of 80"),
        (array.array("Q", [0] * 10), r"wrs.format='Q': must be bytes, or an array of softhca.SEND"),
    ],
)
def test_an_array_of_another_kind_is_refused_by_name(pair: Pair, wrs: Any, words: str) -> None:
    near, _far = pair.connected(max_send_wr=8, max_recv_wr=8)
    with pytest.raises(VerbsError, match=words):
        near.post_send_many(wrs)


def test_what_is_no_buffer_is_a_type_error(pair: Pair) -> None:
    near, far = pair.connected(max_send_wr=8, max_recv_wr=8)
    for wrong in (None, 5, object(), {}):
        with pytest.raises(TypeError, match="wrs must be"):
            near.post_send_many(wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="wrs must be"):
            far.post_recv_many(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="wrs must be a work request of this queue"):
        near.post_send_many([Recv()])  # type: ignore[list-item]


def test_an_srq_takes_records(pair: Pair) -> None:
    srq = pair.b.keep(pair.b.pd.create_srq(max_wr=16))
    near, far = pair.a.qp(max_send_wr=8), pair.b.qp(srq=srq)
    near.connect(far.info())
    far.connect(near.info())
    srq.post_recv_many(receives(pair.b, 2))
    srq.post_recv_many(Recv(pair.b.mr[:8]), wr_ids=[8, 9])
    srq.post_recv(Recv(pair.b.mr[:8], wr_id=10))
    near.post_send_many(sends(pair.a, 5))
    assert list(polled(pair, pair.b, 5)["wr_id"]) == [1000, 1001, 8, 9, 10]


# --- polling


def flushed(host: Host, count: int) -> hca.QP:
    """A queue pair whose receives complete at once, in error."""
    qp = host.qp(max_recv_wr=max(count, 1))
    qp.modify(qp_state=QPState.INIT, pkey_index=0, port_num=1, qp_access_flags=0)
    qp.modify(qp_state=QPState.ERR)
    qp.post_recv_many(Recv(), range(count))
    return qp


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
        with pytest.raises(VerbsError, match=words):
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


# --- quick methods


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
    assert pair.a.cq.poll(True) == []


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
