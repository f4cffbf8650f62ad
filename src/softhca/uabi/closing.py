"""What nobody has any more is closed in portions, between which others have their turns."""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from softhca.uabi.context import Context

# Objects of a portion, some 0.1 ms each.
_PORTION = 32


@dataclass
class _Closing:
    tree: object
    portions: Iterator[None]

    def goes_on(self) -> bool:
        """Does a portion; False, if it was the last one."""
        try:
            next(self.portions)
        except StopIteration:
            return False
        except Exception:  # What one program leaves must not be every program's end.
            traceback.print_exc()
            return False
        return True


class Closings:
    """Contexts that are being closed, one after the other."""

    def __init__(self) -> None:
        self._all: deque[_Closing] = deque()

    def begin(self, context: Context) -> bool:
        """Begins to close one; whether that was all there was to do."""
        closing = _Closing(context.tree, context.close_in_portions(_PORTION))
        goes_on = closing.goes_on()
        if goes_on:
            self._all.append(closing)
        return not goes_on

    def go_on(self) -> bool:
        """Does a portion of the oldest, if there is one; whether that was its last."""
        if not self._all or self._all[0].goes_on():
            return False
        self._all.popleft()
        return True

    def has_any_of(self, tree: object) -> bool:
        """Whether one is of these programs."""
        return any(one.tree is tree for one in self._all)

    def __len__(self) -> int:
        return len(self._all)
