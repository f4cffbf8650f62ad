"""Where the time of a measurement goes, by sampling: what is printed where a goal is missed.

`perf` interrupts the processes of both sides a few thousand times a second and notes where each
one is. Waiting shows as well, since both sides look for what is to come instead of sleeping.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.turns import Measure

SAMPLES_A_SECOND = 4000
SECONDS = 2.0
# A function is named from this share of a side's samples on.
LEAST_SHARE = 0.03

SAMPLE = re.compile(r"^\s*(\d+)\s+[0-9a-f]+ (.*) \((.*)\)$")
# Arguments of functions, and what compilers append to the names of their parts.
NOT_NAME = re.compile(
    r"\((?!anonymous).*|<.*|\.(?:isra|constprop|part|cold|lto_priv)\b.*|\[clone .*"
)
MODULE = "_adapter"
# The instruction that moves payload is in assembly, between labels.
PLAIN_NAMES = dict.fromkeys(("copy", "copy_fault"), "copy of payload")


@dataclass(frozen=True, slots=True)
class Profile:
    """Samples of processes.

    Attributes:
        samples: By process, how many there are in all.
        places: By place, a group and a function ("" for the rest of the group), the share of each
            process's samples.
        missing: Why there are none; empty if there are.
    """

    samples: Mapping[str, int]
    places: Mapping[tuple[str, str], Mapping[str, float]]
    missing: str = ""


def none(why: str) -> Profile:
    """A profile that could not be taken."""
    return Profile({}, {}, why)


def sample(processes: Mapping[str, int], measure: Measure) -> Profile:
    """Measures for some seconds while `perf` looks; the figures do not count.

    Args:
        processes: Name to process identifier.
        measure: What they are kept busy with.
    """
    if shutil.which("perf") is None:
        return none("perf is not installed")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        kept = str(Path(folder, "samples"))
        command = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(SAMPLES_A_SECOND)]
        command += ["-o", kept, "-p", ",".join(map(str, processes.values()))]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as perf:
            end = time.monotonic() + SECONDS
            while perf.poll() is None and time.monotonic() < end:
                measure()
            perf.send_signal(signal.SIGINT)
            _, said = perf.communicate()
        if not Path(kept).exists():
            return none((said.strip().splitlines() or ["perf kept nothing"])[-1])
        command = ["perf", "script", "-i", kept, "-F", "pid,ip,sym,dso", "--demangle"]
        done = subprocess.run(command, capture_output=True, text=True)
        return profile_of(done.stdout.splitlines(), processes)


def profile_of(lines: Iterable[str], processes: Mapping[str, int]) -> Profile:
    """What the lines of `perf script` say."""
    names = {pid: name for name, pid in processes.items()}
    counts: dict[str, Counter[tuple[str, str]]] = {name: Counter() for name in processes}
    for line in lines:
        if (found := SAMPLE.match(line)) and (name := names.get(int(found.group(1)))):
            counts[name][place_of(found.group(2), found.group(3))] += 1
    samples = {name: count.total() for name, count in counts.items()}
    if not all(samples.values()):
        return none("perf saw nothing of a side")
    shares: dict[tuple[str, str], dict[str, float]] = {}
    for name, count in counts.items():
        for place, times in count.items():
            shares.setdefault(place, {})[name] = times / samples[name]
    return Profile(samples, folded(shares))


def place_of(symbol: str, binary: str) -> tuple[str, str]:
    """The group and the function of a sample; of Python, its loop and its calls are one."""
    function = NOT_NAME.sub("", symbol).strip()
    if MODULE in Path(binary).name or function.startswith(("softhca::", "softhca_")):
        short = function.replace("softhca::", "").replace("(anonymous namespace)::", "")
        short = short.removeprefix("softhca_")
        return "softhca", PLAIN_NAMES.get(short, short)
    if binary.startswith("[vdso") or (binary.startswith("/") and "/libc" in binary):
        return "C library", function
    if binary.startswith("["):
        return "kernel", function
    return "Python" if "python" in binary else Path(binary).name, ""


def folded(
    shares: Mapping[tuple[str, str], Mapping[str, float]],
) -> dict[tuple[str, str], dict[str, float]]:
    """Puts what is small together, and the groups and their functions in the order of size."""
    kept: dict[tuple[str, str], dict[str, float]] = {}
    groups: Counter[str] = Counter()
    for (group, function), of_sides in shares.items():
        groups[group] += sum(of_sides.values())  # type: ignore[assignment]
        named = max(of_sides.values()) >= LEAST_SHARE
        place = kept.setdefault((group, function if named else ""), {})
        for name, share in of_sides.items():
            place[name] = place.get(name, 0.0) + share

    def order(place: tuple[str, str]) -> tuple[float, str, bool, float]:
        return -groups[place[0]], place[0], not place[1], -sum(kept[place].values())

    return {
        place: kept[place]
        for place in sorted(kept, key=order)
        if max(kept[place].values()) >= LEAST_SHARE / 3
    }
