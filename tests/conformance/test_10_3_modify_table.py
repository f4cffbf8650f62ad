"""IBTA Vol 1, 10.3 and 11.2.5.2: every transition, with every attribute missing or too many.

The table below is written down from the specification's, not from the code. A refusal is EINVAL
and changes nothing at all.
"""

from __future__ import annotations

import errno
from typing import Any

import pytest

from softhca._adapter import MigState, QpAttr, QPAttrMask, QPState, QPType

from .host import MASK_OF, THEIRS, Host, Qp, av_to, errno_of, send
from .peer import connect, to_state

S, T = QPState, QPType
STATES = [S.RESET, S.INIT, S.RTR, S.RTS, S.SQD, S.SQE, S.ERR]
TYPES = [T.RC, T.UC, T.UD, T.XRC_SEND, T.XRC_RECV]

INIT = "pkey_index port_num qp_access_flags"
INIT_UD = "pkey_index port_num qkey"
PATH = "ah_attr path_mtu dest_qp_num rq_psn"
RESPONDER = "max_dest_rd_atomic min_rnr_timer"
REQUESTER = "timeout retry_cnt rnr_retry sq_psn max_rd_atomic"
ALT = "alt_ah_attr"
RUNNING = f"cur_qp_state {ALT} qp_access_flags path_mig_state"
SQD_PATH = f"ah_attr {ALT} qp_access_flags pkey_index path_mig_state"
CUR_QKEY = "cur_qp_state qkey"
NOTIFY = "en_sqd_async_notify"

# (type, from, to): (required, optional). To RESET and to ERR from anywhere, without attributes.
TABLE: dict[tuple[QPType, QPState, QPState], tuple[str, str]] = {}


def allow(types: list[QPType], start: QPState, end: QPState, required: str, optional: str) -> None:
    for qp_type in types:
        TABLE[qp_type, start, end] = (required, optional)


CONNECTED = [T.RC, T.UC, T.XRC_SEND, T.XRC_RECV]
allow(CONNECTED, S.RESET, S.INIT, INIT, "")
allow([T.UD], S.RESET, S.INIT, INIT_UD, "")
allow(CONNECTED, S.INIT, S.INIT, "", INIT)
allow([T.UD], S.INIT, S.INIT, "", INIT_UD)
TO_RTR = f"{ALT} qp_access_flags pkey_index"
allow([T.RC, T.XRC_RECV], S.INIT, S.RTR, f"{PATH} {RESPONDER}", TO_RTR)
allow([T.UC, T.XRC_SEND], S.INIT, S.RTR, PATH, TO_RTR)
allow([T.UD], S.INIT, S.RTR, "", "pkey_index qkey")
allow([T.RC], S.RTR, S.RTS, REQUESTER, f"{RUNNING} min_rnr_timer")
allow([T.XRC_SEND], S.RTR, S.RTS, REQUESTER, RUNNING)
allow([T.XRC_RECV], S.RTR, S.RTS, "timeout sq_psn", f"{RUNNING} min_rnr_timer")
allow([T.UC], S.RTR, S.RTS, "sq_psn", RUNNING)
allow([T.UD], S.RTR, S.RTS, "sq_psn", CUR_QKEY)
for begin in (S.RTS, S.SQD):
    allow([T.RC, T.XRC_RECV], begin, S.RTS, "", f"{RUNNING} min_rnr_timer")
    allow([T.UC, T.XRC_SEND], begin, S.RTS, "", RUNNING)
    allow([T.UD], begin, S.RTS, "", CUR_QKEY)
allow(TYPES, S.RTS, S.SQD, "", NOTIFY)
allow(
    [T.RC],
    S.SQD,
    S.SQD,
    "",
    f"{SQD_PATH} port_num timeout retry_cnt rnr_retry max_rd_atomic {RESPONDER}",
)
allow([T.UC], S.SQD, S.SQD, "", SQD_PATH)
allow([T.UD], S.SQD, S.SQD, "", "pkey_index qkey")
allow(
    [T.XRC_SEND], S.SQD, S.SQD, "", f"{SQD_PATH} port_num timeout retry_cnt rnr_retry max_rd_atomic"
)
allow([T.XRC_RECV], S.SQD, S.SQD, "", f"{SQD_PATH} port_num timeout {RESPONDER}")
allow([T.UC], S.SQE, S.RTS, "", "cur_qp_state qp_access_flags")
allow([T.UD], S.SQE, S.RTS, "", CUR_QKEY)
for anywhere in STATES:
    allow(TYPES, anywhere, S.RESET, "", "")
    if anywhere != S.RESET:
        allow(TYPES, anywhere, S.ERR, "", "")

