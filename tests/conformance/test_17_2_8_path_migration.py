"""Automatic path migration (IBTA Vol 1, 17.2.8).

Both paths lead between the same two addresses here; the traffic class tells them apart.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator

import pytest

import softhca as hca
from softhca import EventType, MigState, QPState, QPType, VerbsError, WcStatus
from softhca.testing import Wire, open_simulated
from softhca.testing.simulation import Flying

PRIMARY, ALTERNATE = 0, 0x20


class End:
    """A device with what one queue pair needs."""

    def __init__(self, device: hca.Device, qp_type: QPType) -> None:
        self.device = device
        self.pd = device.alloc_pd()
        self.cq = device.create_cq(64)
        self.mr = self.pd.reg_mr(bytearray(4096))
        self.qp = self.pd.create_qp(qp_type, send_cq=self.cq, recv_cq=self.cq)

    def rearm(self, peer: hca.GID, **alternate: object) -> None:
        address = hca.AHAttr(dgid=peer, traffic_class=ALTERNATE)
        self.qp.modify(alt_ah_attr=address, path_mig_state=MigState.REARM, **alternate)

    @property
    def mig_state(self) -> MigState:
        return self.qp.query().path_mig_state

    def events(self) -> list[EventType]:
        taken = []
        while (event := self.device.poll_async_event()) is not None:
            assert event.element is self.qp
            taken.append(event.event_type)
        return taken


class Connection:
    """Two connected queue pairs, and the packets between them."""

    def __init__(self, a: hca.Device, b: hca.Device, qp_type: QPType) -> None:
        self.near, self.far = End(a, qp_type), End(b, qp_type)
        reliable = {"timeout": 14, "retry_cnt": 2} if qp_type is QPType.RC else {}
        self.near.qp.connect(self.far.qp.info(), **reliable)
        self.far.qp.connect(self.near.qp.info(), **reliable)
        self.wire = Wire(a, b)

    def write(self) -> WcStatus:
        self.near.qp.post_send(
            hca.Write(self.near.mr[:8], remote=self.far.mr.remote(), signaled=True)
        )
        taken: list[hca.WC] = []

        def done() -> bool:
            taken.extend(self.near.cq.poll())
            return bool(taken)

        self.wire.run_until(done)
        self.wire.settle()
        return taken[0].status

    def rearm(self) -> None:
        self.near.rearm(self.far.device.gid)
        self.far.rearm(self.near.device.gid)

    def arm(self) -> None:
        self.rearm()
        assert self.write() is WcStatus.SUCCESS
        assert self.near.mig_state is MigState.ARMED
        assert self.far.mig_state is MigState.ARMED

    def sent(self) -> list[tuple[int, bool]]:
        """Traffic class and MigReq of what was sent since the last call."""
        seen = [(one.route.traffic_class, one.decoded.migrated) for one in self.wire.sent]
        self.wire.sent.clear()
        return seen

    def break_path(self, traffic_class: int) -> None:
        def hook(packet: Flying) -> list[Flying]:
            return [] if packet.route.traffic_class == traffic_class else [packet]

        self.wire.hook = hook


Connect = Callable[..., Connection]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Makes connections between two devices in virtual time."""
    kept = []
    with open_simulated("10.0.0.1", seed=1) as a, open_simulated("10.0.0.2", seed=2) as b:

        def make(qp_type: QPType = QPType.RC) -> Connection:
            kept.append(Connection(a, b, qp_type))
            return kept[-1]

        yield make


def test_without_it_every_packet_says_migrated(connect: Connect) -> None:
    connection = connect()
    assert connection.near.mig_state is MigState.MIGRATED
    assert connection.write() is WcStatus.SUCCESS
    assert connection.sent() == [(PRIMARY, True)] * 2


def test_both_ends_arm_by_packets_without_the_bit(connect: Connect) -> None:
    connection = connect()
    connection.near.rearm(connection.far.device.gid)
    assert connection.write() is WcStatus.SUCCESS
    assert connection.sent() == [(PRIMARY, False), (PRIMARY, True)]
    assert connection.near.mig_state is MigState.REARM  # The other end is not ready.
    connection.far.rearm(connection.near.device.gid)
    assert connection.write() is WcStatus.SUCCESS
    assert connection.sent() == [(PRIMARY, False)] * 2
    assert connection.near.mig_state is MigState.ARMED
    assert connection.far.mig_state is MigState.ARMED
    assert connection.near.events() == connection.far.events() == []


def test_software_migrates_and_the_peer_follows(connect: Connect) -> None:
    connection = connect()
    connection.arm()
    connection.sent()
    near, far = connection.near, connection.far
    near.qp.modify(path_mig_state=MigState.MIGRATED)
    assert near.mig_state is MigState.MIGRATED
    assert near.events() == [EventType.PATH_MIG]
    assert far.events() == []
    assert connection.write() is WcStatus.SUCCESS
    assert far.events() == [EventType.PATH_MIG]
    assert far.mig_state is MigState.MIGRATED
    assert connection.sent() == [(ALTERNATE, True)] * 2
    now = near.qp.query()
    assert (now.ah_attr, now.timeout) == (now.alt_ah_attr, 16)
    assert near.events() == far.events() == []


