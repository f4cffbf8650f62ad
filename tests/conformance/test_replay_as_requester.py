"""Our requester sends what rxe's sent, and completes as rxe's did on rxe's own answers.

The script plays side b with the captured responses, addressed to our QP number. Two differences are
legal and left out of the comparison:

- AckReq inside a message. rxe asks with the last packet alone; ours asks earlier when its window
  is about to close, or after a loss (IBTA Vol 1, 9.7.3.1 leaves it to the requester). Such a
  request is answered with a plain ACK that rxe's peer had no cause to send.
- Under loss, how much was under way when the NAK came: rxe had sent 6 packets, we the message.
"""

from __future__ import annotations

import pytest

from softhca._adapter import Packet, QPState, SendFlags, WcStatus, WrOpcode

from .host import MS, Host, SendWr
from .peer import ACK, connect, psn_after
from .replay import ATOMICS, MEMORY_BYTES, NAMES, SCRIPTS, WITH_IMMEDIATE, script_named

WR_ID = 99
LONGEST_WAIT_NS = 3600 * 1000 * MS


class Requester:
    """Our side a, and the peer that plays rxe's side b."""

    def __init__(self, name: str) -> None:
        self.script = script = script_named(name)
        self.a, self.b = script.vector["a"], script.vector["b"]
        self.host = Host(script.address("a"))
        self.qp, self.peer = connect(
            self.host,
            script.qp_type,
            address=script.address("b"),
            peer_qpn=script.qpn_of_b,
            path_mtu=script.path_mtu,
            sq_psn=self.a["psn"],
            rq_psn=self.b["psn"],
            retry_cnt=2 if name == "rc-timeout" else 7,
            rnr_retry=7,
        )
        self.memory = self.host.memory(MEMORY_BYTES)

    def work_request(self) -> SendWr:
        script, posted = self.script, self.script.posted
        at, length = posted["local_offset"], posted["length"]
        if script.opcode not in (WrOpcode.RDMA_READ, *ATOMICS):
            self.memory.bytes[at : at + length] = script.message
        operands = posted["atomic"] or [0, 0]
        first = script.sent_by("a")[0]
        solicited = SendFlags.SOLICITED if script.sent_by("a")[-1].solicited else 0
        ud = {}
        if script.vector["qp_type"] == "UD":
            ud = {
                "ah": self.host.address_handle(script.address("b")),
                "remote_qpn": self.b["qpn"],
                "remote_qkey": first.qkey,
            }
        return SendWr(
            script.opcode,
            [self.memory.sge(at, length)] if length else [],
            wr_id=WR_ID,
            send_flags=int(SendFlags.SIGNALED) | int(solicited),
            immediate=script.immediate,
            remote_address=posted["remote_addr"],
            rkey=posted["rkey"],
            compare_add=operands[0],
            swap=operands[1],
            **ud,
        )

    def respond(self, packet: Packet) -> None:
        ours = Packet.decode(packet.encode(self.peer.route))
        ours.destination_qpn = self.qp.qpn
        assert self.peer.deliver(ours) == ""

    def take(self) -> list[Packet]:
        """What the requester sends now; requests for an ACK inside the message are granted."""
        sent: list[Packet] = []
        last_psn = self.script.sent_by("a")[-1].psn
        while packets := self.peer.take():
            sent += packets
            if packets[-1].ack_request and packets[-1].psn != last_psn:
                self.peer.ack(packets[-1].psn)
        return sent

    def wait(self) -> None:
        """Lets the next deadline pass, if there is one."""
        deadline = self.host.hca.next_deadline_ns
        if deadline is not None:
            assert deadline - self.host.now_ns < LONGEST_WAIT_NS
            self.host.advance(max(deadline - self.host.now_ns, 0))

    def play(self) -> list[list[Packet]]:
        """Our requests, round by round of the capture: up to each response."""
        self.qp.post(self.work_request())
        rounds = []
        for _, responses in self.script.rounds:
            requests = self.take()
            if not requests:
                self.wait()
                requests = self.take()
            rounds.append(requests)
            for response in responses:
                self.respond(response)
        return rounds


