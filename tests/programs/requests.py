"""Work requests, drawn at random: whole ones, and those with something wrong about them."""

from __future__ import annotations

import random
from typing import Any

from softhca import Access, QPState, QPType

from .memory import End, Wr, blur
from .model import ANSWERED, Model
from .world import ARENA

SIZES = (0, 1, 8, 100, 255, 256, 257, 511, 1000, 1024, 1025, 3000, 5000)
REMOTE = Access.REMOTE_READ | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC
KEY_WORK = ("bind1", "bind2", "inv", "reg")
HOPEFUL = (QPState.RTS, QPState.SQD)  # What is posted runs, sooner or later.
FAST_RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_READ | Access.REMOTE_WRITE


class Requests:
    """What draws work requests, and gives them to the model at once.

    Args:
        seed: Decides everything.
    """

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.model = Model()
        self.plan: dict[str, Any] = {"seed": seed, "windows_2a": self.draw.random() < 0.3}
        self.number = 0
        self.gens: set[Any] = set()  # Keys that there were.
        self.counts: dict[Any, int] = {}
        self.first: dict[Any, int] = {}  # What a key calls its first byte, modulo 8.
        # (owner, first, last + 1) of what READs and atomics before may still fill or fetch.
        self.open: list[tuple[int, int, int]] = []
        self.kept: dict[int, list[tuple[int, int, int]]] = {}

    def _id(self) -> int:
        self.number += 1
        return self.number

    def _sges(self, end: End, size: int, names: list[str], where: Any, bad: float) -> list[Any]:
        """Entries for `size` bytes, in one to three pieces."""
        draw = self.draw
        pieces = draw.choice([1, 1, 2, 3])
        cuts = sorted(draw.randrange(size + 1) for _ in range(pieces - 1))
        sges = []
        for a, b in zip([0, *cuts], [*cuts, size], strict=True):
            name = draw.choice(names)
            if draw.random() < bad:
                name = draw.choice(["bad", "pd1", "dead", "half"])
            start = where(b - a)
            key: Any = ("mr", end.number, name, 0)
            if name == "bad":
                key = ("bad", "mr", end.number, "all", 0)
            sges.append((key, start, b - a))
        return sges

    def _receives(self, end: End, steps: list[Any], refused: list[str], most: int = 3) -> None:
        draw, model = self.draw, self.model
        queue = model.srqs[end.srq] if end.srq is not None else end.receives
        if len(queue) > 20 or end.state is QPState.RESET or end.type is QPType.XRC_SEND:
            return
        wrs = []
        # Each receive has a place of its own, so that none lies under another.
        for _ in range(draw.randrange(1 if most > 3 else 0, most + 1)):
            number = self._id()
            slot = (number % 16) * (ARENA // 2 // 16)
            size = draw.choice([8, 100, 512])
            if draw.random() < 0.1:
                size = draw.choice([0, 1])
            at = ARENA // 2 + slot

            def where(n: int) -> int:
                nonlocal at
                at += n
                return at - n

            names = ["all", "loc", "zb"]
            # A message that is too long as well may fail for either reason: of what is wrong, a
            # receive has nothing but that.
            wrong = end.type is not QPType.UC and draw.random() < 0.02
            sges = self._sges(end, 512 if wrong else size, names, where, 0.5 if wrong else 0.0)
            wrs.append({"id": number, "sges": sges})
        if not wrs:
            return
        kind = ("srq", end.srq) if end.srq is not None else ("recv", end.number)
        steps.append((*kind, wrs, draw.choice(["list", "single", "many"])))
        refused.append("")
        for wr in wrs:
            if end.srq is not None:
                model.post_srq(end.srq, wr)
            else:
                model.post_recv(end, wr)

    # --- sends

    def _sends(self, a: End, b: End) -> list[dict[str, Any]]:
        draw = self.draw
        wrs: list[dict[str, Any]] = []
        # (owner, first, last + 1) of what READs and atomics before may still fill or fetch.
        failed = self.blind = False
        for _ in range(draw.randrange(1, 9)):
            if len(a.sends) > 40:
                break
            still_open = self.open
            wr = self._send(a, b, failed)
            if wr is None:
                self.open = still_open
                continue
            if self.blind:
                # Nobody knows whether it ran before the answer that found no place.
                if wr["op"] not in ("write", "read"):
                    self.open = still_open
                    continue
                key, offset = wr["remote"]
                r = self.model.keys.get(key[:-1])
                need = Access.REMOTE_WRITE if wr["op"] == "write" else Access.REMOTE_READ
                if (
                    not b.rights & need
                    or key[0] != "mr"
                    or key[2] != "all"
                    or not 0 <= offset < ARENA - 5000
                ):
                    self.open = still_open
                    continue
                if wr["op"] == "write" and r is not None:
                    size = sum(s[2] for s in wr["sges"]) or len(wr["inline"] or b"")
                    blur([(self.model.ends[r.end], max(r.start + offset, 0), size)])
                for s in wr["sges"] if wr["op"] == "read" else []:
                    blur([(a, s[1], s[2])])
            wrs.append(wr)
            before = a.state
            self.model.post_send(a, wr)
            if before is QPState.RTS and a.state is QPState.ERR and b.state is QPState.RTS:
                self.blind = self.blind or wr["op"] in ANSWERED
            failed = failed or a.state is not before or a.waiting or a.state not in HOPEFUL
            # In SQD nobody knows yet whether it will fail, and what changes keys does not wait.
            failed = failed or (a.state is QPState.SQD and wr["op"] not in KEY_WORK)
        if wrs and a.state in HOPEFUL and a.type is not QPType.UD:
            # Something must say when all of it is done.
            wr = self._plain(a, b, "write")
            wr |= {"sges": [], "inline": None, "signaled": True, "fence": True}
            wrs.append(wr)
            self.model.post_send(a, wr)
        return wrs

    def _overlaps(self, ranges: list[tuple[int, int, int]]) -> bool:
        return any(o == x and s < t and u > v for o, s, u in self.open for x, v, t in ranges)

    def _places(self, end: End, sges: list[Any]) -> list[tuple[int, int, int]]:
        return [(end.number, s[1], s[1] + s[2]) for s in sges if s[2]]

    def _send(self, a: End, b: End, failed: bool) -> dict[str, Any] | None:
        draw = self.draw
        kinds = ["send"] * 4 + ["sendimm"] + ["write"] * 4 + ["imm"] * 2
        if a.type in (QPType.RC, QPType.XRC_SEND):
            kinds += ["read"] * 4 + ["add", "swap", "mswap", "madd", "awrite", "flush"]
            if not failed:
                kinds += ["bind1", "bind2", "bind2", "inv", "reg", "sendinv"]
        elif a.type is QPType.UD:
            kinds = ["send", "sendimm"] + (["write"] if draw.random() < 0.03 else [])
        elif draw.random() < 0.03:
            kinds = ["read"]
        op = draw.choice(kinds)
        if a.state is QPState.ERR and op in ("bind1", "bind2", "reg", "inv", "sendinv"):
            return None
        if op in KEY_WORK:
            return self._key_work(a, b, op)
        return self._plain(a, b, op)

    def _common(self, op: str) -> dict[str, Any]:
        draw = self.draw
        return {
            "op": op,
            "id": self._id(),
            "signaled": draw.random() < 0.5,
            "sges": [],
            "fence": draw.random() < 0.1,
            "solicited": draw.random() < 0.2,
            "inline": None,
            "qkey_wrong": draw.random() < 0.05,
        }

    def _plain(self, a: End, b: End, op: str) -> Wr:
        draw = self.draw
        wr = self._common(op)
        atomic = op in ("add", "swap", "mswap", "madd", "awrite")
        size = 8 if atomic else draw.choice(SIZES)
        if op in ("send", "sendimm", "sendinv"):
            size = draw.choice([0, 1, 8, 100, 500]) if draw.random() < 0.9 else min(size, 512)
        half = ARENA // 2
        bad = 0.015

        def where(n: int) -> int:
            return draw.randrange(half - n + 1) if n <= half else 0

        lands = op == "read" or (atomic and op != "awrite")
        names = ["all", "loc"] if lands else ["all", "loc", "ro", "rr", "zb"]
        if lands and (a.waiting or a.state is QPState.SQD):
            bad = 0.0  # When it would be found out, nobody knows.
        elif lands and draw.random() < 0.02:
            names = ["ro"]
        if op != "flush":
            if not lands and size <= 128 and draw.random() < 0.3:
                wr["inline"] = draw.randbytes(size)
            else:
                wr["sges"] = self._sges(a, size, names, where, bad)
                if lands:
                    wr["sges"] = self._apart(wr["sges"])
        if self.plan["ends"][a.number]["sig_all"]:
            wr["signaled"] = True
        if op in ("sendimm", "imm"):
            wr["imm"] = draw.getrandbits(32)
        if op == "sendinv":
            wr["inv"] = self._some_key(b, ("mw2", "fast"))
            if wr["inv"] is None:
                wr["op"] = "send"
                wr.pop("inv")
        ranges = self._places(a, wr["sges"])
        if not op.startswith("send"):
            ranges += self._remote(wr, a, b, op, size)
        else:
            ranges.append((b.number, half, ARENA))
        if wr["op"] == "sendinv" or self._overlaps(ranges):
            wr["fence"] = True
        if wr["fence"]:
            self.open = []
        if lands:
            self.open = self.open + ranges
        return wr

    @staticmethod
    def _apart(sges: list[Any]) -> list[Any]:
        """Pieces that a READ lands in lie behind each other."""
        at = sges[0][1]
        made = []
        for key, _, n in sges:
            made.append((key, at, n))
            at += n
        total = at - sges[0][1]
        if at > ARENA // 2:
            made = [(k, s - sges[0][1], n) for k, s, n in made]
        return made if total else sges

    def _some_key(self, owner: End, kinds: tuple[str, ...]) -> Any:
        """A key of an end that works, if it has one, or one that does not."""
        keys = [
            (*k, r.gen)
            for k, r in self.model.keys.items()
            if k[1] == owner.number and k[0] in kinds and (*k, r.gen) in self.gens and r.valid
        ]
        if keys and self.draw.random() < 0.97:
            return self.draw.choice(keys)
        return None

    def _remote(
        self, wr: dict[str, Any], a: End, b: End, op: str, size: int
    ) -> list[tuple[int, int, int]]:
        draw = self.draw
        half = ARENA // 2
        kind = draw.random()
        model = self.model
        named = {"read": "rr"}.get(op, "all")
        key: Any = ("mr", b.number, draw.choice(["all", "all", "half", "zb", named]), 0)
        if kind < 0.35:
            lent = self._some_key(b, ("mw1", "mw2", "fast"))
            key = lent or key
        elif kind < 0.40 and self.gens:
            ours = [k for k in self.gens if k[1] == b.number]
            key = draw.choice(ours) if ours else key
        elif kind < 0.43:
            key = ("mr", b.number, draw.choice(["loc", "ro", "rr", "pd1", "dead"]), 0)
            if key[2] in ("loc", "ro"):
                key = ("mr", b.number, "pd1", 0)
        elif kind < 0.44:
            key = ("bad", "mr", b.number, "all", 0)
        r = model.keys.get(key[:-1])
        length = r.length if r is not None else ARENA
        start = r.start if r is not None else 0
        base = r.end if r is not None else b.number
        most = max(min(length, half - start), 0)
        offset = draw.randrange(max(most - size, 0) + 1)
        if size > most and draw.random() < 0.9 and op != "flush":
            key, start, base = ("mr", b.number, "all", 0), 0, b.number
            offset = draw.randrange(half - size + 1)
        if op in ("add", "swap", "mswap", "madd", "awrite") and draw.random() < 0.96:
            # Regions begin at aligned addresses; windows need not.
            offset += -(offset + self._first(key)) % 8
        if draw.random() < 0.02:
            offset = draw.choice([length - size + 1, length + 100, -1])
        aligned = (offset + self._first(key)) % 8
        wr["remote"] = (key, offset)
        wr["misaligned"] = aligned
        if op == "flush":
            wr["length"] = draw.choice(SIZES)
            wr["whole"] = draw.random() < 0.2
            return []
        if op == "add":
            wr["add"] = draw.getrandbits(64)
        if op == "madd":
            wr |= {"add": draw.getrandbits(64), "boundary": draw.getrandbits(64)}
        if op in ("swap", "mswap"):
            at = start + offset
            memory = model.ends[base].memory
            now = int.from_bytes(memory[at : at + 8], "little") if 0 <= at < ARENA - 8 else 0
            wr["compare"] = now if draw.random() < 0.7 else draw.getrandbits(64)
            wr["swap"] = draw.getrandbits(64)
        if op == "mswap":
            wr |= {"compare_mask": draw.getrandbits(64), "swap_mask": draw.getrandbits(64)}
        return [(base, start + offset, start + offset + size)]

    def _first(self, key: Any) -> int:
        # Arenas and regions begin at aligned addresses; windows need not.
        return self.first.get(key, 0)

    def _key_work(self, a: End, b: End, op: str) -> dict[str, Any] | None:
        draw, model = self.draw, self.model
        wr = self._common(op)
        wr["fence"] = True
        self.open = []
        if self.plan["ends"][a.number]["sig_all"]:
            wr["signaled"] = True
        if op == "inv":
            key = self._some_key(a, ("mw2", "fast"))
            if key is None and draw.random() < 0.05:
                key = ("mr", a.number, "all", 0)
            if key is None:
                return None
            wr["key"] = key
            return wr
        if op == "reg":
            r = model.keys["fast", a.number]
            if r.valid and draw.random() < 0.95:
                return None
            wr["key"] = ("fast", a.number, (r.gen + 1) & 0xFF)
            wr["rights"] = int(
                Access.LOCAL_WRITE
                | draw.choice([Access(0), Access.REMOTE_READ, FAST_RIGHTS & REMOTE, REMOTE])
                | draw.choice([Access(0), Access.MW_BIND])
            )
            if r.valid:
                # Its key changes nothing where it is refused.
                return None
            self.gens.add(wr["key"])
            return wr
        i = draw.randrange(2)
        kind = "mw1" if op == "bind1" else "mw2"
        r = model.keys[kind, a.number, i]
        if op == "bind2" and r.valid and draw.random() < 0.95:
            return None
        gen = self.counts.get((kind, a.number, i), 0) + 1 & 0xFF
        self.counts[kind, a.number, i] = gen
        name = draw.choice(["all", "all", "loc", "loc", "ro", "half"])
        if draw.random() < 0.04:
            name = draw.choice(["rr", "zb", "pd1"])
        rights = draw.choice([REMOTE, Access.REMOTE_READ, REMOTE, Access.REMOTE_WRITE])
        if name == "ro" and draw.random() < 0.9:
            rights = Access.REMOTE_READ
        if op == "bind2" and draw.random() < 0.3:
            rights |= Access.ZERO_BASED
        length = draw.choice([8, 64, 4096, ARENA // 2])
        most = ARENA // 2 - length
        offset = draw.randrange(0, most + 1, 8)
        if draw.random() < 0.03:
            offset = ARENA - length + 1
        if draw.random() < 0.03 or (op == "bind1" and draw.random() < 0.1):
            length = 0
        region: Any = ("mr", a.number, name, 0)
        wr |= {
            "key": (kind, a.number, i, gen),
            "region": region,
            "offset": offset,
            "length": length,
            "rights": int(rights),
        }
        self.gens.add(wr["key"])
        self.first[wr["key"]] = 0 if rights & Access.ZERO_BASED else offset
        return wr
