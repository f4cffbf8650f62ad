"""What a `with` block closes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closes(ABC):
    """Is closed when its block ends, however it ends."""

    @abstractmethod
    def close(self) -> None:
        """Gives everything back."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
