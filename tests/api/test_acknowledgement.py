"""Destroying an object waits for the events of it that were taken, but never for ever."""

from __future__ import annotations

import errno
import threading

import pytest

import softhca as hca
from softhca import VerbsError
from softhca.verbs import acknowledgement
from softhca.verbs.acknowledgement import Acknowledgement

from .hosts import Host


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits longer than a moment."""
    monkeypatch.setattr(acknowledgement, "LONGEST_WAIT_S", 0.01)


class Bystander:
    """A thread that could acknowledge and does not."""

    def __init__(self) -> None:
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._end.wait)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


def test_no_more_is_acknowledged_than_was_taken() -> None:
    acks = Acknowledgement()
    acks.taken(3)
    acks.acknowledge()
    with pytest.raises(VerbsError, match=r"nevents=3: must be 0 to 2") as raised:
        acks.acknowledge(3)
    assert (raised.value.errno, raised.value.argument) == (errno.EINVAL, "nevents")
    with pytest.raises(VerbsError, match="nevents=-1"):
        acks.acknowledge(-1)
    assert acks.outstanding == 2
    acks.acknowledge(2)
    acks.acknowledge(0)
    acks.wait_until_none("qp")


def test_alone_nobody_can_acknowledge() -> None:
    acks = Acknowledgement()
    acks.taken(2)
    with pytest.raises(VerbsError, match="qp: 2 events of it were never acknowledged") as raised:
        acks.wait_until_none("qp")
    assert raised.value.errno == errno.EBUSY


def test_a_thread_that_never_acknowledges_is_given_up(impatient: None) -> None:
    acks = Acknowledgement()
    acks.taken()
    with Bystander(), pytest.raises(VerbsError, match="cq: 1 event of it was never acknowledged"):
        acks.wait_until_none("cq")


def test_closing_waits_for_another_thread(host: Host) -> None:
    qp = host.qp()
    qp._async_acks.taken(2)
    happened: list[str] = []

    def close() -> None:
        qp.close()
        happened.append("closed")

    closer = threading.Thread(target=close)
    closer.start()
    for _ in range(2):
        happened.append("acknowledged")
        qp._async_acks.acknowledge()
    closer.join(20)
    assert happened == ["acknowledged", "acknowledged", "closed"]
    assert qp.closed


def test_an_object_that_waits_in_vain_stays_open(host: Host) -> None:
    srq = host.pd.create_srq(max_wr=4)
    srq._async_acks.taken()
    with pytest.raises(VerbsError, match="srq: 1 event of it was never acknowledged"):
        srq.close()
    assert not srq.closed
    srq._async_acks.acknowledge()
    srq.close()


def test_users_are_refused_before_events_are_waited_for(host: Host) -> None:
    host.qp()
    host.cq._completion_acks.taken()
    with Bystander(), pytest.raises(VerbsError, match="cq: is still used by <QP"):
        host.cq.close()
    host.cq._completion_acks.acknowledge()


def test_leaving_a_block_gives_events_up(device: hca.Device) -> None:
    with Bystander():
        with device.create_cq(4) as cq:
            cq._completion_acks.taken()
            cq._async_acks.taken()
        assert cq.closed
        with device.alloc_pd() as pd:
            srq = pd.create_srq(max_wr=4)
            srq._async_acks.taken()
        assert srq.closed
    srq._async_acks.acknowledge()  # Late, but no mistake.
