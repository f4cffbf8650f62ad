"""`softhca demo`: two processes with an adapter each talk RDMA over UDP, and check every byte."""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import softhca
from softhca import VerbsError
from softhca.tools import census
from softhca.tools.capture import CaptureError
from softhca.tools.command import FAILED, Command, CommandError, print_error, print_json
from softhca.tools.endpoint import Endpoint, Service
from softhca.tools.peer_process import peer_process
from softhca.tools.side_channel import SideChannel
from softhca.tools.trial import OPERATIONS, Trial, run_trial
from softhca.uabi.places import directory_for_files

DESCRIPTION = """Starts a second process; each opens an adapter on a loopback address of its own.
SEND, RDMA WRITE, RDMA READ, CMP_SWAP and FETCH_ADD then go both ways over UDP, and every byte that
arrives is compared. Prints a table with latency and bandwidth and leaves a capture. Exit status: 0
only if all of it held."""

DEFAULT_CAPTURE = "softhca-demo.pcapng"

# Lengths around the path MTU, with and without padding; the last is many packets.
_CHECK_SIZES = (0, 1, 2, 3, 5, 64, 255, 4095, 4096, 4097, 12291, 65536, 1048573)
# tshark takes SENDs of 12 bytes and less for broken RPCs of NFS, and would complain of them.
_CHECK_SENDS = tuple(size + 13 if size < 13 else size for size in _CHECK_SIZES)
_CHECK_ATOMICS = 60
_LATENCY_MESSAGES = 200
_LATENCY_BYTES = 8
_BANDWIDTH_ROUNDS = 5
_BANDWIDTH_SIZES = (1 << 18,) * 32
_MEMORY_BYTES = 1 << 24
_DEPTH = 256


@dataclass
class Row:
    """One operation in one direction.

    Attributes:
        error: Why it did not hold; empty if it did.
    """

    operation: str
    initiator: str
    messages: int = 0
    byte_count: int = 0
    latencies_ns: list[int] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    error: str = ""

    @property
    def direction(self) -> str:
        return "A -> B" if self.initiator == "A" else "B -> A"

    @property
    def held(self) -> bool:
        """Whether it was done to its end, and every byte was right."""
        return bool(self.latencies_ns) and not self.error

    @property
    def latency_us(self) -> float | None:
        return statistics.median(self.latencies_ns) / 1000 if self.latencies_ns else None

    @property
    def mib_per_second(self) -> float | None:
        return statistics.median(self.rates) if self.rates else None

    def count(self, trial: Trial) -> None:
        self.messages += len(trial.sizes)
        self.byte_count += trial.byte_count

    def as_json(self) -> dict[str, Any]:
        return {
            "operation": self.operation,
            "direction": self.direction,
            "messages": self.messages,
            "bytes": self.byte_count,
            "latency_us": self.latency_us,
            "mib_per_second": self.mib_per_second,
            "ok": self.held,
            "error": self.error,
        }


@dataclass
class Report:
    """All that the demo has to say."""

    rows: list[Row]
    sides: dict[str, dict[str, Any]] = field(default_factory=dict)
    path_mtu: int = 0
    capture: str = ""
    capture_summary: dict[str, Any] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.errors and not any(row.error for row in self.rows)


def peer(channel: SideChannel) -> None:
    """The second process: its side of every trial, on a new adapter for each phase."""
    while (message := channel.receive("phase"))["phase"]:
        with _open(channel, None) as endpoint:
            channel.send(pid=os.getpid(), gid=str(endpoint.device.gid))
            while "trial" in (message := channel.receive()):
                trial = Trial.from_message(message)
                channel.send(times_ns=run_trial(endpoint, channel, trial, "B"))


def _open(channel: SideChannel, capture: str | None) -> Endpoint:
    endpoint = Endpoint(
        channel, Service.RC, memory_bytes=_MEMORY_BYTES, depth=_DEPTH, capture=capture, link="udp"
    )
    try:
        endpoint.connect()
    except BaseException:
        endpoint.close()
        raise
    return endpoint


class _Demo:
    """The first process: decides what both do, and takes the times."""

    def __init__(self, channel: SideChannel, report: Report) -> None:
        self._channel = channel
        self._report = report

    def run(self) -> None:
        # What is measured is not captured: writing the file would be measured too.
        self._phase(self._report.capture, self._check)
        self._phase(None, self._measure)
        self._channel.send(phase=0)

    def _phase(self, capture: str | None, each_row: Any) -> None:
        self._channel.send(phase=1)
        with _open(self._channel, capture) as endpoint:
            side = self._channel.receive("pid", "gid")
            if capture:
                self._report.sides = {
                    "A": {"pid": os.getpid(), "gid": str(endpoint.device.gid)},
                    "B": {"pid": side["pid"], "gid": side["gid"]},
                }
                self._report.path_mtu = endpoint.path_mtu_bytes
            for row in self._report.rows:
                try:
                    each_row(endpoint, row)
                except (CommandError, VerbsError) as error:
                    row.error = str(error)
                    raise CommandError(
                        f"{row.operation} {row.direction}: {error}", FAILED
                    ) from None
            self._channel.send(phase_ends=True)

    def _run(self, endpoint: Endpoint, row: Row, sizes: tuple[int, ...], paced: bool) -> list[int]:
        trial = Trial(row.operation, row.initiator, sizes, paced)
        self._channel.send(**trial.as_message())
        times_ns = run_trial(endpoint, self._channel, trial, "A")
        theirs = self._channel.receive("times_ns")["times_ns"]
        row.count(trial)
        return times_ns or list(theirs)

    def _check(self, endpoint: Endpoint, row: Row) -> None:
        is_atomic = row.operation in ("CMP_SWAP", "FETCH_ADD")
        sizes = _CHECK_SENDS if row.operation == "SEND" else _CHECK_SIZES
        self._run(endpoint, row, (8,) * _CHECK_ATOMICS if is_atomic else sizes, False)

    def _measure(self, endpoint: Endpoint, row: Row) -> None:
        row.latencies_ns = self._run(endpoint, row, (_LATENCY_BYTES,) * _LATENCY_MESSAGES, True)
        if row.operation in ("CMP_SWAP", "FETCH_ADD"):
            return
        for _ in range(_BANDWIDTH_ROUNDS):
            (time_ns,) = self._run(endpoint, row, _BANDWIDTH_SIZES, False)
            row.rates.append(sum(_BANDWIDTH_SIZES) / (1 << 20) / (time_ns / 1e9))


