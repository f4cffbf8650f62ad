"""Posting without an object for each message: order, bytes and refusals as with objects."""

from __future__ import annotations

import array
import ctypes
import errno
import struct
import sys
from typing import Any

import numpy as np
import pytest

import softhca as hca
from softhca import (
    CompletionBuffer,
    QPState,
    QPType,
    Recv,
    Send,
    VerbsError,
    WcOpcode,
    WcStatus,
    WrOpcode,
)

from .fast_calls import polled, receives, refused, sends
from .hosts import Pair

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
        pytest.param((ctypes.c_uint64 * 5)(*range(70, 75)), id="ctypes u8"),
        pytest.param((ctypes.c_int64 * 5)(*range(70, 75)), id="ctypes i8"),
        pytest.param(np.arange(70, 75, dtype="u8"), id="numpy u8"),
        pytest.param(np.arange(70, 75, dtype="i8"), id="numpy i8"),
        pytest.param(list(np.arange(70, 75)), id="list of numpy's"),
        pytest.param(np.repeat(np.arange(70, 75, dtype="u8"), 2)[::2], id="numpy with gaps"),
        pytest.param(np.arange(74, 69, -1)[::-1], id="numpy backwards"),
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
        (-1, VerbsError, "wr_ids=-1: must be 0 to 18446744073709551615"),
        ((1 << 64) - 2, VerbsError, "is too large a first number"),
        (1 << 64, VerbsError, "wr_ids=18446744073709551616: must be 0 to"),
        ([1, 2, -3], VerbsError, "wr_ids=-3: must be 0 to"),
        (np.array([1, 0, -7], "i8"), VerbsError, "wr_ids=-7: must be 0 to"),
        (np.array([1, 0, -7, 0, 2], "i8")[::2], VerbsError, "wr_ids=-7: must be 0 to"),
        (np.zeros(3, "u4"), TypeError, "wr_ids must be an integer, a sequence"),
        (np.zeros(3, ">u8"), TypeError, "wr_ids must be an integer, a sequence"),
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
    near, _far = pair.connected(max_send_wr=2, max_recv_wr=2)
    # There is no receive for them over there, and here nobody sends.
    assert refused(lambda: near.post_send_many([Send()] * 3)).bad_wr == 2
    assert refused(lambda: near.post_recv_many([Recv()] * 3)).bad_wr == 2
    assert refused(lambda: near.post_recv_many([Recv()], 7)).bad_wr == 0


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
