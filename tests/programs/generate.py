"""Random programs, drawn along with the model that says what must come of them."""

from __future__ import annotations

from collections import deque
from typing import Any

from softhca import Access, QPState, QPType

from .memory import End, Range
from .requests import REMOTE, Requests
from .world import ARENA, REGIONS

PEER = {"XRC_SEND": "XRC_RECV"}
PSNS = (0, 0xFFFFF8, 0x7FFFFC, 0xFFFFFF)


class Program(Requests):
    """A program: a plan of what there is, and rounds of steps, each with what must come of it.

    Args:
        seed: Decides everything.
        rounds: How many.
    """

    def __init__(self, seed: int, rounds: int = 12) -> None:
        super().__init__(seed)
        self._plan_ends()
        self.rounds: list[dict[str, Any]] = []
        for _ in range(rounds):
            self.rounds.append(self._round())

    # --- what there is

    def _plan_ends(self) -> None:
        draw = self.draw
        self.plan["srqs"] = []
        self.plan["ends"] = []
        for _ in range(draw.choice([1, 2, 3])):
            kind = draw.choice(["RC", "RC", "RC", "RC", "UC", "UD", "XRC_SEND"])
            host = draw.randrange(2)
            far = draw.choice([host, 1 - host, 1 - host, 1 - host])
            attributes = self._attributes(kind)
            for i, where in enumerate((host, far)):
                srq = None
                mine = kind if i == 0 else PEER.get(kind, kind)
                if mine == "XRC_RECV" or (mine == "RC" and draw.random() < 0.3):
                    srq = len(self.plan["srqs"])
                    self.plan["srqs"].append({"host": where, "xrc": mine == "XRC_RECV"})
                    self.model.srqs[srq] = deque()
                end = {
                    "type": mine,
                    "host": where,
                    "srq": srq,
                    "send_cq": draw.randrange(2),
                    "recv_cq": draw.randrange(2),
                    "sig_all": draw.random() < 0.15,
                    "content": draw.randbytes(ARENA),
                    "attributes": attributes[i],
                }
                self._add_end(end)
                self.plan["ends"].append(end)

    def _attributes(self, kind: str) -> list[dict[str, Any]]:
        draw = self.draw
        psns = [draw.choice([*PSNS, draw.randrange(1 << 24)]) for _ in range(2)]
        depths = [draw.choice([1, 2, 16]) for _ in range(2)]
        mtu = draw.choice([1, 3, 5])
        both = []
        for i in range(2):
            rights = REMOTE | Access.FLUSH_GLOBAL
            if draw.random() < 0.15:
                rights &= ~draw.choice(list(rights))
            both.append(
                {
                    "path_mtu": mtu,
                    "sq_psn": psns[i],
                    "rq_psn": psns[1 - i],
                    "max_rd_atomic": depths[i],
                    "max_dest_rd_atomic": depths[1 - i],
                    "qp_access_flags": int(rights),
                    "min_rnr_timer": 1,
                    "timeout": 15,
                    "retry_cnt": 2,
                    "rnr_retry": 7,
                }
            )
        return both

    def _add_end(self, p: dict[str, Any]) -> None:
        number = len(self.model.ends)
        end = End(
            number,
            number ^ 1,
            QPType[p["type"]],
            0,
            0,
            bytearray(p["content"]),
            bytearray(b"\1" * ARENA),
            p["srq"],
        )
        self.model.ends.append(end)
        self._connected(end, p["attributes"])
        for name, start, length, rights, pd in REGIONS:
            # Objects of both hosts have their own protection domains.
            self.model.keys["mr", number, name] = Range(
                number,
                start,
                length,
                rights,
                self._pd(p, pd),
                valid=name != "dead",
                zero_based=bool(rights & Access.ZERO_BASED),
            )
        self.model.keys["fast", number] = Range(
            number, 0, ARENA, Access(0), self._pd(p, 0), valid=False, kind="fast"
        )
        for i in range(2):
            for kind in ("mw1", "mw2"):
                self.model.keys[kind, number, i] = Range(
                    number, 0, 0, Access(0), self._pd(p, 0), valid=False, kind=kind
                )
        end.pd = self._pd(p, 0)

    @staticmethod
    def _pd(p: dict[str, Any], which: int) -> int:
        # As XRC's SRQs do, all queue pairs of a host use one domain.
        return p["host"] * 2 + which

    def _connected(self, end: End, attributes: dict[str, Any]) -> None:
        end.state = QPState.RTS
        end.mtu = 128 << attributes["path_mtu"] if end.type is not QPType.UD else 4096
        end.rights = Access(attributes["qp_access_flags"])
        end.depth = attributes["max_rd_atomic"]

    # --- rounds

    def _round(self) -> dict[str, Any]:
        model, draw = self.model, self.draw
        model.completions, model.events = {}, []
        steps: list[tuple[Any, ...]] = []
        refused: list[str] = []
        numbers = list(range(0, len(model.ends), 2))
        draw.shuffle(numbers)
        for first in numbers:
            if draw.random() < 0.8:
                self._steps_of(first, steps, refused)
        blurred = {e.number: bytes(e.known) for e in model.ends}
        return {
            "steps": steps,
            "refused": refused,
            "completions": model.completions,
            "events": sorted(model.events),
            "known": blurred,
            "memory": {e.number: bytes(e.memory) for e in model.ends},
            "states": [e.state for e in model.ends],
            "keys": {k: r.valid for k, r in model.keys.items() if k[0] != "mr"},
        }

    def _steps_of(self, first: int, steps: list[Any], refused: list[str]) -> None:
        """Steps of one connection in one direction."""
        model, draw = self.model, self.draw
        a, b = model.ends[first], model.ends[first + 1]
        if a.type is not QPType.XRC_SEND and draw.random() < 0.5:
            a, b = b, a
        if b.waiting:
            # What it sends from has to stay as it is.
            a, b = b, a
        broken = QPState.RTS not in (a.state,) or b.state is not QPState.RTS
        if broken and draw.random() < 0.7:
            self._again(min(a.number, b.number), steps, refused)
            return
        was_waiting = a.waiting
        if was_waiting:
            # Somebody has to post the receives it waits for.
            self._receives(b, steps, refused, most=8)
            if a.waiting:
                return
        if not was_waiting and draw.random() < 0.06:
            self._change_state(draw.choice([a, b]), steps, refused)
            return
        if draw.random() < 0.05:
            # Of all that fits, nothing is lost.
            steps.append(
                ("resize", draw.randrange(2), draw.randrange(2), draw.randrange(2000, 5000))
            )
            refused.append("")
        late = a.type not in (QPType.UC, QPType.UD) and draw.random() < 0.25
        if not late:
            self._receives(b, steps, refused)
        if not was_waiting:
            self.open = []
        else:
            self.open = self.kept.get(a.number, [])
        wrs = self._sends(a, b)
        self.kept[a.number] = self.open
        if wrs:
            how = draw.choice(["list", "single", "many"])
            if any(w["op"] in ("bind1",) for w in wrs) and how == "many":
                how = "list"
            steps.append(("send", a.number, wrs, how))
            refused.append("")
        if late or a.waiting:
            self._receives(b, steps, refused, most=8 if a.waiting else 3)

    def _again(self, first: int, steps: list[Any], refused: list[str]) -> None:
        """A new connection, of the same queue pairs or of others."""
        model, draw = self.model, self.draw
        a, b = model.ends[first], model.ends[first + 1]
        for end in (a, b):
            if (
                end.state is not QPState.ERR
                and draw.random() < 0.5
                and end.state is not QPState.RESET
            ):
                steps.append(("modify", end.number, int(QPState.ERR)))
                refused.append("")
                model.error(end)
        for end in (a, b):
            bound = [r for r in model.keys.values() if r.kind == "mw2" and r.qp == end.number]
            if draw.random() < 0.4:
                busy = self.plan["windows_2a"] and bound
                if busy:
                    steps.append(("modify", end.number, int(QPState.RESET)))
                    refused.append("")
                    model.reset(end)
                    continue
                steps.append(("remake", end.number))
                refused.append("")
                # What it had to tell has gone with it.
                model.completions.pop((end.number, "S"), None)
                model.completions.pop((end.number, "R"), None)
                model.events = [e for e in model.events if e[1] != end.number]
                for r in bound:
                    model.unbind(r)
            else:
                steps.append(("modify", end.number, int(QPState.RESET)))
                refused.append("")
            model.reset(end)
        attributes = self._attributes(a.type.name)
        steps.append(("join", first, *attributes))
        refused.append("")
        for end, one in zip((a, b), attributes, strict=True):
            self._connected(end, one)
            end.peer_depth = 0

    def _change_state(self, end: End, steps: list[Any], refused: list[str]) -> None:
        model, draw = self.model, self.draw
        if end.state is not QPState.RTS:
            return
        # Only what nothing waits for: nobody knows how far the peer is otherwise.
        peer = model.ends[end.peer]
        if end.sends or peer.sends:
            return
        if end.type is not QPType.XRC_RECV and draw.random() < 0.5:
            self._pause(end, peer, steps, refused)
            return
        steps.append(("modify", end.number, int(QPState.ERR)))
        refused.append("")
        model.error(end)
        if draw.random() < 0.7 and end.type is not QPType.XRC_RECV:
            wrs = self._sends(end, peer)
            steps.append(("send", end.number, wrs, "list"))
            refused.append("")

    def _pause(self, end: End, peer: End, steps: list[Any], refused: list[str]) -> None:
        """Posts to a queue pair in SQD, which starts none of it, and takes it out again."""
        model, draw = self.model, self.draw

        def to(state: QPState) -> None:
            steps.append(("modify", end.number, int(state)))
            refused.append("")

        to(QPState.SQD)
        end.state = QPState.SQD
        self._receives(peer, steps, refused)
        self.open = []
        wrs = self._sends(end, peer)
        steps.append(("send", end.number, wrs, draw.choice(["list", "single"])))
        refused.append("")
        if draw.random() < 0.2:
            to(QPState.ERR)
            model.error(end)
            return
        to(QPState.RTS)
        end.state = QPState.RTS
        model.run(end)
        self.kept[end.number] = self.open
        if end.waiting:
            self._receives(peer, steps, refused, most=8)
