"""Sends, writes, reads and atomics of many lengths between two ends, and compares every byte.

`verbs_bytes.py -g INDEX -p PORT [HOST]`: without a host it is the server. Needs rdma-core's
pyverbs. The server's memory is told of over TCP, as what it holds is.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import sys
from typing import Any

import verbs_enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

LENGTHS = (1, 7, 255, 1024, 1025, 4096, 4097, 65535, 300_001, 1 << 20)
ROOM = 1 << 20
SEED = 20_261_121


class Side:
    """A queue pair with a region, and the connection that it is told things by."""

    def __init__(self, gid_index: int) -> None:
        self.context = Context(name="rxe0")
        self.gid_index = gid_index
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 16)
        remote = e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC
        self.mr = MR(self.pd, ROOM, e.IBV_ACCESS_LOCAL_WRITE | remote)
        cap = QPCap(max_send_wr=4, max_recv_wr=4, max_send_sge=1, max_recv_sge=1)
        wishes = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=1)
        self.qp = QP(self.pd, wishes)

    def name(self) -> dict[str, Any]:
        gid = str(self.context.query_gid(1, self.gid_index))
        memory = {"address": self.mr.buf, "rkey": self.mr.rkey}
        return {"qpn": self.qp.qp_num, "gid": gid, **memory}

    def connect(self, other: dict[str, Any]) -> None:
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = (
            e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC
        )
        attr.dest_qp_num = other["qpn"]
        route = GlobalRoute(dgid=GID(other["gid"]), sgid_index=self.gid_index)
        attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 4
        attr.min_rnr_timer, attr.path_mtu = 12, e.IBV_MTU_1024
        attr.timeout, attr.retry_cnt, attr.rnr_retry = 17, 7, 7
        self.qp.to_rts(attr)

    def wait(self) -> None:
        while True:
            count, completions = self.cq.poll()
            if count:
                assert completions[0].status == e.IBV_WC_SUCCESS, completions[0]
                return

    def receive(self, length: int) -> None:
        self.qp.post_recv(RecvWR(sg=[SGE(self.mr.buf, length, self.mr.lkey)], num_sge=1))

    def send(self, opcode: int, length: int, other: dict[str, Any], atomic: bool = False) -> None:
        wr = SendWR(
            opcode=opcode, num_sge=1, sg=[SGE(self.mr.buf, 8 if atomic else length, self.mr.lkey)]
        )
        if atomic:
            wr.set_wr_atomic(other["rkey"], other["address"], 5, 0)
        elif opcode != e.IBV_WR_SEND:
            wr.set_wr_rdma(other["rkey"], other["address"])
        self.qp.post_send(wr)
        self.wait()


class Wire:
    """Lines of JSON, to and fro."""

    def __init__(self, connection: socket.socket) -> None:
        self._in = connection.makefile("r")
        self._out = connection.makefile("w")

    def tell(self, what: Any) -> None:
        self._out.write(json.dumps(what) + "\n")
        self._out.flush()

    def hear(self) -> Any:
        line = self._in.readline()
        return json.loads(line) if line else None


def server(side: Side, wire: Wire) -> None:
    """Does what the client says."""
    while (asked := wire.hear()) is not None:
        order, length, digits = asked
        answer: Any = True
        if order == "fill":
            side.mr.write(bytes.fromhex(digits), length)
        elif order == "receive":
            side.receive(length)
        elif order == "wait":
            side.wait()
        else:
            answer = side.mr.read(length, 0).hex()
        wire.tell(answer)


def client(side: Side, wire: Wire, other: dict[str, Any]) -> int:
    """Moves bytes every way, and looks at them at both ends."""
    chance = random.Random(SEED)

    def ask(order: str, length: int = 0, octets: bytes = b"") -> Any:
        wire.tell([order, length, octets.hex()])
        return wire.hear()

    moved = 0
    for length in LENGTHS:
        for opcode in (e.IBV_WR_SEND, e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ):
            octets = chance.randbytes(length)
            if opcode == e.IBV_WR_RDMA_READ:
                ask("fill", length, octets)
                side.send(opcode, length, other)
                assert side.mr.read(length, 0) == octets, f"READ of {length} bytes"
            else:
                side.mr.write(octets, length)
                if opcode == e.IBV_WR_SEND:
                    ask("receive", length)
                side.send(opcode, length, other)
                if opcode == e.IBV_WR_SEND:
                    ask("wait")
                assert bytes.fromhex(ask("read", length)) == octets, f"{opcode}: {length} bytes"
            moved += length
    ask("fill", 8, (7).to_bytes(8, "little"))
    side.send(e.IBV_WR_ATOMIC_FETCH_AND_ADD, 8, other, atomic=True)
    assert int.from_bytes(side.mr.read(8, 0), "little") == 7
    assert int.from_bytes(bytes.fromhex(ask("read", 8)), "little") == 12
    return moved


def main() -> None:
    """Runs one end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-g", type=int, default=0)
    parser.add_argument("-p", type=int, required=True)
    parser.add_argument("host", nargs="?")
    arguments = parser.parse_args()
    side = Side(arguments.g)
    if arguments.host is None:
        with socket.create_server(("", arguments.p)) as listener:
            connection, _ = listener.accept()
    else:
        connection = socket.create_connection((arguments.host, arguments.p))
    with connection:
        wire = Wire(connection)
        wire.tell(side.name())
        other = wire.hear()
        side.connect(other)
        wire.tell("connected")
        wire.hear()
        if arguments.host is None:
            server(side, wire)
        else:
            print(f"{client(side, wire, other)} bytes are right")
    side.qp.close()


if __name__ == "__main__":
    sys.exit(main())
