"""Runs every check between rxe0 here and softhca in namespace "peer"; prints a table.

main.py [--repeat N] [WORD...] runs only the rows that contain one of the words, N times.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator

import checks
import lossy_checks
from connection import CheckError, NotOfferedError
from kernel_side import KernelSide
from remote_side import RemoteSide
from side import Side, gid_text

KERNEL, PEER = "10.9.0.1", "10.9.0.2"
KERNEL_IPV6, PEER_IPV6 = "fd09::1", "fd09::2"
NETEM = ("delay", "1ms", "loss", "2%", "duplicate", "2%", "reorder", "2%")
# The kernel's interface, and where its tc runs.
INTERFACES = {"v0": (), "v1": ("ip", "netns", "exec", "peer")}


def set_netem(on: bool) -> None:
    for device, prefix in INTERFACES.items():
        verb = (
            ("add", "dev", device, "root", "netem", *NETEM)
            if on
            else ("del", "dev", device, "root")
        )
        subprocess.run([*prefix, "tc", "qdisc", *verb], check=True)


def rows(words: list[str]) -> Iterator[tuple[str, int, str, checks.Check]]:
    """(network, path MTU, name, check)."""
    tables = {"clean": checks.CHECKS, "IPv6": checks.CHECKS, "netem": lossy_checks.CHECKS}
    for network, table in tables.items():
        for mtu in (1024,) if network == "IPv6" else (1024, 4096):
            for name, check in table:
                label = f"{network} {name} MTU {mtu}"
                if not words or any(word in label for word in words):
                    yield network, mtu, name, check


def run_one(check: checks.Check, requester: Side, responder: Side, mtu: int) -> str:
    """Runs a check; returns what failed, or nothing."""
    try:
        check(requester, responder, mtu)
    except NotOfferedError:
        raise
    except CheckError as failure:
        return str(failure)
    except Exception:
        return traceback.format_exc()
    return ""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("words", nargs="*")
    arguments = parser.parse_args()
    kernel = KernelSide(gid_text(KERNEL))
    peer = RemoteSide(PEER, "/host/softhca.pcapng")
    ipv6 = (KernelSide(gid_text(KERNEL_IPV6)), RemoteSide(PEER_IPV6))
    passed = failed = 0
    netem_is_on = False
    for network, mtu, name, check in list(rows(arguments.words)) * arguments.repeat:
        if (network == "netem") != netem_is_on:
            netem_is_on = not netem_is_on
            set_netem(netem_is_on)
        here, there = ipv6 if network == "IPv6" else (kernel, peer)
        for requester, responder in ((there, here), (here, there)):
            started = time.monotonic()
            try:
                problem = run_one(check, requester, responder, mtu)
            except NotOfferedError as missing:
                print(f"skip {network:5} MTU {mtu:4} {name}: {missing}", flush=True)
                continue
            seconds = time.monotonic() - started
            passed, failed = passed + (not problem), failed + bool(problem)
            print(
                f"{'FAIL' if problem else 'ok':4} {network:5} MTU {mtu:4} "
                f"{requester.name:>7} -> {responder.name:7} {name:28} {seconds:6.2f} s",
                flush=True,
            )
            if problem:
                print(f"       {problem}", flush=True)
    interesting = ("retransmitted", "out_of_sequence", "duplicate_request", "rnr", "icrc", "retry")
    for side in (kernel, peer):
        counted = {
            name: count
            for name, count in side.counters().items()
            if count and any(word in name for word in interesting)
        }
        print(f"counters of {side.name}: {counted}")
    for side in (peer, ipv6[1]):
        status = side.close()
        if status:
            failed += 1
            print(f"FAIL softhca's process ended with status {status}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
