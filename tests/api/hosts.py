"""Two hosts, simulated or on loopback addresses, and how to wait for what they do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import softhca as hca
from softhca.testing import Wire, open_simulated

T = TypeVar("T")
BUFFER_BYTES = 1 << 16


class Host:
    """A device with a domain, a completion queue and a registered buffer."""

    def __init__(self, device: hca.Device) -> None:
        self.device = device
        self.pd = device.alloc_pd()
        self.cq = device.create_cq(256)
        self.buffer = bytearray(BUFFER_BYTES)
        self.mr = self.pd.reg_mr(self.buffer)
        self._kept: list[Any] = []

    def keep(self, made: T) -> T:
        """Keeps an object until the device is closed, which closes it."""
        self._kept.append(made)
        return made

    def qp(self, qp_type: hca.QPType = hca.QPType.RC, **options: Any) -> hca.QP:
        """Makes a queue pair that completes into the host's CQ."""
        options.setdefault("send_cq", self.cq)
        if qp_type is not hca.QPType.XRC_SEND:
            options.setdefault("recv_cq", self.cq)
        return self.keep(self.pd.create_qp(qp_type, **options))


class Pair:
    """Two hosts, and how to wait for what happens between them."""

    def __init__(self, a: Host, b: Host, wire: Wire | None) -> None:
        self.a = a
        self.b = b
        self.wire = wire

    def until(self, done: Callable[[], object]) -> None:
        """Lets packets pass until `done()` is true."""
        if self.wire is not None:
            self.wire.run_until(done)
            return
        deadline = time.monotonic() + 20
        while not done():
            assert time.monotonic() < deadline, "nothing came in 20 s"

    def completions(self, host: Host, count: int = 1) -> list[hca.WC]:
        """Waits for so many completions of a host."""
        taken: list[hca.WC] = []

        def enough() -> bool:
            taken.extend(host.cq.poll(count - len(taken)))
            return len(taken) == count

        self.until(enough)
        return taken

    def completion(self, host: Host) -> hca.WC:
        """Waits for one completion of a host."""
        return self.completions(host)[0]

    def event(self, host: Host) -> hca.AsyncEvent:
        """Waits for an asynchronous event of a host."""
        taken: list[hca.AsyncEvent] = []

        def came() -> bool:
            event = host.device.poll_async_event()
            if event is not None:
                taken.append(event)
            return bool(taken)

        self.until(came)
        return taken[0]

    def connected(
        self, qp_type: hca.QPType = hca.QPType.RC, **options: Any
    ) -> tuple[hca.QP, hca.QP]:
        """Makes a queue pair on each host, connected to each other."""
        near = self.a.qp(qp_type, **options)
        far = self.b.qp(qp_type, **options)
        if qp_type is hca.QPType.UD:
            near.activate()
            far.activate()
        else:
            near.connect(far.info())
            far.connect(near.info())
        return near, far


@contextmanager
def simulated_pair() -> Iterator[Pair]:
    """Two hosts in virtual time."""
    with (
        open_simulated("10.0.0.1", seed=1) as a,
        open_simulated("10.0.0.2", seed=2) as b,
    ):
        yield Pair(Host(a), Host(b), Wire(a, b))
