"""Ends of connections on hosts of a fabric."""

from __future__ import annotations

from typing import Any

import softhca as hca
from softhca.testing import Fabric


class End:
    """One host's queue pair with a CQ and a registered buffer."""

    def __init__(self, device: hca.Device, size: int = 1 << 16, **options: Any) -> None:
        self.device = device
        self.pd = device.alloc_pd()
        self.channel = device.create_comp_channel()
        self.cq = device.create_cq(1024, channel=self.channel)
        options.setdefault("max_send_wr", 256)
        options.setdefault("max_recv_wr", 256)
        self.qp = self.pd.create_qp(
            options.pop("qp_type", hca.QPType.RC), send_cq=self.cq, recv_cq=self.cq, **options
        )
        self.buffer = bytearray(size)
        self.mr = self.pd.reg_mr(self.buffer)

    def next(self, timeout: float | None = None) -> hca.WC:
        """Waits for a completion by events, as careful programs do."""
        while True:
            wcs = self.device.adapter.poll_cq(self.cq.handle, 1, hca.WC, progress=False)
            if wcs:
                return wcs[0]
            flags = hca.NotifyFlags.NEXT_COMP | hca.NotifyFlags.REPORT_MISSED_EVENTS
            if self.cq.req_notify(flags) > 0:
                continue
            self.channel.get_event(timeout)
            self.cq.ack_events()


def connected(
    a: hca.Device, b: hca.Device, size: int = 1 << 16, **attributes: Any
) -> tuple[End, End]:
    """Two ends, connected to each other."""
    near, far = End(a, size), End(b, size)
    near.qp.connect(far.qp.info(), **attributes)
    far.qp.connect(near.qp.info(), **attributes)
    return near, far


def pair(fabric: Fabric, size: int = 1 << 16, **attributes: Any) -> tuple[End, End]:
    """Two hosts of their own with connected ends."""
    return connected(*fabric.hosts(2), size, **attributes)
