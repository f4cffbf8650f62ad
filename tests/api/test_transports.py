"""Every service type moves data, simulated and over UDP."""

from __future__ import annotations

import pytest

from softhca import (
    Access,
    CmpSwap,
    FetchAdd,
    QPState,
    QPType,
    Read,
    Recv,
    Send,
    SendImm,
    WcFlags,
    WcOpcode,
    WcStatus,
    Write,
    WriteImm,
)

from .hosts import BUFFER_BYTES, Pair

PATTERN = bytes(i * 7 & 0xFF for i in range(BUFFER_BYTES))


@pytest.mark.parametrize("qp_type", [QPType.RC, QPType.UC])
@pytest.mark.parametrize("size", [0, 1, 255, 4096, 4097, BUFFER_BYTES])
def test_send_arrives_whole(pair: Pair, qp_type: QPType, size: int) -> None:
    near, far = pair.connected(qp_type)
    pair.a.buffer[:size] = PATTERN[:size]
    far.post_recv(Recv(pair.b.mr[:], wr_id=7))
    near.post_send(Send(pair.a.mr[:size], wr_id=3, signaled=True))
    sent = pair.completion(pair.a)
    received = pair.completion(pair.b)
    assert sent.ok
    assert (sent.wr_id, sent.opcode, sent.qp_num) == (3, WcOpcode.SEND, near.qpn)
    assert (received.wr_id, received.opcode, received.byte_len) == (7, WcOpcode.RECV, size)
    assert received.is_receive
    assert received.imm_data is None
    assert pair.b.buffer[:size] == PATTERN[:size]
    assert not any(pair.b.buffer[size:])


@pytest.mark.parametrize("qp_type", [QPType.RC, QPType.UC])
def test_write_is_seen_by_nobody_and_write_imm_by_a_receive(pair: Pair, qp_type: QPType) -> None:
    near, far = pair.connected(qp_type)
    pair.a.buffer[:100] = PATTERN[:100]
    remote = pair.b.mr.remote()
    far.post_recv(Recv(wr_id=1))
    near.post_send(Write(pair.a.mr[:100], remote=remote[10:], wr_id=1, signaled=True))
    near.post_send(WriteImm(remote=remote, imm=0xDEADBEEF, wr_id=2, signaled=True))
    assert [wc.wr_id for wc in pair.completions(pair.a, 2)] == [1, 2]
    received = pair.completion(pair.b)
    assert (received.opcode, received.imm_data) == (WcOpcode.RECV_RDMA_WITH_IMM, 0xDEADBEEF)
    assert received.byte_len == 0
    assert pair.b.buffer[10:110] == PATTERN[:100]
    assert pair.b.cq.poll() == []


def test_read_scatters_what_it_fetches(pair: Pair) -> None:
    near, _ = pair.connected(max_send_sge=3)
    pair.b.buffer[:] = PATTERN
    mr = pair.a.mr
    wr = Read(mr[0:10], mr[100:9000], mr[20:21], remote=pair.b.mr.remote()[5:], signaled=True)
    near.post_send(wr)
    completion = pair.completion(pair.a)
    assert (completion.opcode, completion.byte_len) == (WcOpcode.RDMA_READ, wr.byte_count)
    fetched = pair.a.buffer[0:10] + pair.a.buffer[100:9000] + pair.a.buffer[20:21]
    assert fetched == PATTERN[5 : 5 + wr.byte_count]


def test_atomics_return_what_was_there(pair: Pair) -> None:
    near, _ = pair.connected()
    remote = pair.b.mr.remote()[8:16]
    answer = pair.a.mr[0:8]

    def value(buffer: bytearray, at: int) -> int:
        return int.from_bytes(buffer[at : at + 8], "little")

    near.post_send(FetchAdd(answer, remote=remote, add=5, signaled=True))
    assert pair.completion(pair.a).opcode is WcOpcode.FETCH_ADD
    assert (value(pair.a.buffer, 0), value(pair.b.buffer, 8)) == (0, 5)
    near.post_send(FetchAdd(answer, remote=remote, add=-6, signaled=True))
    pair.completion(pair.a)
    assert (value(pair.a.buffer, 0), value(pair.b.buffer, 8)) == (5, (1 << 64) - 1)
    near.post_send(CmpSwap(answer, remote=remote, compare=1, swap=2, signaled=True))
    assert pair.completion(pair.a).opcode is WcOpcode.COMP_SWAP
    assert value(pair.b.buffer, 8) == (1 << 64) - 1
    near.post_send(CmpSwap(answer, remote=remote, compare=(1 << 64) - 1, swap=2, signaled=True))
    pair.completion(pair.a)
    assert (value(pair.a.buffer, 0), value(pair.b.buffer, 8)) == ((1 << 64) - 1, 2)


def test_an_atomic_without_room_for_its_answer_says_how_much_it_needs(pair: Pair) -> None:
    near, _ = pair.connected()
    near.post_send(FetchAdd(pair.a.mr[0:4], remote=pair.b.mr.remote()[8:16], add=5, wr_id=1))
    wc = pair.completion(pair.a)
    assert wc.status is WcStatus.LOC_LEN_ERR
    assert "the buffers of an atomic must have 8 bytes" in wc.why
    assert "4 bytes" in wc.why
    assert pair.b.buffer[8:16] == bytes(8)