# Good values, all different from what to_state() gives, so that a change would be seen.
VALUES: dict[str, Any] = {
    "en_sqd_async_notify": True,
    "qp_access_flags": 1,
    "pkey_index": 0,
    "port_num": 1,
    "qkey": 0x4321,
    "ah_attr": av_to("10.9.0.9"),
    "path_mtu": 2,
    "timeout": 9,
    "retry_cnt": 2,
    "rnr_retry": 1,
    "rq_psn": 0x123,
    "max_rd_atomic": 3,
    "alt_ah_attr": av_to("10.9.0.8"),
    "min_rnr_timer": 9,
    "sq_psn": 0x321,
    "max_dest_rd_atomic": 3,
    "path_mig_state": MigState.MIGRATED,
    "dest_qp_num": 0x99,
}
ATTRIBUTES = [*VALUES, "cur_qp_state"]


def reachable(qp_type: QPType) -> list[QPState]:
    """SQE is for the requesters that do not retry."""
    return [state for state in STATES if state != S.SQE or qp_type in (T.UC, T.UD)]


def in_state(host: Host, qp_type: QPType, state: QPState) -> Qp:
    if qp_type in (T.XRC_SEND, T.XRC_RECV):
        qp = Qp(host, qp_type, xrcd=host.hca.alloc_xrcd() if qp_type == T.XRC_RECV else 0)
    else:
        qp = Qp(host, qp_type)
    if state == S.ERR:
        to_state(qp, S.INIT)
        qp.modify(qp_state=S.ERR)
    elif state == S.SQE:
        to_state(qp, S.RTS)
        fail_locally(qp)
    elif state != S.RESET:
        to_state(qp, state)
    assert qp.state == state
    return qp


def fail_locally(qp: Qp) -> None:
    """A request whose entry has no such key."""
    more = {}
    if qp.qp_type == T.UD:
        more = {"ah": qp.host.address_handle(), "remote_qpn": 1, "remote_qkey": 1}
    qp.post(send((0x1000, 8, 0xBAD00), **more))
    qp.host.pump()


def snapshot(qp: Qp) -> dict[str, Any]:
    """Every attribute as a plain value."""
    attr = qp.query()

    def plain(value: Any) -> Any:
        names = [name for name in dir(value) if not name.startswith("_")]
        if type(value).__name__ in ("AhAttr", "QpCap"):
            return {name: getattr(value, name) for name in names}
        return value

    return {name: plain(getattr(attr, name)) for name in dir(attr) if not name.startswith("_")}


def attempt(qp: Qp, end: QPState, names: list[str]) -> int:
    """Modifies with good values; returns the errno of a refusal, or 0."""
    chosen = {name: VALUES[name] for name in names if name != "cur_qp_state"}
    if "cur_qp_state" in names:
        chosen["cur_qp_state"] = qp.state
    return errno_of(qp.modify, qp_state=end, **chosen)


@pytest.mark.parametrize("qp_type", TYPES, ids=str)
def test_10_3_transitions_are_those_of_the_table_and_no_others(qp_type):
    host = Host()
    for start in reachable(qp_type):
        for end in STATES:
            qp = in_state(host, qp_type, start)
            before = snapshot(qp)
            entry = TABLE.get((qp_type, start, end))
            required = entry[0].split() if entry else []
            result = attempt(qp, end, required)
            if entry:
                assert (result, qp.state) == (0, end), f"{start} to {end}"
            else:
                assert (result, snapshot(qp)) == (errno.EINVAL, before), f"{start} to {end}"
            qp.destroy()


@pytest.mark.parametrize("qp_type", TYPES, ids=str)
def test_10_3_a_missing_attribute_refuses_the_transition_and_changes_nothing(qp_type):
    host = Host()
    for (of_type, start, end), (required, _) in TABLE.items():
        if of_type != qp_type or start not in reachable(qp_type):
            continue
        for missing in required.split():
            qp = in_state(host, qp_type, start)
            before = snapshot(qp)
            names = [name for name in required.split() if name != missing]
            result = attempt(qp, end, names)
            assert result == errno.EINVAL, f"{start} to {end} without {missing}"
            assert snapshot(qp) == before
            qp.destroy()


@pytest.mark.parametrize("qp_type", TYPES, ids=str)
def test_10_3_an_attribute_too_many_refuses_the_transition_and_changes_nothing(qp_type):
    host = Host()
    for (of_type, start, end), (required, optional) in TABLE.items():
        if of_type != qp_type or start not in reachable(qp_type):
            continue
        for extra in ATTRIBUTES:
            if extra in required.split() + optional.split():
                continue
            qp = in_state(host, qp_type, start)
            before = snapshot(qp)
            result = attempt(qp, end, [*required.split(), extra])
            assert result == errno.EINVAL, f"{start} to {end} with {extra}"
            assert snapshot(qp) == before, f"{start} to {end} with {extra}"
            qp.destroy()


@pytest.mark.parametrize("qp_type", TYPES, ids=str)
def test_10_3_optional_attributes_are_taken(qp_type):
    host = Host()
    for (of_type, start, end), (required, optional) in TABLE.items():
        if of_type != qp_type or start not in reachable(qp_type):
            continue
        for extra in optional.split():
            qp = in_state(host, qp_type, start)
            result = attempt(qp, end, [*required.split(), extra])
            assert (result, qp.state) == (0, end), f"{start} to {end} with {extra}"
            if extra in ("qkey", "timeout", "min_rnr_timer", "retry_cnt", "qp_access_flags"):
                assert getattr(qp.query(), extra) == VALUES[extra]
            qp.destroy()


