"""A fence forgotten before invalidation: the program, the fabric that shows it, the repair.

A region is registered by a work request, filled by a READ, and invalidated, as kernels do for every
I/O. On a fast network the answer to the READ often comes before the invalidation is looked at.
"""

from __future__ import annotations

from softhca import Access, LocalInv, MrType, Read, RegMr, WcStatus
from softhca.testing import Fabric, Pair


def fetch(fabric: Fabric, *, fence: bool) -> list[WcStatus]:
    """Registers, reads, invalidates; returns how the last two completed."""
    pair = Pair(fabric)
    near, far = pair.a, pair.b
    page = bytearray(4096)
    region = near.pd.alloc_mr(MrType.MEM_REG, 2)
    region.map_mr_sg([page])
    near.qp.post_send(
        [
            RegMr(region, access=Access.LOCAL_WRITE),
            Read(region[:4096], remote=far.mr.remote()[:4096], signaled=True),
            LocalInv(region.rkey, fence=fence, signaled=True),
        ]
    )
    statuses = [near.next().status, near.next().status]
    region.close()
    return statuses


if __name__ == "__main__":
    for latency_ns in (0, 1000, 50_000):
        for fence in (False, True):
            with Fabric(latency_ns=latency_ns) as fabric:
                told = " ".join(status.name for status in fetch(fabric, fence=fence))
            word = "with" if fence else "without"
            print(f"latency {latency_ns:>5} ns, {word} a fence: {told}")
