"""Sends packets to queue pairs and prints what comes of them.

`packet_list.py SEED FIRST COUNT --to ADDRESS --from ADDRESS [--netns NAME]`: a line for each packet
of each case, which seed and number make, with what it answers, completes and writes. It uses
libibverbs alone, so that it runs on the kernel's rxe and under `softhca run`, and what they say can
be compared: `tests/interop/run --script packets.sh SEED FIRST COUNT`. The packets come from a
socket at another address, which may be in another network namespace. Of three cases, two are sent
requests, and one asks and is sent answers.

Asynchronous events are not in it: rxe of 6.1 raises none of a responder's.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import socket
import sys
import time
from collections import defaultdict
from itertools import zip_longest
from typing import Any

from packet_answers import Answers
from packet_bytes import NUMBER, PORT, Received, read
from packet_requests import Requests
from packet_steps import MTU, Ask, Case, Deed, Step
from packet_target import Shared, Target

ECHO_QPN, FIRST_PEER_QPN = 0xFFF, 0x1000
# What is sent is answered in turn, but READs in more than one.
ECHOES = 3
LONGEST_SECONDS = 20
# Queue pairs that are asked at once, so that they share one wait for what does not come.
TOGETHER = 64
CLONE_NEWNET = 0x40000000
IP_MTU_DISCOVER, IP_PMTUDISC_DO = 10, 2


def case_of(seed: int, number: int) -> Case:
    """The case of this seed and number."""
    return (Answers if number % 3 == 2 else Requests)(seed, number).make()


class Wire:
    """A socket at the peer's address, which may be in another network namespace."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.source, self.to, self.quiet = options.source, options.to, options.quiet
        libc = ctypes.CDLL(None, use_errno=True)
        with open("/proc/self/ns/net") as home:
            if options.netns is not None:
                with open(f"/run/netns/{options.netns}") as there:
                    if libc.setns(there.fileno(), CLONE_NEWNET):
                        raise OSError(ctypes.get_errno(), "setns")
            self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            # No identification, as the ICRC has it.
            self.socket.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
            self.socket.bind((self.source, PORT))
            if options.netns is not None and libc.setns(home.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")

    def send(self, target: Target, step: Step) -> None:
        octets = step.octets(target, self.source, self.to)
        self.socket.sendto(octets, (self.to, PORT))

    def receive(self, seconds: float) -> bytes:
        """Raises TimeoutError."""
        self.socket.settimeout(seconds)
        return self.socket.recv(65536)


class Batch:
    """Cases that are run together, a packet of each at a time."""

    def __init__(self, shared: Shared, wire: Wire, cases: list[Case]) -> None:
        self.shared, self.wire = shared, wire
        self.targets = [Target(shared, case, FIRST_PEER_QPN + case.number) for case in cases]
        # Answers at once, whatever the others do.
        echo = Case(0, "RC", psn=0, rights=15, resources=1, receives=[], bad_receive=-1)
        self.echo = Target(shared, echo, ECHO_QPN)

    def answers(self) -> dict[int, list[Received]]:
        """What has come when all that was sent has been looked at, by the peer's queue pair."""
        first_psns = {target.peer_qpn: target.psn for target in (*self.targets, self.echo)}
        found: dict[int, list[Received]] = defaultdict(list)

        def take(datagram: bytes) -> bool:
            """Whether it is the echo."""
            qpn = int.from_bytes(datagram[5:8], "big")
            # Others are of queue pairs that are gone.
            if qpn in first_psns:
                found[qpn].append(read(datagram, first_psns[qpn]))
            return qpn == ECHO_QPN

        for _ in range(ECHOES):
            zero_bytes = Step(NUMBER["WRITE_ONLY"], self.echo.next_psn)
            self.echo.next_psn += 1
            self.wire.send(self.echo, zero_bytes)
            while not take(self.wire.receive(LONGEST_SECONDS)):
                pass
        end = time.monotonic() + 10 * self.wire.quiet
        with contextlib.suppress(TimeoutError):
            while time.monotonic() < end:
                take(self.wire.receive(self.wire.quiet))
        return found

    def completions(self) -> dict[int, list[Any]]:
        found: dict[int, list[Any]] = defaultdict(list)
        for cq in (self.shared.send_cq, self.shared.recv_cq):
            while more := cq.poll(64)[1]:
                for wc in more:
                    found[wc.qp_num].append(wc)
        return found

    def told(self, target: Target, answers: list[Received], completions: list[Any]) -> str:
        """What became of one queue pair. What it sends again does not count: when is its affair."""
        said = []
        for answer in answers:
            if target.case.asks and answer.psn < target.next_psn:
                continue
            said.append(answer.words)
            target.next_psn = answer.psn + max(1, (answer.length + MTU - 1) // MTU)
        said += [target.completion(wc) for wc in completions]
        return "; ".join([*said, *target.changes()]) or "-"

    def do(self, target: Target, step: Step | Deed | Ask) -> None:
        if isinstance(step, Deed):
            target.do(step)
        elif isinstance(step, Ask):
            target.ask(step.requests)
        else:
            self.wire.send(target, step)

    def run(self) -> dict[int, list[tuple[str, str]]]:
        """What was asked and told, by the number of the case."""
        lines = {t.case.number: [(t.case.words(), "-")] for t in self.targets}
        turns = [[*target.case.steps, None] for target in self.targets]
        for steps in zip_longest(*turns):
            for target, step in zip(self.targets, steps, strict=True):
                if step is not None:
                    self.do(target, step)
            answers, completions = self.answers(), self.completions()
            for target, step in zip(self.targets, steps, strict=True):
                said = self.told(target, answers[target.peer_qpn], completions[target.qpn])
                asked = "then" if step is None else step.words()
                if step is not None or said != "-":
                    lines[target.case.number].append((asked, said))
        for target in self.targets:
            lines[target.case.number].append(("state", target.state()))
        return lines

    def print(self) -> None:
        """All of it, in the order of the cases."""
        for number, lines in self.run().items():
            for asked, said in lines:
                print(number, asked, said, sep="\t")
        for target in (*self.targets, self.echo):
            target.close()
        sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("seed", "first", "count"):
        parser.add_argument(name, type=int)
    parser.add_argument("--device", default="rxe0")
    parser.add_argument("--to", required=True, help="the device's address")
    parser.add_argument("--from", required=True, dest="source", help="the peer's address")
    parser.add_argument("--netns", help="where the peer's address is")
    parser.add_argument("--quiet", type=float, default=0.02, help="seconds that are long enough")
    options = parser.parse_args()
    wire = Wire(options)
    shared = Shared(options.device, options.to, options.source)
    numbers = range(options.first, options.first + options.count)
    for start in range(0, len(numbers), TOGETHER):
        cases = [case_of(options.seed, number) for number in numbers[start : start + TOGETHER]]
        Batch(shared, wire, cases).print()


if __name__ == "__main__":
    main()
