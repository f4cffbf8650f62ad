"""Hosts and pairs of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import softhca as hca
from softhca.completion import crew
from softhca.testing import open_simulated
from softhca.verbs import acknowledgement

from .callbacks import PATIENCE_S, kept
from .hosts import Host, Pair, simulated_pair
from .receivers import Receiver
from .tasks import RUNNERS, Body, runner


@pytest.fixture(autouse=True)
def _let_go() -> Iterator[None]:
    """Lets go of what a test has kept."""
    yield
    kept.clear()


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is given up because a thread gets no processor for some seconds."""
    for module in (acknowledgement, crew):
        monkeypatch.setattr(module, "LONGEST_WAIT_S", PATIENCE_S)


@pytest.fixture
def simulated() -> Iterator[Pair]:
    """Two hosts in virtual time."""
    with simulated_pair() as pair:
        yield pair


@pytest.fixture
def real() -> Iterator[Pair]:
    """Two hosts on loopback addresses."""
    with hca.open() as a, hca.open() as b:
        yield Pair(Host(a), Host(b), None)


@pytest.fixture(params=["simulated", "loopback"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Two hosts, once in virtual time and once on two loopback addresses."""
    if request.param == "simulated":
        yield request.getfixturevalue("simulated")
        return
    with hca.open() as a, hca.open() as b:
        yield Pair(Host(a), Host(b), None)


@pytest.fixture
def channel(simulated: Pair) -> hca.CompChannel:
    """A channel of the first host."""
    return simulated.a.keep(simulated.a.device.create_comp_channel())


@pytest.fixture
def receiver(simulated: Pair, channel: hca.CompChannel) -> Receiver:
    """A queue on it."""
    return Receiver(simulated, channel)


@pytest.fixture
def host() -> Iterator[Host]:
    """One simulated host."""
    with open_simulated("10.0.0.9", seed=9) as device:
        yield Host(device)


@pytest.fixture
def device() -> Iterator[hca.Device]:
    """One simulated device, with nothing on it."""
    with open_simulated("10.0.0.8", seed=8) as device:
        yield device


@pytest.fixture(params=RUNNERS)
def run(request: pytest.FixtureRequest) -> Callable[[Body], Any]:
    """Runs an async function under one of the libraries; skips where it is not installed."""
    return runner(request.param)


@pytest.fixture(params=["anyio on asyncio", "anyio on trio"])
def run_anyio(request: pytest.FixtureRequest) -> Callable[[Body], Any]:
    """Runs an async function that uses anyio, on both of its back ends."""
    return runner(request.param)
