"""softhca on an address of its own; run as a program, it serves one on its standard streams."""

from __future__ import annotations

import base64
import ipaddress
import json
import sys
import time
import traceback
from typing import Any

from side import ARENA_BYTES, QKEY, Side, gid_text

import softhca as hca

ALL = hca.Access.REMOTE_READ | hca.Access.REMOTE_WRITE | hca.Access.REMOTE_ATOMIC
KINDS = {"RC": hca.QPType.RC, "UC": hca.QPType.UC, "UD": hca.QPType.UD}


class SofthcaSide(Side):
    """A softhca device, in this process."""

    name = "softhca"

    def __init__(self, address: str, capture: str | None = None) -> None:
        self.device = hca.open(address, capture=capture)
        self.gid = gid_text(address)
        self.pd = self.device.alloc_pd()
        self.arena = bytearray(ARENA_BYTES)
        self.mr = self.pd.reg_mr(self.arena, ALL | hca.Access.LOCAL_WRITE | hca.Access.MW_BIND)
        self.windows: list[hca.MW] = []
        self.qps: dict[int, tuple[hca.QP, hca.CQ]] = {}
        self.handles: dict[int, tuple[hca.AH, int]] = {}

    def create_qp(self, kind: str, depth: int) -> dict[str, Any]:
        cq = self.device.create_cq(2 * depth)
        qp = self.pd.create_qp(
            KINDS[kind], send_cq=cq, recv_cq=cq, max_send_wr=depth, max_recv_wr=depth
        )
        self.qps[qp.qpn] = (qp, cq)
        # Near the end, so that PSNs wrap early.
        qp.psn = 0xFFFFF8
        return {
            "qpn": qp.qpn,
            "psn": qp.psn,
            "gid": self.gid,
            "addr": self.mr.addr,
            "rkey": self.mr.rkey,
        }

    def connect(
        self, qpn: int, other: dict[str, Any], mtu: int, attributes: dict[str, Any]
    ) -> None:
        qp, _ = self.qps[qpn]
        far = hca.GID(ipaddress.IPv6Address(other["gid"]).packed)
        if qp.type is hca.QPType.UD:
            qp.activate(QKEY)
            self.handles[qpn] = (self.pd.create_ah(far), other["qpn"])
            return
        mine = {name: value for name, value in attributes.items() if name != "rd_atomic"}
        if qp.type is hca.QPType.RC:
            mine["max_rd_atomic"] = mine["max_dest_rd_atomic"] = attributes["rd_atomic"]
        else:
            mine = {}
        info = hca.QPInfo(
            gid=far, qpn=other["qpn"], psn=other["psn"], mtu=hca.Mtu[f"MTU_{mtu}"], qp_type=qp.type
        )
        qp.connect(info, **mine)

    def state(self, qpn: int) -> str:
        return self.qps[qpn][0].state.name

    def close_qp(self, qpn: int) -> None:
        qp, cq = self.qps.pop(qpn)
        qp.close()
        cq.close()
        if qpn in self.handles:
            self.handles.pop(qpn)[0].close()

    def _buffers(self, offset: int, length: int) -> list[hca.Sge]:
        return [self.mr[offset : offset + length]] if length else []

    def post_recv(self, qpn: int, offset: int, length: int, wr_id: int) -> None:
        self.qps[qpn][0].post_recv(hca.Recv(*self._buffers(offset, length), wr_id=wr_id))

    def post_send(self, qpn: int, wr: dict[str, Any]) -> None:
        buffers = self._buffers(wr["offset"], wr["length"])
        options: dict[str, Any] = {"wr_id": wr["wr_id"], "signaled": wr.get("signaled", True)}
        if "remote" in wr:
            options["remote"] = hca.RemoteMemory(wr["remote"], wr["rkey"], wr["length"])
        if qpn in self.handles:
            handle, remote_qpn = self.handles[qpn]
            options |= {"ah": handle, "remote_qpn": remote_qpn, "remote_qkey": QKEY}
        operation = wr["op"]
        request: hca.SendRequest
        match operation:
            case "SEND":
                request = hca.Send(*buffers, **options)
            case "SEND_IMM":
                request = hca.SendImm(*buffers, imm=wr["imm"], **options)
            case "WRITE":
                request = hca.Write(*buffers, **options)
            case "WRITE_IMM":
                request = hca.WriteImm(*buffers, imm=wr["imm"], **options)
            case "READ":
                request = hca.Read(*buffers, **options)
            case "CMP_SWAP":
                operands = {"compare": wr["compare"], "swap": wr["swap"]}
                request = hca.CmpSwap(*buffers, **operands, **options)
            case "FETCH_ADD":
                request = hca.FetchAdd(*buffers, add=wr["add"], **options)
            case "ATOMIC_WRITE":
                request = hca.AtomicWrite(*buffers, **options)
            case "SEND_INV":
                request = hca.SendInv(*buffers, rkey=wr["rkey"], **options)
            case "LOCAL_INV":
                request = hca.LocalInv(wr["rkey"], **options)
            case _:
                raise ValueError(operation)
        self.qps[qpn][0].post_send(request)

    def wait(self, qpn: int, count: int, seconds: float) -> list[dict[str, Any]]:
        cq = self.qps[qpn][1]
        deadline = time.monotonic() + seconds
        found: list[dict[str, Any]] = []
        while len(found) < count:
            completions = cq.poll(count - len(found))
            for wc in completions:
                found.append(
                    {
                        "wr_id": wc.wr_id,
                        "status": int(wc.status),
                        "opcode": int(wc.opcode),
                        "byte_len": wc.byte_len,
                        "imm": wc.imm_data,
                        "inv": wc.invalidated_rkey,
                    }
                )
            if not completions:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.0005)
        return found

    def bind(self, qpn: int, mw_type: int, offset: int, length: int, wr_id: int) -> dict[str, Any]:
        qp = self.qps[qpn][0]
        mw = self.pd.alloc_mw(hca.MwType(mw_type))
        self.windows.append(mw)
        bind = hca.BindInfo.of(self.mr[offset : offset + length], ALL)
        if mw.type is hca.MwType.TYPE_1:
            remote = qp.bind_mw(mw, bind, wr_id=wr_id, signaled=True)
        else:
            key = hca.inc_rkey(mw.rkey)
            request = hca.BindMw(mw, bind, rkey=key, wr_id=wr_id, signaled=True)
            qp.post_send(request)
            remote = request.remote
        return {"addr": remote.addr, "rkey": remote.rkey}

    def put(self, offset: int, octets: bytes) -> None:
        self.arena[offset : offset + len(octets)] = octets

    def get(self, offset: int, length: int) -> bytes:
        return bytes(self.arena[offset : offset + length])

    def counters(self) -> dict[str, int]:
        return dict(self.device.counters)


def serve(side: Side) -> None:
    """Answers calls, one JSON line each: [method, arguments] gives {"value": ...} or an error."""
    for line in sys.stdin:
        method, arguments = json.loads(line)
        try:
            if method == "put":
                arguments[1] = base64.b64decode(arguments[1])
            value = getattr(side, method)(*arguments)
            if isinstance(value, bytes):
                value = {"base64": base64.b64encode(value).decode()}
            answer: dict[str, Any] = {"value": value}
        except Exception:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve(SofthcaSide(*sys.argv[1:]))
