"""A peer that a test scripts packet by packet, and queue pairs connected to it."""

from __future__ import annotations

from typing import Any

from softhca._adapter import Packet, QPState, QPType, Route, opcode_name, own_port

from .host import EVERYTHING, THEIRS, Host, Qp, Region, av_to, gid_of

OPCODE = {opcode_name(number): number for number in range(256)}
PSN_MASK = 0xFFFFFF

ACK = 0x1F
NAK_SEQUENCE = 0x60
NAK_INVALID = 0x61
NAK_ACCESS = 0x62
NAK_OPERATIONAL = 0x63


def rnr(timer_code: int) -> int:
    """Syndrome of an RNR NAK."""
    return 0x20 | timer_code


def reth(memory: Region, length: int, *, at: int = 0, rkey: int | None = None) -> dict[str, int]:
    """The fields of an RDMA extended header: `length` bytes, `at` bytes into a region."""
    return {
        "virtual_address": (memory.address + at) & 0xFFFFFFFFFFFFFFFF,
        "rkey": memory.rkey if rkey is None else rkey,
        "dma_length": length,
    }


def psn_after(psn: int, count: int = 1) -> int:
    return (psn + count) & PSN_MASK


class Peer:
    """The other end of a queue pair: sends what it is told to, and sees what comes."""

    def __init__(
        self, qp: Qp, *, address: str = THEIRS, qpn: int = 0xABC, prefix: str = "RC", **wires: int
    ) -> None:
        self.qp, self.host = qp, qp.host
        self.address, self.qpn, self.prefix = address, qpn, prefix
        self.psn = wires.get("psn", 0)  # Of the next request that is sent without one.
        gid = gid_of(address)
        self.route = Route(gid, gid_of(self.host.address), udp_source_port=own_port(gid))

    def packet(self, operation: str, payload: bytes = b"", **fields: Any) -> Packet:
        packet = Packet()
        packet.opcode = OPCODE[f"{self.prefix}_{operation}"]
        packet.destination_qpn = self.qp.qpn
        packet.payload = payload
        for name, value in fields.items():
            setattr(packet, name, value)
        return packet

    def deliver(self, packet: Packet) -> str:
        """Hands a packet to the host; returns why it was dropped, or nothing."""
        datagram = packet.encode(self.route)
        return self.host.hca.receive(self.route, datagram, self.host.now_ns).verdict

    def request(self, operation: str, payload: bytes = b"", **fields: Any) -> str:
        """Sends a request with the next PSN, or with the one that is given; asks for an ACK."""
        if "psn" not in fields:
            fields["psn"] = self.psn
            self.psn = psn_after(self.psn)
        fields.setdefault("ack_request", True)
        return self.deliver(self.packet(operation, payload, **fields))

    def response(self, operation: str, psn: int, payload: bytes = b"", **fields: Any) -> str:
        fields.setdefault("syndrome", ACK)
        return self.deliver(self.packet(operation, payload, psn=psn & PSN_MASK, **fields))

    def ack(self, psn: int, syndrome: int = ACK, msn: int = 0) -> str:
        return self.response("ACKNOWLEDGE", psn, syndrome=syndrome, msn=msn)

    def take(self) -> list[Packet]:
        """The packets that came since the last look."""
        self.host.pump()
        mine, rest = [], []
        for sent in self.host.outbox:
            here = sent.route.destination == gid_of(self.address)
            is_mine = here and sent.packet.destination_qpn == self.qpn
            (mine if is_mine else rest).append(sent)
        self.host.outbox = rest
        return [sent.packet for sent in mine]

    def answers(self) -> list[tuple[Any, ...]]:
        """What came: (PSN, syndrome) for an ACK or NAK, (PSN, name, content) for the rest."""
        return [answer_of(packet) for packet in self.take()]

    def requests(self) -> list[tuple[str, int]]:
        """What came, as (operation, PSN)."""
        return [(operation_of(packet), packet.psn) for packet in self.take()]


def operation_of(packet: Packet) -> str:
    return str(packet.opcode_name).split("_", 1)[1]


