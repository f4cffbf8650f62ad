"""`softhca perf TEST [HOST]`: latency and bandwidth, in perftest's terms and columns."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from dataclasses import asdict
from typing import Any

from softhca.tools import meeting
from softhca.tools.command import Command, CommandError, count_of, demand_whole, print_json
from softhca.tools.endpoint import ATOMIC_BYTES, Endpoint, Service
from softhca.tools.perf_tests import (
    TX_DEPTH,
    Measurement,
    measure_bandwidth,
    serve_bandwidth,
    serve_latency,
    time_latency,
)
from softhca.tools.side_channel import SideChannel

DESCRIPTION = """Without HOST, waits for a client and does what it asks for. With HOST, goes there
and measures. *_lat: one message at a time; half of a round trip for send and write, post to
completion for read and atomic. *_bw: the send queue is kept full. Python posts and polls, so small
messages measure Python too."""

TESTS = ("send_lat", "send_bw", "write_lat", "write_bw", "read_lat", "read_bw", "atomic_lat")
ALL_SIZES = tuple(1 << power for power in range(1, 21))
_MAX_BYTES = 1 << 30
_MAX_ITERS = 1 << 30

# Without --iters: as perftest, but no more than a few seconds of long messages.
_LATENCY_ITERS = 1000
_BANDWIDTH_ITERS = 5000
_BANDWIDTH_BYTES = 1 << 28
_FEWEST_ITERS = 128

_PROGRESS_SECONDS = 0.1
_MIB = 1 << 20


def measure(
    channel: SideChannel, measurements: list[Measurement], args: argparse.Namespace
) -> dict[str, Any]:
    """The client's end; returns a row per measurement."""
    channel.send(measurements=[asdict(what) for what in measurements], mtu=args.mtu)
    with _endpoint(channel, measurements, args.mtu, args.address, args.capture) as endpoint:
        rows: list[dict[str, Any]] = []
        result: dict[str, Any] = {
            "test": measurements[0].test,
            "path_mtu": endpoint.path_mtu_bytes,
            "tx_depth": TX_DEPTH,
            "local": str(endpoint.device.gid),
            "remote": str(endpoint.peer.gid),
            "rows": rows,
        }
        if not args.json:
            _print_head(result)
        for what in measurements:
            progress = _ProgressLine(what)
            if what.is_latency:
                row = _latency_row(what, time_latency(endpoint, channel, what, progress.show))
            else:
                bandwidth = measure_bandwidth(endpoint, channel, what, progress.show)
                row = {
                    "bytes": what.size,
                    "iterations": what.iters,
                    "bw_peak_mib_s": bandwidth.peak / _MIB,
                    "bw_average_mib_s": bandwidth.average / _MIB,
                    "msg_rate_mpps": bandwidth.messages_per_second / 1e6,
                }
            progress.clear()
            rows.append(row)
            if not args.json:
                _print_row(row)
        counters = endpoint.initiator.counters
        result["retransmitted_pkts"] = counters.retransmitted_pkts
        result["rcvd_rnr_err"] = counters.rcvd_rnr_err
    return result


def serve(channel: SideChannel, address: str | None = None, capture: str | None = None) -> None:
    """The server's end of whatever the client asks for."""
    message = channel.receive("measurements", "mtu")
    if message["mtu"] is not None:
        demand_whole(mtu=message["mtu"])
    try:
        measurements = [Measurement(**what) for what in message["measurements"]]
        for what in measurements:
            _demand_possible(what)
    except TypeError as error:
        raise CommandError(f"the other end asks for what cannot be measured: {error}") from None
    with _endpoint(channel, measurements, message["mtu"], address, capture) as endpoint:
        for what in measurements:
            if what.is_latency:
                serve_latency(endpoint, channel, what)
            else:
                serve_bandwidth(endpoint, channel, what)


def _demand_possible(what: Measurement) -> None:
    if what.test not in TESTS:
        raise CommandError(f"there is no test {what.test}")
    demand_whole(size=what.size, iters=what.iters)
    if not 1 <= what.size <= _MAX_BYTES or not 1 <= what.iters <= _MAX_ITERS:
        raise CommandError(f"{what.size} bytes, {what.iters} times is out of range")


def _endpoint(
    channel: SideChannel,
    measurements: list[Measurement],
    mtu: int | None,
    address: str | None,
    capture: str | None,
) -> Endpoint:
    if not measurements:
        raise CommandError("there is nothing to measure")
    endpoint = Endpoint(
        channel,
        Service.RC,
        memory_bytes=max(what.size for what in measurements),
        depth=TX_DEPTH,
        address=address or channel.local_address,
        capture=capture,
        mtu=mtu,
    )
    try:
        endpoint.connect()
    except BaseException:
        endpoint.close()
        raise
    return endpoint


def _latency_row(what: Measurement, times_us: list[float]) -> dict[str, Any]:
    ordered = sorted(times_us)
    return {
        "bytes": what.size,
        "iterations": what.iters,
        "t_min_usec": ordered[0],
        "t_max_usec": ordered[-1],
        "t_typical_usec": statistics.median(ordered),
        "t_avg_usec": statistics.fmean(ordered),
        "t_stdev_usec": statistics.stdev(ordered) if len(ordered) > 1 else 0.0,
        "t_99_usec": _percentile(ordered, 0.99),
        "t_99_9_usec": _percentile(ordered, 0.999),
    }


