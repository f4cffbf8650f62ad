"""A peer scripted from each capture gets from our responder the answers that rxe's peer got.

The script's requests carry our QP number, key and address instead of those of rxe's side b; all
else is as captured. One deviation is meant: a receive that is too small. rxe answers "remote
operational error" and completes the receive with LOC_QP_OP_ERR; IBTA Vol 1, 9.9.6.3 (class C) and
9.7.4.1.6 want "invalid request" and a local length error.
"""

from __future__ import annotations

import pytest

from softhca._adapter import EventType, Packet, QPState, QPType, WcFlags, WcStatus, WrOpcode

from .host import Host
from .peer import ACK, NAK_ACCESS, NAK_INVALID, NAK_OPERATIONAL, connect
from .replay import ATOMICS, MEMORY_BYTES, NAMES, immediate_of, script_named

# A receive of the capture with the too long message; any size below its 64 bytes serves.
TOO_SMALL_BYTES = 32
RECEIVE_WR_ID = 77


class Responder:
    """Our side b, and the peer that plays rxe's side a."""

    def __init__(self, name: str) -> None:
        self.script = script = script_named(name)
        self.a, self.b = script.vector["a"], script.vector["b"]
        self.host = Host(script.address("b"))
        timers = [p.syndrome & 0x1F for p in script.sent_by("b") if p.syndrome & 0xE0 == 0x20]
        first = script.sent_by("a")[0]
        self.qp, self.peer = connect(
            self.host,
            script.qp_type,
            address=script.address("a"),
            peer_qpn=self.a["qpn"],
            path_mtu=script.path_mtu,
            rq_psn=self.a["psn"],
            sq_psn=self.b["psn"],
            min_rnr_timer=timers[0] if timers else 12,
            qkey=first.qkey,
        )
        self.memory = self.host.memory(MEMORY_BYTES)
        self.received = self.host.memory(8192)
        self.preload()

    def preload(self) -> None:
        """Puts into memory what rxe's memory held, as far as the capture shows it."""
        posted, vector = self.script.posted, self.script.vector
        at = posted["remote_addr"] - self.b["mr_addr"]
        if self.script.opcode == WrOpcode.RDMA_READ:
            self.memory.bytes[at : at + posted["length"]] = self.script.message
        elif self.script.opcode in ATOMICS:
            self.memory.bytes[at : at + 8] = bytes.fromhex(vector["a_old"])

    def post_recv(self) -> None:
        capacity = TOO_SMALL_BYTES if self.script.name == "rc-nak-long" else 8192
        self.qp.recv(self.received.sge(0, capacity), wr_id=RECEIVE_WR_ID)

    def translate(self, packet: Packet) -> Packet:
        """The captured request with our QP number, key and address."""
        ours = Packet.decode(packet.encode(self.peer.route))
        ours.destination_qpn = self.qp.qpn

        def key(rkey: int) -> int:
            return self.memory.rkey if rkey == self.b["rkey"] else self.memory.rkey ^ 0x55

        if "RETH" in packet.headers:
            ours.virtual_address += self.memory.address - self.b["mr_addr"]
            ours.rkey = key(packet.rkey)
        if "AtomicETH" in packet.headers:
            ours.atomic_address += self.memory.address - self.b["mr_addr"]
            ours.atomic_rkey = key(packet.atomic_rkey)
        return ours

    def play(self) -> list[Packet]:
        """Sends each captured request; returns our answers. Posts the receive as rxe's user did."""
        answers = []
        rounds = self.script.rounds
        for number, (requests, _) in enumerate(rounds):
            # The receive of the RNR capture came between the last but one and the last round.
            if self.script.takes_a_receive and number == len(rounds) - 1:
                self.post_recv()
            for request in requests:
                assert self.peer.deliver(self.translate(request)) == ""
                answers += self.peer.take()
        return answers


