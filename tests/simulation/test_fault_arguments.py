"""Faults whose words contradict each other, or are none."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import softhca as hca
from softhca.testing import Fabric, FabricFaults, Fault, Pair

from .ends import pair


@pytest.mark.parametrize(
    ("argument", "asked"),
    [
        ("on", lambda faults: faults.drop(on="receive")),
        ("on", lambda faults: faults.script(list, on="send")),
        ("opcode", lambda faults: faults.rnr(opcode="RC_ACKNOWLEDGE")),
        ("opcode", lambda faults: faults.rnr(opcode="UD_*")),
        ("opcode", lambda faults: faults.nak("sequence", opcode="*_READ_RESPONSE_*")),
        ("times", lambda faults: faults.rnr(2, times=5)),
        ("tries", lambda faults: faults.rnr(0)),
        ("source", lambda faults: faults.mute("10.0.0.1", source="10.0.0.2")),
        ("delay_ns", lambda faults: faults.delay((5000, 1000))),
        ("delay_ns", lambda faults: faults.delay((1, 2, 3))),
        ("psn", lambda faults: faults.drop(psn=(1, 2, 3))),
        ("size", lambda faults: faults.drop(size=())),
        ("size", lambda faults: faults.drop(size=65536)),
        ("size", lambda faults: faults.drop(size=(65536, 100_000))),
    ],
)
def test_words_that_contradict_each_other(
    argument: str, asked: Callable[[FabricFaults], object]
) -> None:
    with Fabric() as fabric:
        fabric.hosts(2)
        with pytest.raises(hca.VerbsError) as raised:
            asked(fabric.faults)
        assert (raised.value.errno, raised.value.argument) == (errno.EINVAL, argument)
        assert not fabric.faults.all


@pytest.mark.parametrize("match", [{"opcode": 5}, {"opcode": [5]}, {"nth": 1.5}, {"name": 5}])
def test_words_of_another_type_are_refused_by_name(match: dict[str, Any]) -> None:
    (argument,) = match
    with Fabric() as fabric, pytest.raises(TypeError, match=f"^{argument} must be "):
        fabric.faults.drop(**match)


@pytest.mark.parametrize(
    "asked",
    [
        lambda faults, opcodes: faults.drop(opcode=opcodes),
        lambda faults, opcodes: faults.corrupt("payload", opcode=opcodes),
        lambda faults, opcodes: faults.rnr(opcode=opcodes),
        lambda faults, opcodes: faults.nak("sequence", opcode=opcodes),
    ],
)
def test_opcodes_may_be_told_one_by_one(
    asked: Callable[[FabricFaults, Iterator[str]], Fault],
) -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        fault = asked(fabric.faults, iter(["RC_SEND_FIRST", "RC_SEND_ONLY"]))
        b.qp.post_recv(hca.Recv(b.mr[:5]))
        a.qp.post_send(hca.Send(a.mr[:5], signaled=True))
        fabric.run_for(1e-5)
        assert fault.struck


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [("gid", {"gid": "nonsense"}), ("index", {"gid": "10.7.7.7", "index": 99})],
)
def test_a_gid_that_cannot_be_is_refused_at_once(argument: str, wrong: dict[str, Any]) -> None:
    with Fabric() as fabric:
        host = fabric.host()
        with pytest.raises(hca.VerbsError) as raised:
            fabric.faults.gid_change(host, **wrong, at_ns=1000)
        assert (raised.value.errno, raised.value.argument) == (errno.EINVAL, argument)
        assert not fabric.step()


@pytest.mark.parametrize(
    "asked",
    [
        lambda faults, end: faults.port_down(end),
        lambda faults, end: faults.gid_change(end, "10.7.7.7"),
        lambda faults, end: faults.device_fatal(end),
    ],
)
def test_what_is_no_host_does_not_fail(asked: Callable[[FabricFaults, object], None]) -> None:
    with Fabric() as fabric:
        end = Pair(fabric).a  # It has a device, and is none.
        with pytest.raises(TypeError, match="host must be Device, not End"):
            asked(fabric.faults, end)


def test_numbers_may_be_numpy_s() -> None:
    numpy = pytest.importorskip("numpy")
    with Fabric() as fabric:
        fabric.hosts(2)
        faults = fabric.faults
        faults.drop(nth=numpy.int64(2), probability=numpy.float32(0.5), size=numpy.uint16(100))
        faults.drop(nth=numpy.array([1, 3]))
        faults.corrupt(mend_icrc=numpy.bool_(True))
        fabric.host(retry_early=numpy.bool_(True))
        assert faults.refuse("reg_mr", nth=numpy.int64(1)).struck == 0
        with pytest.raises(hca.VerbsError, match="probability"):
            faults.drop(probability=numpy.float32("nan"))


def test_a_port_stays_up_if_the_time_is_refused() -> None:
    with Fabric() as fabric:
        host = fabric.host()
        with pytest.raises(hca.VerbsError, match="for_ns"):
            fabric.faults.port_down(host, for_ns=-1)
        assert host.query_port().state is hca.PortState.ACTIVE


def test_a_nak_answers_every_kind_of_request() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        nak = fabric.faults.nak("remote_operation", times=1)
        word = a.mr[:8]
        a.qp.post_send(hca.AtomicWrite(word, remote=b.mr.remote()[:8], signaled=True))
        assert a.next().status is hca.WcStatus.REM_OP_ERR
        assert nak.struck == 1


@pytest.mark.parametrize(
    ("argument", "asked"),
    [
        ("host", lambda faults, device, qp: faults.mute(device)),
        ("source", lambda faults, device, qp: faults.drop(source=device)),
        ("destination", lambda faults, device, qp: faults.rnr(destination=device)),
        ("qp", lambda faults, device, qp: faults.script(list, qp=qp)),
    ],
)
def test_hosts_of_another_fabric_are_refused(
    argument: str, asked: Callable[[FabricFaults, hca.Device, hca.QP], object]
) -> None:
    with Fabric() as fabric, Fabric() as other:
        pair(fabric)
        far, _ = pair(other)
        # Its address is that of a host here, which would be struck in its place.
        assert far.device.gid == fabric.devices[0].gid
        with pytest.raises(hca.VerbsError) as raised:
            asked(fabric.faults, far.device, far.qp)
        assert (raised.value.errno, raised.value.argument) == (errno.EINVAL, argument)
        assert not fabric.faults.all


@pytest.mark.parametrize(
    "asked",
    [
        lambda faults: faults.corrupt("payload", mend_icrc=True, nth=0),
        lambda faults: faults.script(list, name=5),
    ],
)
def test_a_refused_forgery_does_not_end_the_checks(
    asked: Callable[[FabricFaults], object],
) -> None:
    with Fabric() as fabric:
        with pytest.raises((hca.VerbsError, TypeError)):
            asked(fabric.faults)
        assert not fabric.faults.forges
