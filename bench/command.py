"""The command line of the benches."""

from __future__ import annotations

import argparse
import importlib
import sys

from bench.build import CannotBuildError
from bench.contest import Contest
from bench.document import PAGE, write
from bench.findings import Finding
from bench.report import details, overview
from bench.steadiness import doubted
from bench.turns import WithdrawnError

# In the order of their rows in the table.
QUESTIONS = (
    "post_and_poll",
    "send_latency",
    "native_latency",
    "send_latency_udp",
    "message_rate",
    "message_rate_udp",
    "bandwidth",
    "bandwidth_send",
    "bandwidth_own",
    "bandwidth_udp",
    "growth",
    "sizes",
)
# Those that need more than a machine has by itself, and minutes.
ASKED_BY_NAME = ("rxe_guest",)


def parser() -> argparse.ArgumentParser:
    """What `python -m bench` takes."""
    made = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    made.add_argument(
        "--only", nargs="+", choices=[*QUESTIONS, *ASKED_BY_NAME], metavar="QUESTION", default=[]
    )
    made.add_argument("--list", action="store_true", help="name the questions and stop")
    made.add_argument("--quick", action="store_true", help="three turns and 4 s a line")
    made.add_argument("--rounds", type=int, default=7, help="turns that must count, of each")
    made.add_argument("--seconds", type=float, default=20.0, help="what a line may take")
    made.add_argument("--write", action="store_true", help="write docs/performance.md and plots")
    made.add_argument("--no-peers", action="store_true", help="only softhca and the probes")
    return made


def ask(name: str, contest: Contest) -> list[Finding]:
    """Asks one question and prints its table; what is found before it fails is kept."""
    module = importlib.import_module(f"bench.questions.{name}")
    print(f"\n{module.TITLE}\n", flush=True)
    findings: list[Finding] = []
    try:
        for finding in module.ask(contest):
            findings.append(finding)
            print(f"  {finding.what}: {finding.verdict or 'measured'}", file=sys.stderr, flush=True)
    except (CannotBuildError, WithdrawnError, OSError, RuntimeError) as error:
        print(f"{name} ends early: {error}", file=sys.stderr)
    if findings:
        print(details(findings), flush=True)
    return findings


def main(words: list[str] | None = None) -> int:
    """Asks the questions, and prints a table for each as it is answered, and one of all."""
    options = parser().parse_args(words)
    if options.list:
        for name in (*QUESTIONS, *ASKED_BY_NAME):
            print(f"{name:20} {importlib.import_module(f'bench.questions.{name}').TITLE}")
        return 0
    rounds, seconds = (3, 4.0) if options.quick else (options.rounds, options.seconds)
    contest = Contest(rounds, seconds, not options.no_peers)
    answers: dict[str, list[Finding]] = {}
    for name in options.only or QUESTIONS:
        answers[importlib.import_module(f"bench.questions.{name}").TITLE] = ask(name, contest)
    answers = doubted(answers)
    everything = [finding for findings in answers.values() for finding in findings]
    goals = [finding for finding in everything if finding.goal.goal is not None]
    if goals:
        print(f"\nAll\n\n{overview(goals)}")
    if options.write:
        write({title: findings for title, findings in answers.items() if findings})
        print(f"\nwritten to {PAGE}")
    return 0 if all(answers.values()) else 1
