"""Bad arguments raise at once, name themselves, and change nothing."""

from __future__ import annotations

import errno
import functools
from array import array
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

import softhca as hca
from softhca import Access, QPState, QPType, RemoteMemory, VerbsError
from softhca.testing import Faults, open_simulated

from .hosts import Host
from .refusing import refused

MAX_64 = (1 << 64) - 1


@pytest.mark.parametrize("cqe", [0, -1, (1 << 20) + 1, 1 << 40])
def test_create_cq(device: hca.Device, cqe: int) -> None:
    refused(lambda: device.create_cq(cqe), "cqe")


def test_message_names_argument_value_and_limit(host: Host) -> None:
    error = refused(lambda: host.qp(max_send_wr=99999), "max_send_wr")
    assert error.value == 99999
    assert str(error) == f"max_send_wr=99999: {error.rule} (EINVAL)"


@pytest.mark.parametrize(
    "argument", ["max_send_wr", "max_recv_wr", "max_send_sge", "max_recv_sge", "max_inline_data"]
)
@pytest.mark.parametrize("value", [-1, 1 << 20, 1 << 40])
def test_create_qp_sizes(host: Host, argument: str, value: int) -> None:
    before = host.device.query_device()
    refused(lambda: host.qp(**{argument: value}), argument)
    assert host.device.query_device() == before
    host.qp()


def test_create_qp_objects(host: Host) -> None:
    closed = host.device.create_cq(4)
    closed.close()
    refused(lambda: host.qp(send_cq=closed), "send_cq")
    with open_simulated("10.0.0.7") as other, other.create_cq(4) as foreign:
        error = refused(lambda: host.qp(recv_cq=foreign), "recv_cq")
        assert "another device" in error.rule
    with pytest.raises(TypeError, match="send_cq must be CQ, not int"):
        host.qp(send_cq=1)
    for qp_type in (QPType.RC, QPType.UC, QPType.UD):
        error = refused(lambda kind=qp_type: host.pd.create_qp(kind, recv_cq=host.cq), "send_cq")
        assert str(error).startswith("send_cq: must be given")
        error = refused(lambda kind=qp_type: host.pd.create_qp(kind, send_cq=host.cq), "recv_cq")
        assert str(error).startswith("recv_cq: must be given")
    refused(lambda: host.pd.create_qp(QPType.XRC_SEND), "send_cq")
    error = refused(lambda: host.pd.create_qp(QPType.XRC_RECV), "qp_type")
    assert "xrcd.create_qp()" in str(error)
    refused(lambda: host.qp(77), "qp_type")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("attribute", "value", "error"),
    [
        ("pkey_index", None, TypeError),
        ("ah_attr", None, TypeError),
        ("timeout", "16", TypeError),
        ("timeout", 32, VerbsError),
    ],
)
def test_a_queue_pair_that_did_not_connect_is_as_it_was(
    host: Host, attribute: str, value: Any, error: type[Exception]
) -> None:
    """Whichever step, and whatever is wrong with its attribute."""
    qp, peer = host.qp(), host.qp()
    with pytest.raises(error, match=attribute):
        qp.connect(peer.info(), **{attribute: value})
    assert qp.state is QPState.RESET
    qp.connect(peer.info())
    assert qp.state is QPState.RTS


@pytest.mark.parametrize("access", [Access.REMOTE_WRITE, Access.REMOTE_ATOMIC])
def test_remote_writing_requires_local_write(host: Host, access: Access) -> None:
    refused(lambda: host.pd.reg_mr(bytearray(8), access), "access")


@pytest.mark.parametrize("access", [-1, 1 << 12, 1 << 40])
def test_unknown_access_flags(host: Host, access: int) -> None:
    refused(lambda: host.pd.reg_mr(bytearray(8), access), "access")


def test_optional_access_flags_never_fail(host: Host) -> None:
    with host.pd.reg_mr(bytearray(8), Access.RELAXED_ORDERING | (1 << 29)):
        pass