def _percentile(ordered: list[float], share: float) -> float:
    """The smallest value that `share` of all do not exceed."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


class _ProgressLine:
    """A line on stderr that is overwritten until the row is there; nothing if it is no terminal."""

    def __init__(self, what: Measurement) -> None:
        self._what = what
        self._live = sys.stderr is not None and sys.stderr.isatty()  # It may be closed.
        self._shown = time.monotonic()

    def show(self, done: int, total: int) -> None:
        if not self._live or (now := time.monotonic()) - self._shown < _PROGRESS_SECONDS:
            return
        self._shown = now
        print(
            f"\r\033[K{self._what.test} {self._what.size} bytes: {100 * done // total} %",
            end="",
            file=sys.stderr,
            flush=True,
        )

    def clear(self) -> None:
        if self._live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


_LATENCY_HEAD = (
    " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]"
    "    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]"
)
_BANDWIDTH_HEAD = (
    " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]"
)


def _print_head(result: dict[str, Any]) -> None:
    print(
        f" {result['test']}: RC, path MTU {result['path_mtu']}, TX depth {TX_DEPTH}, "
        f"{result['local']} to {result['remote']}"
    )
    print(_LATENCY_HEAD if result["test"].endswith("_lat") else _BANDWIDTH_HEAD, flush=True)


def _print_row(row: dict[str, Any]) -> None:
    if "t_min_usec" in row:
        text = (
            f" {row['bytes']:<7} {row['iterations']:<14} {row['t_min_usec']:<14.2f}"
            f" {row['t_max_usec']:<13.2f} {row['t_typical_usec']:<16.2f} {row['t_avg_usec']:<14.2f}"
            f" {row['t_stdev_usec']:<16.2f} {row['t_99_usec']:<22.2f} {row['t_99_9_usec']:<.2f}"
        )
    else:
        text = (
            f" {row['bytes']:<10} {row['iterations']:<14} {row['bw_peak_mib_s']:<19.2f}"
            f" {row['bw_average_mib_s']:<21.2f} {row['msg_rate_mpps']:<.6f}"
        )
    print(text, flush=True)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what `perf` understands."""
    parser.add_argument("test", choices=TESTS, metavar="TEST", help=", ".join(TESTS))
    meeting.add_arguments(parser)
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument(
        "--size",
        type=count_of(1, _MAX_BYTES),
        help="bytes of a message; K and M understood (default: 2 for latency, 65536 for bandwidth)",
    )
    sizes.add_argument("--all", action="store_true", help="2 bytes to 1 MiB")
    parser.add_argument(
        "--iters",
        type=count_of(1, _MAX_ITERS),
        help=f"messages of each size (default: {_LATENCY_ITERS} for latency, {_BANDWIDTH_ITERS} "
        f"for bandwidth, fewer of long ones)",
    )
    parser.add_argument(
        "--plot", metavar="FILE.png", help="draw the rows too (needs softhca[plot])"
    )


def run(args: argparse.Namespace) -> int:
    """Measures, or waits for a client and serves it."""
    if args.host is None and not args.both:
        with meeting.server_channel(COMMAND, args) as channel:
            serve(channel, args.address, args.capture)
        if args.json:
            print_json({"served": True})
        return 0
    draw = _drawing(args.plot) if args.plot else None
    measurements = [Measurement(args.test, size, _iters(args, size)) for size in _sizes(args)]
    with meeting.client_channel(args, serve) as channel:
        result = measure(channel, measurements, args)
    if draw is not None:
        draw(result, args.plot)
    if args.json:
        print_json(result)
    return 0


def _sizes(args: argparse.Namespace) -> tuple[int, ...]:
    if args.test == "atomic_lat":
        if args.all or args.size not in (None, ATOMIC_BYTES):
            raise CommandError(f"atomics have {ATOMIC_BYTES} bytes")
        return (ATOMIC_BYTES,)
    if args.all:
        return ALL_SIZES
    return (args.size or (2 if args.test.endswith("_lat") else 65536),)


def _iters(args: argparse.Namespace, size: int) -> int:
    if args.iters is not None:
        return int(args.iters)
    if args.test.endswith("_lat"):
        return _LATENCY_ITERS
    return max(_FEWEST_ITERS, min(_BANDWIDTH_ITERS, _BANDWIDTH_BYTES // size))


def _drawing(path: str) -> Any:
    """The function that draws; asked for before the measurement, so that nobody waits in vain."""
    try:
        from softhca.tools.plot import draw, formats
    except ImportError:
        raise CommandError("--plot needs matplotlib: pip install 'softhca[plot]'") from None
    folder, ending = os.path.dirname(path), os.path.splitext(path)[1]
    if ending and ending[1:].lower() not in formats():
        raise CommandError(f"--plot {path}: must end in one of {', '.join(formats())}")
    if folder and not os.path.isdir(folder):
        raise CommandError(f"--plot {path}: there is no folder {folder}")
    return draw


COMMAND = Command(
    name="perf",
    summary="latency and bandwidth, as perftest measures them",
    description=DESCRIPTION,
    add_arguments=add_arguments,
    run=run,
)
