"""Who gets a datagram can answer it: the way back is in the completion and the header."""

from __future__ import annotations

import errno

import pytest

import softhca as hca
from softhca import AHAttr, Recv, Send, VerbsError
from softhca.testing import Fabric
from softhca.testing.pair import End

QKEY = 0x1234


def two(fabric: Fabric, addresses: list[str]) -> tuple[End, End]:
    """Two hosts that exchange datagrams."""
    near, far = (
        fabric.keep(End(fabric.host(gid=gid), 4096, qp_type=hca.QPType.UD)) for gid in addresses
    )
    for end in (near, far):
        end.qp.activate(qkey=QKEY)
        end.qp.post_recv(Recv(end.mr[0:256]))
    return near, far


def send(end: End, ah: hca.AH, qpn: int) -> None:
    """Sends four bytes, and waits until they are gone."""
    end.buffer[1000:1004] = b"ping"
    wr = Send(end.mr[1000:1004], ah=ah, remote_qpn=qpn, remote_qkey=QKEY, signaled=True)
    end.qp.post_send(wr)
    assert end.next().ok


@pytest.mark.parametrize("addresses", [["10.0.0.1", "10.0.0.2"], ["fd00::1", "fd00::2"]])
@pytest.mark.parametrize("to_group", [False, True])
def test_an_answer_goes_back_to_the_sender(addresses: list[str], to_group: bool) -> None:
    with Fabric(seed=1) as fabric:
        near, far = two(fabric, addresses)
        v6 = ":" in addresses[0]
        destination = far.device.gid
        if to_group:
            destination = hca.GID("ff0e::5" if v6 else "239.1.2.3")
            far.qp.attach_mcast(destination)
        attr = AHAttr(destination, traffic_class=0x20, flow_label=0xABCDE if v6 else 0)
        with near.pd.create_ah(attr) as ah:
            send(near, ah, 0xFFFFFF if to_group else far.qp.qpn)
        wc = far.next()
        back = far.pd.create_ah_from_wc(wc, memoryview(far.buffer)[0 : wc.byte_len])
        assert back.query() == AHAttr(
            near.device.gid, traffic_class=0x20, flow_label=attr.flow_label, hop_limit=64
        )
        send(far, back, wc.src_qp)
        back.close()
        assert near.next().src_qp == far.qp.qpn
        assert near.buffer[40:44] == b"ping"
        if to_group:
            far.qp.detach_mcast(destination)


def test_what_has_no_way_back_is_refused() -> None:
    with Fabric(seed=1) as fabric:
        near, far = two(fabric, ["10.0.0.1", "10.0.0.2"])
        near.buffer[1000:1004] = b"ping"
        ah = near.pd.create_ah(far.device.gid)
        wr = Send(near.mr[1000:1004], ah=ah, remote_qpn=far.qp.qpn, remote_qkey=QKEY, signaled=True)
        near.qp.post_send(wr)
        sent, received = near.next(), far.next()
        create = far.pd.create_ah_from_wc
        for wc, grh, argument, rule in (
            (sent, far.buffer, "wc", "must be of a datagram that was received"),
            (received, far.buffer[:39], "grh", "must be 40 bytes or more"),
            (received, bytes(40), "grh", "has neither an IPv6 nor an IPv4 header"),
        ):
            with pytest.raises(VerbsError) as refused:
                create(wc, grh)
            assert (refused.value.errno, refused.value.argument) == (errno.EINVAL, argument)
            assert refused.value.rule == rule
        with pytest.raises(TypeError, match="wc must be WC, not int"):
            create(5, far.buffer)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="grh must be contiguous bytes of a receive, not str"):
            create(received, "header")  # type: ignore[arg-type]