@pytest.mark.parametrize("unarmed", [False, True])
def test_a_path_that_breaks_is_left_when_retries_run_out(connect: Connect, unarmed: bool) -> None:
    connection = connect()
    connection.arm()
    near, far = connection.near, connection.far
    if unarmed:
        near.rearm(far.device.gid)
    connection.break_path(PRIMARY)
    status = connection.write()
    if unarmed:
        assert status is WcStatus.RETRY_EXC_ERR
        return
    assert status is WcStatus.SUCCESS
    assert near.events() == far.events() == [EventType.PATH_MIG]
    assert near.qp.state is far.qp.state is QPState.RTS


def test_the_last_path_has_no_other(connect: Connect) -> None:
    connection = connect()
    connection.arm()
    connection.break_path(PRIMARY)
    assert connection.write() is WcStatus.SUCCESS
    connection.break_path(ALTERNATE)
    assert connection.write() is WcStatus.RETRY_EXC_ERR


def test_a_new_alternate_is_loaded_after_migrating(connect: Connect) -> None:
    connection = connect()
    for broken in (PRIMARY, ALTERNATE):
        peers = connection.far.device.gid, connection.near.device.gid
        other = ALTERNATE if broken == PRIMARY else PRIMARY
        for end, peer in zip((connection.near, connection.far), peers, strict=True):
            address = hca.AHAttr(dgid=peer, traffic_class=other)
            end.qp.modify(alt_ah_attr=address, alt_timeout=14, path_mig_state=MigState.REARM)
        connection.wire.hook = None
        assert connection.write() is WcStatus.SUCCESS
        connection.break_path(broken)
        assert connection.write() is WcStatus.SUCCESS
        assert connection.near.events() == connection.far.events() == [EventType.PATH_MIG]


def test_a_migration_that_does_not_fit_is_refused_and_told(connect: Connect) -> None:
    connection = connect()
    near, far = connection.near, connection.far
    near.rearm(far.device.gid)
    far.rearm(hca.GID("10.0.0.77"))  # Not where the peer's alternate path comes from.
    assert connection.write() is WcStatus.SUCCESS
    near.qp.modify(path_mig_state=MigState.MIGRATED)
    before = far.device.counters["rx_unknown_qp"]
    near.qp.modify(path_mig_state=MigState.MIGRATED)  # Again: nothing.
    near.qp.post_send(hca.Write(near.mr[:8], remote=far.mr.remote(), signaled=True))
    connection.wire.settle()
    assert far.events() == [EventType.PATH_MIG_ERR]
    assert far.mig_state is MigState.ARMED
    assert far.device.counters["rx_unknown_qp"] == before + 1
    assert near.events() == [EventType.PATH_MIG]


def test_unreliable_connections_migrate_by_software(connect: Connect) -> None:
    connection = connect(QPType.UC)
    near, far = connection.near, connection.far
    connection.rearm()
    for sender, receiver in ((near, far), (far, near)):
        sender.qp.post_send(hca.Write(sender.mr[:8], remote=receiver.mr.remote()))
        connection.wire.settle()
        assert receiver.mig_state is MigState.ARMED
    far.qp.modify(path_mig_state=MigState.MIGRATED)
    far.qp.post_send(hca.Write(far.mr[:8], remote=near.mr.remote()))
    connection.wire.settle()
    assert near.events() == far.events() == [EventType.PATH_MIG]


@pytest.mark.parametrize(
    ("state", "rule"),
    [
        (MigState.REARM, "cannot be REARM without an alternate path"),
        (MigState.ARMED, "becomes ARMED by itself, when both ends are in REARM"),
    ],
)
def test_commands_that_are_refused(connect: Connect, state: MigState, rule: str) -> None:
    connection = connect()
    with pytest.raises(VerbsError, match=rule) as raised:
        connection.near.qp.modify(path_mig_state=state)
    assert raised.value.errno == errno.EINVAL
    assert connection.near.mig_state is MigState.MIGRATED


def test_what_is_not_armed_does_not_migrate(connect: Connect) -> None:
    connection = connect()
    connection.rearm()
    with pytest.raises(VerbsError, match="must be ARMED before it can be MIGRATED"):
        connection.near.qp.modify(path_mig_state=MigState.MIGRATED)
    assert connection.near.mig_state is MigState.REARM
    connection.arm()
    with pytest.raises(VerbsError, match="by the call that loads another alternate path"):
        address = hca.AHAttr(dgid=connection.far.device.gid)
        connection.near.qp.modify(alt_ah_attr=address, path_mig_state=MigState.MIGRATED)


def test_reset_forgets_the_alternate_path(connect: Connect) -> None:
    connection = connect()
    connection.rearm()
    qp = connection.near.qp
    qp.modify(qp_state=QPState.RESET)
    assert connection.near.mig_state is MigState.MIGRATED
    qp.connect(connection.far.qp.info())
    with pytest.raises(VerbsError, match="cannot be REARM without an alternate path"):
        qp.modify(path_mig_state=MigState.REARM)
