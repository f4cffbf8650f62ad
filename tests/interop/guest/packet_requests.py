"""Requests that follow from each other, and what spoils them."""

from __future__ import annotations

import random
from dataclasses import replace

from packet_bytes import NUMBER, OPERATIONS, PREFIX, is_answer
from packet_steps import MTU, QKEY, REGION_BYTES, REGIONS, SMALL_BYTES, Case, Deed, Step

LENGTHS = (0, 1, 3, 4, 7, 8, 8, 100, 255, 256, 257, 260, 511, 512, 513, 600, 768, 1000)
FIRST_PSNS = (0, 0x100, 0xFFFFFE, 0xFFFFFF, 0x7FFFFF, 0x800000)


class Requests:
    """Makes a case of requests."""

    def __init__(self, seed: int, number: int) -> None:
        self.random = random.Random(seed * 1_000_003 + number)
        choose = self.random.choice
        self.kind = choose(("RC", "RC", "RC", "RC", "UC", "UD"))
        # LOCAL_WRITE and what a peer may do, by IBV_ACCESS_*.
        rights = 15 if self.random.random() < 0.85 else choose((1, 3, 5, 7, 9, 11, 13))
        # Most have room for whatever comes.
        sizes: tuple[int, ...] = (700, 513, 513)
        if self.random.random() < 0.2:
            sizes = (0, 1, 8, 41, 100, 256, 300, 513, 700)
        receives = [
            [choose(sizes) for _ in range(choose((1, 1, 2)))]
            for _ in range(choose((0, 1, 2, 3, 4, 4, 4)))
        ]
        bad = 0 if receives and self.random.random() < 0.04 else -1
        psn = choose(FIRST_PSNS)
        resources = choose((1, 2, 4))
        self.case = Case(number, self.kind, psn, rights, resources, receives, bad)
        self.case.shared = self.random.random() < 0.1
        self.case.early = self.random.random() < 0.1
        self.psn = 0
        self.left = 0  # Bytes of the message that are still to come.
        self.doing = ""
        self.ends = ""
        self.invalidated = False
        self.sent: list[Step] = []

    def opcode(self, operation: str) -> int:
        """With the prefix of the case's service."""
        return PREFIX[self.kind] | NUMBER[operation]

    def salt(self) -> int:
        return self.random.randrange(1, 256)

    def message(self) -> Step:
        """The first packet of a message, as it should be."""
        choose = self.random.choice
        kinds = {
            "RC": ("SEND", "SEND", "WRITE", "WRITE", "READ", "READ", "CAS", "FAA"),
            "UC": ("SEND", "WRITE"),
            "UD": ("SEND",),
        }[self.kind]
        doing = choose(kinds)
        if doing in ("CAS", "FAA"):
            at = 8 * self.random.randrange(REGION_BYTES // 8)
            # What is there at the beginning, or not.
            there = bytes(i * 5 & 0xFF for i in range(at, at + 8))
            compare = int.from_bytes(there, "little") if self.random.random() < 0.6 else 5
            operand = self.random.getrandbits(64)
            step = Step(self.opcode(doing), self.psn, offset=at, operand=operand, compare=compare)
            self.psn += 1
            return step
        length = choose(LENGTHS)
        if self.kind == "UD":
            length = min(length, 256)
        at = self.random.randrange(REGION_BYTES - length + 1)
        if doing == "READ":
            step = Step(self.opcode("READ"), self.psn, offset=at, length=length)
            self.psn += max(1, (length + MTU - 1) // MTU)
            return step
        self.doing = doing
        ends = ("", "", "_IMM", "_INV") if doing == "SEND" and self.kind == "RC" else ("", "_IMM")
        self.ends = choose(ends)
        first = length > MTU
        operation = f"{doing}_FIRST" if first else f"{doing}_ONLY{self.ends}"
        step = Step(self.opcode(operation), self.psn, offset=at, length=length)
        self.fill(step, min(length, MTU))
        self.left = length - step.payload
        if first:
            step.ack = self.random.random() < 0.3
        return step

    def fill(self, step: Step, payload: int) -> None:
        """What every packet with a payload has."""
        step.payload, step.salt = payload, self.salt()
        step.immediate = self.random.getrandbits(32)
        step.solicited = self.random.random() < 0.2
        step.invalidates = self.random.choice(("all", "gone", "none", "window", "window"))
        self.psn += 1

    def next(self) -> Step:
        """The packet that should come now."""
        if self.left == 0:
            return self.message()
        payload = min(self.left, MTU)
        self.left -= payload
        operation = f"{self.doing}_LAST{self.ends}" if self.left == 0 else f"{self.doing}_MIDDLE"
        step = Step(self.opcode(operation), self.psn)
        self.fill(step, payload)
        step.ack = self.left == 0 or self.random.random() < 0.3
        return step

    # --- what spoils a packet

    def spoil(self, step: Step) -> bool:
        """Changes one thing; whether the packet is lost with it, so that it may come again."""
        choose = self.random.choice
        ways = ["order", "order", "payload", "pad", "flags", "psn", "psn", "silent", "lost", "cut"]
        if step.has_reth():
            ways += ["length", "length", "bounds", "bounds", "region", "region"]
        if step.operation in ("CAS", "FAA"):
            ways += ["unaligned", "bounds", "region"]
        if self.kind == "UD":
            ways += ["qkey", "qkey"]
        return bool(getattr(self, f"spoil_{choose(ways)}")(step))

    def spoil_order(self, step: Step) -> None:
        """Another operation; in rare cases of another service, or of none."""
        last = "RC" if self.random.random() < 0.1 else self.kind
        step.opcode = PREFIX[last] | NUMBER[self.random.choice(OPERATIONS)]
        if self.random.random() < 0.1:
            step.opcode = self.random.randrange(256)
        if step.operation in ("READ", "CAS", "FAA", "ACK", "ATOMIC_ACK"):
            step.payload = 0
        if step.has_reth() and step.length == 0:
            step.length = step.payload

    def spoil_payload(self, step: Step) -> None:
        if step.operation in ("READ", "CAS", "FAA"):
            return
        by = self.random.choice((-256, -4, -1, 1, 4, 256))
        step.payload = max(0, step.payload + by)
        step.salt = step.salt or 1

    def spoil_pad(self, step: Step) -> bool:
        if step.operation in ("READ", "CAS", "FAA"):
            return False
        if self.random.random() < 0.5:
            step.more_pad = self.random.choice((4, 1, 2, 3))
        else:
            step.false_pad = self.random.choice((1, 2, 3))
        return self.random.random() < 0.3

    def spoil_flags(self, step: Step) -> None:
        name, values = self.random.choice(
            (
                ("migrated", (False,)),
                ("solicited", (True,)),
                ("congestion", (0x80, 0x40, 0x3F)),
            )
        )
        setattr(step, name, self.random.choice(values))

    def spoil_psn(self, step: Step) -> bool:
        ahead = (1, 2, 5, -1, -2, -5, 0x100, 0x3FFFFF, 0x7FFFFF, 0x800000, 0x800001, -0x100)
        step.psn += self.random.choice(ahead)
        return True

    def spoil_silent(self, step: Step) -> None:
        step.ack = not step.ack

    def spoil_lost(self, step: Step) -> bool:
        name, values = self.random.choice(
            (
                ("spoiled", (1, 0x80)),
                ("version", (1, 15)),
                ("pkey", (0x7FFF, 0x7FFF, 0x1234, 0x9234, 0)),
                ("wrong_qpn", (True,)),
            )
        )
        setattr(step, name, self.random.choice(values))
        return step.pkey != 0x7FFF

    def spoil_cut(self, step: Step) -> bool:
        step.cut = self.random.choice((1, 4, 8, 16, 28))
        return self.random.random() < 0.7

    def spoil_length(self, step: Step) -> None:
        changed = (step.length + 1, step.length - 1, 0, 4096, 1 << 31, (1 << 31) + 1, 0xFFFFFFFF)
        step.length = max(0, self.random.choice(changed))

    def spoil_bounds(self, step: Step) -> None:
        size = 8 if step.operation in ("CAS", "FAA") else step.length
        wrong = (-1, -8, REGION_BYTES - size + 1, REGION_BYTES, 1 << 63, REGION_BYTES - size)
        step.offset = self.random.choice(wrong)
        if size == 8 and step.operation != "READ" and not step.has_reth():
            step.offset &= ~7

    def spoil_region(self, step: Step) -> None:
        step.region = self.random.choice(REGIONS[1:])
        step.offset = min(step.offset, 16) & ~7
        if step.length <= MTU:
            step.length = min(step.length, SMALL_BYTES - 16)

    def spoil_unaligned(self, step: Step) -> None:
        step.offset += self.random.choice((1, 4, 7))
        step.region = self.random.choice(("all", "all", "none"))

    def spoil_qkey(self, step: Step) -> None:
        step.qkey = self.random.choice((0, QKEY ^ 1, QKEY | 1 << 31, 0x80010000))

    # --- what comes besides

    def repeated(self) -> Step:
        """One that was sent, again, and perhaps not all of it or not in the same way."""
        step = replace(self.random.choice(self.sent))
        if step.operation == "READ" and step.length > MTU and self.random.random() < 0.7:
            packets = self.random.randrange(1, (step.length + MTU - 1) // MTU)
            step.psn += packets
            step.offset += packets * MTU
            step.length -= packets * MTU
            if self.random.random() < 0.3:
                step.length = max(0, step.length - self.random.choice((1, 256)))
        if self.random.random() < 0.2:
            change = self.random.choice(("offset", "length", "region", "operand", "ack"))
            if change == "region":
                step.region = "none"
            elif change == "ack":
                step.ack = not step.ack
            else:
                setattr(step, change, max(0, getattr(step, change) + self.random.choice((8, -8))))
        return step

    def answer(self) -> Step:
        """An answer that nobody asked for."""
        names = [name for name in OPERATIONS if is_answer(name)]
        step = Step(self.opcode(self.random.choice(names)), self.random.choice((0, 1, -1, 5)))
        step.syndrome = self.random.choice((0x1F, 0, 0x20, 0x60, 0x61, 0x62, 0x63, 0x80, 0x7F))
        if step.operation.startswith("RESPONSE"):
            step.payload, step.salt = self.random.choice((0, 8, 256)), 3
        return step

    def deed(self) -> Deed:
        """Something that the program does between two packets."""
        choose = self.random.choice
        deed = Deed(
            *choose(
                (
                    ("post", "700"),
                    ("post", "700"),
                    ("rights", choose(("1", "3", "5", "9", "15"))),
                    ("forget", choose(("reads", "writes", "writes"))),
                    ("again", "from RESET"),
                )
            )
        )
        if deed.verb == "again":
            self.psn = self.left = 0
            self.sent.clear()
        return deed

    def spare(self, step: Step) -> None:
        """Rxe of 6.1 takes the machine down with it when it is asked for some things."""
        if step.operation.startswith("WRITE") and step.has_reth() and step.length == 0:
            # It would write, with no region.
            step.payload = step.more_pad = step.false_pad = step.cut = 0
        if step.operation.endswith("_INV") and step.invalidates == "window":
            # It would forget the region of a window that has none any more.
            step.invalidates = "gone" if self.invalidated else "window"
            self.invalidated = True

    def make(self) -> Case:
        """Up to eight packets, of which one or two are spoiled."""
        for _ in range(self.random.randrange(3, 9)):
            what = self.random.random()
            if what > 0.92:
                self.case.steps.append(self.deed())
                continue
            if self.sent and what < 0.15:
                step = self.repeated()
            elif what < 0.19:
                step = self.answer()
            else:
                before = (self.psn, self.left, self.doing, self.ends)
                step = self.next()
                if self.random.random() < 0.22 and self.spoil(step):
                    self.psn, self.left, self.doing, self.ends = before
                elif step.operation:
                    self.sent.append(replace(step))
            self.spare(step)
            self.case.steps.append(step)
        return self.case
