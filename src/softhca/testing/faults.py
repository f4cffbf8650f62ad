"""A bad network around an adapter."""

from __future__ import annotations

import errno
from dataclasses import dataclass, fields

from softhca.verbs.checks import real, unsigned
from softhca.verbs.errors import VerbsError

_Rates = tuple[float, float, float, float]
_NONE: _Rates = (0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, kw_only=True)
class Faults:
    """What a link does to datagrams: `softhca.open(faults=Faults(drop=0.01))`.

    Each probability, 0 to 1, is drawn for each datagram; the same seed and the same datagrams give
    the same faults.

    Attributes:
        drop: It is lost.
        duplicate: It comes twice.
        reorder: One to four later ones overtake it.
        corrupt: One bit of it flips.
        seed: Of the draws.
        on: "send", "receive" or "both": which of this adapter's datagrams it happens to.
    """

    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    corrupt: float = 0.0
    seed: int = 1
    on: str = "both"

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name not in ("seed", "on"):
                real(field.name, getattr(self, field.name), 0, 1)
        unsigned("seed", self.seed, 64)
        if self.on not in ("send", "receive", "both"):
            raise VerbsError(errno.EINVAL, "on", self.on, "must be send, receive or both")

    def rates(self) -> tuple[_Rates, _Rates, int]:
        """What happens to sent and to received datagrams, and the seed."""
        rates = (
            float(self.drop),
            float(self.duplicate),
            float(self.reorder),
            float(self.corrupt),
        )
        return (
            rates if self.on != "receive" else _NONE,
            rates if self.on != "send" else _NONE,
            self.seed,
        )
