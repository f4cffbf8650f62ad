"""The constants of libibverbs by their names, of whichever pyverbs there is.

Up to rdma-core 58 they are names of `pyverbs.enums`, later names of the enumerations in
`pyverbs.libibverbs_enums`.
"""

from __future__ import annotations

import enum
from typing import Any

_known: dict[str, Any]
try:
    import pyverbs.enums

    _known = vars(pyverbs.enums)
except ImportError:
    import pyverbs.libibverbs_enums as kinds

    _known = {
        name: value
        for kind in vars(kinds).values()
        if isinstance(kind, enum.EnumMeta)
        for name, value in kind.__members__.items()
    }


def __getattr__(name: str) -> int:
    try:
        return int(_known[name])
    except KeyError:
        raise AttributeError(name) from None
