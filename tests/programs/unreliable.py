"""What the model says of service types without acknowledgements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from softhca import Access, QPState, WcStatus

from .memory import End, Wr, blur, scatter

if TYPE_CHECKING:
    from .model import Model


def unreliable(model: Model, end: End, wr: Wr) -> WcStatus:
    """A request over UC: nobody answers, and what cannot be done is dropped."""
    peer = model.ends[end.peer]
    op = wr["op"]
    if op in ("bind1", "bind2", "inv", "reg"):
        return WcStatus.SUCCESS if model.local_work(end, wr) else WcStatus.MW_BIND_ERR
    if op not in ("send", "sendimm", "write", "imm"):
        return WcStatus.LOC_QP_OP_ERR
    source = model.source(end, wr)
    if source is None:
        model.failed_inside(end, peer, wr)
        return WcStatus.LOC_PROT_ERR
    if peer.state not in (QPState.RTS, QPState.SQD, QPState.SQE):
        return WcStatus.SUCCESS
    data, known = source
    if op.startswith("send"):
        if peer.receives:
            # One that does not fit leaves the receive to the next (class D).
            recv = peer.receives[0]
            if len(data) > sum(n for _, _, n in recv["sges"]):
                for sge in recv["sges"]:
                    blur(model.local(peer, [sge], Access.LOCAL_WRITE) or [])
                return WcStatus.SUCCESS
            model.deliver(end, peer, wr, data, known)
        return WcStatus.SUCCESS
    if not peer.rights & Access.REMOTE_WRITE:
        return WcStatus.SUCCESS
    place = model.remote(peer, wr, len(data), Access.REMOTE_WRITE)
    if place is None:
        return WcStatus.SUCCESS
    if op == "imm":
        recv = model.take(peer, wr)
        if recv is None:
            # All but the last packet may have been placed.
            blur(place)
            return WcStatus.SUCCESS
        model.received(peer, recv, wr, len(data), is_write=True)
    scatter(place, data, known)
    return WcStatus.SUCCESS


def datagram(model: Model, end: End, wr: Wr) -> WcStatus:
    """A datagram."""
    peer = model.ends[end.peer]
    source = model.source(end, wr)
    total = sum(n for _, _, n in wr["sges"]) if wr["inline"] is None else len(wr["inline"])
    if total > end.mtu:
        return WcStatus.LOC_LEN_ERR
    if wr["op"] not in ("send", "sendimm"):
        return WcStatus.LOC_QP_OP_ERR
    if source is None:
        return WcStatus.LOC_PROT_ERR
    if wr["qkey_wrong"] or peer.state not in (QPState.RTS, QPState.SQD, QPState.SQE):
        return WcStatus.SUCCESS
    data, known = source
    if not peer.receives:
        return WcStatus.SUCCESS
    recv = peer.receives[0]
    capacity = sum(n for _, _, n in recv["sges"])
    if len(data) + 40 > capacity:
        return WcStatus.SUCCESS
    peer.receives.popleft()
    places = model.landing(peer, recv, len(data) + 40)
    if places is None:
        model.complete(peer, "R", recv["id"], "LOC_PROT_ERR")
        model.error(peer)
        return WcStatus.SUCCESS
    scatter(places, bytes(40) + data, bytes(40) + known)
    model.received(peer, recv, wr, len(data), is_write=False, grh=40)
    return WcStatus.SUCCESS
