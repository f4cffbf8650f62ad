"""The measurements behind `softhca perf`: both ends of latency and bandwidth, for one size."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from softhca import Read, Send, SendRequest, Write
from softhca.tools.endpoint import Endpoint
from softhca.tools.exchange import EXCHANGES
from softhca.tools.side_channel import SideChannel

TX_DEPTH = 128
RX_DEPTH = 2 * TX_DEPTH
# Work requests posted at once; the last of each batch is signaled. Long messages go one by one.
_BATCH = 16
_BATCH_BYTES = 1 << 16
_WARM_UP_SHARE = 10  # One tenth more rounds go first and are not counted.
_WARM_UP_MOST = 100

# Says that `done` of `total` rounds are over.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Measurement:
    """What both ends are about to do.

    Attributes:
        test: Such as "write_bw".
        size: Bytes of a message.
        iters: Messages that count.
    """

    test: str
    size: int
    iters: int

    @property
    def operation(self) -> str:
        return self.test.partition("_")[0]

    @property
    def is_latency(self) -> bool:
        return self.test.endswith("_lat")

    @property
    def warm_up(self) -> int:
        return min(self.iters // _WARM_UP_SHARE, _WARM_UP_MOST)


def time_latency(
    endpoint: Endpoint, channel: SideChannel, what: Measurement, progress: Progress
) -> list[float]:
    """The client's end; returns microseconds, one way where the server answers in kind."""
    rounds = what.warm_up + what.iters
    exchange = EXCHANGES[what.operation](endpoint, channel, what.size, rounds, check=False)
    exchange.prepare()
    channel.barrier()
    clock = time.perf_counter_ns
    times_ns = []
    for number in range(rounds):
        started_ns = clock()
        exchange.play(number)
        times_ns.append(clock() - started_ns)
        progress(number + 1, rounds)
    channel.send(finished=True)
    channel.receive("satisfied")
    divisor = 1000 * exchange.messages_per_round
    return [time_ns / divisor for time_ns in times_ns[what.warm_up :]]


def serve_latency(endpoint: Endpoint, channel: SideChannel, what: Measurement) -> None:
    """The server's end of it."""
    rounds = what.warm_up + what.iters
    exchange = EXCHANGES[what.operation](endpoint, channel, what.size, rounds, check=False)
    exchange.prepare()
    channel.barrier()
    exchange.serve()
    channel.send(satisfied=True)


@dataclass(frozen=True)
class Bandwidth:
    """Bytes per second: the best window of one queue's depth, and all over."""

    peak: float
    average: float
    messages_per_second: float


def measure_bandwidth(
    endpoint: Endpoint, channel: SideChannel, what: Measurement, progress: Progress
) -> Bandwidth:
    """The client's end: keeps the send queue full."""
    channel.barrier()
    _stream(endpoint, what, what.warm_up, lambda done, total: None)
    marks = _stream(endpoint, what, what.iters, progress)
    channel.send(finished=True)
    channel.receive("satisfied")
    started, ended = marks[0], marks[-1]
    per_second = (ended.messages - started.messages) / (ended.seconds - started.seconds)
    return Bandwidth(
        peak=_peak(marks, per_second) * what.size,
        average=per_second * what.size,
        messages_per_second=per_second,
    )


@dataclass(frozen=True, slots=True)
class _Mark:
    """So many messages had completed at that time of the adapter's clock."""

    messages: int
    seconds: float


def _requests(endpoint: Endpoint, what: Measurement) -> tuple[SendRequest, SendRequest]:
    """The same request unsignaled and signaled."""
    if what.operation == "read":
        landing = endpoint.outgoing_mr[: what.size]
        far = endpoint.far[: what.size]
        return Read(landing, remote=far), Read(landing, remote=far, signaled=True)
    source = endpoint.outgoing_mr[: what.size]
    if what.operation == "write":
        far = endpoint.far[: what.size]
        return Write(source, remote=far), Write(source, remote=far, signaled=True)
    return Send(source), Send(source, signaled=True)


def _stream(endpoint: Endpoint, what: Measurement, total: int, progress: Progress) -> list[_Mark]:
    """Posts `total` messages; returns when how many had completed, from before the first on."""
    unsignaled, signaled = _requests(endpoint, what)
    batch = max(1, min(_BATCH, _BATCH_BYTES // what.size))
    posted = done = 0
    marks = [_Mark(0, time.monotonic())]
    endpoint.send_times_ns.clear()
    while done < total:
        while posted < total and posted - done + batch <= TX_DEPTH:
            count = min(batch, total - posted)
            endpoint.post_send([unsignaled] * (count - 1) + [signaled])
            posted += count
        endpoint.wait_completed(endpoint.completed + 1)
        while endpoint.send_times_ns:
            done = min(total, done + batch)
            marks.append(_Mark(done, endpoint.send_times_ns.popleft() / 1e9))
        progress(done, total)
    return marks


def _peak(marks: list[_Mark], average: float) -> float:
    """Messages per second in the best window that is a send queue long; few marks have none."""
    best = average
    behind = 0
    for mark in marks:
        while mark.messages - marks[behind + 1].messages >= TX_DEPTH:
            behind += 1
        window = mark.messages - marks[behind].messages
        if window >= TX_DEPTH and mark.seconds > marks[behind].seconds:
            best = max(best, window / (mark.seconds - marks[behind].seconds))
    return best


def serve_bandwidth(endpoint: Endpoint, channel: SideChannel, what: Measurement) -> None:
    """The server's end: replaces the receives that SENDs use up; has no part in the rest."""
    if what.operation == "send":
        total = what.warm_up + what.iters
        receive = endpoint.receive_wr(what.size)
        posted = min(RX_DEPTH, total)
        endpoint.post_recv([receive] * posted)
        already = endpoint.received
        channel.barrier()
        while (received := endpoint.received - already) < total:
            missing = min(total, received + RX_DEPTH) - posted
            if missing:
                endpoint.post_recv([receive] * missing)
                posted += missing
            endpoint.wait_received(endpoint.received + 1)
    else:
        channel.barrier()
    channel.receive("finished")
    channel.send(satisfied=True)
