"""Two hosts that are connected, for tests that want to begin with the interesting part."""

from __future__ import annotations

from typing import Any

from softhca.testing.fabric import Fabric
from softhca.verbs.checks import instance, unsigned
from softhca.verbs.comp_channel import CompChannel
from softhca.verbs.cq import CQ
from softhca.verbs.device import Device
from softhca.verbs.enums import NotifyFlags, QPType
from softhca.verbs.lifetime import VerbsObject
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
from softhca.verbs.qp import QP
from softhca.verbs.wc import WC

_ARM = NotifyFlags.NEXT_COMP | NotifyFlags.REPORT_MISSED_EVENTS


class End:
    """One host of a pair.

    Attributes:
        device: Its device.
        pd: A protection domain.
        channel: The completion channel of the queue.
        cq: A completion queue, for sends and receives.
        qp: The queue pair, connected.
        buffer: A bytearray.
        mr: The buffer, registered.
    """

    def __init__(self, device: Device, buffer_bytes: int, **options: Any) -> None:
        self.device: Device = instance("device", device, Device)
        self.pd: PD = device.alloc_pd()
        self.channel: CompChannel = device.create_comp_channel()
        self.cq: CQ = device.create_cq(1024, channel=self.channel)
        options.setdefault("max_send_wr", 256)
        options.setdefault("max_recv_wr", 256)
        qp_type = options.pop("qp_type", QPType.RC)
        self.qp: QP = self.pd.create_qp(qp_type, send_cq=self.cq, recv_cq=self.cq, **options)
        self.buffer: bytearray = bytearray(buffer_bytes)
        self.mr: MR = self.pd.reg_mr(self.buffer)

    def __repr__(self) -> str:
        return f"<End {self.device.name}: {self.qp!r}, {len(self.buffer)} bytes>"

    @property
    def objects(self) -> list[VerbsObject]:
        """What was made for it."""
        return [self.pd, self.channel, self.cq, self.qp, self.mr]

    def poll(self, count: int = 16) -> list[WC]:
        """Takes completions that are there; lets no time pass, as `cq.poll` does.

        Args:
            count: How many at most.
        """
        most = unsigned("count", count, 32)
        return self.device.adapter.poll_cq(self.cq.handle, most, WC, progress=False)

    def next(self, timeout: float | None = None) -> WC:
        """Waits for a completion, asleep until there is one.

        Args:
            timeout: Seconds of virtual time; None waits for ever.

        Raises:
            TimeoutError: If there is none within so many seconds of virtual time.
        """
        while True:
            if wcs := self.poll(1):
                return wcs[0]
            if self.cq.req_notify(_ARM) > 0:
                continue
            self.channel.get_event(timeout)
            self.cq.ack_events()


class Pair:
    """Two hosts with a connected queue pair each.

    Attributes:
        fabric: Theirs.
        a: One end.
        b: The other.
    """

    def __init__(
        self,
        fabric: Fabric,
        buffer_bytes: int = 1 << 16,
        *,
        retry_early: bool = False,
        **attributes: Any,
    ) -> None:
        """Makes hosts and connects them.

        Args:
            fabric: Where.
            buffer_bytes: Bytes of each end's buffer.
            retry_early: As for `open_simulated`.
            attributes: Of the connection, as for `qp.connect`.

        Raises:
            VerbsError: EINVAL, for a number of bytes, or an attribute, that is out of range.
        """
        self.fabric: Fabric = instance("fabric", fabric, Fabric)
        unsigned("buffer_bytes", buffer_bytes, 48)
        self.a: End
        self.b: End
        self.a, self.b = (
            End(device, buffer_bytes) for device in fabric.hosts(2, retry_early=retry_early)
        )
        fabric.keep(self)
        self.a.qp.connect(self.b.qp.info(), **attributes)
        self.b.qp.connect(self.a.qp.info(), **attributes)

    def __repr__(self) -> str:
        return f"<Pair {self.a!r} and {self.b!r}>"

    @property
    def objects(self) -> list[VerbsObject]:
        """What was made for it."""
        return self.a.objects + self.b.objects


def open_objects(fabric: Fabric) -> list[str]:
    """Names what programs left open on the devices of a fabric, be it forgotten by now or not.

    What a `Pair`, or an `End` that the fabric keeps, made for itself is the fabric's to close.

    Args:
        fabric: Whose devices.
    """
    makers = [
        kept for kept in instance("fabric", fabric, Fabric)._kept if isinstance(kept, Pair | End)
    ]
    known = {id(one) for maker in makers for one in maker.objects}
    found: list[str] = list(dict.fromkeys(fabric.forsaken))

    def look(parent: VerbsObject, device: Device) -> None:
        for child in parent._live_children():
            text = f"{child!r} of {device.name}"
            if id(child) not in known and not child.closed and text not in found:
                found.append(text)
            look(child, device)

    for device in fabric.devices:
        look(device, device)
    return found
