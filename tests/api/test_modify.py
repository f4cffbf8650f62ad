"""IBTA's table of transitions: what is missing or not allowed is refused, and nothing changes."""

from __future__ import annotations

import errno
from typing import Any

import pytest

import softhca as hca
from softhca import Access, QPAttr, QPAttrMask, QPState, QPType, VerbsError

from .hosts import Host

VALUES: dict[str, Any] = {
    "pkey_index": 0,
    "port_num": 1,
    "qp_access_flags": Access.REMOTE_READ,
    "qkey": 0x1234,
    "ah_attr": hca.AHAttr(dgid="10.0.0.2"),
    "path_mtu": hca.Mtu.MTU_1024,
    "dest_qp_num": 17,
    "rq_psn": 0xABCDEF,
    "max_dest_rd_atomic": 4,
    "min_rnr_timer": 12,
    "timeout": 14,
    "retry_cnt": 7,
    "rnr_retry": 7,
    "sq_psn": 0xFEDCBA,
    "max_rd_atomic": 4,
}
CONNECTED = ("pkey_index", "port_num", "qp_access_flags")
ADDRESS = ("ah_attr", "path_mtu", "dest_qp_num", "rq_psn")
STEPS: dict[QPType, tuple[tuple[str, ...], ...]] = {
    QPType.RC: (
        CONNECTED,
        (*ADDRESS, "max_dest_rd_atomic", "min_rnr_timer"),
        ("timeout", "retry_cnt", "rnr_retry", "sq_psn", "max_rd_atomic"),
    ),
    QPType.UC: (CONNECTED, ADDRESS, ("sq_psn",)),
    QPType.UD: (("pkey_index", "port_num", "qkey"), (), ("sq_psn",)),
    QPType.XRC_SEND: (
        CONNECTED,
        ADDRESS,
        ("timeout", "retry_cnt", "rnr_retry", "sq_psn", "max_rd_atomic"),
    ),
    QPType.XRC_RECV: (
        CONNECTED,
        (*ADDRESS, "max_dest_rd_atomic", "min_rnr_timer"),
        ("timeout", "sq_psn"),
    ),
}
STATES = (QPState.INIT, QPState.RTR, QPState.RTS)


def make(host: Host, qp_type: QPType) -> hca.QP:
    if qp_type is QPType.XRC_RECV:
        return host.keep(host.keep(host.device.alloc_xrcd()).create_qp())
    return host.qp(qp_type)


def chosen(names: tuple[str, ...]) -> dict[str, Any]:
    return {name: VALUES[name] for name in names}


@pytest.mark.parametrize("qp_type", STEPS)
def test_every_required_attribute_is_required(host: Host, qp_type: QPType) -> None:
    qp = make(host, qp_type)
    for state, names in zip(STATES, STEPS[qp_type], strict=True):
        before = qp.query()
        for missing in names:
            rest = chosen(tuple(name for name in names if name != missing))
            with pytest.raises(VerbsError) as raised:
                qp.modify(qp_state=state, **rest)
            assert (raised.value.errno, raised.value.argument) == (errno.EINVAL, "attr_mask")
            assert raised.value.rule.endswith(f" requires: {missing}")
        assert qp.query() == before
        qp.modify(qp_state=state, **chosen(names))
        assert qp.state is state