def test_10_3_reset_to_err_is_refused_and_err_leads_to_reset_alone(host):
    qp = Qp(host)
    assert errno_of(qp.modify, qp_state=S.ERR) == errno.EINVAL
    assert qp.state == S.RESET
    to_state(qp, S.INIT)
    qp.modify(qp_state=S.ERR)
    qp.modify(qp_state=S.RESET)
    assert qp.state == S.RESET


@pytest.mark.parametrize("state", [S.INIT, S.RTR, S.RTS, S.SQD, S.ERR], ids=str)
@pytest.mark.parametrize("claimed", STATES, ids=str)
def test_11_2_5_cur_qp_state_must_be_the_state_it_is_in(host, state, claimed):
    qp, _ = connect(host, state=state)
    good = claimed == state and state in (S.RTS, S.SQD)
    before = snapshot(qp)
    refusal = errno_of(qp.modify, qp_state=S.RTS, cur_qp_state=claimed)
    assert refusal == (0 if good else errno.EINVAL)
    if refusal:
        assert snapshot(qp) == before


LIMITS = {
    "path_mtu": ([0, 6, 255], S.INIT, S.RTR),
    "timeout": ([32, 255], S.RTR, S.RTS),
    "retry_cnt": ([8, 255], S.RTR, S.RTS),
    "rnr_retry": ([8, 255], S.RTR, S.RTS),
    "min_rnr_timer": ([32, 255], S.INIT, S.RTR),
    "max_rd_atomic": ([17, 255], S.RTR, S.RTS),
    "max_dest_rd_atomic": ([17, 255], S.INIT, S.RTR),
    "pkey_index": ([1, 65535], S.RESET, S.INIT),
    "port_num": ([0, 2], S.RESET, S.INIT),
    "qp_access_flags": ([1 << 9, 1 << 30], S.RESET, S.INIT),
}


@pytest.mark.parametrize("name", LIMITS)
def test_11_2_5_a_value_out_of_range_refuses_the_transition_and_changes_nothing(host, name):
    values, start, end = LIMITS[name]
    for value in values:
        qp, _ = connect(host, state=start)
        before = snapshot(qp)
        chosen = {key: VALUES[key] for key in TABLE[T.RC, start, end][0].split()}
        assert errno_of(qp.modify, qp_state=end, **{**chosen, name: value}) == errno.EINVAL
        assert snapshot(qp) == before
        qp.modify(qp_state=end, **chosen)


def test_11_2_5_a_path_mtu_above_the_ports_is_refused():
    host = Host(active_mtu=3)
    qp, _ = connect(host, state=S.INIT)
    chosen = {key: VALUES[key] for key in TABLE[T.RC, S.INIT, S.RTR][0].split()}
    assert errno_of(qp.modify, qp_state=S.RTR, **{**chosen, "path_mtu": 4}) == errno.EINVAL
    qp.modify(qp_state=S.RTR, **{**chosen, "path_mtu": 3})


@pytest.mark.parametrize("fault", ["not global", "no such sgid_index", "no dgid", "no such port"])
def test_a17_an_address_vector_must_be_global_with_a_valid_gid(host, fault):
    qp, _ = connect(host, state=S.INIT)
    av = av_to(THEIRS)
    match fault:
        case "not global":
            av.is_global = False
        case "no such sgid_index":
            av.sgid_index = 1
        case "no dgid":
            av.dgid = bytes(16)
        case _:
            av.port = 2
    chosen = {key: VALUES[key] for key in TABLE[T.RC, S.INIT, S.RTR][0].split()}
    assert errno_of(qp.modify, qp_state=S.RTR, **{**chosen, "ah_attr": av}) == errno.EINVAL
    assert qp.state == S.INIT


def test_11_2_5_psns_have_24_bits_and_more_are_masked(host):
    qp, peer = connect(host, rq_psn=0x5FFFFFE, sq_psn=0x7000001)
    assert (qp.query().rq_psn, qp.query().sq_psn) == (0xFFFFFE, 1)
    assert peer.request("SEND_ONLY", psn=0xFFFFFE) == ""


def test_11_2_5_a_mask_with_unknown_bits_is_refused(host):
    qp = Qp(host)
    attr = QpAttr()
    attr.qp_state = S.INIT
    good = MASK_OF["qp_state"] | QPAttrMask.PKEY_INDEX | QPAttrMask.PORT | QPAttrMask.ACCESS_FLAGS
    for bit in (1 << 21, 1 << 31):
        assert errno_of(host.hca.modify_qp, qp.qpn, attr, int(good) | bit) == errno.EINVAL
    host.hca.modify_qp(qp.qpn, attr, int(good))
