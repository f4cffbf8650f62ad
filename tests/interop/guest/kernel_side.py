"""The kernel's Soft-RoCE through pyverbs."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

import pyverbs.enums as e
from pyverbs.addr import AH, GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR, MW, MWBind, MWBindInfo
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPEx, QPInitAttr, QPInitAttrEx
from pyverbs.wr import SGE, RecvWR, SendWR
from side import ARENA_BYTES, QKEY, Side

ACCESS = (
    e.IBV_ACCESS_LOCAL_WRITE
    | e.IBV_ACCESS_REMOTE_WRITE
    | e.IBV_ACCESS_REMOTE_READ
    | e.IBV_ACCESS_REMOTE_ATOMIC
)
KINDS = {"RC": e.IBV_QPT_RC, "UC": e.IBV_QPT_UC, "UD": e.IBV_QPT_UD}
STATES = ["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"]
OPERATIONS = {
    "SEND": e.IBV_WR_SEND,
    "SEND_IMM": e.IBV_WR_SEND_WITH_IMM,
    "WRITE": e.IBV_WR_RDMA_WRITE,
    "WRITE_IMM": e.IBV_WR_RDMA_WRITE_WITH_IMM,
    "READ": e.IBV_WR_RDMA_READ,
    "CMP_SWAP": e.IBV_WR_ATOMIC_CMP_AND_SWP,
    "FETCH_ADD": e.IBV_WR_ATOMIC_FETCH_AND_ADD,
    "SEND_INV": e.IBV_WR_SEND_WITH_INV,
    "LOCAL_INV": e.IBV_WR_LOCAL_INV,
}
ATOMIC_WRITE = 1 << 40  # IB_UVERBS_DEVICE_ATOMIC_WRITE
# rxe says it by the kernel's bit, which libibverbs knows under another name.
WITH_INV = e.IBV_WC_WITH_INV | 1 << 2
GIDS = Path("/sys/class/infiniband/rxe0/ports/1/gids")


def release() -> tuple[int, ...]:
    """The kernel's version, such as (6, 1)."""
    return tuple(int(part) for part in os.uname().release.split(".")[:2])


def gid_index(gid: str) -> int:
    """Index of one of rxe0's own GIDs."""
    for entry in GIDS.iterdir():
        if entry.read_text().strip() == gid:
            return int(entry.name)
    raise LookupError(f"rxe0 has no GID {gid}")


