"""The same two sides on a network that loses, repeats and reorders packets."""

from __future__ import annotations

import random

from checks import Check
from connection import LANDING, SUCCESS, Connection, NotOfferedError, demand
from pattern import digest, pattern
from side import GRH_BYTES, Side

# 67 ms: a lost last packet is found out by the time-out alone.
LOSSY = {"timeout": 14}
SEED = 4791
BATCH = 16


def send(requester: Side, responder: Side, mtu: int) -> None:
    """Messages of up to four packets; each must arrive once, in order, with its own bytes."""
    rng = random.Random(SEED)
    batches, slot = 6, 4 * mtu
    with Connection(requester, responder, "RC", mtu, **LOSSY) as link:
        for _ in range(batches):
            lengths = [rng.randint(0, slot) for _ in range(BATCH)]
            sent = []
            for number, length in enumerate(lengths):
                link.post_recv(slot, LANDING + number * slot, number)
                sent.append(link.fill(length, number * slot))
            for number, length in enumerate(lengths):
                link.post("SEND", length, number * slot)
            link.sent(BATCH)
            wcs = link.received(BATCH)
            arrived = [(wc["wr_id"], wc["byte_len"]) for wc in wcs]
            demand(arrived == list(enumerate(lengths)), "every message once, in order", arrived)
            for number, length in enumerate(lengths):
                found = responder.digest(LANDING + number * slot, length)
                demand(found == sent[number], f"the {length} bytes of message {number}")
        link.in_good_state()


def write_and_read(requester: Side, responder: Side, mtu: int) -> None:
    if requester.loses_reads:
        raise NotOfferedError(f"{requester.name} of this kernel loses READs here")
    piece, count = 20000, 8
    with Connection(requester, responder, "RC", mtu, **LOSSY) as link:
        for turn in range(3):
            written = []
            responder.fill(0, piece * count, 900 + turn)
            for number in range(count):
                at = number * piece
                written.append(link.fill(piece, at))
                link.post("WRITE", piece, at, LANDING + at)
                link.post("READ", piece, LANDING + at, at)
            link.sent(2 * count)
            for number in range(count):
                at = number * piece
                found = responder.digest(LANDING + at, piece)
                demand(found == written[number], f"WRITE {number}")
                same = requester.digest(LANDING + at, piece) == responder.digest(at, piece)
                demand(same, f"READ {number}")
        link.in_good_state()


def atomics(requester: Side, responder: Side, mtu: int) -> None:
    """None is executed twice, none is lost: the old values count up without a gap."""
    count = 96
    with Connection(requester, responder, "RC", mtu, **LOSSY) as link:
        responder.put_u64(LANDING, 1000)
        done = 0
        while done < count:
            for number in range(BATCH):
                link.post("FETCH_ADD", 8, offset=8 * number, add=1)
            link.sent(BATCH)
            old = [requester.get_u64(8 * number) for number in range(BATCH)]
            demand(old == list(range(1000 + done, 1000 + done + BATCH)), "the old values", old)
            done += BATCH
        demand(responder.get_u64(LANDING) == 1000 + count, f"{count} additions")
        for turn in range(BATCH):
            link.post("CMP_SWAP", 8, compare=1000 + count + turn, swap=1000 + count + turn + 1)
            link.sent()
            demand(requester.get_u64(0) == 1000 + count + turn, "the swapped value")
        link.in_good_state()


def unreliable(requester: Side, responder: Side, mtu: int, kind: str) -> None:
    """Not all arrive, and some twice; what arrives is right, and no queue pair minds."""
    turns, posted, landed = 5, BATCH // 2, 0
    skipped = GRH_BYTES if kind == "UD" else 0
    slot = 4 * mtu + GRH_BYTES

    def length_of(number: int) -> int:
        return mtu - number if kind == "UD" else 2 * mtu + number

    for turn in range(turns):
        # A pair for each turn: receives that were left over would take the next turn's messages.
        with Connection(requester, responder, kind, mtu) as link:
            for number in range(BATCH):
                link.post_recv(slot, LANDING + number * slot, number)
            for place in range(posted):
                number = turn * posted + place
                requester.fill(place * slot, length_of(number), SEED + number)
                link.post("SEND_IMM", length_of(number), place * slot, imm=number)
            link.sent(posted)
            wcs = responder.wait(link.far_qpn, BATCH, 0.3)
            for wc in wcs:
                demand(wc["status"] == SUCCESS, "receive status 0", wc)
                number, length = wc["imm"], wc["byte_len"] - skipped
                demand(length == length_of(number), f"the length of message {number}", wc)
                found = responder.digest(LANDING + wc["wr_id"] * slot + skipped, length)
                demand(found == digest(pattern(SEED + number, length)), f"message {number}")
            landed += len({wc["imm"] for wc in wcs})
            link.in_good_state()
    demand(landed >= turns * posted // 2, "at least half of the messages", landed)


def uc(requester: Side, responder: Side, mtu: int) -> None:
    unreliable(requester, responder, mtu, "UC")


def ud(requester: Side, responder: Side, mtu: int) -> None:
    unreliable(requester, responder, mtu, "UD")


CHECKS: list[tuple[str, Check]] = [
    ("RC SEND", send),
    ("RC WRITE and READ", write_and_read),
    ("RC FETCH_ADD and CMP_SWAP", atomics),
    ("UC SEND", uc),
    ("UD SEND", ud),
]
