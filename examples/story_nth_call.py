"""A failure path for the n-th verbs call: the program, the fabric that shows it, the repair.

A server sets up what it needs for a client. Each of its verbs can be refused, and each refusal
takes another way out, none of which has ever been taken. The loop below takes them all.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import ExitStack

import softhca as hca
from softhca.testing import Fabric, open_objects

Server = Callable[[hca.Device, hca.QPInfo, list[object]], None]
VERBS = ("alloc_pd", "create_cq", "reg_mr", "create_qp", "modify_qp")


def leaky(device: hca.Device, peer: hca.QPInfo, kept: list[object]) -> None:
    """Closes what it made when something is refused; it was written in one go."""
    pd = device.alloc_pd()
    kept.append(pd)
    try:
        cq = device.create_cq(64)
        kept.append(cq)
        try:
            mr = pd.reg_mr(bytearray(4096))
            kept.append(mr)
            qp = pd.create_qp(hca.QPType.RC, send_cq=cq, recv_cq=cq)
            kept.append(qp)
            try:
                qp.connect(peer)
            except hca.VerbsError:
                qp.close()
                raise
        except hca.VerbsError:
            cq.close()  # And the region?
            raise
    except hca.VerbsError:
        pd.close()
        raise


def tidy(device: hca.Device, peer: hca.QPInfo, kept: list[object]) -> None:
    """The same, with a stack that knows what there is."""
    with ExitStack() as undo:
        pd = device.alloc_pd()
        undo.callback(pd.close)
        cq = device.create_cq(64)
        undo.callback(cq.close)
        mr = pd.reg_mr(bytearray(4096))
        undo.callback(mr.close)
        qp = pd.create_qp(hca.QPType.RC, send_cq=cq, recv_cq=cq)
        undo.callback(qp.close)
        qp.connect(peer)
        undo.pop_all()
        kept += [pd, cq, mr, qp]


def take_every_way_out(server: Server) -> list[str]:
    """Refuses each verb at each of its calls; returns what goes wrong."""
    wrong = []
    for verb in VERBS:
        for nth in range(1, 10):
            with Fabric() as fabric:
                device, other = fabric.hosts(2)
                peer_cq = other.create_cq(16)
                peer = other.alloc_pd().create_qp(hca.QPType.RC, send_cq=peer_cq, recv_cq=peer_cq)
                kept: list[object] = [peer]
                before = len(open_objects(fabric))
                refusal = fabric.faults.refuse(verb, errno.ENOMEM, nth=nth, host=device)
                try:
                    server(device, peer.info(), kept)
                except hca.VerbsError as error:
                    left = len(open_objects(fabric)) - before
                    if left or error.errno != errno.ENOMEM:
                        name = errno.errorcode[error.errno]
                        wrong.append(f"{verb} call {nth}: ends with {name}, leaves {left} objects")
                refusal.remove()
                if not refusal.struck:
                    break  # It is called no more often than that.
    return wrong


if __name__ == "__main__":
    for server in (leaky, tidy):
        wrong = take_every_way_out(server)
        print(f"{server.__name__}: {len(wrong)} ways out are wrong")
        for line in wrong:
            print("  " + line)
