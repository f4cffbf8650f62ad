"""Where the faults of an adapter stand to its capture."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import softhca as hca
from softhca.testing import LinkFaults
from softhca.tools.census import Decoder, read_packets


def test_a_capture_has_what_the_adapter_sent_and_what_came_to_it(tmp_path: Path) -> None:
    sending, receiving = LinkFaults(), LinkFaults()
    sending.corrupt("payload", opcode="RC_RDMA_WRITE_ONLY", nth=1, on="send")
    sending.drop(opcode="RC_RDMA_WRITE_ONLY", nth=2, on="send")
    receiving.drop(opcode="RC_RDMA_WRITE_ONLY", nth=2, on="receive")
    paths = [tmp_path / "a.pcapng", tmp_path / "b.pcapng"]
    with (
        hca.open(faults=sending, capture=paths[0]) as a,
        hca.open(faults=receiving, capture=paths[1]) as b,
    ):
        a_cq, b_cq = a.create_cq(8), b.create_cq(8)
        a_pd, b_pd = a.alloc_pd(), b.alloc_pd()
        a_qp = a_pd.create_qp(hca.QPType.RC, send_cq=a_cq, recv_cq=a_cq)
        b_qp = b_pd.create_qp(hca.QPType.RC, send_cq=b_cq, recv_cq=b_cq)
        a_qp.connect(b_qp.info(), timeout=10)
        b_qp.connect(a_qp.info(), timeout=10)
        source, target = a_pd.reg_mr(b"a payload"), b_pd.reg_mr(bytearray(9))
        a_qp.post_send(hca.Write(source, remote=target.remote(), signaled=True))
        while not (completions := a_cq.poll()):
            pass
        assert completions[0].ok
    # Sent damaged, lost on its way, lost before it came to the other one, and there.
    seen = []
    for path in paths:
        with path.open("rb") as stream:
            writes = [
                ("retransmitted" in frame.comments[0], roce.icrc_ok)
                for frame, roce in read_packets(stream, Decoder())
                if roce.packet.opcode_name == "RC_RDMA_WRITE_ONLY"
            ]
        seen.append(Counter(writes))
    assert seen[0][False, True] == 1, seen
    assert seen[0][True, True] >= 3, seen
    assert seen[0].total() == seen[0][False, True] + seen[0][True, True], seen
    assert seen[1][False, False] == 1, seen
    assert seen[1].total() <= seen[0].total() - 2, seen
