"""Compares what two systems said to the same verbs: `verbs_compare.py WHICH LEFT RIGHT`.

Both are lists of `verbs_list`. WHICH is `kernel` (LEFT is of Linux's rxe), or the mode that RIGHT
is of: `written` (doorbells that nobody answers), `write-abi` or `two-devices`. Prints each kind of
difference, how often it came, the first case of it, and why it is so where that is known; what
follows a difference in its case is not looked at. Exits with 1 where one is not explained.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from verbs_known import KERNEL, KERNEL_WORDS, TWO_DEVICES, WRITE_ABI, WRITTEN  # noqa: E402

KNOWN = {"kernel": KERNEL, "written": WRITTEN, "write-abi": WRITE_ABI, "two-devices": TWO_DEVICES}
WORDS = {"kernel": KERNEL_WORDS}

Lines = list[tuple[str, str]]


def cases_of(path: Path) -> dict[int, Lines]:
    """What was asked and said, by the number of the case."""
    cases: dict[int, Lines] = defaultdict(list)
    for line in path.read_text().splitlines():
        number, asked, said = line.split("\t")
        cases[int(number)].append((asked, said))
    return cases


def alike(which: str, left: str, right: str, seen: Counter[str]) -> bool:
    """Whether they say the same but for WORDS, whose reasons are counted where they do not."""
    if left == right:
        return True
    for pattern, instead, reason in WORDS.get(which, ()):
        words = re.findall(pattern, left) != re.findall(pattern, right)
        left, right = (re.sub(pattern, instead, said) for said in (left, right))
        seen[reason] += words
    return left == right


def why(which: str, asked: str, left: str, right: str) -> str:
    """Why it is so; empty, if that is not known."""
    for known in KNOWN[which]:
        patterns = (known.asked, known.left, known.right)
        if all(map(re.search, patterns, (asked, left, right))):
            return known.reason
    return ""


def difference(which: str, left: Lines, right: Lines, seen: Counter[str]) -> tuple[str, str] | None:
    """The first of a case: its reason, and what both said. No program may end before its case."""
    for (asked, one), (also_asked, other) in zip(left, right, strict=False):
        if asked != also_asked:
            return "", f"asked {asked!r} and {also_asked!r}"
        if asked == "ended":
            return "", f"the program ended early, with status {one} and {other}"
        if not alike(which, one, other, seen):
            return why(which, asked, one, other), f"{asked}\n    {one}\n    {other}"
    return ("", f"{len(left)} and {len(right)} lines") if len(left) != len(right) else None


def compare(which: str, left: Path, right: Path) -> int:
    """Prints the differences; 1, if one is not explained."""
    return report(which, cases_of(left), cases_of(right))


def report(which: str, *both: dict[int, Lines]) -> int:
    """The same of lists that were read."""
    seen: Counter[str] = Counter()
    found: dict[str, list[tuple[int, str]]] = defaultdict(list)
    numbers = both[0].keys() | both[1].keys()
    for number in sorted(numbers):
        what = difference(which, both[0].get(number, []), both[1].get(number, []), seen)
        if what is not None:
            found[what[0]].append((number, what[1]))
    for reason, times in seen.items():
        if times:
            print(f"{times} lines: {reason}")
    unexplained = found.pop("", [])
    for reason, differences in found.items():
        print(f"{len(differences)} cases, {differences[0][0]} first: {reason}")
    for number, text in unexplained:
        print(f"case {number}: {text}")
    differ = len(unexplained) + sum(map(len, found.values()))
    print(f"{len(numbers)} cases, {differ} differ, {len(unexplained)} unexplained", flush=True)
    return 1 if unexplained or not numbers else 0


if __name__ == "__main__":
    sys.exit(compare(sys.argv[1], *map(Path, sys.argv[2:4])))
