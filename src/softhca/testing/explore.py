"""Looking for the seed that fails: many runs, and a fault script that is no longer than it must."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from softhca.testing.errors import FabricError
from softhca.testing.fabric import Fabric
from softhca.testing.programs import demand_no_coroutine
from softhca.verbs.checks import unsigned

Test = Callable[[Fabric], object]

# Runs that shrinking may take.
_SHRINKING_RUNS = 400


@dataclass(frozen=True)
class Finding:
    """A run that failed.

    Attributes:
        seed: Of the fabric.
        error: What the test raised.
        strikes: Strikes of faults that it takes, by name and number of the match, from 1.
        runs: Runs that it took to find, and to shrink.
        fabric: That of the shortest run, closed: its trace tells what happened.
    """

    seed: int
    error: BaseException
    strikes: tuple[tuple[str, int], ...]
    runs: int
    fabric: Fabric = field(repr=False, compare=False)

    def __str__(self) -> str:
        told = [f"seed {self.seed} fails: {type(self.error).__name__}: {self.error}"]
        told += [f"  {name} strikes its match {number}" for name, number in self.strikes]
        if not self.strikes:
            told.append("  without any fault")
        return "\n".join(told)


class ExploreError(FabricError):
    """A run failed. `finding` says which, and what it takes."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding: Finding = finding


@dataclass
class _Run:
    error: BaseException | None
    strikes: tuple[tuple[str, int], ...]
    fabric: Fabric


@dataclass(frozen=True)
class _Order:
    """What of the order of things a run draws by itself."""

    jitter_ns: int
    ack_delay_ns: int


def _run(test: Test, seed: int, order: _Order, allowed: frozenset[tuple[str, int]] | None) -> _Run:
    """Runs the test; with `allowed`, faults strike those matches only."""
    error: BaseException | None = None
    given: object = None
    fabric = Fabric(seed, jitter_ns=order.jitter_ns, ack_delay_ns=order.ack_delay_ns)
    fabric.faults.allowed = allowed
    try:
        given = test(fabric)
        fabric.check()
    except BaseException as raised:
        if not _is_failure(raised):
            raise
        error = raised
    finally:
        strikes = tuple(fabric.faults.strikes())
        fabric.close()
    demand_no_coroutine("test", given)
    return _Run(error, strikes, fabric)


def _is_failure(raised: BaseException) -> bool:
    """False for what ends all runs: an interrupt, and what pytest calls skipped."""
    pytest = sys.modules.get("pytest")
    if pytest is not None and isinstance(raised, pytest.fail.Exception):
        return not isinstance(raised, pytest.xfail.Exception)
    return isinstance(raised, Exception)


def _same(one: BaseException, other: BaseException | None) -> bool:
    return other is not None and type(one) is type(other)


def _shrink(test: Test, seed: int, order: _Order, found: _Run) -> tuple[_Run, int]:
    """Takes strikes away, halves first, as long as the test fails in the same way."""
    assert found.error is not None
    runs = 0
    kept = list(found.strikes)
    best = found
    size = max(1, len(kept) // 2)
    while size >= 1 and kept and runs < _SHRINKING_RUNS:
        at = 0
        shrunk = False
        while at < len(kept) and runs < _SHRINKING_RUNS:
            fewer = kept[:at] + kept[at + size :]
            tried = _run(test, seed, order, frozenset(fewer))
            runs += 1
            if _same(found.error, tried.error):
                # Fewer may have struck than were allowed to: the run has become a shorter one.
                kept = [strike for strike in fewer if strike in tried.strikes]
                best, shrunk = tried, True
            else:
                at += size
        if not shrunk or size > 1:
            if size == 1:
                break
            size //= 2
    return _Run(best.error, tuple(kept), best.fabric), runs


def explore(
    test: Test,
    runs: int = 1000,
    *,
    seed: int = 1,
    jitter_ns: int | None = 5000,
    ack_delay_ns: int | None = 2000,
) -> int:
    """Runs a test on many fabrics until one fails.

    Each run has a seed of its own, and with it other faults and another order of all that the
    specification leaves open: which of several flows' packets comes first, when a host's driver
    runs, what is acknowledged together, and with them whether an event or a poll is earlier.

    Args:
        test: Called with a `Fabric` that has no hosts yet.
        runs: How many.
        seed: The first one.
        jitter_ns: Packets of different flows overtake each other within this time, in every second
            run; None or 0 for never.
        ack_delay_ns: Hosts are busy at times, for so long at most, and acknowledge all that has
            come meanwhile together, in every third run; None or 0 for never.

    Returns:
        How many runs there were, all of which passed.

    Raises:
        ExploreError: When a run fails; shrunk to the strikes of faults that it takes.
        VerbsError: EINVAL, for a number of runs, a seed or a time that is out of range.
        TypeError: For a test that cannot be called, or gives a coroutine, of which nothing has run.
    """
    if not callable(test):
        raise TypeError(f"test must be callable with a Fabric, not {type(test).__name__}")
    runs = unsigned("runs", runs, 63)
    seed = unsigned("seed", seed, 63, (1 << 63) - max(1, runs))
    jitter_ns = unsigned("jitter_ns", jitter_ns or 0, 48)
    ack_delay_ns = unsigned("ack_delay_ns", ack_delay_ns or 0, 48)
    for count, number in enumerate(itertools.islice(itertools.count(seed), runs), 1):
        order = _Order(
            jitter_ns if number % 2 == 0 else 0,
            ack_delay_ns if number % 3 == 0 else 0,
        )
        found = _run(test, number, order, None)
        if found.error is None:
            continue
        shrunk, more = _shrink(test, number, order, found)
        assert shrunk.error is not None
        finding = Finding(number, shrunk.error, shrunk.strikes, count + more, fabric=shrunk.fabric)
        raise ExploreError(finding) from shrunk.error
    return runs
