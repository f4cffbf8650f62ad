"""What travels between processes packs, pickles and compares."""

from __future__ import annotations

import builtins
import copy
import errno
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import softhca as hca
from softhca import GID, AHAttr, Mtu, QPInfo, QPType, RemoteMemory, VerbsError

from .hosts import Host, Pair

ranges = st.builds(
    RemoteMemory,
    st.integers(0, (1 << 64) - 1),
    st.integers(0, (1 << 32) - 1),
    st.integers(0, (1 << 64) - 1),
)
infos = st.builds(
    QPInfo,
    gid=st.binary(min_size=16, max_size=16).map(GID),
    qpn=st.integers(0, (1 << 24) - 1),
    psn=st.integers(0, (1 << 24) - 1),
    mtu=st.sampled_from(list(Mtu)),
    qkey=st.integers(0, (1 << 32) - 1),
    rd_atomic=st.integers(0, 255),
    qp_type=st.sampled_from(list(QPType)),
    srqn=st.integers(0, (1 << 24) - 1),
)


@given(ranges)
def test_remote_memory_packs_to_20_bytes(remote: RemoteMemory) -> None:
    packed = remote.to_bytes()
    assert len(packed) == 20
    assert RemoteMemory.from_bytes(packed) == remote
    assert pickle.loads(pickle.dumps(remote)) == remote


def test_remote_memory_packs_big_endian() -> None:
    remote = RemoteMemory(addr=0x0102030405060708, rkey=0x11121314, length=0x21)
    assert remote.to_bytes() == bytes.fromhex("0102030405060708 0000000000000021 11121314")


@given(infos)
def test_qp_info_packs_to_a_fixed_size(info: QPInfo) -> None:
    packed = info.to_bytes()
    assert len(packed) == hca.QP_INFO_BYTES == 36
    assert QPInfo.from_bytes(packed) == info
    assert pickle.loads(pickle.dumps(info)) == info


@given(st.binary(max_size=40) | st.binary(min_size=35, max_size=35).map(lambda b: b"\1" + b))
def test_foreign_bytes_are_no_qp_info(packed: bytes) -> None:
    try:
        assert QPInfo.from_bytes(packed).to_bytes() == packed
    except VerbsError as error:
        assert error.errno == errno.EINVAL
        assert error.argument == "packed"


@given(st.binary(max_size=40).filter(lambda b: len(b) != 20))
def test_wrong_sizes_are_no_remote_memory(packed: bytes) -> None:
    with pytest.raises(VerbsError, match="must be 20 bytes"):
        RemoteMemory.from_bytes(packed)


@given(st.data())
def test_slices_of_slices_are_slices(data: st.DataObject) -> None:
    whole = RemoteMemory(0x1000, 5, data.draw(st.integers(0, 1000), "length"))
    start = data.draw(st.integers(0, whole.length), "start")
    stop = data.draw(st.integers(start, whole.length), "stop")
    part = whole[start:stop]
    assert (part.addr, part.length, part.rkey) == (0x1000 + start, stop - start, 5)
    assert part[:] == part
    assert whole[start - whole.length or None : stop] == part or start == whole.length


def test_gids() -> None:
    mapped = GID("192.0.2.1")
    assert str(mapped) == "::ffff:192.0.2.1"
    assert mapped.raw == bytes(10) + b"\xff\xff\xc0\x00\x02\x01"
    assert mapped == GID("::ffff:192.0.2.1") == GID(mapped.ip) == GID(mapped.raw) == GID(mapped)
    assert str(GID("fd00::1")) == "fd00::1"
    assert len({mapped, GID(mapped.raw), GID("fd00::1")}) == 2
    assert pickle.loads(pickle.dumps(mapped)) == mapped
    assert repr(mapped) == "GID('192.0.2.1')"
    with pytest.raises(AttributeError, match="immutable"):
        mapped.raw = b""


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_gid_of_bytes_that_were_received(
    kind: Callable[[bytearray], bytes | bytearray | memoryview],
) -> None:
    header = bytearray(8) + bytearray(GID("fd00::1").raw + GID("fd00::2").raw)
    source = kind(header)[8:24]
    gid, attr = GID(source), AHAttr(source)
    header[8:40] = bytes(32)  # The next datagram comes.
    assert gid == GID("fd00::1") == GID(attr.dgid)
    assert hash(attr) == hash(AHAttr(gid.raw))
    with pytest.raises(VerbsError, match="must have 16 bytes"):
        GID(kind(header)[8:20])


