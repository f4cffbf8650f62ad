"""What a program runs on: two hosts over some link, and how its steps are done there."""

from __future__ import annotations

import time
from typing import Any

import softhca as hca
from softhca import Access, MwType, QPState, QPType
from softhca.testing import Fabric
from softhca.verbs.mr import Sge

ARENA = 16384
ALL = (
    Access.LOCAL_WRITE
    | Access.REMOTE_READ
    | Access.REMOTE_WRITE
    | Access.REMOTE_ATOMIC
    | Access.MW_BIND
    | Access.FLUSH_GLOBAL
)
# Regions of each end: (name, start, length, rights, protection domain).
REGIONS = (
    ("all", 0, ARENA, ALL, 0),
    ("loc", 0, ARENA, Access.LOCAL_WRITE | Access.MW_BIND, 0),
    ("ro", 0, ARENA, Access.MW_BIND, 0),
    ("rr", 0, ARENA, Access.REMOTE_READ, 0),
    ("zb", 0, ARENA, ALL | Access.ZERO_BASED, 0),
    ("pd1", 0, ARENA, ALL, 1),
    ("half", 0, ARENA // 2, ALL, 0),
    ("dead", 0, ARENA, ALL, 0),
)
LINKS = ("fabric", "udp", "shared", "one", "lossy")
OPCODES = {
    "SEND": "send",
    "RDMA_WRITE": "write",
    "RDMA_READ": "read",
    "COMP_SWAP": "swap",
    "FETCH_ADD": "add",
    "BIND_MW": "bind",
    "LOCAL_INV": "inv",
    "REG_MR": "reg",
    "RECV": "recv",
    "RECV_RDMA_WITH_IMM": "imm",
}


class World:
    """Two hosts, and what a program made on them.

    Args:
        link: Of `LINKS`: fabric, udp, shared, one (both hosts are one adapter), lossy.
        plan: What to make; see `programs.generate`.
    """

    def __init__(self, link: str, plan: dict[str, Any]) -> None:
        self.link = link
        self.plan = plan
        self.fabric: Fabric | None = None
        seed = plan["seed"]
        kind = "2A" if plan["windows_2a"] else "2B"
        if link in ("fabric", "lossy"):
            self.fabric = Fabric(seed & 0xFFFFFFFF, jitter_ns=0 if link == "fabric" else 2000)
            self.hosts = [self.fabric.host(windows=kind) for _ in range(2)]
            if link == "lossy":
                for word in ("drop", "duplicate", "reorder"):
                    getattr(self.fabric.faults, word)(probability=0.02)
        else:
            how = "udp" if link == "udp" else "auto"
            count = 1 if link == "one" else 2
            opened = [hca.open(link=how, windows=kind, seed=seed) for _ in range(count)]
            self.hosts = [opened[0], opened[-1]]
        self.pds = [[h.alloc_pd(), h.alloc_pd()] for h in self.hosts]
        self.cqs = [[h.create_cq(4096) for _ in range(2)] for h in self.hosts]
        self.xrcds = [h.alloc_xrcd() for h in self.hosts]
        self.ends: list[dict[str, Any]] = []
        self.srqs: list[hca.SRQ] = []
        self.keys: dict[Any, tuple[int, int]] = {}
        self.by_qpn: dict[tuple[int, int], int] = {}
        self.smudged: set[int] = set()  # Ends of whose memory nobody knows what is there.
        self.unpolled: dict[tuple[int, str], list[Any]] = {}
        self.unread: list[tuple[str, int]] = []
        for s in plan["srqs"]:
            if s["xrc"]:
                cq = self.cqs[s["host"]][1]
                srq = self.xrcds[s["host"]].create_srq(
                    self.pds[s["host"]][0], cq, max_wr=64, max_sge=3
                )
            else:
                srq = self.pds[s["host"]][0].create_srq(max_wr=64, max_sge=3)
            self.srqs.append(srq)
        for number, p in enumerate(plan["ends"]):
            self._make_end(number, p)
        for number in range(0, len(self.ends), 2):
            self.join(
                number, plan["ends"][number]["attributes"], plan["ends"][number + 1]["attributes"]
            )

    def _make_end(self, number: int, p: dict[str, Any]) -> None:
        host = p["host"]
        pd = self.pds[host][0]
        buffer = bytearray(p["content"])
        end: dict[str, Any] = {"plan": p, "buffer": buffer, "mrs": {}, "mws": {}}
        address = hca._adapter.buffer_address(buffer)
        for name, start, length, rights, which in REGIONS:
            zero = bool(rights & Access.ZERO_BASED)
            mr = self.pds[host][which].reg_mr(
                addr=address + start, length=length, access=rights, iova=0 if zero else None
            )
            self.keys["mr", number, name, 0] = (mr.lkey, mr.addr)
            end["mrs"][name] = mr
        end["mrs"].pop("dead").dereg()
        fast = pd.alloc_mr(hca.MrType.SG_GAPS, 4)
        fast.map_mr_sg([(address, ARENA)])
        end["fast"] = fast
        for i in range(2):
            end["mws"]["mw1", i] = pd.alloc_mw(MwType.TYPE_1)
            end["mws"]["mw2", i] = pd.alloc_mw(MwType.TYPE_2)
        self.ends.append(end)
        self.make_qp(number)

    def make_qp(self, number: int) -> None:
        """Makes a queue pair of an end."""
        end = self.ends[number]
        p = end["plan"]
        cqs = self.cqs[p["host"]]
        pd = self.pds[p["host"]][0]
        kind = QPType[p["type"]]
        options: dict[str, Any] = {}
        if kind is QPType.XRC_RECV:
            end["qp"] = self.xrcds[p["host"]].create_qp()
        else:
            if kind is not QPType.XRC_SEND:
                options["recv_cq"] = cqs[p["recv_cq"]]
                if p["srq"] is not None:
                    options["srq"] = self.srqs[p["srq"]]
            end["qp"] = pd.create_qp(
                kind,
                send_cq=cqs[p["send_cq"]],
                max_send_wr=64,
                max_recv_wr=64,
                max_send_sge=3,
                max_recv_sge=3,
                max_inline_data=128,
                sq_sig_all=p["sig_all"],
                **options,
            )
        self.by_qpn[id(end["qp"].device), end["qp"].qpn] = number

    def join(self, number: int, first: dict[str, Any], second: dict[str, Any]) -> None:
        """Connects ends `number` and the one behind it."""
        a, b = self.ends[number], self.ends[number + 1]
        for one, other, attributes in ((a, b, first), (b, a, second)):
            qp = one["qp"]
            if qp.type is QPType.UD:
                qp.activate(qkey=0x1234)
                if "ah" not in one:
                    host = one["plan"]["host"]
                    one["ah"] = self.pds[host][0].create_ah(other["qp"].device.gid)
                continue
            info = other["qp"].info()
            if self.link == "lossy":
                # Who waits for a receive makes no progress that would restore the count, and each
                # try may be lost.
                attributes = attributes | {"retry_cnt": 7, "min_rnr_timer": 20}
            steps = {
                QPType.RC: set(attributes),
                QPType.UC: {"path_mtu", "sq_psn", "rq_psn", "qp_access_flags"},
                QPType.XRC_SEND: set(attributes) - {"max_dest_rd_atomic", "min_rnr_timer"},
                QPType.XRC_RECV: set(attributes) - {"retry_cnt", "rnr_retry", "max_rd_atomic"},
            }[qp.type]
            qp.connect(info, **{k: v for k, v in attributes.items() if k in steps})

    # --- keys

    def key(self, name: Any) -> tuple[int, int]:
        """Number of a key and what it calls its first byte."""
        if name[0] == "bad":
            number, base = self.keys[name[1:]]
            return number ^ 0x80, base
        return self.keys[name]

    def _sge(self, s: Any) -> Sge:
        number, base = self.key(s[0])
        return Sge((base + s[1]) & (1 << 64) - 1, s[2], number)

    # --- steps

    def do(self, step: tuple[Any, ...]) -> str:
        """Does a step; returns what was refused."""
        try:
            getattr(self, "_" + step[0])(*step[1:])
        except hca.VerbsError as refusal:
            return f"{refusal.errno} {refusal.argument}"
        return ""

    def _send(self, number: int, wrs: list[dict[str, Any]], how: str) -> None:
        qp = self.ends[number]["qp"]
        made: list[Any] = []
        for w in wrs:
            if w["op"] == "bind1":
                if made:
                    qp.post_send(made)
                    made = []
                self._bind1(number, w)
                continue
            made.append(self._wr(number, w))
            if how == "single":
                qp.post_send(made.pop())
        if made:
            (qp.post_send_many if how == "many" else qp.post_send)(made)

    def _bind1(self, number: int, w: dict[str, Any]) -> None:
        end = self.ends[number]
        mw = self.ends[w["key"][1]]["mws"]["mw1", w["key"][2]]
        if w["length"] == 0:
            bind = hca.BindInfo(None)
        else:
            _, owner, name, _ = w["region"]
            mr = self.ends[owner]["mrs"][name] if w["region"][0] == "mr" else None
            bind = hca.BindInfo(mr, mr.addr + w["offset"], w["length"], Access(w["rights"]))
        far = end["qp"].bind_mw(mw, bind, wr_id=w["id"], signaled=w["signaled"], fence=w["fence"])
        self.keys[w["key"]] = (far.rkey, far.addr)

    def _wr(self, number: int, w: dict[str, Any]) -> Any:
        options: dict[str, Any] = {
            "wr_id": w["id"],
            "signaled": w["signaled"],
            "fence": w["fence"],
        }
        op = w["op"]
        end = self.ends[number]
        if op == "bind2":
            return self._bind2(w, options)
        if op == "inv":
            return hca.LocalInv(self.key(w["key"])[0], **options)
        if op == "reg":
            fast = self.ends[w["key"][1]]["fast"]
            fast.update_fast_reg_key(w["key"][-1])
            self.keys[w["key"]] = (fast.rkey, fast.addr)
            return hca.RegMr(fast, access=w["rights"], **options)
        sges = [self._sge(s) for s in w["sges"]]
        if w["inline"] is not None:
            sges, options["inline"] = [w["inline"]], True
        if w["solicited"]:
            options["solicited"] = True
        if end["plan"]["type"] == "XRC_SEND":
            options["srqn"] = self.srqs[self.ends[number ^ 1]["plan"]["srq"]].srqn
        if end["plan"]["type"] == "UD":
            options |= {
                "ah": end["ah"],
                "remote_qpn": self.ends[number ^ 1]["qp"].qpn,
                "remote_qkey": 0x4321 if w["qkey_wrong"] else 0x1234,
            }
        if op == "send":
            return hca.Send(*sges, **options)
        if op == "sendimm":
            return hca.SendImm(*sges, imm=w["imm"], **options)
        if op == "sendinv":
            return hca.SendInv(*sges, rkey=self.key(w["inv"])[0], **options)
        options.pop("ah", None)
        options.pop("remote_qpn", None)
        options.pop("remote_qkey", None)
        rkey, base = self.key(w["remote"][0])
        total = sum(s[2] for s in w["sges"]) if w["inline"] is None else len(w["inline"])
        length = w["length"] if op == "flush" else max(total, 8)
        far = hca.RemoteMemory((base + w["remote"][1]) & (1 << 64) - 1, rkey, length)
        if op == "flush":
            return hca.Flush(remote=far, level=int(w["whole"]), **options)
        if op == "write":
            return hca.Write(*sges, remote=far, **options)
        if op == "imm":
            return hca.WriteImm(*sges, remote=far, imm=w["imm"], **options)
        if op == "read":
            return hca.Read(*sges, remote=far, **options)
        if op == "awrite":
            return hca.AtomicWrite(*sges, remote=far, **options)
        if op == "add":
            return hca.FetchAdd(*sges, remote=far, add=w["add"], **options)
        if op == "swap":
            return hca.CmpSwap(*sges, remote=far, compare=w["compare"], swap=w["swap"], **options)
        if op == "madd":
            return hca.MaskedFetchAdd(
                *sges, remote=far, add=w["add"], boundary=w["boundary"], **options
            )
        return hca.MaskedCmpSwap(
            *sges,
            remote=far,
            compare=w["compare"],
            compare_mask=w["compare_mask"],
            swap=w["swap"],
            swap_mask=w["swap_mask"],
            **options,
        )

    def _bind2(self, w: dict[str, Any], options: dict[str, Any]) -> Any:
        mw = self.ends[w["key"][1]]["mws"]["mw2", w["key"][2]]
        where, owner = w["region"], self.ends[w["region"][1]]
        mr = owner["fast"] if where[0] == "fast" else owner["mrs"][where[2]]
        rights = Access(w["rights"])
        bind = hca.BindInfo(mr, mr.addr + w["offset"], w["length"], rights)
        rkey = mw.handle & ~0xFF | w["key"][-1]
        made = hca.BindMw(mw, bind, rkey=rkey, **options)
        self.keys[w["key"]] = (rkey, made.remote.addr)
        return made

    def _recv(self, number: int, wrs: list[dict[str, Any]], how: str) -> None:
        self._receives(self.ends[number]["qp"], wrs, how)

    def _srq(self, number: int, wrs: list[dict[str, Any]], how: str) -> None:
        self._receives(self.srqs[number], wrs, how)

    def _receives(self, queue: Any, wrs: list[dict[str, Any]], how: str) -> None:
        made = [hca.Recv(*[self._sge(s) for s in w["sges"]], wr_id=w["id"]) for w in wrs]
        if how == "single":
            for one in made:
                queue.post_recv(one)
        else:
            (queue.post_recv_many if how == "many" else queue.post_recv)(made)

    def _modify(self, number: int, state: int, *options: Any) -> None:
        self.ends[number]["qp"].modify(qp_state=QPState(state), **dict(options))

    def _join(self, number: int, first: dict[str, Any], second: dict[str, Any]) -> None:
        self.join(number, first, second)

    def _remake(self, number: int) -> None:
        qp = self.ends[number]["qp"]
        self.by_qpn.pop((id(qp.device), qp.qpn), None)
        qp.close()
        self.make_qp(number)

    def _resize(self, host: int, cq: int, cqe: int) -> None:
        self.cqs[host][cq].resize(cqe)

    # --- looking

    def _poll(self) -> int:
        found = 0
        for host, device in enumerate(self.hosts):
            for cq in self.cqs[host]:
                if self.fabric is not None:
                    wcs = device.adapter.poll_cq(cq.handle, 64, hca.WC, progress=False)
                else:
                    wcs = cq.poll(64)
                for wc in wcs:
                    found += 1
                    self._note(device, wc)
            while (event := device.poll_async_event()) is not None:
                found += 1
                self._note_event(event)
        return found

    def _note_event(self, event: Any) -> None:
        element = event.element
        number = next((i for i, e in enumerate(self.ends) if e["qp"] is element), -1)
        if number < 0 and event.event_type.name in ("GID_CHANGE", "PORT_ACTIVE", "PORT_ERR"):
            return
        self.unread.append((event.event_type.name, number))
        event.ack()

    def _note(self, device: Any, wc: Any) -> None:
        number = self.by_qpn.get((id(device), wc.qp_num), -1)
        queue = "R" if wc.is_receive else "S"
        fields: tuple[Any, ...]
        if not wc.ok:
            fields = (wc.wr_id, wc.status.name)
        elif wc.is_receive:
            extra: Any = None
            if wc.imm_data is not None:
                extra = ("imm", wc.imm_data)
            elif wc.invalidated_rkey is not None:
                extra = ("inv", wc.invalidated_rkey)
            fields = (wc.wr_id, "SUCCESS", OPCODES[wc.opcode.name], wc.byte_len, extra)
        else:
            fields = (wc.wr_id, "SUCCESS", wc.opcode.name, wc.byte_len)
        self.unpolled.setdefault((number, queue), []).append((fields, wc.reason.name, wc.why))

    def settle(self, expected: dict[Any, int], events: int) -> None:
        """Waits until as much came as is expected, and a little longer."""
        if self.fabric is not None:
            for _ in range(400):
                self.fabric.run_for(0.002 if self.link == "fabric" else 0.02)
                self._poll()
                if self._enough(expected, events):
                    break
            self.fabric.run_for(0.005)
            self._poll()
            return
        end = time.monotonic() + 8
        while not self._enough(expected, events) and time.monotonic() < end:
            self._poll()
        # Nobody says when a datagram has come.
        silent = any(e["type"] in ("UC", "UD") for e in self.plan["ends"])
        for _ in range(300 if silent else 6):
            self._poll()

    def _enough(self, expected: dict[Any, int], events: int) -> bool:
        got = self.unpolled
        return len(self.unread) >= events and all(
            len(got.get(k, ())) >= n for k, n in expected.items()
        )

    def close(self) -> None:
        """Closes all."""
        if self.fabric is not None:
            self.fabric.close()
            return
        for device in {id(h): h for h in self.hosts}.values():
            device._close_with_children()
