"""Opens devices and moves a message, and opens two that are not there."""

from __future__ import annotations

import errno

import softhca as hca


def main() -> None:
    with hca.open() as once:
        address = str(once.gid.ip)
    with hca.open() as a, hca.open(address) as b:
        assert a.query_port().state.name == "ACTIVE"
        queue_pairs = []
        for device in (a, b):
            cq = device.create_cq(4)
            qp = device.alloc_pd().create_qp(hca.QPType.RC, send_cq=cq, recv_cq=cq)
            queue_pairs.append((qp, cq))
        (near, cq), (far, far_cq) = queue_pairs
        near.connect(far.info())
        far.connect(near.info())
        far.post_recv(hca.Recv())
        near.post_send(hca.Send(signaled=True))
        while not (completions := cq.poll()):
            pass
        print(completions[0].status.name, len(far_cq.poll()))
    for address in ("192.0.2.1", "eth0"):
        try:
            hca.open(address)
        except hca.VerbsError as error:
            print(error.argument, errno.errorcode[error.errno or 0])


if __name__ == "__main__":
    main()
