"""Sends datagrams with a flow label before, while and after their route leads nowhere.

Prints the labels that arrive.
"""

from __future__ import annotations

import subprocess

import softhca as hca
from softhca.testing.pair import End

QKEY = 0x1234
ADDRESSES = ("fd00::1", "fd00::2")
LABEL = 0xABCDE


def route_leads_nowhere(change: str) -> None:
    """Adds or deletes such a rule."""
    words = ["ip", "-6", "rule", change, "to", ADDRESSES[1], "pref", "5", "blackhole"]
    subprocess.run(words, check=True)


def main() -> None:
    near, far = (
        End(hca.open(address, link="udp"), 4096, qp_type=hca.QPType.UD) for address in ADDRESSES
    )
    for end in (near, far):
        end.qp.activate(qkey=QKEY)
    ah = near.pd.create_ah(hca.AHAttr(far.device.gid, flow_label=LABEL))

    def send() -> None:
        near.qp.post_send(
            hca.Send(near.mr[:4], ah=ah, remote_qpn=far.qp.qpn, remote_qkey=QKEY, signaled=True)
        )
        assert near.next().ok

    def arriving() -> int:
        far.qp.post_recv(hca.Recv(far.mr[:256]))
        send()
        assert far.next().ok
        return int.from_bytes(far.buffer[:4], "big") & 0xFFFFF

    labels = [arriving()]
    route_leads_nowhere("add")
    send()
    route_leads_nowhere("delete")
    labels.append(arriving())
    print(*labels)


if __name__ == "__main__":
    main()
