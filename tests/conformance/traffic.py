"""Traffic of every service type between real devices, for captures that others shall judge."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import softhca as hca

BUFFER_BYTES = 1 << 16
DEADLINE_SECONDS = 20
LENGTHS = (0, 1, 61, 1024, 1025, 5000)


class End:
    """A device's half of the traffic; two of them may share one device."""

    def __init__(self, device: hca.Device) -> None:
        self.device = device
        self.pd = device.alloc_pd()
        self.cq = device.create_cq(256)
        self.mr = self.pd.reg_mr(bytearray(i * 7 & 255 for i in range(BUFFER_BYTES)))

    def qp(self, qp_type: hca.QPType) -> hca.QP:
        options: dict[str, Any] = {"send_cq": self.cq}
        if qp_type is not hca.QPType.XRC_SEND:
            options["recv_cq"] = self.cq
        return self.pd.create_qp(qp_type, max_send_wr=64, max_recv_wr=64, **options)

    def wait(self, count: int) -> list[hca.WC]:
        taken: list[hca.WC] = []
        until(lambda: len(taken) >= count or taken.extend(self.cq.poll(count - len(taken))))
        return taken

    def close(self) -> None:
        self.mr.close()
        self.cq.close()
        self.pd.close()


def until(done: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not done():
        assert time.monotonic() < deadline, f"not done in {DEADLINE_SECONDS} s"
        time.sleep(0)


def messages(sender: End, receiver: End, kind: hca.QPType, **far: Any) -> list[hca.SendRequest]:
    """A work request of each kind and length that the service type has."""
    remote, made = receiver.mr.remote(), []
    for length in LENGTHS:
        buffer = sender.mr[0:length]
        if kind is hca.QPType.UD and length > 4096:
            continue
        made += [
            hca.Send(buffer, signaled=True, **far),
            hca.SendImm(buffer, imm=0xABCD, solicited=True, signaled=True, **far),
        ]
        if kind is hca.QPType.UD:
            continue
        made += [
            hca.Write(buffer, remote=remote, signaled=True, **far),
            hca.WriteImm(buffer, remote=remote, imm=7, signaled=True, **far),
        ]
        if kind is not hca.QPType.UC:
            made.append(hca.Read(buffer, remote=remote, signaled=True, **far))
    if kind in (hca.QPType.RC, hca.QPType.XRC_SEND):
        eight = sender.mr[0:8]
        made += [
            hca.FetchAdd(eight, remote=remote, add=3, signaled=True, **far),
            hca.CmpSwap(eight, remote=remote, compare=1, swap=2, signaled=True, **far),
        ]
    return made


def takes_receive(wr: hca.SendRequest) -> bool:
    return isinstance(wr, hca.Send | hca.SendImm | hca.WriteImm)


def run(sender: End, receiver: End, kind: hca.QPType) -> None:
    """Sends one of each; the first finds no receive, where the service has an RNR NAK."""
    near = sender.qp(kind)
    closing: list[Any] = [near]
    far: dict[str, Any] = {}
    post: Callable[[hca.Recv], None]
    if kind is hca.QPType.XRC_SEND:
        xrcd = receiver.device.alloc_xrcd()
        srq = xrcd.create_srq(receiver.pd, receiver.cq, max_wr=64)
        other, post = xrcd.create_qp(), srq.post_recv
        far["srqn"] = srq.srqn
        closing += [other, srq, xrcd]
    else:
        other = receiver.qp(kind)
        post = other.post_recv
        closing.append(other)
    if kind is hca.QPType.UD:
        near.activate()
        other.activate()
        ah = sender.pd.create_ah(receiver.device.gid)
        far |= {"ah": ah, "remote_qpn": other.qpn, "remote_qkey": 0x11111111}
        closing.append(ah)
    else:
        near.connect(other.info(), path_mtu=hca.Mtu.MTU_1024)
        other.connect(near.info(), path_mtu=hca.Mtu.MTU_1024)
    wrs = messages(sender, receiver, kind, **far)
    receives = [hca.Recv(receiver.mr[0:8192]) for wr in wrs if takes_receive(wr)]
    reliable = kind in (hca.QPType.RC, hca.QPType.XRC_SEND)
    for wr in receives[:: 1 if not reliable else len(receives)]:
        post(wr)
    near.post_send(wrs)
    if reliable:
        until(lambda: near.counters.rcvd_rnr_err)
        for wr in receives[1:]:
            post(wr)
    if sender is receiver:
        assert all(wc.ok for wc in sender.wait(len(wrs) + len(receives)))
    else:
        assert all(wc.ok for wc in sender.wait(len(wrs)))
        assert all(wc.ok for wc in receiver.wait(len(receives)))
    for one in closing:
        one.close()


def refusals(sender: End, receiver: End) -> None:
    """A NAK of each kind that a working responder sends for good."""
    remote = receiver.mr.remote()
    no_key = hca.RemoteMemory(remote.addr, remote.rkey ^ 0x5500, remote.length)
    for wr in (
        hca.Write(sender.mr[0:8], remote=no_key),
        hca.FetchAdd(sender.mr[0:8], remote=remote[4:], add=1),
        hca.SendInv(sender.mr[0:8], rkey=5),
    ):
        near, other = sender.qp(hca.QPType.RC), receiver.qp(hca.QPType.RC)
        near.connect(other.info(), timeout=8, retry_cnt=1)
        other.connect(near.info())
        other.post_recv(hca.Recv(receiver.mr[0:64]))
        near.post_send(wr)
        assert not any(wc.ok for wc in sender.wait(2 if sender is receiver else 1))
        near.close()
        other.close()


def everything(sender: End, receiver: End) -> None:
    for kind in (hca.QPType.RC, hca.QPType.UC, hca.QPType.UD, hca.QPType.XRC_SEND):
        run(sender, receiver, kind)
    refusals(sender, receiver)
