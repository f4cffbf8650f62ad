"""A queue pair that is sent packets, its memory, and what becomes of both."""

from __future__ import annotations

import contextlib
import socket
import zlib
from pathlib import Path
from typing import Any

import pyverbs.enums as e
from packet_steps import (
    QKEY,
    REGION_BYTES,
    SMALL_BYTES,
    WINDOW_AT,
    WINDOW_BYTES,
    Case,
    Deed,
)
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR, MW, MWBindInfo
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

ASKED = {
    "SEND": e.IBV_WR_SEND,
    "WRITE": e.IBV_WR_RDMA_WRITE,
    "READ": e.IBV_WR_RDMA_READ,
    "CAS": e.IBV_WR_ATOMIC_CMP_AND_SWP,
    "FAA": e.IBV_WR_ATOMIC_FETCH_AND_ADD,
}
REMOTE_AT, REMOTE_KEY = 0x10000, 0x1234
KINDS = {"RC": e.IBV_QPT_RC, "UC": e.IBV_QPT_UC, "UD": e.IBV_QPT_UD}
STATES = ["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"]
ALL_RIGHTS = 15
RECEIVE_BYTES = 1536
RECEIVES_AT = range(0, 16 * RECEIVE_BYTES, RECEIVE_BYTES)
# Of no region: rxe's first index and ours are greater.
NO_KEY = 0x7F


def gid_index(device: str, address: str) -> int:
    """The index of the device's GID of an address."""
    gid = "0000:0000:0000:0000:0000:ffff:" + socket.inet_aton(address).hex(":", 2)
    for entry in Path(f"/sys/class/infiniband/{device}/ports/1/gids").iterdir():
        if entry.read_text().strip() == gid:
            return int(entry.name)
    raise LookupError(f"{device} has no GID {gid}")


class Shared:
    """What all queue pairs have in common."""

    def __init__(self, device: str, to: str, source: str) -> None:
        self.context = Context(name=device)
        self.pd = PD(self.context)
        self.foreign_pd = PD(self.context)
        self.foreign = MR(self.foreign_pd, REGION_BYTES, ALL_RIGHTS)
        gone = MR(self.pd, REGION_BYTES, ALL_RIGHTS)
        self.gone_key = gone.rkey
        gone.close()
        gid = GID("0000:0000:0000:0000:0000:ffff:" + socket.inet_aton(source).hex(":", 2))
        route = GlobalRoute(dgid=gid, sgid_index=gid_index(device, to), hop_limit=64)
        self.path = AHAttr(gr=route, is_global=1, port_num=1)
        self.send_cq, self.recv_cq = CQ(self.context, 4096), CQ(self.context, 4096)


