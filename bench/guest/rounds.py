"""In the guest: softhca and the kernel's rxe take turns; prints the turns as a line of JSON each.

python3 -m bench.guest.rounds GID_INDEX ROUNDS SECONDS
"""

from __future__ import annotations

import dataclasses
import json
import sys

from bench.guest.perftest import Perftest
from bench.softhca_sides import SofthcaSides
from bench.turns import Measure, take_turns

# A guest in software emulation does not stand as still as a machine does.
MOST_DRIFT = 0.3
LATENCY_BYTES = 64
STREAM_BYTES = 1 << 20
STREAM_COUNT = 32
WINDOW = 4
PING_PONGS = 480
NAMESPACES = (("ip", "netns", "exec", "west"), ("ip", "netns", "exec", "east"))


def main() -> None:
    """Measures latency, then bytes."""
    gid_index, rounds, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    rxe = Perftest(gid_index)
    with SofthcaSides("udp", ("10.8.0.1", "10.8.0.2"), NAMESPACES) as sides:
        sides.connect("latency", LATENCY_BYTES)
        sides.connect("stream", STREAM_BYTES)
        questions: dict[str, tuple[Measure, Measure]] = {
            "latency": (
                lambda: rxe.latency(LATENCY_BYTES, PING_PONGS),
                lambda: sides.ping_pong("latency", PING_PONGS),
            ),
            "bytes": (
                lambda: rxe.bandwidth(STREAM_BYTES, STREAM_COUNT),
                lambda: sides.stream("stream", "WRITE", STREAM_COUNT, WINDOW),
            ),
        }
        for what, (theirs, ours) in questions.items():
            among = {"softhca": ours}
            taken = take_turns(theirs, among, rounds, seconds, most_drift=MOST_DRIFT)["softhca"]
            turns = [dataclasses.astuple(turn) for turn in taken]
            print(json.dumps({"what": what, "turns": turns}), flush=True)


if __name__ == "__main__":
    main()
