"""The command line of the benches."""

from __future__ import annotations

import argparse
import importlib
import sys

from bench.contest import Contest
from bench.findings import Finding
from bench.report import details, overview

# In the order of their rows in the table.
QUESTIONS = (
    "post_and_poll",
    "send_latency",
    "send_latency_udp",
    "message_rate",
    "message_rate_udp",
    "bandwidth",
    "bandwidth_send",
    "bandwidth_own",
    "bandwidth_udp",
)


def parser() -> argparse.ArgumentParser:
    """What `python -m bench` takes."""
    made = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    made.add_argument("--only", nargs="+", choices=QUESTIONS, metavar="QUESTION", default=[])
    made.add_argument("--list", action="store_true", help="name the questions and stop")
    made.add_argument("--quick", action="store_true", help="three turns and 4 s a line")
    made.add_argument("--rounds", type=int, default=7, help="turns that must count, of each")
    made.add_argument("--seconds", type=float, default=20.0, help="what a line may take")
    made.add_argument("--no-peers", action="store_true", help="only softhca and the probes")
    return made


def main(words: list[str] | None = None) -> int:
    """Asks the questions, and prints a table for each as it is answered, and one of all."""
    options = parser().parse_args(words)
    modules = {name: importlib.import_module(f"bench.questions.{name}") for name in QUESTIONS}
    if options.list:
        for name, module in modules.items():
            print(f"{name:20} {module.TITLE}")
        return 0
    if options.quick:
        contest = Contest(rounds=3, seconds=4.0, peers=not options.no_peers)
    else:
        contest = Contest(options.rounds, options.seconds, not options.no_peers)
    everything: list[Finding] = []
    for name in options.only or QUESTIONS:
        print(f"\n{modules[name].TITLE}\n", flush=True)
        findings = []
        for finding in modules[name].ask(contest):
            findings.append(finding)
            print(f"  {finding.what}: {finding.verdict or 'measured'}", file=sys.stderr, flush=True)
        print(details(findings), flush=True)
        everything += findings
    print(f"\nAll\n\n{overview(everything)}")
    return 0
