"""One operation in one direction, many times, every byte compared: what the demo is made of."""

from __future__ import annotations

import itertools
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from softhca import CmpSwap, FetchAdd, Read, Send, SendRequest, Write
from softhca.tools.command import FAILED, CommandError
from softhca.tools.endpoint import ATOMIC_BYTES, Endpoint
from softhca.tools.side_channel import SideChannel

OPERATIONS = ("SEND", "WRITE", "READ", "CMP_SWAP", "FETCH_ADD")
_ATOMICS = ("CMP_SWAP", "FETCH_ADD")
_GAP_BYTES = 8  # Between two messages in memory: bytes that must stay zero.
_SEED = 20


@dataclass(frozen=True)
class Trial:
    """What both ends are about to do.

    Attributes:
        operation: One of OPERATIONS.
        initiator: Name of the side that posts; the other's program sleeps meanwhile.
        sizes: Bytes of each message; of atomics only their number counts.
        paced: Wait for each completion before the next post.
    """

    operation: str
    initiator: str
    sizes: tuple[int, ...]
    paced: bool

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> Trial:
        """Reads what `as_message` made."""
        return cls(**message["trial"] | {"sizes": tuple(message["trial"]["sizes"])})

    def as_message(self) -> dict[str, Any]:
        return {"trial": asdict(self)}

    @property
    def byte_count(self) -> int:
        """Bytes that the messages carry."""
        if self.operation in _ATOMICS:
            return ATOMIC_BYTES * len(self.sizes)
        return sum(self.sizes)

    @property
    def memory_bytes(self) -> int:
        """Memory that the trial needs at each end."""
        return layout_of(self.sizes)[-1][1]


@lru_cache
def layout_of(sizes: tuple[int, ...]) -> list[tuple[int, int]]:
    """Where each message lies in memory, as (start, stop), with gaps; the last entry is the end."""
    slots = []
    at = 0
    for size in sizes:
        slots.append((at, at + size))
        at += size + -size % 8 + _GAP_BYTES
    return [*slots, (at, at)]


@lru_cache(maxsize=4)
def image_of(sizes: tuple[int, ...]) -> bytes:
    """What memory shall hold: random bytes where the messages lie, zeros in the gaps."""
    slots = layout_of(sizes)
    generator = random.Random(_SEED + len(sizes))
    parts = []
    for (start, stop), (following, _) in itertools.pairwise(slots):
        parts.append(generator.randbytes(stop - start) + bytes(following - stop))
    return b"".join(parts)


def run_trial(endpoint: Endpoint, channel: SideChannel, trial: Trial, side: str) -> list[int]:
    """One end's part; both ends call it at the same time.

    Returns:
        Nanoseconds from post to completion: of each message if paced, else of all together. Empty
        for the side that does not post.

    Raises:
        CommandError: a byte is wrong, at this end or the other.
        CompletionError: a work request failed.
    """
    end_class = _AtomicEnd if trial.operation in _ATOMICS else _TransferEnd
    end = end_class(endpoint, trial)
    if side == trial.initiator:
        requests = end.prepare_initiator()
        channel.barrier()
        times_ns = _post_all(endpoint, requests, trial.paced)
        channel.barrier()
        end.verify_initiator()
    else:
        end.prepare_target()
        channel.barrier()
        times_ns = []
        channel.barrier()  # The program sleeps here; its adapter answers.
        end.verify_target()
    channel.barrier()
    return times_ns


def _post_all(endpoint: Endpoint, requests: list[SendRequest], paced: bool) -> list[int]:
    total = endpoint.completed
    times_ns = []
    clock = time.perf_counter_ns
    for batch in [[request] for request in requests] if paced else [requests]:
        total += len(batch)
        started_ns = clock()
        endpoint.post_send(batch)
        endpoint.wait_completed(total)
        times_ns.append(clock() - started_ns)
    return times_ns


def _demand(what: str, got: bytes, expected: bytes) -> None:
    if got != expected:
        wrong = sum(a != b for a, b in zip(got, expected, strict=True))
        first = next(at for at in range(len(got)) if got[at] != expected[at])
        raise CommandError(f"{what}: {wrong} bytes are wrong, the first at {first}", FAILED)


