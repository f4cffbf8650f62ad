"""What an adapter or a queue pair has counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


class Counters(Mapping[str, int]):
    """A snapshot of counters under Linux's names (hw_counters): `c.rcvd_pkts` or `c["rcvd_pkts"]`.

    The difference of two snapshots is what happened between them.
    """

    __slots__ = ("_values",)

    def __init__(self, values: dict[str, int]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> int:
        return self._values[name]

    def __getattr__(self, name: str) -> int:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(f"there is no counter {name!r}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __sub__(self, earlier: Counters) -> Counters:
        return Counters({name: count - earlier[name] for name, count in self._values.items()})

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._values]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={count}" for name, count in self._values.items() if count)
        return f"Counters({shown})"