def answer_of(packet: Packet) -> tuple[Any, ...]:
    operation = operation_of(packet)
    if operation == "ACKNOWLEDGE":
        return (packet.psn, packet.syndrome)
    if operation == "ATOMIC_ACKNOWLEDGE":
        return (packet.psn, operation, packet.atomic_original)
    return (packet.psn, operation, packet.payload)


# Attributes that connect(), below, gives at each step unless a test says otherwise.
CONNECTED = {
    "pkey_index": 0,
    "port_num": 1,
    "qp_access_flags": int(EVERYTHING),
    "path_mtu": 3,
    "rq_psn": 0x100,
    "sq_psn": 0x800,
    "max_dest_rd_atomic": 4,
    "max_rd_atomic": 4,
    "min_rnr_timer": 12,
    "timeout": 14,
    "retry_cnt": 3,
    "rnr_retry": 3,
}
INIT_NAMES = ("pkey_index", "port_num", "qp_access_flags")
RTR_NAMES = ("path_mtu", "rq_psn")
RTR_RELIABLE = (*RTR_NAMES, "max_dest_rd_atomic", "min_rnr_timer")
RTS_RELIABLE = ("sq_psn", "timeout", "retry_cnt", "rnr_retry", "max_rd_atomic")


def steps(qp_type: QPType, dest_qp_num: int, address: str, values: dict[str, Any]):
    """(state, attributes) of each step from RESET to RTS."""
    chosen = {**CONNECTED, **values}

    def pick(names: tuple[str, ...]) -> dict[str, Any]:
        return {name: chosen[name] for name in names}

    if qp_type == QPType.UD:
        qkey = chosen.get("qkey", 0x1234)
        return [
            (QPState.INIT, {**pick(("pkey_index", "port_num")), "qkey": qkey}),
            (QPState.RTR, {}),
            (QPState.RTS, pick(("sq_psn",))),
        ]
    responds = qp_type in (QPType.RC, QPType.XRC_RECV)
    path = {"ah_attr": av_to(address), "dest_qp_num": dest_qp_num}
    if qp_type == QPType.UC:
        started: tuple[str, ...] = ("sq_psn",)
    else:
        started = ("sq_psn", "timeout") if qp_type == QPType.XRC_RECV else RTS_RELIABLE
    return [
        (QPState.INIT, pick(INIT_NAMES)),
        (QPState.RTR, {**path, **pick(RTR_RELIABLE if responds else RTR_NAMES)}),
        (QPState.RTS, pick(started)),
    ]


def to_state(qp: Qp, state: QPState, *, peer_qpn: int = 0xABC, **values: Any) -> None:
    """From RESET to a state along INIT, RTR, RTS, and from there to SQD or ERR."""
    address = values.pop("address", THEIRS)
    for step, attributes in steps(qp.qp_type, peer_qpn, address, values):
        if qp.state == state:
            return
        qp.modify(qp_state=step, **attributes)
    if state in (QPState.SQD, QPState.ERR):
        qp.modify(qp_state=state)
    assert qp.state == state


def connect(
    host: Host, qp_type: QPType = QPType.RC, *, state: QPState = QPState.RTS, **values: Any
) -> tuple[Qp, Peer]:
    """A queue pair in RTS, or `state`, and its peer. `values` are attributes, or options of Qp."""
    options = {name: values.pop(name) for name in list(values) if name in Qp.__annotations__}
    qp = Qp(host, qp_type, **options)
    address, qpn = values.pop("address", THEIRS), values.pop("peer_qpn", 0xABC)
    to_state(qp, state, peer_qpn=qpn, address=address, **values)
    prefix = {QPType.UC: "UC", QPType.UD: "UD"}.get(qp_type, "RC")
    if qp_type in (QPType.XRC_SEND, QPType.XRC_RECV):
        prefix = "XRC"
    rq_psn = values.get("rq_psn", CONNECTED["rq_psn"])
    return qp, Peer(qp, address=address, qpn=qpn, prefix=prefix, psn=rq_psn)
