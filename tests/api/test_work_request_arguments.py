"""What work requests refuse when they are made, and by which name."""

from __future__ import annotations

from typing import Any

import pytest

import softhca as hca

from .hosts import Host

SENDS: list[tuple[Any, dict[str, int]]] = [
    (hca.Send, {}),
    (hca.SendImm, {"imm": 1}),
    (hca.SendInv, {"rkey": 1}),
]


@pytest.mark.parametrize(("kind", "options"), SENDS)
@pytest.mark.parametrize("wrong", [5, True, "127.0.0.1", hca.GID("10.0.0.1")])
def test_what_is_no_address_handle_is_refused_by_name(
    host: Host, kind: Any, options: dict[str, int], wrong: object
) -> None:
    """A destination, or the number of a handle, is what programs give instead of one."""
    with pytest.raises(TypeError, match=f"ah must be AH, not {type(wrong).__name__}"):
        kind(host.mr[0:8], ah=wrong, **options)