@pytest.mark.parametrize("qp_type", STEPS)
def test_what_a_step_does_not_allow_is_refused(host: Host, qp_type: QPType) -> None:
    qp = make(host, qp_type)
    for state, names in zip(STATES, STEPS[qp_type], strict=True):
        before = qp.query()
        for extra in ("rnr_retry", "qkey", "dest_qp_num", "pkey_index"):
            optional = {"pkey_index": (QPState.RTR,), "qkey": (QPState.RTR, QPState.RTS)}
            if extra in names or (
                state in optional.get(extra, ())
                and (extra == "pkey_index") != (extra == "qkey")
                and (extra != "qkey" or qp_type is QPType.UD)
            ):
                continue
            with pytest.raises(VerbsError):
                qp.modify(qp_state=state, **chosen((*names, extra)))
        assert qp.query() == before
        qp.modify(qp_state=state, **chosen(names))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("path_mtu", 0),
        ("path_mtu", 6),
        ("max_dest_rd_atomic", 17),
        ("min_rnr_timer", 32),
        ("dest_qp_num", 1 << 24),
    ],
)
def test_ranges_to_rtr(host: Host, name: str, value: int) -> None:
    qp = host.qp()
    init, connect, _ = STEPS[QPType.RC]
    qp.modify(qp_state=QPState.INIT, **chosen(init))
    before = qp.query()
    with pytest.raises(VerbsError) as raised:
        qp.modify(qp_state=QPState.RTR, **(chosen(connect) | {name: value}))
    assert raised.value.argument == name
    assert raised.value.value == value
    assert qp.query() == before


@pytest.mark.parametrize(
    ("name", "value"),
    [("timeout", 32), ("retry_cnt", 8), ("rnr_retry", 8), ("max_rd_atomic", 17), ("timeout", 256)],
)
def test_ranges_to_rts(host: Host, name: str, value: int) -> None:
    qp = host.qp()
    init, connect, start = STEPS[QPType.RC]
    qp.modify(qp_state=QPState.INIT, **chosen(init))
    qp.modify(qp_state=QPState.RTR, **chosen(connect))
    before = qp.query()
    with pytest.raises(VerbsError) as raised:
        qp.modify(qp_state=QPState.RTS, **(chosen(start) | {name: value}))
    assert (raised.value.argument, raised.value.value) == (name, value)
    assert qp.query() == before


def test_psns_are_masked(host: Host) -> None:
    qp = host.qp()
    init, connect, start = STEPS[QPType.RC]
    qp.modify(qp_state=QPState.INIT, **chosen(init))
    qp.modify(qp_state=QPState.RTR, **(chosen(connect) | {"rq_psn": 0x1000005}))
    qp.modify(qp_state=QPState.RTS, **(chosen(start) | {"sq_psn": 0xFF000006}))
    assert (qp.query().rq_psn, qp.query().sq_psn) == (5, 6)


def test_current_state_must_be_true(host: Host) -> None:
    near, far = host.qp(), host.qp()
    near.connect(far.info())
    with pytest.raises(VerbsError, match=r"cur_qp_state=QPState.SQD"):
        near.modify(qp_state=QPState.RTS, cur_qp_state=QPState.SQD)
    near.modify(qp_state=QPState.RTS, cur_qp_state=QPState.RTS)


def test_only_reset_leads_out_of_error(host: Host) -> None:
    near, far = host.qp(), host.qp()
    near.connect(far.info())
    near.modify(qp_state=QPState.ERR)
    for state in (QPState.INIT, QPState.RTS, QPState.SQD):
        with pytest.raises(VerbsError):
            near.modify(qp_state=state)
    assert near.state is QPState.ERR
    near.modify(qp_state=QPState.RESET)
    with pytest.raises(VerbsError):
        near.modify(qp_state=QPState.ERR)
    assert near.state is QPState.RESET


def test_queried_attributes_bring_it_back(host: Host) -> None:
    near, far = host.qp(), host.qp()
    near.connect(far.info())
    attr = near.query()
    near.modify(qp_state=QPState.RESET)
    for state, mask in zip(
        STATES,
        (
            QPAttrMask.PKEY_INDEX | QPAttrMask.PORT | QPAttrMask.ACCESS_FLAGS,
            QPAttrMask.AV
            | QPAttrMask.PATH_MTU
            | QPAttrMask.DEST_QPN
            | QPAttrMask.RQ_PSN
            | QPAttrMask.MAX_DEST_RD_ATOMIC
            | QPAttrMask.MIN_RNR_TIMER,
            QPAttrMask.TIMEOUT
            | QPAttrMask.RETRY_CNT
            | QPAttrMask.RNR_RETRY
            | QPAttrMask.SQ_PSN
            | QPAttrMask.MAX_QP_RD_ATOMIC,
        ),
        strict=True,
    ):
        attr.qp_state = state
        near.modify(attr, mask | QPAttrMask.STATE)
    assert near.query() == attr