def seen(packet: Packet) -> tuple[object, ...]:
    """What of an answer must equal rxe's. The MigReq bit differs: rxe leaves it clear."""
    return (
        packet.opcode_name,
        packet.psn,
        packet.syndrome,
        packet.msn,
        packet.destination_qpn,
        packet.pkey,
        packet.pad_count,
        packet.payload,
        packet.atomic_original,
    )


def as_ibta_wants(answer: tuple[object, ...], name: str) -> tuple[object, ...]:
    if name != "rc-nak-long":
        return answer
    assert answer[2] == NAK_OPERATIONAL
    return (*answer[:2], NAK_INVALID, *answer[3:])


# There is no responder in the capture of a time-out.
RESPONDERS = [name for name in NAMES if name != "rc-timeout"]


@pytest.mark.parametrize("name", RESPONDERS)
def test_the_answers_are_those_of_rxe(captures, name):
    side = Responder(name)
    expected = [as_ibta_wants(seen(packet), name) for packet in side.script.sent_by("b")]
    assert [seen(packet) for packet in side.play()] == expected


@pytest.mark.parametrize("name", RESPONDERS)
def test_receives_complete_as_those_of_rxe(captures, name):
    side = Responder(name)
    side.play()
    expected = side.script.wcs("b")
    completions = side.host.recv_wcs()
    assert len(completions) == len(expected)
    for wc, theirs in zip(completions, expected, strict=True):
        assert wc.wr_id == RECEIVE_WR_ID
        assert wc.qp_num == side.qp.qpn
        if name == "rc-nak-long":
            assert wc.status == WcStatus.LOC_LEN_ERR
            continue
        assert wc.status == theirs["status"]
        assert wc.opcode == theirs["opcode"]
        assert wc.byte_len == theirs["byte_len"]
        assert wc.src_qp == theirs["src_qp"]
        immediate = wc.immediate_or_rkey if wc.wc_flags & WcFlags.WITH_IMM else None
        assert immediate == immediate_of(theirs)
        # rxe sets GRH on every receive; a GRH is there on UD alone (IBTA Vol 1, 11.4.2.1).
        assert bool(wc.wc_flags & WcFlags.GRH) == (side.script.qp_type == QPType.UD)
        assert wc.solicited == side.script.sent_by("a")[-1].solicited


@pytest.mark.parametrize("name", RESPONDERS)
def test_memory_ends_as_that_of_rxe(captures, name):
    side = Responder(name)
    untouched = bytes(side.memory.bytes)
    side.play()
    script, posted = side.script, side.script.posted
    at = posted["remote_addr"] - side.b["mr_addr"]
    failed = any(wc["status"] != WcStatus.SUCCESS for wc in script.wcs("a"))
    expected = bytearray(untouched)
    if script.opcode in ATOMICS:
        expected[at : at + 8] = bytes.fromhex(script.vector["b_new"])
    elif script.opcode in (WrOpcode.RDMA_WRITE, WrOpcode.RDMA_WRITE_WITH_IMM) and not failed:
        assert len(script.message) == posted["length"]
        expected[at : at + posted["length"]] = script.message
    assert side.memory.bytes == expected
    if script.takes_a_receive and script.opcode != WrOpcode.RDMA_WRITE_WITH_IMM and not failed:
        grh = 40 if script.qp_type == QPType.UD else 0
        assert side.received.bytes[grh : grh + posted["length"]] == script.message


@pytest.mark.parametrize("name", RESPONDERS)
def test_the_state_and_events_fit_the_answer(captures, name):
    side = Responder(name)
    answers = side.play()
    refused = [p.syndrome for p in answers if p.syndrome in (NAK_INVALID, NAK_ACCESS)]
    assert side.qp.state == (QPState.ERR if refused else QPState.RTS)
    event = {NAK_ACCESS: EventType.QP_ACCESS_ERR}
    expected = [(event[syndrome], side.qp.qpn) for syndrome in refused if syndrome in event]
    assert [e for e in side.host.events() if e[0] == EventType.QP_ACCESS_ERR] == expected
    if script_named(name).qp_type == QPType.RC and not refused:
        assert answers[-1].syndrome == ACK
