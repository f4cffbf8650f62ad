"""Runs every check between rxe0 here and softhca in namespace "peer"; prints a table.

main.py [PART...] runs only the parts whose name contains one of the words.
"""

from __future__ import annotations

import subprocess
import sys
import time
import traceback
from collections.abc import Iterator

import checks
import lossy_checks
from connection import CheckError
from kernel_side import KernelSide
from remote_side import RemoteSide
from side import Side, gid_text

KERNEL, PEER = "10.9.0.1", "10.9.0.2"
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
    for network, table in (("clean", checks.CHECKS), ("netem", lossy_checks.CHECKS)):
        for mtu in (1024, 4096):
            for name, check in table:
                label = f"{network} {name} MTU {mtu}"
                if not words or any(word in label for word in words):
                    yield network, mtu, name, check


def run_one(check: checks.Check, requester: Side, responder: Side, mtu: int) -> str:
    """Runs a check; returns what failed, or nothing."""
    try:
        check(requester, responder, mtu)
    except CheckError as failure:
        return str(failure)
    except Exception:
        return traceback.format_exc()
    return ""


def main() -> int:
    kernel = KernelSide(gid_text(KERNEL))
    peer = RemoteSide(PEER, "/host/softhca.pcapng")
    passed = failed = 0
    network_now = "clean"
    for network, mtu, name, check in rows(sys.argv[1:]):
        if network != network_now:
            set_netem(network == "netem")
            network_now = network
        for requester, responder in ((peer, kernel), (kernel, peer)):
            started = time.monotonic()
            problem = run_one(check, requester, responder, mtu)
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
    status = peer.close()
    if status:
        failed += 1
        print(f"FAIL softhca's process ended with status {status}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
