"""What several of these tests begin with."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from tests.two_processes.one_sided import Initiator, Target

import softhca as hca
from softhca import QPInfo, RemoteMemory

# Retries go on for as long as a completion is waited for: a target that gets no processor lives.
TIMEOUT_CODE = 19


@pytest.fixture
def pair() -> Iterator[tuple[Initiator, Target, RemoteMemory]]:
    target = Target()
    try:
        with contextlib.ExitStack() as stack:
            initiator = Initiator(stack.enter_context(hca.open()), stack)
            there = target.hear()
            target.say({"info": initiator.qp.info().to_bytes().hex()})
            info = QPInfo.from_bytes(bytes.fromhex(there["info"]))
            initiator.qp.connect(info, timeout=TIMEOUT_CODE)
            target.hear()
            yield initiator, target, RemoteMemory.from_bytes(bytes.fromhex(there["remote"]))
    finally:
        target.process.kill()
        target.process.communicate()