def test_reg_mr_by_address(host: Host) -> None:
    refused(lambda: host.pd.reg_mr(addr=MAX_64, length=2), "length")
    refused(lambda: host.pd.reg_mr(addr=-1, length=2), "addr")
    refused(lambda: host.pd.reg_mr(addr=0x1000), "length")
    with pytest.raises(TypeError, match="a buffer, or addr="):
        host.pd.reg_mr()
    with pytest.raises(TypeError, match="a buffer, or addr="):
        host.pd.reg_mr(bytearray(1), addr=1, length=1)
    with pytest.raises(TypeError, match="go with addr="):
        host.pd.reg_mr(bytearray(1), length=1)


def test_reg_mr_of_a_read_only_buffer(host: Host) -> None:
    error = refused(lambda: host.pd.reg_mr(b"constant", Access.LOCAL_WRITE), "obj", errno.EACCES)
    assert "register a writable buffer" in error.rule
    with host.pd.reg_mr(b"constant") as mr:
        assert mr.access == Access.REMOTE_READ


def test_reg_mr_of_what_is_not_contiguous(host: Host) -> None:
    error = refused(lambda: host.pd.reg_mr(memoryview(bytearray(8))[::2]), "obj")
    assert "not contiguous" in error.rule
    with pytest.raises(TypeError, match="buffer protocol or DLPack, which int has not"):
        host.pd.reg_mr(5)


@pytest.mark.parametrize(
    ("part", "argument"),
    [
        (slice(0, 9), "stop"),
        (slice(9, None), "start"),
        (slice(-9, None), "start"),
        (slice(4, 3), "stop"),
        (slice(0, 8, 2), "step"),
    ],
)
def test_slices_do_not_leave_the_region(host: Host, part: slice, argument: str) -> None:
    with host.pd.reg_mr(bytearray(8)) as mr:
        refused(lambda: mr[part], argument)
        refused(lambda: mr.remote()[part], argument)
        with pytest.raises(TypeError, match="take a slice"):
            mr[3]  # type: ignore[index]


def test_remote_of_a_local_region(host: Host) -> None:
    with host.pd.reg_mr(bytearray(8), Access.LOCAL_WRITE) as mr:
        assert mr.rkey == 0
        refused(mr.remote, "access")


@pytest.mark.parametrize(
    ("fields", "argument"),
    [
        ({"dgid": "::"}, "dgid"),
        ({"dgid": "0.0.0.0"}, "dgid"),
        ({"dgid": "10.0.0.1", "sgid_index": 1}, "sgid_index"),
        ({"dgid": "10.0.0.1", "sgid_index": 300}, "sgid_index"),
        ({"dgid": "10.0.0.1", "flow_label": 1 << 20}, "flow_label"),
        ({"dgid": "10.0.0.1", "port_num": 2}, "port_num"),
        ({"dgid": "10.0.0.1", "is_global": False}, "is_global"),
        ({"dgid": "10.0.0.1", "sl": 16}, "sl"),
        ({"dgid": "nowhere"}, "dgid"),
        ({"dgid": b"short"}, "dgid"),
    ],
)
def test_create_ah(host: Host, fields: dict[str, Any], argument: str) -> None:
    refused(lambda: host.pd.create_ah(hca.AHAttr(**fields)), argument)


@pytest.mark.parametrize("address", ["::", "0.0.0.0", "::ffff:0.0.0.0", "nowhere", b"short"])
def test_an_address_alone_is_named_as_the_argument_it_is(host: Host, address: str | bytes) -> None:
    qp = host.qp(QPType.UD)
    for call, argument in (
        (lambda: host.pd.create_ah(address), "destination"),
        (lambda: qp.attach_mcast(address), "group"),
        (lambda: qp.detach_mcast(address), "group"),
    ):
        with pytest.raises(VerbsError, match=r"\(EINVAL\)$") as one:
            call()
        assert (one.value.argument, one.value.value) == (argument, address)


def test_queries_beyond_the_tables(device: hca.Device) -> None:
    refused(lambda: device.query_port(2), "port")
    refused(lambda: device.query_gid(1, 16), "index")
    refused(lambda: device.query_gid(1, -1), "index")
    refused(lambda: device.query_pkey(1, 1), "index")
    refused(lambda: device.query_pkey(2, 0), "port")
    assert device.query_pkey() == 0xFFFF
    assert device.query_gid() == device.gid
    assert device.query_gid(1, 15) == hca.GID(bytes(16))