def seen(packet: Packet, side: Requester) -> dict[str, object]:
    """What of a request must equal rxe's. The MigReq bit differs: rxe leaves it clear."""
    fields: dict[str, object] = {
        name: getattr(packet, name)
        for name in (
            "opcode_name",
            "psn",
            "solicited",
            "destination_qpn",
            "pkey",
            "pad_count",
            "virtual_address",
            "rkey",
            "dma_length",
            "atomic_address",
            "atomic_rkey",
            "swap_add",
            "compare",
            "immediate",
            "qkey",
            "payload",
        )
    }
    last = packet.psn == side.script.sent_by("a")[-1].psn
    fields["ack_request"] = packet.ack_request if last else None
    source = {side.qp.qpn: "ours", side.a["qpn"]: "ours"}
    fields["source_qpn"] = source.get(packet.source_qpn, packet.source_qpn)
    return fields


LOSSLESS = [name for name in NAMES if name not in ("rc-loss-write", "rc-timeout")]


@pytest.mark.parametrize("name", LOSSLESS)
def test_the_requests_are_those_of_rxe(captures, name):
    side = Requester(name)
    ours = [seen(packet, side) for requests in side.play() for packet in requests]
    assert ours == [seen(packet, side) for packet in side.script.sent_by("a")]


def test_time_out_repeats_as_often_as_rxe_did(captures):
    side = Requester("rc-timeout")
    side.qp.post(side.work_request())
    ours = side.take()
    while side.qp.state == QPState.RTS:
        side.wait()
        ours += side.take()
    expected = [seen(packet, side) for packet in side.script.sent_by("a")]
    assert [seen(packet, side) for packet in ours] == expected


def test_after_each_nak_of_the_lossy_capture_everything_behind_it_is_sent_again(captures):
    side = Requester("rc-loss-write")
    rounds = side.play()
    naks = [p.psn for p in side.script.sent_by("b") if p.syndrome != ACK]
    starts = [side.a["psn"], *naks]
    last_psn = side.script.sent_by("a")[-1].psn
    assert len(rounds) == len(starts)
    contents = {packet.psn: seen(packet, side) for packet in side.script.sent_by("a")}
    for requests, start in zip(rounds, starts, strict=True):
        assert [p.psn for p in requests] == list(range(start, psn_after(last_psn)))
        assert all(seen(packet, side) == contents[packet.psn] for packet in requests)
    assert side.qp.counters()["packet_seq_err"] == len(naks)


@pytest.mark.parametrize("name", NAMES)
def test_sends_complete_as_those_of_rxe(captures, name):
    side = Requester(name)
    side.play()
    while side.host.hca.next_deadline_ns is not None and side.qp.state == QPState.RTS:
        side.wait()
        side.take()
    (theirs,) = side.script.wcs("a")
    (wc,) = side.host.send_wcs()
    assert wc.wr_id == WR_ID
    assert wc.status == theirs["status"]
    assert wc.qp_num == side.qp.qpn
    if wc.status == WcStatus.SUCCESS:
        assert wc.opcode == theirs["opcode"]
        assert side.qp.state == QPState.RTS
    else:
        assert side.qp.state == QPState.ERR


@pytest.mark.parametrize("name", [n for n in NAMES if n.startswith(("rc-read", "rc-atomic"))])
def test_memory_ends_as_that_of_rxe(captures, name):
    side = Requester(name)
    before = bytearray(side.memory.bytes)
    side.play()
    posted, vector = side.script.posted, side.script.vector
    at, length = posted["local_offset"], posted["length"]
    if side.script.opcode in ATOMICS:
        before[at : at + 8] = bytes.fromhex(vector["a_old"])
    else:
        before[at : at + length] = side.script.message
    assert side.memory.bytes == before


def test_the_captures_cover_what_they_are_said_to(captures):
    """Guards this file: an empty list of scripts would pass every test above."""
    assert len(SCRIPTS) >= 40
    assert {script.vector["qp_type"] for script in SCRIPTS} == {"RC", "UC", "UD"}
    assert any(script.opcode in WITH_IMMEDIATE for script in SCRIPTS)