def perform(capture: str) -> Report:
    """Runs the whole demo; whatever goes wrong is in the report."""
    rows = [Row(operation, initiator) for operation in OPERATIONS for initiator in "AB"]
    report = Report(rows, capture=capture)
    try:
        with peer_process(peer) as channel:
            _Demo(channel, report).run()
        summary = census.verify(capture)
    except CaptureError as error:
        report.errors.append(f"the capture {capture} is not right: {error}")
        return report
    except (CommandError, OSError) as error:
        report.errors.append(str(error))
        return report
    report.capture_summary = summary.as_json()
    if summary.bad_icrc or summary.malformed or not summary.roce:
        report.errors.append(f"the capture {capture} is not right: {summary.as_text()}")
    return report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what `demo` understands."""
    parser.add_argument(
        "--capture",
        metavar="FILE",
        help=f"where the packets go, as pcapng (default: {DEFAULT_CAPTURE}; in a new directory of "
        "temporary files, where none can be written here)",
    )


def _default_capture() -> str:
    """In the working directory; elsewhere where that is somebody else's, or read-only."""
    here = Path(DEFAULT_CAPTURE)
    if os.access(here if here.exists() else Path(), os.W_OK):
        return DEFAULT_CAPTURE
    place = tempfile.mkdtemp(prefix="softhca-demo-", dir=directory_for_files())
    return str(Path(place, DEFAULT_CAPTURE))


def run(args: argparse.Namespace) -> int:
    """Runs the demo and prints what happened."""
    report = perform(_default_capture() if args.capture is None else args.capture)
    if args.json:
        print_json(
            {
                "ok": report.ok,
                "version": softhca.__version__,
                "path_mtu": report.path_mtu,
                "sides": report.sides,
                "rows": [row.as_json() for row in report.rows],
                "capture": report.capture,
                "capture_summary": report.capture_summary,
                "errors": report.errors,
            }
        )
    elif report.ok or any(row.messages or row.error for row in report.rows):
        _print_text(report)
    for error in report.errors:
        print_error(f"softhca demo: {error}")
    return 0 if report.ok else FAILED


_HEADINGS = ("operation", "direction", "messages", "bytes", "checked", "latency", "bandwidth")
_LAYOUT = "{:<10} {:<9} {:>9} {:>11} {:<8} {:>10} {:>12}"


def _print_text(report: Report) -> None:
    print(
        f"softhca {softhca.__version__}: two processes, an adapter each, RC over UDP, "
        f"path MTU {report.path_mtu}"
    )
    for name, side in report.sides.items():
        print(f"  {name}: {side['gid']}, process {side['pid']}")
    print()
    print(_LAYOUT.format(*_HEADINGS))
    for row in report.rows:
        print(_LAYOUT.format(*_cells(row)))
    print()
    if report.ok:
        print(f"All {len(report.rows)} rows held: every byte that arrived was right.")
        print(
            f"Latency: from post to completion, {_LATENCY_BYTES} bytes, the other program asleep; "
            f"median of {_LATENCY_MESSAGES}."
        )
        print(
            f"Bandwidth: messages of {_BANDWIDTH_SIZES[0] >> 10} KiB; median of "
            f"{_BANDWIDTH_ROUNDS} rounds of {sum(_BANDWIDTH_SIZES) >> 20} MiB."
        )
        print(
            f"Capture: {report.capture}, {report.capture_summary['roce']} packets, "
            "every ICRC right."
        )


def _cells(row: Row) -> tuple[str, ...]:
    latency, rate = row.latency_us, row.mib_per_second
    held = "WRONG" if row.error else "all" if row.held else "not run"
    return (
        row.operation,
        row.direction,
        str(row.messages),
        str(row.byte_count),
        held,
        "-" if latency is None else f"{latency:.1f} us",
        "-" if rate is None else f"{rate:.0f} MiB/s",
    )


COMMAND = Command(
    name="demo",
    summary="two processes talk RDMA, every byte checked",
    description=DESCRIPTION,
    add_arguments=add_arguments,
    run=run,
)
