"""Faults of a responder as scripts, which a fabric and a real adapter are given unchanged.

As a program it is the responder of two processes: for each script it answers a line with the number
of its queue pair and its memory, and then, when it is told that the requester is done, with how
often the faults struck.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import softhca as hca
from softhca import WcStatus
from softhca.testing import Fault, LinkFaults, PacketFaults

Script = Callable[[PacketFaults, hca.Device], Fault]


class Scene(NamedTuple):
    """What a responder does wrong, and what becomes of a SEND and a WRITE because of it.

    Attributes:
        script: The fault, for the responder's device.
        status: How the SEND completes; what follows an error is flushed.
        struck: How often the fault strikes, at least.
        attributes: Of the requester's connection.
    """

    script: Script
    status: WcStatus
    struck: int
    attributes: dict[str, int]


# On the wire a retry takes real time, and nobody knows how busy the machine is.
_PATIENT = {"timeout": 17, "retry_cnt": 7, "rnr_retry": 6}

SCENES: dict[str, Scene] = {
    "not ready for three tries": Scene(
        lambda faults, _: faults.rnr(tries=3), WcStatus.SUCCESS, 3, _PATIENT
    ),
    "not ready too often": Scene(
        lambda faults, _: faults.rnr(tries=9),
        WcStatus.RNR_RETRY_EXC_ERR,
        3,
        {**_PATIENT, "rnr_retry": 2},
    ),
    "misses a packet": Scene(
        lambda faults, _: faults.nak("sequence", nth=1), WcStatus.SUCCESS, 1, _PATIENT
    ),
    "calls it invalid": Scene(
        lambda faults, _: faults.nak("invalid_request", opcode="RC_SEND*"),
        WcStatus.REM_INV_REQ_ERR,
        1,
        _PATIENT,
    ),
    "denies access": Scene(
        lambda faults, _: faults.nak("remote_access", nth=1),
        WcStatus.REM_ACCESS_ERR,
        1,
        _PATIENT,
    ),
    "fails": Scene(
        lambda faults, _: faults.nak("remote_operation", times=1),
        WcStatus.REM_OP_ERR,
        1,
        _PATIENT,
    ),
    "goes mute": Scene(
        lambda faults, responder: faults.mute(responder),
        WcStatus.RETRY_EXC_ERR,
        1,
        {"timeout": 8, "retry_cnt": 1, "rnr_retry": 6},
    ),
    "is congested": Scene(
        lambda faults, _: faults.cnp(opcode="RC_SEND*", times=1),
        WcStatus.SUCCESS,
        1,
        _PATIENT,
    ),
}


def main() -> None:
    with hca.open(faults=(faults := LinkFaults(seed=3))) as dev, dev.alloc_pd() as pd:
        mr = pd.reg_mr(bytearray(100))
        for scene in SCENES.values():
            made = scene.script(faults, dev)
            with dev.create_cq(16) as cq:
                qp = pd.create_qp(hca.QPType.RC, send_cq=cq, recv_cq=cq, max_recv_wr=4)
                print(qp.info().to_bytes().hex(), mr.remote().to_bytes().hex(), flush=True)
                qp.connect(hca.QPInfo.from_bytes(bytes.fromhex(sys.stdin.readline())))
                qp.post_recv(hca.Recv(mr[:50]))
                print("ready", flush=True)
                assert sys.stdin.readline() == "done\n"
                qp.close()
            print(made.struck, flush=True)
            made.remove()


if __name__ == "__main__":
    main()
