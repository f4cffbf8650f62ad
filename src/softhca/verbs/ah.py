"""Address handles: where datagrams go."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from softhca.verbs.attributes import AHAttr
from softhca.verbs.checks import instance
from softhca.verbs.enums import WcFlags
from softhca.verbs.errors import VerbsError
from softhca.verbs.gid import GID, GIDLike, refused_as
from softhca.verbs.lifetime import VerbsObject
from softhca.verbs.wc import WC

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from softhca.verbs.device import Device
    from softhca.verbs.pd import PD

_GRH_BYTES = 40
# An IPv4 header lies at the end of the forty bytes (IBTA Annex A17.4.5.2).
_IPV4_AT = 20


class AH(VerbsObject):
    """An address handle (struct ibv_ah). `pd.create_ah()` makes it."""

    __slots__ = ("handle",)

    kind = "ah"

    def __init__(self, pd: PD, destination: AHAttr | GIDLike) -> None:
        hca = pd._hca
        self.handle: int
        if isinstance(destination, AHAttr):
            self.handle = hca.create_ah(pd.handle, destination.to_native())
        else:
            with refused_as("destination", destination):
                attr = AHAttr(dgid=destination)
                self.handle = hca.create_ah(pd.handle, attr.to_native())
        super().__init__(hca, pd)

    def _destroy(self) -> None:
        self._hca.destroy_ah(self.handle)

    def query(self) -> AHAttr:
        """Returns the attributes it was made with, the default hop limit filled in."""
        return AHAttr.from_native(self._hca.query_ah(self.handle))

    def __repr__(self) -> str:
        return f"<AH {self.handle}>"


def attributes_from_wc(device: Device, wc: WC, grh: Buffer) -> AHAttr:
    """The way back to the sender of a datagram (ibv_init_ah_from_wc).

    The hop limit is the default: what the header has is what was left of the sender's.

    Args:
        device: Whose datagram it was.
        wc: Its completion.
        grh: What it was received into; only the header in front is looked at.

    Raises:
        VerbsError: EINVAL, if the completion is of no datagram, or `grh` has no header.
    """
    if not instance("wc", wc, WC).ok or not wc.wc_flags & WcFlags.GRH:
        raise VerbsError(errno.EINVAL, "wc", wc, "must be of a datagram that was received")
    header = _first_bytes(grh)
    if len(header) < _GRH_BYTES:
        raise VerbsError(errno.EINVAL, "grh", len(header), f"must be {_GRH_BYTES} bytes or more")
    ipv4 = header[_IPV4_AT:]
    flow_label = 0
    if header[0] >> 4 == 6:
        first_word = int.from_bytes(header[:4], "big")
        traffic_class, flow_label = first_word >> 20 & 0xFF, first_word & 0xFFFFF
        source, destination = GID(header[8:24]), GID(header[24:40])
    elif ipv4[0] >> 4 == 4:
        traffic_class = ipv4[1]
        source, destination = (GID(bytes(10) + b"\xff\xff" + ipv4[at : at + 4]) for at in (12, 16))
    else:
        raise VerbsError(errno.EINVAL, "grh", None, "has neither an IPv6 nor an IPv4 header")
    gids = device._hca.gids
    # A multicast group is in no table: the answer comes from our first address.
    index = gids.index(destination.raw) if destination.raw in gids else 0
    return AHAttr(source, sgid_index=index, flow_label=flow_label, traffic_class=traffic_class)


def _first_bytes(grh: Any) -> bytes:
    try:
        return bytes(memoryview(grh).cast("B")[:_GRH_BYTES])
    except TypeError:
        raise TypeError(
            f"grh must be contiguous bytes of a receive, not {type(grh).__name__}"
        ) from None