def test_modify_takes_attributes_by_name_or_by_mask(host: Host) -> None:
    qp = host.qp()
    with pytest.raises(TypeError, match="'colour' is no attribute"):
        qp.modify(colour=3)
    with pytest.raises(TypeError, match="attr and attr_mask, or keywords"):
        qp.modify(QPAttr())
    with pytest.raises(VerbsError, match="attr_mask"):
        qp.modify(QPAttr(), 1 << 31)
    with pytest.raises(TypeError, match="ah_attr must be AHAttr"):
        qp.modify(QPAttr(), QPAttrMask.STATE | QPAttrMask.AV)


def test_connect_wants_a_fitting_peer_and_a_fresh_queue_pair(host: Host) -> None:
    reliable, unreliable = host.qp(), host.qp(QPType.UC)
    with pytest.raises(VerbsError, match="info="):
        reliable.connect(unreliable.info())
    with pytest.raises(TypeError, match="info must be QPInfo, not NoneType"):
        reliable.connect()
    with pytest.raises(TypeError, match="'qkey' is no attribute of connecting"):
        reliable.connect(host.qp().info(), qkey=5)
    with pytest.raises(VerbsError, match="timeout=40"):
        reliable.connect(host.qp().info(), timeout=40)
    assert reliable.state is QPState.RESET
    reliable.connect(host.qp().info(), timeout=10, path_mtu=hca.Mtu.MTU_256)
    assert (reliable.query().timeout, reliable.query().path_mtu) == (10, hca.Mtu.MTU_256)
    with pytest.raises(VerbsError, match="connect\\(\\) starts from RESET"):
        reliable.connect(host.qp().info())


def test_connect_takes_the_smaller_mtu(host: Host) -> None:
    near = host.qp()
    info = hca.QPInfo(host.device.gid, 5, 0, hca.Mtu.MTU_512, rd_atomic=3)
    near.connect(info)
    attr = near.query()
    assert (attr.path_mtu, attr.max_rd_atomic) == (hca.Mtu.MTU_512, 3)


def test_a_refusal_names_the_attributes_and_the_state(host: Host) -> None:
    qp = host.qp(QPType.RC)
    for attributes, message in (
        (
            {"qp_state": QPState.INIT, "port_num": 1},
            "attr_mask=QPAttrMask.STATE|PORT: lacks attributes that this transition "
            "requires: pkey_index, qp_access_flags (EINVAL)",
        ),
        (
            {"qp_state": QPState.INIT, **chosen(CONNECTED), "timeout": 14, "retry_cnt": 7},
            "has attributes that this transition does not allow: retry_cnt, timeout (EINVAL)",
        ),
        (
            {"qp_state": QPState.RESET, "sq_psn": 5},
            "RESET and ERR take no attributes: sq_psn (EINVAL)",
        ),
        ({"qp_state": QPState.RTS}, "there is no transition to this state from RESET (EINVAL)"),
    ):
        with pytest.raises(VerbsError) as raised:
            qp.modify(**attributes)
        assert str(raised.value).endswith(message)
    qp.modify(qp_state=QPState.INIT, **chosen(CONNECTED))
    with pytest.raises(VerbsError, match=r"no transition to this state from INIT \(EINVAL\)"):
        qp.modify(qp_state=QPState.SQD)
    with pytest.raises(VerbsError, match="has bits that are no QP attribute") as raised:
        qp.modify(QPAttr(), 1 << 23 | QPAttrMask.TIMEOUT)
    assert raised.value.value == 1 << 23 | QPAttrMask.TIMEOUT