def test_what_belongs_to_a_process_does_not_pickle(host: Host) -> None:
    for thing in (host.device, host.pd, host.cq, host.mr, host.qp()):
        with pytest.raises(TypeError, match="cannot pickle"):
            pickle.dumps(thing)
        with pytest.raises(TypeError, match="cannot pickle"):
            copy.copy(thing)


def test_an_event_that_is_acknowledged_once_is_not_copied(simulated: Pair) -> None:
    near, far = simulated.connected()
    near.post_send(hca.Write(simulated.a.mr[:1], remote=RemoteMemory(0, 1, 1)))
    simulated.completions(simulated.a, 1)
    event = simulated.b.device.poll_async_event()
    assert event is not None
    assert event.element is far
    for reproduce in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot pickle or copy"):
            reproduce(event)
    with pytest.raises(VerbsError, match="never acknowledged"):
        far.close()
    event.ack()
    far.close()


def test_a_refusal_pickles(host: Host) -> None:
    with pytest.raises(VerbsError) as raised:
        host.device.create_cq(0)
    again = pickle.loads(pickle.dumps(raised.value))
    assert (str(again), again.errno, again.argument, again.value, again.rule) == (
        str(raised.value),
        errno.EINVAL,
        "cqe",
        0,
        raised.value.rule,
    )


def test_a_refusal_of_what_stays_in_its_process_pickles(host: Host) -> None:
    window = host.keep(host.pd.alloc_mw(hca.MwType.TYPE_1))
    with pytest.raises(VerbsError, match="is of type 1") as raised:
        hca.BindMw(window, host.mr, rkey=1, access=0)
    again = pickle.loads(pickle.dumps(raised.value))
    assert str(again) == str(raised.value)
    assert (again.errno, again.argument, again.rule) == (errno.EINVAL, "mw", raised.value.rule)
    assert repr(again.value) == repr(window)
    assert str(pickle.loads(pickle.dumps(again))) == str(raised.value)


def test_the_index_of_a_refused_request_pickles(host: Host) -> None:
    with pytest.raises(VerbsError) as raised:
        host.qp().post_send_many([hca.Send()])
    assert pickle.loads(pickle.dumps(raised.value)).bad_wr == raised.value.bad_wr == 0
    with pytest.raises(VerbsError) as raised:
        host.qp().post_send([hca.Send()])
    assert pickle.loads(pickle.dumps(raised.value)).bad_wr is None


def test_enumerations_show_their_names_and_have_the_abi_s_numbers() -> None:
    assert repr(hca.WcStatus.REM_ACCESS_ERR) == "WcStatus.REM_ACCESS_ERR"
    assert hca.WcStatus.REM_ACCESS_ERR == 10
    both = hca.Access.LOCAL_WRITE | hca.Access.REMOTE_READ
    assert (repr(both), both) == ("Access.LOCAL_WRITE|REMOTE_READ", 5)
    assert repr(hca.Access(0)) == "Access(0)"
    assert repr(hca.QPAttrMask(1 << 31)) == "QPAttrMask(0x80000000)"
    assert (hca.QPType.XRC_RECV, hca.WcOpcode.RECV_RDMA_WITH_IMM) == (10, 129)
    assert (hca.QPAttrMask.DEST_QPN, hca.EventType.GID_CHANGE) == (1 << 20, 18)
    assert hca.NotifyFlags.REPORT_MISSED_EVENTS == 4
    assert pickle.loads(pickle.dumps(both)) == both