@pytest.mark.parametrize(
    ("sizes", "argument"),
    [
        ({"max_wr": 0}, "max_wr"),
        ({"max_wr": 1 << 20}, "max_wr"),
        ({"max_wr": 4, "max_sge": 99}, "max_sge"),
        ({"max_wr": 4, "srq_limit": 5}, "srq_limit"),
    ],
)
def test_create_srq(host: Host, sizes: dict[str, int], argument: str) -> None:
    refused(lambda: host.pd.create_srq(**sizes), argument)


def test_modify_srq(host: Host) -> None:
    srq = host.keep(host.pd.create_srq(max_wr=4))
    refused(lambda: srq.modify(srq_limit=srq.query().max_wr), "srq_limit")
    refused(lambda: srq.modify(max_wr=8), "max_wr")
    srq.modify(srq_limit=srq.query().max_wr - 1)
    assert srq.query().srq_limit == srq.query().max_wr - 1
    srq.modify(srq_limit=2)
    assert srq.query().srq_limit == 2


def test_resize_cq(host: Host) -> None:
    refused(lambda: host.cq.resize(0), "cqe")
    refused(lambda: host.cq.resize(1 << 21), "cqe")
    host.cq.resize(1000)
    assert host.cq.cqe >= 1000


@pytest.mark.parametrize("flags", [0, 3, 8, -1])
def test_req_notify(host: Host, flags: int) -> None:
    refused(lambda: host.cq.req_notify(flags), "flags")


def far_range(length: int = 8) -> RemoteMemory:
    return RemoteMemory(0x1000, 0x10, length)


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: hca.Send(wr_id=-1), "wr_id"),
        (lambda: hca.Send(wr_id=1 << 64), "wr_id"),
        (lambda: hca.SendImm(imm=1 << 32), "imm"),
        (lambda: hca.SendInv(rkey=-1), "rkey"),
        (lambda: hca.Send(remote_qpn=1 << 24), "remote_qpn"),
        (lambda: hca.Send(remote_qkey=1 << 32), "remote_qkey"),
        (lambda: hca.Send(srqn=1 << 24), "srqn"),
        (lambda: hca.Write(b"123456789", remote=far_range(), inline=True), "remote"),
        (lambda: hca.CmpSwap(remote=far_range(), compare=-1, swap=0), "compare"),
        (lambda: hca.CmpSwap(remote=far_range(), compare=0, swap=1 << 64), "swap"),
        (lambda: hca.FetchAdd(remote=far_range(), add=1 << 64), "add"),
        (lambda: hca.FetchAdd(remote=far_range(), add=-(1 << 63) - 1), "add"),
        (lambda: hca.Recv(wr_id=1 << 64), "wr_id"),
        (lambda: RemoteMemory(-1, 0, 0), "addr"),
        (lambda: RemoteMemory(0, 1 << 32, 0), "rkey"),
        (lambda: Faults(drop=1.5), "drop"),
        (lambda: Faults(on="never"), "on"),
        (lambda: hca.open("127.0.0.1", mtu=1000), "mtu"),
        (lambda: hca.open("127.0.0.1", icrc="maybe"), "icrc"),
        (lambda: hca.open("127.0.0.1", seed=-1), "seed"),
    ],
)
def test_values(make: Callable[[], object], argument: str) -> None:
    refused(make, argument)