class _TransferEnd:
    """SEND, WRITE and READ: the initiator's `outgoing` against the target's `incoming`."""

    def __init__(self, endpoint: Endpoint, trial: Trial) -> None:
        self._endpoint = endpoint
        self._operation = trial.operation
        self._slots = layout_of(trial.sizes)[:-1]
        self._image = image_of(trial.sizes)
        self._already_received = endpoint.received

    def prepare_initiator(self) -> list[SendRequest]:
        endpoint = self._endpoint
        is_read = self._operation == "READ"
        self._fill(endpoint.outgoing, b"" if is_read else self._image)
        make: Callable[..., SendRequest] = {"SEND": Send, "WRITE": Write, "READ": Read}[
            self._operation
        ]
        requests = []
        for start, stop in self._slots:
            where = {} if self._operation == "SEND" else {"remote": endpoint.far[start:stop]}
            requests.append(make(endpoint.outgoing_mr[start:stop], signaled=True, **where))
        return requests

    def prepare_target(self) -> None:
        endpoint = self._endpoint
        self._fill(endpoint.incoming, self._image if self._operation == "READ" else b"")
        if self._operation == "SEND":
            endpoint.post_recv([endpoint.receive_wr(stop, start) for start, stop in self._slots])

    def verify_initiator(self) -> None:
        if self._operation == "READ":
            got = bytes(self._endpoint.outgoing[: len(self._image)])
            _demand("what was read", got, self._image)

    def verify_target(self) -> None:
        if self._operation == "SEND":
            self._endpoint.wait_received(self._already_received + len(self._slots))
        got = bytes(self._endpoint.incoming[: len(self._image)])
        _demand("what arrived", got, self._image)

    def _fill(self, memory: memoryview, content: bytes) -> None:
        memory[: len(self._image)] = content or bytes(len(self._image))


class _AtomicEnd:
    """CMP_SWAP and FETCH_ADD on one word of the target; each original lands apart."""

    def __init__(self, endpoint: Endpoint, trial: Trial) -> None:
        self._endpoint = endpoint
        self._operation = trial.operation
        self._steps = list(_atomic_steps(trial.operation, len(trial.sizes)))

    def prepare_initiator(self) -> list[SendRequest]:
        endpoint = self._endpoint
        far = endpoint.far[:ATOMIC_BYTES]
        make: Callable[..., SendRequest] = CmpSwap if self._operation == "CMP_SWAP" else FetchAdd
        requests: list[SendRequest] = []
        for number, step in enumerate(self._steps):
            at = number * ATOMIC_BYTES
            landing = endpoint.outgoing_mr[at : at + ATOMIC_BYTES]
            requests.append(make(landing, remote=far, signaled=True, **step.operands))
        return requests

    def prepare_target(self) -> None:
        self._endpoint.incoming[:ATOMIC_BYTES] = _word(self._steps[0].original)

    def verify_initiator(self) -> None:
        expected = b"".join(_word(step.original) for step in self._steps)
        _demand("originals", bytes(self._endpoint.outgoing[: len(expected)]), expected)

    def verify_target(self) -> None:
        left = bytes(self._endpoint.incoming[:ATOMIC_BYTES])
        _demand("the word that is left", left, _word(self._steps[-1].result))


@dataclass(frozen=True)
class _AtomicStep:
    operands: dict[str, int]
    original: int
    result: int


def _atomic_steps(operation: str, count: int) -> Iterator[_AtomicStep]:
    """Operands and what they must find and leave; every third CMP_SWAP compares in vain."""
    generator = random.Random(_SEED)
    value = generator.getrandbits(64)
    for number in range(count):
        operand = generator.getrandbits(64)
        if operation == "CMP_SWAP":
            hits = number % 3 != 2
            operands = {"compare": value if hits else value ^ 1, "swap": operand}
            result = operand if hits else value
        else:
            operands = {"add": operand}
            result = (value + operand) % (1 << 64)
        yield _AtomicStep(operands, value, result)
        value = result


def _word(value: int) -> bytes:
    return value.to_bytes(ATOMIC_BYTES, sys.byteorder)