class KernelSide(Side):
    """rxe0, in this process."""

    name = "rxe"
    # With 6.12 and 7.2, not with 6.1, an ACK of an earlier request that comes between the packets
    # of a READ's answer ends the queue pair, or the READ without its bytes: against rxe as well.
    loses_reads = release() > (6, 1)

    def __init__(self, gid: str) -> None:
        self.gid = gid
        self.context = Context(name="rxe0")
        self.pd = PD(self.context)
        flags = self.context.query_device_ex().device_cap_flags_ex
        self.has_atomic_write = bool(flags & ATOMIC_WRITE)
        self.mr = MR(self.pd, ARENA_BYTES, ACCESS | e.IBV_ACCESS_MW_BIND)
        self.windows: dict[int, list[MW]] = {}
        self.qps: dict[int, tuple[QP, CQ, str]] = {}
        self.handles: dict[int, tuple[AH, int]] = {}

    def create_qp(self, kind: str, depth: int) -> dict[str, Any]:
        cq = CQ(self.context, 2 * depth)
        cap = QPCap(max_send_wr=depth, max_recv_wr=depth, max_send_sge=1, max_recv_sge=1)
        if kind == "RC" and self.has_atomic_write:
            qp = self._extended_qp(cq, cap)
        else:
            qp = QP(self.pd, QPInitAttr(qp_type=KINDS[kind], scq=cq, rcq=cq, cap=cap))
        self.qps[qp.qp_num] = (qp, cq, kind)
        psn = 0xFFFFF0 + qp.qp_num % 8
        return {
            "qpn": qp.qp_num,
            "psn": psn,
            "gid": self.gid,
            "addr": self.mr.buf,
            "rkey": self.mr.rkey,
        }

    def _extended_qp(self, cq: CQ, cap: QPCap) -> QPEx:
        """An RC queue pair of which ATOMIC WRITE can be asked, by the newer calls alone."""
        init = QPInitAttrEx(
            qp_type=KINDS["RC"],
            scq=cq,
            rcq=cq,
            cap=cap,
            pd=self.pd,
            comp_mask=e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
            send_ops_flags=e.IBV_QP_EX_WITH_ATOMIC_WRITE,
        )
        return QPEx(self.context, init)

    def connect(
        self, qpn: int, other: dict[str, Any], mtu: int, attributes: dict[str, Any]
    ) -> None:
        qp, _, kind = self.qps[qpn]
        route = GlobalRoute(dgid=GID(other["gid"]), sgid_index=gid_index(self.gid), hop_limit=64)
        path = AHAttr(gr=route, is_global=1, port_num=1)
        attr = QPAttr(port_num=1)
        attr.pkey_index, attr.sq_psn = 0, 0xFFFFF0 + qpn % 8
        if kind == "UD":
            attr.qkey = QKEY
            self.handles[qpn] = (AH(self.pd, attr=path), other["qpn"])
        else:
            attr.qp_access_flags = ACCESS
            attr.ah_attr = path
            attr.path_mtu = {256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}[mtu]
            attr.dest_qp_num, attr.rq_psn = other["qpn"], other["psn"]
        if kind == "RC":
            attr.max_rd_atomic = attr.max_dest_rd_atomic = attributes["rd_atomic"]
            attr.min_rnr_timer, attr.timeout = attributes["min_rnr_timer"], attributes["timeout"]
            attr.retry_cnt, attr.rnr_retry = attributes["retry_cnt"], attributes["rnr_retry"]
        qp.to_rts(attr)

    def state(self, qpn: int) -> str:
        attr, _ = self.qps[qpn][0].query(e.IBV_QP_STATE)
        return STATES[attr.qp_state]

    def close_qp(self, qpn: int) -> None:
        for mw in self.windows.pop(qpn, []):
            mw.close()
        qp, cq, _ = self.qps.pop(qpn)
        if qpn in self.handles:
            self.handles.pop(qpn)[0].close()
        qp.close()
        cq.close()

    def _sges(self, offset: int, length: int) -> list[SGE]:
        # pyverbs wants an entry even for a message of no bytes.
        return [SGE(self.mr.buf + offset, length, self.mr.lkey)]

    def post_recv(self, qpn: int, offset: int, length: int, wr_id: int) -> None:
        sges = self._sges(offset, length)
        self.qps[qpn][0].post_recv(RecvWR(wr_id=wr_id, num_sge=1, sg=sges))

    def post_send(self, qpn: int, wr: dict[str, Any]) -> None:
        sges = self._sges(wr["offset"], wr["length"])
        operation = wr["op"]
        if operation == "ATOMIC_WRITE":
            self._post_atomic_write(self.qps[qpn][0], wr)
            return
        invalidates = operation in ("SEND_INV", "LOCAL_INV")
        request = SendWR(
            wr_id=wr["wr_id"],
            opcode=OPERATIONS[operation],
            num_sge=0 if operation == "LOCAL_INV" else 1,
            sg=sges,
            # The key to invalidate lies where the immediate does, in the host's byte order.
            imm_data=wr["rkey"] if invalidates else socket.htonl(wr.get("imm", 0)),
            send_flags=e.IBV_SEND_SIGNALED if wr.get("signaled", True) else 0,
        )
        if operation == "CMP_SWAP":
            request.set_wr_atomic(wr["rkey"], wr["remote"], wr["compare"], wr["swap"])
        elif operation == "FETCH_ADD":
            request.set_wr_atomic(wr["rkey"], wr["remote"], wr["add"], 0)
        elif operation in ("WRITE", "WRITE_IMM", "READ"):
            request.set_wr_rdma(wr["rkey"], wr["remote"])
        elif qpn in self.handles:
            handle, remote_qpn = self.handles[qpn]
            request.set_wr_ud(handle, remote_qpn, QKEY)
        self.qps[qpn][0].post_send(request)

    def _post_atomic_write(self, qp: QPEx, wr: dict[str, Any]) -> None:
        qp.wr_start()
        qp.wr_id, qp.wr_flags = wr["wr_id"], e.IBV_SEND_SIGNALED
        qp.wr_atomic_write(wr["rkey"], wr["remote"], self.get(wr["offset"], 8))
        qp.wr_complete()

    def wait(self, qpn: int, count: int, seconds: float) -> list[dict[str, Any]]:
        cq = self.qps[qpn][1]
        deadline = time.monotonic() + seconds
        found: list[dict[str, Any]] = []
        while len(found) < count:
            _, completions = cq.poll(min(16, count - len(found)))
            for wc in completions or []:
                found.append(
                    {
                        "wr_id": wc.wr_id,
                        "status": wc.status,
                        "opcode": wc.opcode,
                        "byte_len": wc.byte_len,
                        "imm": socket.ntohl(wc.imm_data)
                        if wc.wc_flags & e.IBV_WC_WITH_IMM
                        else None,
                        "inv": wc.imm_data if wc.wc_flags & WITH_INV else None,
                    }
                )
            if not completions:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.0005)
        return found

    def bind(self, qpn: int, mw_type: int, offset: int, length: int, wr_id: int) -> dict[str, Any]:
        qp = self.qps[qpn][0]
        mw = MW(self.pd, mw_type)
        self.windows.setdefault(qpn, []).append(mw)
        rights = ACCESS & ~e.IBV_ACCESS_LOCAL_WRITE
        info = MWBindInfo(self.mr, self.mr.buf + offset, length, rights)
        if mw_type == e.IBV_MW_TYPE_1:
            qp.bind_mw(mw, MWBind(info, e.IBV_SEND_SIGNALED, wr_id))
            return {"addr": self.mr.buf + offset, "rkey": mw.rkey}
        request = SendWR(wr_id=wr_id, opcode=e.IBV_WR_BIND_MW)
        request.set_bind_wr(mw, info)
        qp.post_send(request)
        return {"addr": self.mr.buf + offset, "rkey": request.rkey}

    def put(self, offset: int, octets: bytes) -> None:
        self.mr.write(octets, len(octets), offset)

    def get(self, offset: int, length: int) -> bytes:
        return self.mr.read(length, offset)

    def counters(self) -> dict[str, int]:
        directory = Path("/sys/class/infiniband/rxe0/ports/1/hw_counters")
        return {
            entry.name: int(entry.read_text())
            for entry in directory.iterdir()
            if entry.name != "lifespan"
        }
