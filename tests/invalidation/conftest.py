"""A device with a channel."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import softhca as hca
from api.hosts import Host, Pair, simulated_pair
from softhca.testing import open_simulated


@pytest.fixture
def simulated() -> Iterator[Pair]:
    """Two hosts in virtual time."""
    with simulated_pair() as pair:
        yield pair


@pytest.fixture
def host() -> Iterator[Host]:
    """One simulated host."""
    with open_simulated("10.0.0.9", seed=9) as device:
        yield Host(device)


@pytest.fixture
def channel(host: Host) -> hca.InvalidationChannel:
    """A channel of the host's device, which closes it."""
    return host.keep(host.device.create_invalidation_channel())