def test_datagram_comes_behind_its_routing_header(pair: Pair) -> None:
    near, far = pair.connected(QPType.UD)
    far.post_recv(Recv(pair.b.mr[0:140]))
    ah = pair.a.pd.create_ah(pair.b.device.gid)
    wr = SendImm(
        b"datagram",
        imm=9,
        ah=ah,
        remote_qpn=far.qpn,
        remote_qkey=far.info().qkey,
        inline=True,
        signaled=True,
    )
    with pytest.raises(OSError, match="max_inline_data"):
        near.post_send(wr)
    pair.a.buffer[:8] = b"datagram"
    near.post_send(
        SendImm(
            pair.a.mr[:8],
            imm=9,
            ah=ah,
            remote_qpn=far.qpn,
            remote_qkey=far.info().qkey,
            signaled=True,
        )
    )
    ah.close()  # Allowed as soon as it is posted.
    assert pair.completion(pair.a).ok
    wc = pair.completion(pair.b)
    assert (wc.byte_len, wc.src_qp, wc.imm_data) == (48, near.qpn, 9)
    assert wc.wc_flags == WcFlags.GRH | WcFlags.WITH_IMM
    assert pair.b.buffer[40:48] == b"datagram"
    assert pair.b.buffer[20] == 0x45
    assert bytes(pair.b.buffer[32:36]) == pair.a.device.gid.raw[12:]


def test_multicast_reaches_every_member(simulated: Pair) -> None:
    near, far = simulated.connected(QPType.UD)
    far.attach_mcast("239.1.2.3")
    far.post_recv(Recv(simulated.b.mr[0:100]))
    ah = simulated.a.keep(simulated.a.pd.create_ah("239.1.2.3"))
    near.post_send(
        Send(
            simulated.a.mr[:4],
            ah=ah,
            remote_qpn=0xFFFFFF,
            remote_qkey=far.info().qkey,
            signaled=True,
        )
    )
    assert simulated.completion(simulated.b).byte_len == 44
    far.detach_mcast("239.1.2.3")


def test_xrc_send_reaches_the_srq_it_names(pair: Pair) -> None:
    xrcd = pair.b.keep(pair.b.device.alloc_xrcd())
    srqs = [pair.b.keep(xrcd.create_srq(pair.b.pd, pair.b.cq, max_wr=4)) for _ in range(2)]
    target = pair.b.keep(xrcd.create_qp())
    near = pair.a.qp(QPType.XRC_SEND)
    near.connect(target.info())
    target.connect(near.info())
    assert (near.state, target.state) == (QPState.RTS, QPState.RTS)
    for number, srq in enumerate(srqs):
        srq.post_recv(Recv(pair.b.mr[100 * number : 100 * number + 100], wr_id=number))
    pair.a.buffer[:3] = b"xrc"
    near.post_send(Send(pair.a.mr[:3], srqn=srqs[1].srqn, signaled=True))
    assert pair.completion(pair.a).ok
    wc = pair.completion(pair.b)
    assert (wc.wr_id, wc.qp_num, wc.byte_len) == (1, target.qpn, 3)
    assert pair.b.buffer[100:103] == b"xrc"


def test_srq_feeds_two_queue_pairs(pair: Pair) -> None:
    srq = pair.b.keep(pair.b.pd.create_srq(max_wr=8))
    srq.post_recv([Recv(pair.b.mr[64 * i : 64 * i + 64], wr_id=i) for i in range(4)])
    nears = []
    for _ in range(2):
        near, far = pair.a.qp(), pair.b.qp(srq=srq)
        near.connect(far.info())
        far.connect(near.info())
        nears.append((near, far))
    for number, (near, _) in enumerate(nears):
        near.post_send(Send(pair.a.mr[: number + 1], signaled=True))
        assert pair.completion(pair.a).ok
    received = pair.completions(pair.b, 2)
    assert [(wc.wr_id, wc.byte_len) for wc in received] == [(0, 1), (1, 2)]
    assert [wc.qp_num for wc in received] == [far.qpn for _, far in nears]


def test_work_request_is_reusable_and_reads_the_buffer_when_posted(pair: Pair) -> None:
    near, _ = pair.connected(max_inline_data=16)
    wr = Write(pair.a.mr[:4], remote=pair.b.mr.remote(), inline=True, signaled=True)
    for text in (b"one!", b"two!"):
        pair.a.buffer[:4] = text
        near.post_send(wr)
        pair.a.buffer[:4] = b"gone"
        pair.completion(pair.a)
        assert pair.b.buffer[:4] == text


def test_inline_reads_a_zero_based_region_where_it_lies(simulated: Pair) -> None:
    near, _ = simulated.connected(max_inline_data=16)
    own = bytearray(b"....inline")
    mr = simulated.a.keep(simulated.a.pd.reg_mr(own, Access.LOCAL_WRITE | Access.ZERO_BASED))
    assert mr.addr == 0
    wr = Write(mr[4:], remote=simulated.b.mr.remote(), inline=True, signaled=True)
    near.post_send(wr)
    assert simulated.completion(simulated.a).ok
    assert simulated.b.buffer[:6] == b"inline"
