"""What an object makes when it is first asked for, several threads may ask for at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import softhca as hca
import softhca.verbs.cq
import softhca.verbs.device

# Where it is made, by which class, and how to ask for it.
CASES: dict[str, tuple[Any, str, Callable[[hca.Device, hca.CQ], Any]]] = {
    "channel": (softhca.verbs.cq, "CompChannel", lambda device, cq: cq.channel),
    "tasks": (softhca.verbs.cq, "Dispatcher", lambda device, cq: cq._tasks()),
    "crews": (softhca.verbs.device, "Crews", lambda device, cq: device._crews()),
}


@pytest.mark.parametrize("case", CASES)
def test_all_threads_get_the_same(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, ask = CASES[case]
    got: list[Any] = []
    made = getattr(module, name)

    class AskedForMeanwhile(made):  # type: ignore[misc]
        """While the first is made, another thread asks, and gets one."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            monkeypatch.setattr(module, name, made)
            other = threading.Thread(target=lambda: got.append(ask(device, cq)))
            other.start()
            other.join()
            super().__init__(*arguments, **options)

    with hca.open() as device:
        cq = device.create_cq(4)
        monkeypatch.setattr(module, name, AskedForMeanwhile)
        got.append(ask(device, cq))
        assert got[0] is got[1] is ask(device, cq)
        assert len(got) == 2
