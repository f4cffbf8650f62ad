"""In the guest: softhca and the kernel's rxe take turns; prints a line of JSON for each of us.

python3 -m bench.guest.rounds GID_INDEX ROUNDS SECONDS
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

from bench.guest.perftest import Perftest
from bench.probes import Probe
from bench.softhca_sides import SofthcaSides
from bench.turns import Measure, take_turns

# A guest in software emulation does not stand as still as a machine does.
MOST_DRIFT = 0.3
LATENCY_BYTES = 64
STREAM_BYTES = 1 << 20
STREAM_COUNT = 24
WINDOW = 4
# The emulator translates what it has not seen; most of so many find everything translated.
PING_PONGS = 2000
# What a datagram carries with a path MTU of 4096.
DATAGRAM_BYTES = 4096
WEST = ("ip", "netns", "exec", "west")
EAST = ("ip", "netns", "exec", "east")


def bare(program: str, size: int, count: int) -> Measure:
    """Sockets without RDMA, over loopback: what either network pays before it does its work."""
    probe = Probe(Path("/host/probes", program))
    return lambda: probe.read(size, count)


def main() -> None:
    """Measures latency, then bytes."""
    gid_index, rounds, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    rxe = Perftest(gid_index)
    udp = SofthcaSides("udp", ("10.8.0.1", "10.8.0.2"), (WEST, EAST))
    # Addresses of loopback, in a network namespace whose port rxe has not taken.
    shared = SofthcaSides(before=(WEST, WEST))
    with udp, shared:
        for sides in (udp, shared):
            sides.connect("latency", LATENCY_BYTES)
            sides.connect("stream", STREAM_BYTES)
        datagrams = STREAM_COUNT * STREAM_BYTES // DATAGRAM_BYTES
        questions: dict[str, tuple[Measure, dict[str, Measure]]] = {
            "latency": (
                lambda: rxe.latency(LATENCY_BYTES, PING_PONGS),
                {
                    "shared": lambda: shared.ping_pong("latency", PING_PONGS),
                    "udp": lambda: udp.ping_pong("latency", PING_PONGS),
                    "bare": bare("udp_round_trip", LATENCY_BYTES, PING_PONGS),
                },
            ),
            "bytes": (
                lambda: rxe.bandwidth(STREAM_BYTES, STREAM_COUNT),
                {
                    "shared": lambda: shared.stream("stream", "WRITE", STREAM_COUNT, WINDOW),
                    "udp": lambda: udp.stream("stream", "WRITE", STREAM_COUNT, WINDOW),
                    "bare": bare("udp_stream", DATAGRAM_BYTES, datagrams),
                },
            ),
        }
        for what, (theirs, among) in questions.items():
            taken = take_turns(theirs, among, rounds, seconds, most_drift=MOST_DRIFT)
            for who, turns in taken.items():
                figures = [dataclasses.astuple(turn) for turn in turns]
                print(json.dumps({"what": what, "who": who, "turns": figures}), flush=True)


if __name__ == "__main__":
    main()
