"""What the three processes of a run know of each other."""

from __future__ import annotations

from typing import Any

DELIVERED, CONSUMED, SLEEPS, BURSTS, ARMING = range(5)


class Ledger:
    """Counters in shared memory; each has one writer."""

    def __init__(self, context: Any) -> None:
        self.words = context.RawArray("Q", 5)

    @property
    def delivered(self) -> int:
        """Messages that the consumer's adapter has acknowledged."""
        return int(self.words[DELIVERED])

    @property
    def consumed(self) -> int:
        """Completions that the consumer has taken."""
        return int(self.words[CONSUMED])

    @property
    def sleeps(self) -> int:
        """How often the consumer went to sleep."""
        return int(self.words[SLEEPS])

    @property
    def bursts(self) -> int:
        """How often the producer waited for the consumer."""
        return int(self.words[BURSTS])

    @property
    def arming(self) -> str:
        """How the consumer armed its queue the last time."""
        return f"flags {self.words[ARMING]}"