def test_work_requests_want_registered_memory() -> None:
    with pytest.raises(TypeError, match=r"register it with pd.reg_mr\(\), or copy it with inline"):
        hca.Send(b"bytes")
    with pytest.raises(TypeError, match="remote must be RemoteMemory, not int"):
        hca.Write(remote=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unexpected keyword"):
        hca.Send(color="red")  # type: ignore[call-arg]


def test_work_requests_are_immutable(host: Host) -> None:
    wr = hca.Send(host.mr[:4], wr_id=1)
    with pytest.raises(AttributeError):
        wr.wr_id = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        wr.color = "red"  # type: ignore[attr-defined]


@pytest.mark.parametrize("state", [QPState.RESET, QPState.INIT, QPState.RTR])
def test_posting_in_a_state_that_does_not_send(host: Host, state: QPState) -> None:
    qp = host.qp()
    info = hca.QPInfo(hca.GID("10.0.0.2"), qpn=5, psn=0, mtu=hca.Mtu.MTU_1024)
    if state >= QPState.INIT:
        qp.modify(
            qp_state=QPState.INIT, pkey_index=0, port_num=1, qp_access_flags=Access.REMOTE_READ
        )
    if state >= QPState.RTR:
        qp.modify(
            qp_state=QPState.RTR,
            ah_attr=hca.AHAttr(dgid=info.gid),
            path_mtu=info.mtu,
            dest_qp_num=info.qpn,
            rq_psn=info.psn,
            max_dest_rd_atomic=1,
            min_rnr_timer=12,
        )
    error = refused(lambda: qp.post_send(hca.Send(host.mr[:4])), "qp_state")
    assert state.name in str(error)
    receive = hca.Recv(host.mr[:4])
    if state is QPState.RESET:
        refused(lambda: qp.post_recv(receive), "qp_state")
    else:
        qp.post_recv(receive)
    assert qp.state is state


@pytest.mark.parametrize(
    ("argument", "most"),
    [("timeout", 31), ("retry_cnt", 7), ("rnr_retry", 7), ("min_rnr_timer", 31)],
)
def test_codes_name_their_range_however_far_they_are_off(
    host: Host, argument: str, most: int
) -> None:
    for value in (most + 1, 255, 256, -1):
        qp = host.qp()
        error = refused(functools.partial(qp.connect, qp.info(), **{argument: value}), argument)
        assert error.rule == f"must be 0 to {most}"
        assert qp.state is QPState.RESET


@pytest.mark.parametrize("size", [256, 512, 1024, 2048, 4096])
def test_a_path_mtu_in_bytes_is_told_its_code(host: Host, size: int) -> None:
    qp = host.qp()
    error = refused(lambda: qp.connect(qp.info(), path_mtu=size), "path_mtu")
    assert f"Mtu.MTU_{size}, " in str(error)
    assert qp.state is QPState.RESET


def test_a_list_stops_at_the_first_bad_one_and_keeps_what_came_before(host: Host) -> None:
    near, far = host.qp(max_send_sge=1, max_send_wr=8), host.qp()
    near.connect(far.info())
    far.connect(near.info())
    good = [hca.Send(host.mr[:1], wr_id=i, signaled=True) for i in range(2)]
    bad = hca.Send(host.mr[:1], host.mr[1:2], wr_id=2)
    error = refused(lambda: near.post_send([*good, bad, good[0]]), "num_sge")
    assert error.bad_wr is bad
    near.modify(qp_state=QPState.ERR)
    assert [wc.wr_id for wc in host.cq.poll(8)] == [0, 1]


def test_full_queues(host: Host) -> None:
    near, far = host.qp(max_send_wr=4, max_recv_wr=4), host.qp()
    near.connect(far.info())
    far.connect(near.info())
    cap = near.init_attr.cap
    sends = [hca.Send(host.mr[:1]) for _ in range(cap.max_send_wr)]
    receives = [hca.Recv(host.mr[:1]) for _ in range(cap.max_recv_wr)]
    near.post_send(sends)
    near.post_recv(receives)
    extra = hca.Send(host.mr[:1])
    assert refused(lambda: near.post_send(extra), "max_send_wr", errno.ENOMEM).bad_wr is extra
    refused(lambda: near.post_recv(receives[0]), "max_recv_wr", errno.ENOMEM)


def test_full_srq(host: Host) -> None:
    srq = host.keep(host.pd.create_srq(max_wr=4))
    receive = hca.Recv(host.mr[:1])
    srq.post_recv([receive] * srq.query().max_wr)
    refused(lambda: srq.post_recv(receive), "max_wr", errno.ENOMEM)
    refused(lambda: srq.post_recv(hca.Recv(host.mr[:1], host.mr[1:2])), "num_sge")


def test_inline_is_bounded_by_what_was_asked_for(host: Host) -> None:
    near, far = host.qp(max_inline_data=16), host.qp()
    near.connect(far.info())
    far.connect(near.info())
    limit = near.init_attr.cap.max_inline_data
    refused(lambda: near.post_send(hca.Send(bytes(limit + 1), inline=True)), "inline")
    refused(
        lambda: near.post_send(hca.Read(host.mr[:8], remote=host.mr.remote(), inline=True)),
        "inline",
    )
    near.post_send(hca.Send(bytes(limit), inline=True))


def test_receives_of_a_queue_pair_with_an_srq(host: Host) -> None:
    srq = host.keep(host.pd.create_srq(max_wr=4))
    qp = host.qp(srq=srq)
    qp.modify(qp_state=QPState.INIT, pkey_index=0, port_num=1, qp_access_flags=0)
    refused(lambda: qp.post_recv(hca.Recv(host.mr[:1])), "qp")


def test_wrong_things_in_a_list(host: Host) -> None:
    near, far = host.qp(), host.qp()
    near.connect(far.info())
    with pytest.raises(TypeError):
        near.post_send([5])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        near.post_send(hca.Recv())  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        near.post_recv(hca.Send())  # type: ignore[arg-type]


def test_attach_mcast(host: Host) -> None:
    datagrams, reliable = host.qp(QPType.UD), host.qp()
    refused(lambda: datagrams.attach_mcast("10.0.0.1"), "group")
    refused(lambda: reliable.attach_mcast("239.0.0.1"), "qp_type")
    refused(lambda: datagrams.detach_mcast("239.0.0.1"), "group")


def test_array_of_numbers_is_a_buffer_of_bytes(host: Host) -> None:
    numbers = array("I", range(4))
    with host.pd.reg_mr(numbers) as mr:
        assert mr.length == 16
        assert len(mr.remote()) == 16


def test_a_rule_that_ends_with_a_limit_says_how_much_that_is(host: Host) -> None:
    most = host.device.query_device().max_cqe
    error = refused(lambda: host.device.create_cq(most + 1), "cqe")
    assert error.rule == f"must be 1 to max_cqe, which is {most}"
    near, far = host.qp(max_inline_data=8), host.qp()
    near.connect(far.info())
    error = refused(lambda: near.post_send(hca.Send(bytes(9), inline=True)), "inline")
    assert error.rule == "is above the queue pair's max_inline_data, which is 8"


@pytest.mark.parametrize("buffer", [5, "text", None, [b"x", 5]])
def test_what_cannot_be_copied_inline_is_named(buffer: object) -> None:
    with pytest.raises(TypeError, match=r"a buffer with inline=True must be .* bytes-like, not "):
        hca.Send(buffer, inline=True)  # type: ignore[arg-type]


def test_poll_wants_a_number(host: Host) -> None:
    refused(lambda: host.cq.poll(-1), "max_entries")
    assert host.cq.poll(0) == host.cq.poll(1 << 40) == []
    with pytest.raises(TypeError):
        host.cq.poll("all")  # type: ignore[arg-type]


def test_made_up_entries(host: Host) -> None:
    for field in ("addr", "length", "lkey"):
        made_up = {"addr": 0, "length": 0, "lkey": 0} | {field: -1}
        refused(functools.partial(hca.Send, hca.Sge(**made_up)), field)


@pytest.mark.parametrize("wrs", [None, 5, "abc", [None], object()])
def test_what_is_no_work_request_is_refused_by_name(host: Host, wrs: Any) -> None:
    qp, ud = host.qp(), host.qp(QPType.UD)
    srq = host.keep(host.pd.create_srq(max_wr=4))
    for post in (qp.post_send, qp.post_recv, ud.post_send, srq.post_recv):
        with pytest.raises(TypeError, match="wrs must be a work request of this queue"):
            post(wrs)


def test_how_many_to_poll_is_checked_by_name(host: Host) -> None:
    for number in (-1, 1 << 64, 1 << 70):
        with pytest.raises(VerbsError, match=f"max_entries={number}: must be 0 to"):
            host.cq.poll(number)
    with pytest.raises(TypeError, match="max_entries must be an integer, not NoneType"):
        host.cq.poll(None)  # type: ignore[arg-type]
    assert host.cq.poll(0) == []


@pytest.mark.parametrize("number", [0, -1, (1 << 20) + 1, 1 << 40])
def test_a_queue_with_callbacks_is_refused_by_its_own_argument(host: Host, number: int) -> None:
    refused(lambda: host.device.alloc_cq(number), "nr_cqe")
    assert "must be 1 to" in refused(lambda: host.device.cq_pool_get(number), "nr_cqe").rule


def test_only_datagrams_need_no_peer(host: Host) -> None:
    qp = host.qp()
    assert "connect()" in refused(lambda: qp.activate(), "qp").rule
    assert qp.state is QPState.RESET


@pytest.mark.parametrize("number", [5, True, 1 << 40, None, 1.5, bytearray(5)])
def test_a_number_is_no_address(host: Host, number: Any) -> None:
    """Which ipaddress would make one of: a handle or a port would go to 0.0.0.5."""
    refused(lambda: hca.GID(number), "gid")
    refused(lambda: host.pd.create_ah(number), "destination")
    refused(lambda: host.pd.create_ah(hca.AHAttr(dgid=number)), "dgid")


def test_a_path_to_nowhere_names_no_number_that_nobody_gave(host: Host) -> None:
    qp, peer = host.qp(), host.qp()
    for dgid, rule in (
        ("::", "must not be zero"),
        ("0.0.0.0", "must not be 0.0.0.0"),
        ("fd00::1", "must be of the same IP version"),
    ):
        path = hca.AHAttr(dgid=dgid)
        error = refused(lambda path=path: qp.connect(peer.info(), ah_attr=path), "dgid")
        assert str(error).startswith(f"dgid: {rule}")


def test_an_address_handle_of_another_device(host: Host) -> None:
    near = host.qp(QPType.UD, max_send_wr=4)
    near.activate()
    own = host.keep(host.pd.create_ah("10.0.0.1"))
    with open_simulated("10.0.0.8") as other, other.alloc_pd() as pd:
        foreign = pd.create_ah("10.0.0.1")
        good = hca.Send(ah=own, remote_qpn=near.qpn, wr_id=1, signaled=True)
        bad = hca.Send(ah=foreign, remote_qpn=near.qpn, wr_id=2, signaled=True)
        assert refused(lambda: near.post_send([good, bad, good]), "ah").bad_wr is bad
        refused(lambda: near.post_send(bad), "ah")
        foreign.close()
    host.device.adapter.next_packet(0)
    assert [wc.wr_id for wc in host.cq.poll()] == [1]


@pytest.mark.parametrize("qp_type", [QPType.RC, QPType.UD])
@pytest.mark.parametrize("several", [list, tuple, deque, iter])
def test_a_sequence_is_posted_whatever_it_is(host: Host, qp_type: QPType, several: Any) -> None:
    """A queue pair of UD looks at it before, and must leave something to post."""
    qp = host.qp(qp_type, max_send_wr=4)
    if qp_type is QPType.UD:
        qp.activate()
        ah = host.keep(host.pd.create_ah("10.0.0.1"))
        options = {"ah": ah, "remote_qpn": qp.qpn}
    else:
        qp.connect(qp.info())
        options = {}
    wrs = [hca.Send(**options) for _ in range(4)]  # type: ignore[arg-type]
    qp.post_send(several(wrs))
    refused(lambda: qp.post_send(wrs[0]), "max_send_wr", errno.ENOMEM)


@pytest.mark.parametrize("several", [list, deque, iter])
def test_a_foreign_address_handle_in_any_sequence(host: Host, several: Any) -> None:
    qp = host.qp(QPType.UD)
    qp.activate()
    with open_simulated("10.0.0.8") as other, other.alloc_pd() as pd:
        bad = hca.Send(ah=pd.create_ah("10.0.0.1"), remote_qpn=qp.qpn)
        assert refused(lambda: qp.post_send(several([bad])), "ah").bad_wr is bad


@pytest.mark.parametrize("wrong", ["1", b"", 1.5, [], object()])
def test_what_is_no_integer_is_refused_by_name(host: Host, wrong: Any) -> None:
    far = host.mr.remote()
    for call, argument in (
        (lambda: host.mr[wrong:], "start"),
        (lambda: host.mr[:wrong], "stop"),
        (lambda: far[wrong:], "start"),
        (lambda: hca.FetchAdd(host.mr[:8], remote=far, add=wrong), "add"),
    ):
        with pytest.raises(TypeError, match=f"{argument} must be an integer"):
            call()


@pytest.mark.parametrize("name", ["EINVAL", "EAGAIN", "EDEADLK", "EOPNOTSUPP", "ECANCELED"])
def test_a_message_has_the_name_that_documents_have(name: str) -> None:
    """Of several names for a number Python knows one, and EDEADLOCK is in no manual page."""
    error = VerbsError(getattr(errno, name), "cq", None, "is so")
    assert str(error) == f"cq: is so ({name})"
