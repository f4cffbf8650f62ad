"""A model of the verbs: what a program's work requests must come to, written from IBTA's rules.

It knows no packet and no time. Work requests of one direction of a connection are executed one
after the other on copies of the memory; what the specification leaves open (bytes of a message that
failed in the middle) is marked as unknown.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from softhca import Access, QPState, QPType, WcStatus

from .memory import End, Key, Range, Wr, blur, gather, scatter
from .unreliable import datagram, unreliable

ANSWERED = ("read", "add", "swap", "mswap", "madd")


class Model:
    """What there is, and what came of it.

    Attributes:
        completions: By end and queue ("S" or "R"), since they were last taken.
        events: (event, end), since they were last taken.
    """

    def __init__(self) -> None:
        self.ends: list[End] = []
        self.keys: dict[Key, Range] = {}
        self.srqs: dict[int, deque[Wr]] = {}
        self.completions: dict[tuple[int, str], list[tuple[Any, ...]]] = {}
        self.events: list[tuple[str, int]] = []
        self.windows_2a = False

    # --- what completes

    def complete(self, end: End, queue: str, *fields: Any) -> None:
        """A completion of a queue."""
        self.completions.setdefault((end.number, queue), []).append(fields)

    def _sent(self, end: End, wr: Wr, status: WcStatus = WcStatus.SUCCESS) -> None:
        if status is not WcStatus.SUCCESS:
            self.complete(end, "S", wr["id"], status.name)
        elif wr["signaled"]:
            answered = wr["op"] in ANSWERED
            length = sum(n for _, _, n in wr["sges"]) if answered else 0
            self.complete(end, "S", wr["id"], "SUCCESS", wr["op"], length)

    def _flush_sends(self, end: End) -> None:
        while end.sends:
            self._sent(end, end.sends.popleft(), WcStatus.WR_FLUSH_ERR)

    def _flush_receives(self, end: End) -> None:
        while end.receives:
            self.complete(end, "R", end.receives.popleft()["id"], "WR_FLUSH_ERR")

    def error(self, end: End) -> None:
        """Takes a queue pair to ERR."""
        if end.state is QPState.ERR:
            return
        end.state = QPState.ERR
        end.waiting = False
        self._flush_sends(end)
        self._flush_receives(end)
        if end.srq is not None and end.type is not QPType.XRC_RECV:
            self.events.append(("QP_LAST_WQE_REACHED", end.number))

    def reset(self, end: End) -> None:
        """Takes a queue pair to RESET: all is forgotten."""
        end.state = QPState.RESET
        end.waiting = False
        end.sends.clear()
        end.receives.clear()
        for r in self.keys.values():
            if r.kind == "mw2" and r.qp == end.number:
                self.unbind(r)

    # --- memory

    def _range(
        self, key: Key, pd: int, qp: int, offset: int, length: int, need: Access, remote: bool
    ) -> tuple[End, int] | None:
        """Where an access goes; None if it is refused."""
        r = self.keys.get(key[:-1])
        if r is None or not r.valid or r.gen != key[-1]:
            return None
        if not remote and r.kind.startswith("mw"):
            return None
        if r.pd != pd or (r.rights & need) != need:
            return None
        if r.kind == "mw2" and r.qp != qp:
            return None
        if offset < 0 or offset + length > r.length:
            return None
        return self.ends[r.end], r.start + offset

    def local(self, end: End, sges: list[Any], need: Access, pd: int | None = None) -> Any:
        """Where entries lead; None if one of them is refused."""
        places = []
        for key, offset, length in sges:
            if length == 0:
                continue
            at = self._range(
                key, end.pd if pd is None else pd, end.number, offset, length, need, False
            )
            if at is None:
                return None
            places.append((*at, length))
        return places

    def landing(self, end: End, recv: Wr, length: int) -> Any:
        """Where so many bytes go that a receive takes; None if its memory is refused.

        Nobody knows what is then in the entries that are right.
        """
        used, left = [], length
        for key, offset, room in recv["sges"]:
            taken = min(left, room)
            if taken:
                used.append((key, offset, taken))
            left -= taken
        places = self.local(end, used, Access.LOCAL_WRITE)
        if places is None:
            for sge in used:
                if one := self.local(end, [sge], Access.LOCAL_WRITE):
                    blur(one)
        return places

    # --- posting

    def post_recv(self, end: End, wr: Wr) -> None:
        """Posts a receive."""
        if end.state is QPState.ERR:
            self.complete(end, "R", wr["id"], "WR_FLUSH_ERR")
            return
        end.receives.append(wr)
        self._resume(self.ends[end.peer])

    def post_srq(self, srq: int, wr: Wr) -> None:
        """Posts a receive to a shared queue."""
        self.srqs[srq].append(wr)
        for end in self.ends:
            if end.srq == srq:
                self._resume(self.ends[end.peer])

    def _resume(self, end: End) -> None:
        if end.waiting:
            end.waiting = False
            self.run(end)

    def post_send(self, end: End, wr: Wr) -> None:
        """Posts a send."""
        if end.state in (QPState.ERR, QPState.SQE):
            self._sent(end, wr, WcStatus.WR_FLUSH_ERR)
            return
        end.sends.append(wr)
        self.run(end)

    def run(self, end: End) -> None:
        """Executes what can be."""
        while end.sends and end.state is QPState.RTS and not end.waiting:
            wr = end.sends[0]
            if end.type in (QPType.RC, QPType.XRC_SEND):
                status = self._reliable(end, wr)
            elif end.type is QPType.UC:
                status = unreliable(self, end, wr)
            else:
                status = datagram(self, end, wr)
            if status is None:
                end.waiting = True
                return
            end.sends.popleft()
            self._sent(end, wr, status)
            if status is not WcStatus.SUCCESS:
                if end.type in (QPType.RC, QPType.XRC_SEND):
                    self.error(end)
                else:
                    end.state = QPState.SQE
                    self._flush_sends(end)

    # --- executing

    def source(self, end: End, wr: Wr) -> tuple[bytes, bytes] | None:
        """The bytes that a request sends, and which are known; None if they are not to be had."""
        if wr["inline"] is not None:
            return wr["inline"], b"\1" * len(wr["inline"])
        places = self.local(end, wr["sges"], Access(0))
        return None if places is None else gather(places)

    def take(self, peer: End, wr: Wr) -> Wr | None:
        """The receive that a message takes; None if there is none."""
        queue = self.srqs[self._srq_of(peer, wr)] if self._is_shared(peer) else peer.receives
        return queue.popleft() if queue else None

    @staticmethod
    def _is_shared(peer: End) -> bool:
        return peer.srq is not None

    @staticmethod
    def _srq_of(peer: End, wr: Wr) -> int:
        assert peer.srq is not None
        return peer.srq

    def received(
        self, peer: End, recv: Wr, wr: Wr, length: int, *, is_write: bool, grh: int = 0
    ) -> None:
        """A message came."""
        extra = ("imm", wr["imm"]) if wr.get("imm") is not None else None
        if wr["op"] == "sendinv":
            extra = ("inv", wr["inv"])
        self.complete(
            peer, "R", recv["id"], "SUCCESS", "imm" if is_write else "recv", length + grh, extra
        )

    def _refuse(self, peer: End, event: str | None) -> None:
        """The responder refuses a request."""
        if event is not None:
            self.events.append((event, peer.number))
        self.error(peer)

    def deliver(self, end: End, peer: End, wr: Wr, data: bytes, known: bytes) -> WcStatus | None:
        """A SEND at a reliable responder."""
        recv = self.take(peer, wr)
        if recv is None:
            return None
        capacity = sum(n for _, _, n in recv["sges"])
        places = self.local(peer, recv["sges"], Access.LOCAL_WRITE)
        if len(data) > capacity:
            if places:
                blur(places)
            self.complete(peer, "R", recv["id"], "LOC_LEN_ERR")
            self._refuse(peer, None)
            return WcStatus.REM_INV_REQ_ERR
        places = self.landing(peer, recv, len(data))
        if places is None:
            self.complete(peer, "R", recv["id"], "LOC_PROT_ERR")
            self._refuse(peer, None)
            return WcStatus.REM_OP_ERR
        scatter(places, data, known)
        if wr["op"] == "sendinv" and not self.invalidate(peer, wr["inv"], by_peer=True):
            self.complete(peer, "R", recv["id"], "REM_INV_REQ_ERR")
            self._refuse(peer, "QP_REQ_ERR")
            return WcStatus.RETRY_EXC_ERR
        self.received(peer, recv, wr, len(data), is_write=False)
        return WcStatus.SUCCESS

    def invalidate(self, end: End, key: Key, *, by_peer: bool) -> bool:
        """Invalidates a key; False if that is refused."""
        r = self.keys.get(key[:-1])
        if r is None or r.gen != key[-1] or r.pd != end.pd:
            return False
        if r.kind == "mw2":
            if not r.valid or r.qp != end.number:
                return False
            self.unbind(r)
            return True
        if r.kind != "fast" or r.windows:
            return False
        remote = Access.REMOTE_READ | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC
        if by_peer and (not r.valid or not r.rights & remote):
            return False
        r.valid = False
        return True

    def unbind(self, r: Range) -> None:
        """Unbinds a window."""
        if r.valid and r.under is not None:
            self.keys[r.under].windows -= 1
        r.valid, r.qp, r.under = False, None, None

    def _reliable(self, end: End, wr: Wr) -> WcStatus | None:
        peer = self.ends[end.peer]
        op = wr["op"]
        if op in ("bind1", "bind2", "inv", "reg"):
            ok = self.local_work(end, wr)
            return WcStatus.SUCCESS if ok else WcStatus.MW_BIND_ERR
        if op in ANSWERED:
            return self._answered(end, peer, wr)
        if op == "flush":
            return self._flush(peer, wr)
        source = self.source(end, wr)
        if source is None:
            self.failed_inside(end, peer, wr)
            return WcStatus.LOC_PROT_ERR
        if peer.state is not QPState.RTS and peer.state is not QPState.SQD:
            return WcStatus.RETRY_EXC_ERR
        data, known = source
        if op.startswith("send"):
            return self.deliver(end, peer, wr, data, known)
        if op == "awrite" and wr["misaligned"]:
            self._refuse(peer, "QP_REQ_ERR")
            return WcStatus.REM_INV_REQ_ERR
        if not peer.rights & Access.REMOTE_WRITE:
            self._refuse(peer, "QP_REQ_ERR")
            return WcStatus.REM_INV_REQ_ERR
        place = self.remote(peer, wr, len(data), Access.REMOTE_WRITE)
        if place is None:
            self._refuse(peer, "QP_ACCESS_ERR")
            return WcStatus.REM_ACCESS_ERR
        if op == "imm":
            recv = self.take(peer, wr)
            if recv is None:
                # All but the last packet may have been placed.
                blur(place)
                return None
            scatter(place, data, known)
            self.received(peer, recv, wr, len(data), is_write=True)
        else:
            scatter(place, data, known)
        return WcStatus.SUCCESS

    def failed_inside(self, end: End, peer: End, wr: Wr) -> None:
        """A request whose memory fails when some of it may have been sent."""
        total = sum(n for _, _, n in wr["sges"])
        if total > end.mtu and wr["op"] in ("write", "imm"):
            place = self.remote(peer, wr, total, Access.REMOTE_WRITE)
            if place:
                blur(place)
        elif total > end.mtu and peer.receives:
            # It may have begun to fill a receive.
            blur(self.local(peer, peer.receives[0]["sges"], Access.LOCAL_WRITE) or [])

    def remote(self, peer: End, wr: Wr, length: int, need: Access) -> Any:
        """Where a request goes in the peer's memory; None if it is refused."""
        if length == 0:
            return []
        key, offset = wr["remote"]
        at = self._range(key, peer.pd, peer.number, offset, length, need, True)
        return None if at is None else [(*at, length)]

    def _answered(self, end: End, peer: End, wr: Wr) -> WcStatus | None:
        op = wr["op"]
        atomic = op != "read"
        total = sum(n for _, _, n in wr["sges"])
        if end.depth == 0:
            return WcStatus.LOC_QP_OP_ERR
        if atomic and total != 8:
            return WcStatus.LOC_LEN_ERR
        if peer.state is not QPState.RTS and peer.state is not QPState.SQD:
            return WcStatus.RETRY_EXC_ERR
        need = Access.REMOTE_ATOMIC if atomic else Access.REMOTE_READ
        if not peer.rights & need:
            self._refuse(peer, "QP_REQ_ERR")
            return WcStatus.REM_INV_REQ_ERR
        if atomic and wr["misaligned"]:
            self._refuse(peer, "QP_REQ_ERR")
            return WcStatus.REM_INV_REQ_ERR
        place = self.remote(peer, wr, total, need)
        if place is None:
            self._refuse(peer, "QP_ACCESS_ERR")
            return WcStatus.REM_ACCESS_ERR
        data, known = gather(place)
        if atomic:
            old = int.from_bytes(data, "little")
            changed = self._atomic(wr, old)
            if changed is not None:
                scatter(place, changed.to_bytes(8, "little"), known)
            if op in ("swap", "mswap") and 0 in known:
                blur(place)
        places = self.local(end, wr["sges"], Access.LOCAL_WRITE)
        if places is None:
            for sge in wr["sges"]:
                if one := self.local(end, [sge], Access.LOCAL_WRITE):
                    blur(one)
            return WcStatus.LOC_PROT_ERR
        scatter(places, data, known)
        return WcStatus.SUCCESS

    @staticmethod
    def _atomic(wr: Wr, old: int) -> int | None:
        most = (1 << 64) - 1
        if wr["op"] == "add":
            return (old + wr["add"]) & most
        if wr["op"] == "swap":
            return wr["swap"] if old == wr["compare"] else None
        if wr["op"] == "mswap":
            if (old ^ wr["compare"]) & wr["compare_mask"]:
                return None
            return old & ~wr["swap_mask"] & most | wr["swap"] & wr["swap_mask"]
        total, carry = 0, 0
        for bit in range(64):
            s = (old >> bit & 1) + (wr["add"] >> bit & 1) + carry
            total |= (s & 1) << bit
            carry = 0 if wr["boundary"] >> bit & 1 else s >> 1
        return total

    def _flush(self, peer: End, wr: Wr) -> WcStatus:
        if peer.state is not QPState.RTS and peer.state is not QPState.SQD:
            return WcStatus.RETRY_EXC_ERR
        if not peer.rights & Access.FLUSH_GLOBAL:
            self._refuse(peer, "QP_ACCESS_ERR")
            return WcStatus.REM_ACCESS_ERR
        key, offset = wr["remote"]
        length, whole = wr["length"], wr["whole"]
        r = self.keys.get(key[:-1])
        ok = r is not None and self._range(
            key,
            peer.pd,
            peer.number,
            0 if whole else offset,
            0 if whole else length,
            Access.FLUSH_GLOBAL,
            True,
        )
        if not ok:
            self._refuse(peer, "QP_ACCESS_ERR")
            return WcStatus.REM_ACCESS_ERR
        return WcStatus.SUCCESS

    def local_work(self, end: End, wr: Wr) -> bool:
        """A bind, a registration or an invalidation; False if it is refused."""
        op = wr["op"]
        if op == "inv":
            return self.invalidate(end, wr["key"], by_peer=False)
        if op == "reg":
            r = self.keys[wr["key"][:-1]]
            if r.valid or r.pd != end.pd:
                return False
            r.valid, r.gen, r.rights = True, wr["key"][-1], Access(wr["rights"])
            return True
        window = self.keys[wr["key"][:-1]]
        rights = Access(wr["rights"])
        if window.pd != end.pd:
            return False
        if op == "bind2" and (window.valid or wr["length"] == 0):
            return False
        if op == "bind1" and wr["length"] == 0:
            self.unbind(window)
            window.gen = wr["key"][-1]
            return True
        region = self.keys[wr["region"][:-1]]
        if region.gen != wr["region"][-1] or region.pd != window.pd or region.zero_based:
            return False
        if not region.valid or not region.rights & Access.MW_BIND:
            return False
        writes = Access.REMOTE_WRITE | Access.REMOTE_ATOMIC
        if rights & writes and not region.rights & Access.LOCAL_WRITE:
            return False
        if wr["offset"] + wr["length"] > region.length:
            return False
        self.unbind(window)
        window.valid, window.gen, window.rights = True, wr["key"][-1], rights
        window.end, window.start = region.end, region.start + wr["offset"]
        window.length, window.under = wr["length"], wr["region"][:-1]
        window.qp = end.number if op == "bind2" else None
        region.windows += 1
        return True
