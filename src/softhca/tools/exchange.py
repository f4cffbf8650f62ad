"""One message at a time between two ends: what pingpong plays and the latency tests time.

The client's `play(number)` is one round; the server's `serve()` is its half of all of them. Rounds
count from 0. A SEND or WRITE is answered in kind; a READ or an atomic is answered by the server's
adapter alone, while its program waits on the side channel.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod

from softhca import FetchAdd, Read, Send, Write
from softhca.tools.command import FAILED, CommandError
from softhca.tools.endpoint import ATOMIC_BYTES, Endpoint, Service
from softhca.tools.payload import Payload
from softhca.tools.side_channel import SideChannel

_CLIENT_SEED, _SERVER_SEED = 1, 2


class Exchange(ABC):
    """One kind of operation, repeated.

    Attributes:
        messages_per_round: Messages that carry data: two where the server answers in kind.
    """

    messages_per_round = 2

    def __init__(
        self, endpoint: Endpoint, channel: SideChannel, size: int, rounds: int, check: bool
    ) -> None:
        self.endpoint = endpoint
        self.channel = channel
        self.size = size
        self.rounds = rounds
        self.check = check
        self._from_client = Payload(size, _CLIENT_SEED)
        self._from_server = Payload(size, _SERVER_SEED)

    @abstractmethod
    def prepare(self) -> None:
        """What each end does before both meet at a barrier and the first round begins."""

    @abstractmethod
    def play(self, number: int) -> None:
        """The client's round `number`."""

    def serve(self) -> None:
        """The server's half of all rounds."""
        self.channel.receive("finished")

    def verify(self, number: int, got: bytes, expected: bytes) -> None:
        """Raises CommandError if a message is not what it should be."""
        if got != expected:
            wrong = next(at for at in range(len(expected)) if got[at] != expected[at])
            raise CommandError(
                f"message {number}: byte {wrong} of {len(expected)} is {got[wrong]:#04x}, "
                f"should be {expected[wrong]:#04x}",
                FAILED,
            )


class _AnsweredExchange(Exchange):
    """What SENDs and WRITEs have in common: both ends post one message a round."""

    _message: Send | Write

    @abstractmethod
    def _wait_for(self, number: int) -> None:
        """Waits until message `number` of the other end is in `incoming`."""

    def prepare(self) -> None:
        self._already_completed = self.endpoint.completed

    def play(self, number: int) -> None:
        self._put(number, self._from_client)
        self._take(number, self._from_server)
        if number + 1 == self.rounds:
            self._wait_until_sent(self.rounds)

    def serve(self) -> None:
        for number in range(self.rounds):
            self._take(number, self._from_client)
            self._put(number, self._from_server)
        self._wait_until_sent(self.rounds)
        super().serve()

    def _wait_until_sent(self, messages: int) -> None:
        self.endpoint.wait_completed(self._already_completed + messages)

    def _put(self, number: int, payload: Payload) -> None:
        self._wait_until_sent(number)  # The memory is in use until then.
        outgoing = self.endpoint.outgoing
        if self.check:
            outgoing[: self.size] = payload[number]
        elif self.size:
            outgoing[self.size - 1] = payload.mark(number)
        self.endpoint.post_send(self._message)

    def _take(self, number: int, payload: Payload) -> None:
        self._wait_for(number)
        if self.check:
            self.verify(number, bytes(self.endpoint.incoming[: self.size]), payload[number])


class SendExchange(_AnsweredExchange):
    """SENDs, answered by SENDs."""

    def prepare(self) -> None:
        super().prepare()
        endpoint = self.endpoint
        self._already_received = endpoint.received
        self._message = Send(endpoint.outgoing_mr[: self.size], signaled=True, **endpoint.options)
        self._receive = endpoint.receive_wr(self.size)
        endpoint.post_recv(self._receive)

    def _wait_for(self, number: int) -> None:
        self.endpoint.wait_received(self._already_received + number + 1)

    def _take(self, number: int, payload: Payload) -> None:
        super()._take(number, payload)
        if number + 1 < self.rounds:
            self.endpoint.post_recv(self._receive)


class WriteExchange(_AnsweredExchange):
    """RDMA WRITEs, answered by RDMA WRITEs; each end watches the last byte of its memory."""

    def prepare(self) -> None:
        super().prepare()
        endpoint = self.endpoint
        self._message = Write(
            endpoint.outgoing_mr[: self.size],
            remote=endpoint.far[: self.size],
            signaled=True,
            **endpoint.options,
        )
        endpoint.incoming[self.size - 1] = 0

    def _wait_for(self, number: int) -> None:
        self.endpoint.wait_byte(self.size - 1, Payload.mark(number))


class _UnansweredExchange(Exchange):
    """What READs and atomics have in common: the client waits for each."""

    messages_per_round = 1

    def _post_and_wait(self, wr: Read | FetchAdd) -> None:
        total = self.endpoint.completed + 1
        self.endpoint.post_send(wr)
        self.endpoint.wait_completed(total)


class ReadExchange(_UnansweredExchange):
    """RDMA READs of what the other end has in `incoming`."""

    def prepare(self) -> None:
        endpoint = self.endpoint
        self._read = Read(
            endpoint.outgoing_mr[: self.size],
            remote=endpoint.far[: self.size],
            signaled=True,
            **endpoint.options,
        )
        self._expected = self._from_server[0]
        endpoint.incoming[: self.size] = self._expected

    def play(self, number: int) -> None:
        outgoing = self.endpoint.outgoing
        if self.check:
            outgoing[: self.size] = bytes(self.size)
        self._post_and_wait(self._read)
        if self.check:
            self.verify(number, bytes(outgoing[: self.size]), self._expected)


class AtomicExchange(_UnansweredExchange):
    """FETCH_ADDs to a counter of the other end."""

    def prepare(self) -> None:
        endpoint = self.endpoint
        self._fetch_add = FetchAdd(
            endpoint.outgoing_mr[:ATOMIC_BYTES],
            remote=endpoint.far[:ATOMIC_BYTES],
            add=1,
            signaled=True,
            **endpoint.options,
        )
        endpoint.incoming[:ATOMIC_BYTES] = bytes(ATOMIC_BYTES)

    def play(self, number: int) -> None:
        self._post_and_wait(self._fetch_add)
        if self.check:
            original = bytes(self.endpoint.outgoing[:ATOMIC_BYTES])
            self.verify(number, original, _counter(number))

    def serve(self) -> None:
        super().serve()
        if self.check:
            left = bytes(self.endpoint.incoming[:ATOMIC_BYTES])
            self.verify(self.rounds, left, _counter(self.rounds))


def _counter(value: int) -> bytes:
    return value.to_bytes(ATOMIC_BYTES, sys.byteorder)


EXCHANGES: dict[str, type[Exchange]] = {
    "send": SendExchange,
    "write": WriteExchange,
    "read": ReadExchange,
    "atomic": AtomicExchange,
}

# What each service type can do (IBTA Vol 1, table 35).
OPERATIONS: dict[Service, tuple[str, ...]] = {
    Service.RC: ("send", "write", "read", "atomic"),
    Service.UC: ("send", "write"),
    Service.UD: ("send",),
    Service.XRC: ("send", "write", "read", "atomic"),
}
