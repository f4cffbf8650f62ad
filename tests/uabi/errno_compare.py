"""Compares what two systems said to the same commands: `errno_compare.py KERNEL OURS`.

Both are lists of `errno_list.py`. Prints each kind of difference, how often it came, the first
command of it, and why it is so where that is known. Exits with 1 where one is not explained.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

# Command, what the kernel says, what we say, and why.
KNOWN = (
    (r".* 57 extended", "ENOTSUP", ".*", "rxe moderates no completion queues, we do"),
    (r"method 0,4", "ENOTSUP", ".*", "contexts of rxe cannot be imported, ours can"),
    (
        r"(write|invoke) (5|26|26 extended)|method 0,6",
        "ENETUNREACH|ENODATA|EINVAL",
        "ENODATA|EINVAL|ENETUNREACH",
        "another GID table: ours has 16 entries, rxe's 1,024, and its first is of IPv6",
    ),
    (r"method 0,6", "0", "ENODATA", "another GID table: rxe has an entry there, we have none"),
    (
        r".* 26( extended)?",
        "0",
        "EINVAL",
        "rxe looks at no P_Key index, of which there is one",
    ),
    (
        r".* (18|19|24|32|39)( extended)?|method [345],0",
        "0|EINVAL",
        "0|EINVAL",
        "other limits of sizes, as ibv_devinfo -v shows them",
    ),
    (r".* 33", "0", "ENOTSUP", "shared receive queues keep their size"),
    (r".* 9", "EINVAL", "ENOTSUP", "pages on demand: later kernels say EOPNOTSUPP too"),
)


def answers(path: str) -> dict[str, tuple[str, str]]:
    """Command and errno by the number."""
    lines = (line.split("\t") for line in Path(path).read_text().splitlines())
    return {number: (command, said) for number, command, said in lines}


def why(command: str, kernel: str, ours: str) -> str:
    """Why it is so; empty, if that is not known."""
    for pattern, one, other, reason in KNOWN:
        if all(map(re.fullmatch, (pattern, one, other), (command, kernel, ours))):
            return reason
    return ""


def main() -> int:
    """Prints the differences; 1, if one is not explained."""
    kernel, ours = map(answers, sys.argv[1:3])
    found: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    missing = kernel.keys() ^ ours.keys()
    for number in kernel.keys() & ours.keys():
        command, said = kernel[number]
        if ours[number] != (command, said):
            found[command, said, ours[number][1]].append(number)
    unexplained = len(missing)
    for kind, numbers in sorted(found.items()):
        reason = why(*kind)
        unexplained += 0 if reason else len(numbers)
        print(*kind, len(numbers), min(numbers, key=int), reason or "?", sep="\t")
    differ = sum(map(len, found.values()))
    print(f"{len(kernel)} commands, {differ} differ, {unexplained} unexplained")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
