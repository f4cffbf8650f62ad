"""Compares what rxe and softhca said to the same packets: `packet_compare.py KERNEL OURS`.

Both are lists of `packet_list.py`. Prints and exits as tests/uabi/verbs_compare.py does, which
does the comparing.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
MTU = 256
# Beside this file in the guest, and not so in the checkout.
sys.path += [str(HERE / "uabi"), str(HERE / "../../uabi")]

import verbs_compare  # noqa: E402
from packet_known import KNOWN, NOT_FULL, WORDS  # noqa: E402


class Past:
    """What a packet means depends on those before it, and is told in words behind it."""

    def __init__(self) -> None:
        self.words = ""
        self.inside = False  # A message of UC.
        self.done_psn = -1  # Of the last request that was answered.
        self.last_psn = -1  # Of the requests that the queue pair has sent itself.
        # Of those among them that no ACK answers: the PSN, and how long a READ is.
        self.owed: list[tuple[int, int]] = []
        self.lengths: list[int] = []  # Of READs that are not sent yet.

    def asked(self, asked: str) -> str:
        """Adds to a packet what it is because of the past."""
        operation, _, rest = asked.partition(" ")
        self.lengths += map(int, re.findall(r"READ:(\d+)", rest))
        if operation.startswith("UC_"):
            self.on_unreliable(operation, rest)
        once = ""
        if re.match("RC_(SEND|WRITE|READ|CAS|FAA)", operation):
            ahead = (int(rest.split()[0]) - self.done_psn - 1) & 0xFFFFFF
            once = " repeats" if ahead >= 0x800000 else ""
        elif self.last_psn >= 0 and operation.startswith("RC_"):
            once = self.on_answer(operation, rest)
        return asked + self.words + once

    def on_unreliable(self, operation: str, rest: str) -> None:
        goes_on = bool(re.search("_(FIRST|MIDDLE)", operation))
        begins = bool(re.search("_(FIRST|ONLY)", operation))
        if self.inside and begins:
            self.words = " anew"
        if re.search(NOT_FULL, f"{operation} {rest}"):
            self.words = " broken"
        self.inside = goes_on or (self.inside and not begins)

    def on_answer(self, operation: str, rest: str) -> str:
        psn = int(rest.split()[0])
        owed, length = self.owed[0] if self.owed else (1 << 24, 0)
        if operation == "RC_ACK":
            skips = psn > self.last_psn or psn >= owed
            lost = skips or re.search("syndrome [26]|pad|bytes", rest)
            self.words = " lost" if lost else self.words
            return " skips" if skips else ""
        self.words = " lost" if psn > owed else self.words
        if operation == "RC_ATOMIC_ACK":
            return ""
        at, packets = psn - owed, max(1, -(-length // MTU))
        place = ("MIDDLE", "LAST", "FIRST", "ONLY")[2 * (at == 0) + (at + 1 == packets)]
        size = min(MTU, length - at * MTU)
        is_right = length >= 0 and 0 <= at < packets and operation == f"RC_RESPONSE_{place}"
        is_right &= (f" bytes {size} " in rest) if size else ("bytes" not in rest)
        return "" if is_right and not re.search("pad|cut", rest) else " wrong"

    def said(self, asked: str, said: str) -> None:
        """Takes what came of it to the past."""
        if asked.startswith("again"):
            self.__dict__.update(Past().__dict__)
        for syndrome in re.findall("RC_ACK .*syndrome ([236].)", said):
            self.words = f" after {syndrome}"
        for psn in re.findall(r"RC_(?:RESPONSE_\w+|ACK|ATOMIC_ACK) (\S+) (?!syndrome [236])", said):
            self.done_psn = max(self.done_psn, int(psn))
        for operation, psn in re.findall(r"RC_(SEND|WRITE|READ|CAS|FAA)\S* ([+-]\d+)", said):
            self.last_psn = int(psn)
            if operation in ("READ", "CAS", "FAA"):
                is_read = operation == "READ" and self.lengths
                self.owed.append((int(psn), self.lengths.pop(0) if is_read else -1))
        del self.owed[: len(re.findall(r"\[\d+ op [234]\]", said))]


def with_past(lines: verbs_compare.Lines) -> verbs_compare.Lines:
    """The same lines; a packet is told with its past."""
    told, past = [], Past()
    for asked, said in lines:
        told.append((past.asked(asked), said))
        past.said(asked, said)
        if re.match("RC_(READ|CAS|FAA).* repeats$", told[-1][0]):
            # A READ that is repeated in part is answered as a request of its own (9.7.5.1.4), by
            # rxe as the rest of the old one; and rxe gives the MSN of now, softhca that of then.
            said = re.sub(r"RESPONSE_\w+", "RESPONSE", said)
            said = re.sub(r" msn \d+|(?<=RESPONSE)( \S+) syndrome 1f", r"\1", said)
            told[-1] = (told[-1][0], said)
    return told


def compare(left: Path, right: Path) -> int:
    """Prints the differences; 1, if one is not explained."""
    both = (verbs_compare.cases_of(path) for path in (left, right))
    told = ({n: with_past(lines) for n, lines in cases.items()} for cases in both)
    verbs_compare.KNOWN["packets"], verbs_compare.WORDS["packets"] = KNOWN, WORDS
    return verbs_compare.report("packets", *told)


if __name__ == "__main__":
    sys.exit(compare(*map(Path, sys.argv[1:3])))
