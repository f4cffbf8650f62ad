"""What compilers that are to build this do not compile."""

from __future__ import annotations

import re
from pathlib import Path

NATIVE = Path(__file__).resolve().parents[2] / "native"

# They return a subrange, of which clang before 16 makes nothing with GCC's library. Debian 12 and
# Ubuntu 22.04 have clang 14.
SUBRANGES = re.compile(
    r"std::ranges::(equal_range|find_end|partition|remove(_if)?|rotate|search(_n)?"
    r"|shift_(left|right)|stable_partition|subrange|unique)\b|std::(ranges::)?views::"
)


def test_nothing_that_clang_14_cannot_compile() -> None:
    found = [
        f"{path.relative_to(NATIVE)}:{number}"
        for path in sorted(NATIVE.rglob("*.[ch]pp"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if SUBRANGES.search(line)
    ]
    assert found == []