def test_a_completion_is_immutable_and_explains_itself(simulated: Pair) -> None:
    near, _ = simulated.connected()
    near.post_send(hca.Write(simulated.a.mr[:8], remote=RemoteMemory(0x5000, 0xBAD, 8), wr_id=0x77))
    wc = simulated.completion(simulated.a)
    with pytest.raises(AttributeError):
        wc.wr_id = 5  # type: ignore[misc]
    assert not wc.ok
    assert wc.vendor_err == wc.reason
    for part in ("0x77", "REM_ACCESS_ERR", "the peer", "0xbad", "0x5000", "8 bytes", "PSN"):
        assert part in wc.why
    with pytest.raises(hca.CompletionError) as raised:
        wc.raise_for_status()
    assert raised.value.wc is wc
    assert wc.why in str(raised.value)
    assert pickle.loads(pickle.dumps(raised.value)).errno == errno.EIO


def test_an_explanation_has_no_key_where_none_was_used(simulated: Pair) -> None:
    near, _ = simulated.connected()
    buffer = simulated.a.mr
    near.post_send(hca.FetchAdd(buffer[:4], remote=simulated.b.mr.remote()[:8], add=1))
    assert simulated.completion(simulated.a).why.endswith("must have 8 bytes (4 bytes)")
    near, _ = simulated.connected()
    # Here 0 is what was given, and what is wrong.
    near.post_send(hca.Write(buffer[:8], remote=RemoteMemory(0, 0, 8)))
    assert "(key 0x0, address 0x0, 8 bytes, PSN " in simulated.completion(simulated.a).why


def test_a_completion_is_equal_to_what_has_the_same_fields(simulated: Pair) -> None:
    near, _ = simulated.connected()
    write = hca.Write(simulated.a.mr[:8], remote=simulated.b.mr.remote(), wr_id=7, signaled=True)
    near.post_send([write, write])
    one, other = simulated.completions(simulated.a, 2)
    again = pickle.loads(pickle.dumps(one))
    assert again is not one
    assert (again == one, again != one, hash(again) == hash(one)) == (True, False, True)
    assert {one: "found"}[again] == "found"
    assert one != other or one.timestamp_ns == other.timestamp_ns
    assert one != 7
    near.post_send(
        hca.Write(remote=RemoteMemory(0, 1, 0), signaled=True, cqe=hca.Cqe(lambda cq, wc: None))
    )
    (called,) = simulated.completions(simulated.a, 1)
    without = pickle.loads(pickle.dumps(called))
    assert without.cqe is None
    assert without != called


def test_a_good_completion_says_nothing(simulated: Pair) -> None:
    near, _ = simulated.connected()
    near.post_send(hca.Write(remote=simulated.b.mr.remote(), signaled=True))
    wc = simulated.completion(simulated.a)
    assert (wc.ok, wc.why, wc.imm_data, wc.invalidated_rkey) == (True, "", None, None)
    wc.raise_for_status()
    assert repr(wc).startswith("<WC RDMA_WRITE wr_id=0x0")


def test_counters_are_attributes_and_a_mapping(simulated: Pair) -> None:
    near, _ = simulated.connected()
    before = simulated.a.device.counters
    near.post_send(hca.Write(remote=simulated.b.mr.remote(), signaled=True))
    simulated.completion(simulated.a)
    after = simulated.a.device.counters
    assert after.sent_pkts == after["sent_pkts"] == dict(after)["sent_pkts"]
    assert (after - before).sent_pkts == 1
    assert near.counters.sent_pkts == 1
    assert set(after) >= {"out_of_sequence", "rx_icrc_encapsulated", "local_ack_timeout_err"}
    with pytest.raises(AttributeError, match="there is no counter 'nonsense'"):
        _ = after.nonsense


def test_the_facade_exports_what_it_says() -> None:
    assert all(hasattr(hca, name) for name in hca.__all__)
    top = Path(__file__).resolve().parents[2]
    (version,) = re.findall(r'^version = "(.*)"', (top / "pyproject.toml").read_text(), re.M)
    assert hca.__version__ == version


def test_a_star_import_leaves_the_builtins_what_they_are() -> None:
    names: dict[str, object] = {}
    exec("from softhca import *", names)
    assert "QPInfo" in names
    assert not set(names) & set(dir(builtins))
