"""True and False are refused where a number is asked for: who gives one has mixed up arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import softhca as hca
from softhca import RemoteMemory, VerbsError
from softhca.testing import Fabric, Faults

from .hosts import Host, Pair

Ask = Callable[[Host, Any], object]


def far(address: Any = 0, rkey: Any = 0, length: Any = 8) -> RemoteMemory:
    return RemoteMemory(address, rkey, length)


NUMBERS: dict[str, tuple[Ask, str]] = {
    "a port": (lambda host, given: host.device.query_port(given), "port"),
    "an index": (lambda host, given: host.device.query_gid(1, given), "index"),
    "completions": (lambda host, given: host.device.create_cq(given), "cqe"),
    "callbacks": (lambda host, given: host.device.alloc_cq(given), "nr_cqe"),
    "a share": (lambda host, given: host.device.cq_pool_get(given), "nr_cqe"),
    "a vector": (lambda host, given: host.device.create_cq(4, comp_vector=given), "comp_vector"),
    "a hint": (lambda host, given: host.device.cq_pool_get(4, given), "comp_vector_hint"),
    "a poll": (lambda host, given: host.cq.poll(given), "max_entries"),
    "work requests": (lambda host, given: host.qp(max_send_wr=given), "max_send_wr"),
    "an address": (lambda host, given: host.pd.reg_mr(addr=given, length=1), "addr"),
    "a length": (lambda host, given: host.pd.reg_mr(addr=1, length=given), "length"),
    "a size": (lambda host, given: host.pd.alloc_mr_buffer(given), "size"),
    "a start": (lambda host, given: host.mr[given:], "start"),
    "a stop": (lambda host, given: host.mr.remote()[:given], "stop"),
    "a far address": (lambda host, given: far(given), "addr"),
    "a key": (lambda host, given: far(rkey=given), "rkey"),
    "a name": (lambda host, given: hca.Send(host.mr[:4], wr_id=given), "wr_id"),
    "a receive's name": (lambda host, given: hca.Recv(host.mr[:4], wr_id=given), "wr_id"),
    "an immediate": (lambda host, given: hca.SendImm(host.mr[:4], imm=given), "imm"),
    "a queue pair": (lambda _, given: hca.Send(remote_qpn=given), "remote_qpn"),
    "a Q_Key": (lambda _, given: hca.Send(remote_qkey=given), "remote_qkey"),
    "a shared queue": (lambda _, given: hca.Send(srqn=given), "srqn"),
    "an addend": (lambda host, given: hca.FetchAdd(host.mr[:8], remote=far(), add=given), "add"),
    "names": (lambda host, given: host.qp().post_send_many(hca.Send(), given), "wr_ids"),
    "one name of many": (
        lambda host, given: host.qp().post_send_many([hca.Send()], [given]),
        "wr_ids",
    ),
    "a time-out": (lambda host, given: host.qp().modify(timeout=given), "timeout"),
    "a wait": (lambda _, given: Fabric().run_for(given), "seconds"),
    "a rate": (lambda _, given: Faults(drop=given), "drop"),
}


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("name", NUMBERS)
def test_a_truth_is_refused_by_the_name_of_the_number(host: Host, name: str, given: bool) -> None:
    call, argument = NUMBERS[name]
    with pytest.raises(TypeError, match=rf"^{argument} must be an? (integer|number), not {given}"):
        call(host, given)


@pytest.mark.parametrize("given", [True, False])
def test_also_where_no_python_code_is_on_the_way(real: Pair, given: bool) -> None:
    with pytest.raises(TypeError, match=f"^max_entries must be an integer, not {given}"):
        real.a.cq.poll(given)
    with pytest.raises(TypeError, match=f"^timeout must be a number, not {given}"):
        real.a.device.get_async_event(given)


def test_an_mtu_has_a_rule_of_its_own() -> None:
    with pytest.raises(VerbsError, match=r"^mtu=True: must be 256, 512.* \(EINVAL\)"):
        hca.open(mtu=True)


def test_switches_are_still_true_or_false(host: Host) -> None:
    host.device.create_cq(4, timestamps=False).close()
    assert hca.Send(host.mr[:4], signaled=True, fence=False).send_flags == hca.SendFlags.SIGNALED
    with Fabric(trace=True):
        pass