class Target:
    """A queue pair of a case, and its memory."""

    def __init__(self, shared: Shared, case: Case, peer_qpn: int) -> None:
        self.shared, self.case, self.peer_qpn = shared, case, peer_qpn
        self.psn = case.psn
        rights = ALL_RIGHTS | e.IBV_ACCESS_MW_BIND
        self.regions = {
            "all": MR(shared.pd, REGION_BYTES, rights),
            "reads": MR(shared.pd, SMALL_BYTES, e.IBV_ACCESS_REMOTE_READ),
            "writes": MR(shared.pd, SMALL_BYTES, 3),
            "local": MR(shared.pd, SMALL_BYTES, 1),
            "receives": MR(shared.pd, len(RECEIVES_AT) * RECEIVE_BYTES, 1),
        }
        for name, region in self.regions.items():
            size = region.length
            empty = name == "receives" and not case.asks
            start = bytes(size) if empty else bytes(i * 5 & 0xFF for i in range(size))
            region.write(start, size)
        self.srq = (
            SRQ(shared.pd, SrqInitAttr(SrqAttr(max_wr=16, max_sge=2))) if case.shared else None
        )
        self.qp = self.created()
        self.connect()
        self.qpn = self.qp.qp_num
        self.window: MW | None = None
        self.window_key = NO_KEY
        if case.kind == "RC" and not case.asks and not case.early:
            self.bind()
        self.posted = self.asked = 0
        self.next_psn = 0
        self.forgotten: dict[str, int] = {}
        for sizes in case.receives:
            self.post(sizes)
        self.seen = self.contents()

    def created(self) -> QP:
        shared = self.shared
        cap = QPCap(max_send_wr=64, max_recv_wr=16, max_send_sge=1, max_recv_sge=2)
        kind = KINDS[self.case.kind]
        init = QPInitAttr(kind, scq=shared.send_cq, rcq=shared.recv_cq, srq=self.srq, cap=cap)
        return QP(shared.pd, init)

    def connect(self) -> None:
        """From RESET to RTS, or to RTR."""
        case = self.case
        attr = QPAttr(port_num=1)
        attr.pkey_index, attr.sq_psn, attr.qkey = 0, case.psn if case.asks else 0, QKEY
        if case.kind != "UD":
            attr.qp_access_flags, attr.path_mtu, attr.ah_attr = case.rights, 1, self.shared.path
            attr.dest_qp_num, attr.rq_psn = self.peer_qpn, case.psn
        if case.kind == "RC":
            attr.max_dest_rd_atomic = attr.max_rd_atomic = case.resources
            # Nothing is repeated because of the time.
            attr.min_rnr_timer, attr.timeout = 12, 0
            attr.retry_cnt = attr.rnr_retry = case.retries
        if case.early:
            self.qp.to_rtr(attr)
        else:
            self.qp.to_rts(attr)

    def do(self, deed: Deed) -> None:
        if deed.verb == "post":
            self.post([int(deed.what)])
        elif deed.verb == "rights" and self.case.kind != "UD":
            attr = QPAttr(qp_state=STATES.index(self.state()))
            attr.qp_access_flags = int(deed.what)
            with contextlib.suppress(PyverbsRDMAError):  # In ERR, or in RTR.
                self.qp.modify(attr, e.IBV_QP_STATE | e.IBV_QP_ACCESS_FLAGS)
        elif deed.verb == "forget" and (region := self.regions.pop(deed.what, None)):
            self.forgotten[deed.what] = region.rkey
            self.seen.pop(deed.what)
            region.close()
        elif deed.verb == "again":
            self.qp.modify(QPAttr(qp_state=e.IBV_QPS_RESET), e.IBV_QP_STATE)
            self.connect()

    def bind(self) -> None:
        """A window of type 2 in the midst of the region."""
        mw = MW(self.shared.pd, e.IBV_MW_TYPE_2)
        start = self.regions["all"].buf + WINDOW_AT
        info = MWBindInfo(self.regions["all"], start, WINDOW_BYTES, ALL_RIGHTS & ~1)
        request = SendWR(opcode=e.IBV_WR_BIND_MW)
        request.set_bind_wr(mw, info)
        self.qp.post_send(request)
        while not (found := self.shared.send_cq.poll(1)[1]):
            pass
        assert found[0].status == e.IBV_WC_SUCCESS
        self.window, self.window_key = mw, request.rkey

    def post(self, sizes: list[int]) -> None:
        """A receive, each in its own part of the region."""
        region, sges = self.regions["receives"], []
        at = self.posted * RECEIVE_BYTES
        lkey = region.lkey ^ (0x80 if self.posted == self.case.bad_receive else 0)
        for size in sizes:
            sges.append(SGE(region.buf + at, size, lkey))
            at += size
        queue = self.srq or self.qp
        queue.post_recv(RecvWR(wr_id=self.posted, num_sge=len(sges), sg=sges))
        self.posted += 1

    def ask(self, requests: list[tuple[str, int]]) -> None:
        """Work of the program's own, with the region and to a place that is none."""
        for operation, length in requests:
            # What is sent is not what was fetched.
            region = self.regions["receives" if operation in ("SEND", "WRITE") else "all"]
            at = 8 * (self.asked % 8)
            sge = [SGE(region.buf + at, length, region.lkey)]
            request = SendWR(self.asked, ASKED[operation], num_sge=1, sg=sge)
            if operation in ("CAS", "FAA"):
                request.set_wr_atomic(REMOTE_KEY, REMOTE_AT, 1, 2)
            elif operation != "SEND":
                request.set_wr_rdma(REMOTE_KEY, REMOTE_AT)
            try:
                self.qp.post_send(request)
            except PyverbsRDMAError:
                return  # Not in this state; which that is comes at the end.
            self.asked += 1

    # --- places of a step

    def address(self, region: str) -> int:
        """Where a region begins; those that are none begin where `all` does."""
        if region == "foreign":
            return int(self.shared.foreign.buf)
        if region == "window":
            return int(self.regions["all"].buf) + WINDOW_AT
        return int(self.regions.get(region, self.regions["all"]).buf)

    def rkey(self, region: str) -> int:
        """The key of a region, which may be none."""
        other = {"gone": self.shared.gone_key, "none": NO_KEY, "window": self.window_key}
        other |= {"foreign": self.shared.foreign.rkey, **self.forgotten}
        return int(other[region] if region in other else self.regions[region].rkey)

    # --- what became of it

    def contents(self) -> dict[str, bytes]:
        octets = {name: region.read(region.length, 0) for name, region in self.regions.items()}
        if self.case.kind == "UD":
            # The header of IP in front of a datagram has addresses and an identification.
            receives = octets["receives"]
            parts = [receives[at + 40 : at + RECEIVE_BYTES] for at in RECEIVES_AT]
            octets["receives"] = b"".join(bytes(40) + part for part in parts)
        return octets

    def changes(self) -> list[str]:
        """What of the memory is other than at the last look."""
        now, words = self.contents(), []
        for name, octets in now.items():
            if octets != self.seen[name]:
                differ = [
                    i
                    for i, (a, b) in enumerate(zip(octets, self.seen[name], strict=True))
                    if a != b
                ]
                at, end = differ[0], differ[-1] + 1
                words.append(f"{name}+{at}:{end - at} {zlib.crc32(octets[at:end]):08x}")
        self.seen = now
        return words

    def key_words(self, immediate: int) -> str:
        """An invalidated key, by the name of what had it."""
        for name in ("all", "window", "gone", "none"):
            if self.rkey(name) == immediate:
                return name
        return f"{immediate:08x}"

    def completion(self, wc: Any) -> str:
        if wc.status != e.IBV_WC_SUCCESS:
            return f"[{wc.wr_id} {status_words(wc.status)}]"
        if self.case.asks:
            # The length is that of what was fetched, and no other's.
            return f"[{wc.wr_id} op {wc.opcode}]"
        words = [f"{wc.wr_id} op {wc.opcode} len {wc.byte_len}"]
        if wc.wc_flags & e.IBV_WC_WITH_IMM:
            words.append(f"imm {socket.ntohl(wc.imm_data):08x}")
        if wc.wc_flags & (e.IBV_WC_WITH_INV | 1 << 2):
            words.append(f"inv {self.key_words(wc.imm_data)}")
        if wc.wc_flags & e.IBV_WC_GRH:
            words.append("grh")
        if self.case.kind == "UD":
            words.append(f"from {wc.src_qp:x}")
        return f"[{' '.join(words)}]"

    def state(self) -> str:
        return STATES[self.qp.query(e.IBV_QP_STATE)[0].qp_state]

    def close(self) -> None:
        for thing in (self.window, self.qp, self.srq, *self.regions.values()):
            if thing is not None:
                thing.close()


def status_words(status: int) -> str:
    """As the enumeration names it."""
    names = [name for name in dir(e) if name.startswith("IBV_WC_") and name.endswith("_ERR")]
    return next((n[7:] for n in names if int(getattr(e, n)) == status), str(status))
