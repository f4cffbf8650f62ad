"""Answers to what a queue pair asks for, and what spoils them."""

from __future__ import annotations

import random
from dataclasses import replace

from packet_bytes import NUMBER, OPERATIONS, is_answer
from packet_requests import FIRST_PSNS, LENGTHS
from packet_steps import MTU, Ask, Case, Step


class Answers:
    """Makes a case of a queue pair that asks, and of answers that are nearly right."""

    def __init__(self, seed: int, number: int) -> None:
        self.random = random.Random(seed * 1_000_003 + number)
        choose = self.random.choice
        psn = choose(FIRST_PSNS)
        self.case = Case(number, "RC", psn, 15, choose((1, 2, 4)), [], -1, asks=True)
        self.case.retries = choose((7, 7, 2, 1, 0))
        self.psn = 0
        # What is to come of each packet that was asked for, as it should be.
        self.due: list[Step] = []
        self.sent: list[Step] = []
        self.msn = 0

    def ask(self) -> Ask:
        """One to four requests."""
        kinds = ("SEND", "SEND", "WRITE", "READ", "READ", "CAS", "FAA")
        requests = []
        for _ in range(self.random.choice((1, 1, 2, 3, 4))):
            operation = self.random.choice(kinds)
            length = 8 if operation in ("CAS", "FAA") else self.random.choice(LENGTHS)
            requests.append((operation, length))
            self.expect(operation, length)
        return Ask(requests)

    def expect(self, operation: str, length: int) -> None:
        packets = max(1, (length + MTU - 1) // MTU)
        self.msn += 1
        for at in range(packets):
            psn = self.psn + at
            name = "ACK"
            payload = 0
            if operation == "READ":
                first, last = at == 0, at + 1 == packets
                name = ("MIDDLE", "LAST", "FIRST", "ONLY")[2 * first + last]
                name = f"RESPONSE_{name}"
                payload = min(MTU, length - at * MTU)
            elif operation in ("CAS", "FAA"):
                name = "ATOMIC_ACK"
            elif at + 1 < packets and self.random.random() < 0.7:
                continue
            step = Step(NUMBER[name], psn, payload, self.random.randrange(1, 256), ack=False)
            step.msn, step.operand = self.msn, self.random.getrandbits(64)
            self.due.append(step)
        self.psn += packets

    def spoil(self, step: Step) -> bool:
        """Changes one thing; whether the right one may come after it."""
        choose = self.random.choice
        way = choose(("psn", "psn", "refuse", "refuse", "order", "payload", "flags", "pad"))
        if way == "psn":
            step.psn += choose((1, 1, -1, 2, -2, 5, 0x7FFFFF, 0x800000))
        elif way == "refuse":
            step.opcode = NUMBER["ACK"]
            step.payload = 0
            # RNR NAKs with a short time alone.
            step.syndrome = choose(
                (0x60, 0x60, 0x61, 0x62, 0x63, 0x64, 0x7F, 0x21, 0x21, 0x40, 0x9F, 0)
            )
        elif way == "order":
            names = [name for name in OPERATIONS if is_answer(name)]
            step.opcode = NUMBER[choose(names)]
        elif way == "payload":
            step.payload = max(0, step.payload + choose((-256, -4, -1, 1, 4, 256)))
        elif way == "pad":
            step.more_pad, step.false_pad = choose(((4, 0), (1, 0), (0, 1), (0, 3)))
        else:
            name, value = choose(
                (
                    ("migrated", False),
                    ("solicited", True),
                    ("congestion", 0x80),
                    ("ack", True),
                    ("msn", 0x123456),
                    ("spoiled", 1),
                    ("version", 1),
                    ("pkey", 0x1234),
                    ("pkey", 0x7FFF),
                    ("wrong_qpn", True),
                    ("syndrome", choose((0x00, 0x21, 0x60, 0x62, 0x40, 0x9F))),
                    ("cut", choose((1, 4, 8))),
                )
            )
            setattr(step, name, value)
        return self.random.random() < 0.7

    def make(self) -> Case:
        """Asks once or twice, and answers most of it."""
        self.case.steps.append(self.ask())
        for _ in range(self.random.randrange(3, 9)):
            what = self.random.random()
            if what < 0.12 or not self.due:
                self.case.steps.append(self.ask())
                continue
            if self.sent and what < 0.2:
                self.case.steps.append(replace(self.random.choice(self.sent)))
                continue
            skipped = 0 if what < 0.85 else self.random.randrange(len(self.due))
            step = replace(self.due[skipped])
            if self.random.random() < 0.25:
                if not self.spoil(step):
                    del self.due[: skipped + 1]
                if step.operation == "ACK":
                    # It may be said again.
                    self.sent += [replace(step)] * 2
            else:
                del self.due[: skipped + 1]
                self.sent.append(replace(step))
            self.case.steps.append(step)
        return self.case
