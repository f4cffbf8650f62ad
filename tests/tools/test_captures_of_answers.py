"""Which work request a capture says that an answer belongs to."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import softhca as hca
from softhca.testing import FaultPacket, LinkFaults
from softhca.tools.census import Decoder, read_packets

RIGHTS = (
    hca.Access.LOCAL_WRITE
    | hca.Access.REMOTE_READ
    | hca.Access.REMOTE_WRITE
    | hca.Access.REMOTE_ATOMIC
)
RECEIVE, WRITE, READ, ATOMIC = 55, 7, 8, 9


def wr_ids_received(path: Path, qpn: int) -> dict[str, set[int | None]]:
    """What the comments of packets to a queue pair name, by operation; None is nothing."""
    seen: dict[str, set[int | None]] = {}
    with path.open("rb") as stream:
        for frame, roce in read_packets(stream, Decoder()):
            if roce.packet.destination_qpn == qpn:
                named = re.search(r"wr_id (\d+)", frame.comments[0])
                operation = roce.packet.opcode_name.removeprefix("RC_")
                seen.setdefault(operation, set()).add(int(named[1]) if named else None)
    return seen


def test_an_answer_belongs_to_what_it_answers_and_not_to_the_receive_being_filled(
    tmp_path: Path,
) -> None:
    path = tmp_path / "near.pcapng"
    may_end = threading.Event()

    def too_early(packet: FaultPacket) -> bool:
        return not may_end.is_set()

    faults = LinkFaults()
    faults.drop(opcode="RC_SEND_LAST", where=too_early, on="send")
    with hca.open(capture=path) as a, hca.open(faults=faults) as b:
        queues, pairs, memory = [], [], []
        for device in (a, b):
            pd, cq = device.alloc_pd(), device.create_cq(16)
            size = {"max_send_wr": 8, "max_recv_wr": 1}
            pairs.append(pd.create_qp(hca.QPType.RC, send_cq=cq, recv_cq=cq, **size))
            queues.append(cq)
            memory.append(pd.reg_mr(bytearray(4096), RIGHTS))
        near, far = pairs
        near.connect(far.info(), path_mtu=hca.Mtu.MTU_1024)
        far.connect(near.info(), path_mtu=hca.Mtu.MTU_1024)
        done: list[int] = []

        def complete(count: int) -> None:
            while len(done) < count:
                for wc in queues[0].poll():
                    wc.raise_for_status()
                    done.append(wc.wr_id)

        near.post_recv(hca.Recv(memory[0][:2048], wr_id=RECEIVE))
        far.post_send(hca.Send(memory[1][:2048]))
        while near.counters.rcvd_pkts == 0:
            queues[0].poll()
        remote = memory[1].remote()
        mine = memory[0][2048:]
        near.post_send(hca.Write(mine, remote=remote[2048:], wr_id=WRITE, signaled=True))
        complete(1)
        near.post_send(hca.Read(mine, remote=remote[2048:], wr_id=READ, signaled=True))
        complete(2)
        word = memory[0][-8:]
        near.post_send(hca.FetchAdd(word, remote=remote[-8:], add=1, wr_id=ATOMIC, signaled=True))
        complete(3)
        may_end.set()
        complete(4)
        assert done == [WRITE, READ, ATOMIC, RECEIVE]
        qpn = near.qpn
    seen = wr_ids_received(path, qpn)
    assert seen.pop("SEND_FIRST") == seen.pop("SEND_LAST") == {RECEIVE}
    # Of answers that came twice the second is about nothing that is under way.
    expected = {
        "ACKNOWLEDGE": WRITE,
        "RDMA_READ_RESPONSE_FIRST": READ,
        "RDMA_READ_RESPONSE_LAST": READ,
        "ATOMIC_ACKNOWLEDGE": ATOMIC,
    }
    assert {operation: wr_ids - {None} for operation, wr_ids in seen.items()} == {
        operation: {wr_id} for operation, wr_id in expected.items()
    }
