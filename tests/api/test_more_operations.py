"""Masked atomics, ATOMIC WRITE and FLUSH between two adapters."""

from __future__ import annotations

import random

import pytest

import softhca as hca
from softhca import Access, FlushLevel, FlushType, QPType, WcOpcode, WcStatus

from .hosts import Pair

WORD = (1 << 64) - 1


@pytest.fixture
def far(pair: Pair):
    rights = hca.Access.LOCAL_WRITE | Access.REMOTE_READ | Access.REMOTE_WRITE
    rights |= Access.REMOTE_ATOMIC | Access.FLUSH_GLOBAL
    memory = pair.b.pd.reg_mr(bytearray(64), rights)
    yield memory
    memory.close()


def run(pair: Pair, qp: hca.QP, wr: hca.SendRequest) -> hca.WC:
    qp.post_send(wr)
    return pair.completion(pair.a)


def test_a_device_says_what_it_can(simulated):
    attr = simulated.a.device.query_device()
    assert attr.masked_atomic_cap is hca.AtomicCap.GLOB
    assert hca.DeviceCap.ATOMIC_WRITE | hca.DeviceCap.FLUSH_GLOBAL in attr.device_cap_flags


def test_masked_compare_swap(pair, far):
    qp, _ = pair.connected()
    far.obj[:8] = (0xAABB).to_bytes(8, "little")
    wc = run(
        pair,
        qp,
        hca.MaskedCmpSwap(
            pair.a.mr[0:8],
            remote=far.remote(),
            compare=0xBB,
            compare_mask=0xFF,
            swap=0xC0C0,
            swap_mask=0xFF00,
            signaled=True,
        ),
    )
    assert wc.ok
    assert wc.opcode is WcOpcode.MASKED_COMP_SWAP
    assert wc.byte_len == 8
    assert int.from_bytes(pair.a.buffer[:8], "little") == 0xAABB
    assert int.from_bytes(far.obj[:8], "little") == 0xC0BB


def test_masked_fetch_add_against_a_model(simulated):
    pair = simulated
    far = pair.b.keep(pair.b.pd.reg_mr(bytearray(64)))
    qp, _ = pair.connected()
    rng = random.Random(5)
    for _ in range(200):
        start, add, boundary = (rng.getrandbits(64) for _ in range(3))
        if rng.random() < 0.5:
            boundary &= rng.getrandbits(64) & rng.getrandbits(64)
        expected, carry = 0, 0
        for bit in range(64):
            total = (start >> bit & 1) + (add >> bit & 1) + carry
            expected |= (total & 1) << bit
            carry = 0 if boundary >> bit & 1 else total >> 1
        far.obj[:8] = start.to_bytes(8, "little")
        wr = hca.MaskedFetchAdd(
            pair.a.mr[0:8], remote=far.remote(), add=add, boundary=boundary, signaled=True
        )
        wc = run(pair, qp, wr)
        assert wc.opcode is WcOpcode.MASKED_FETCH_ADD
        assert int.from_bytes(pair.a.buffer[:8], "little") == start
        assert int.from_bytes(far.obj[:8], "little") == expected


def test_atomic_write_and_flush(pair, far):
    qp, _ = pair.connected()
    pair.a.buffer[:8] = b"at once!"
    qp.post_send(
        [
            hca.Write(pair.a.mr[0:8], remote=far.remote()[8:]),
            hca.AtomicWrite(pair.a.mr[0:8], remote=far.remote(), signaled=True, wr_id=1),
            hca.AtomicWrite(b"inlined!", remote=far.remote()[16:], inline=True)
            if qp.init_attr.cap.max_inline_data
            else hca.AtomicWrite(pair.a.mr[0:8], remote=far.remote()[16:]),
            hca.Flush(remote=far.remote(), signaled=True, wr_id=2),
            hca.Flush(remote=far.remote(), level=FlushLevel.MR, signaled=True, wr_id=3),
        ]
    )
    wcs = pair.completions(pair.a, 3)
    assert [(wc.wr_id, wc.opcode) for wc in wcs] == [
        (1, WcOpcode.ATOMIC_WRITE),
        (2, WcOpcode.FLUSH),
        (3, WcOpcode.FLUSH),
    ]
    assert far.obj[:24] == b"at once!" * 3


@pytest.mark.parametrize("kind", [FlushType.PERSISTENT, FlushType.GLOBAL | FlushType.PERSISTENT])
def test_persistence_is_refused(simulated, kind):
    pair = simulated
    rights = Access.LOCAL_WRITE | Access.FLUSH_GLOBAL
    far = pair.b.keep(pair.b.pd.reg_mr(bytearray(64), rights))
    qp, _ = pair.connected()
    wc = run(pair, qp, hca.Flush(remote=far.remote(), flush_type=kind))
    assert wc.status is WcStatus.REM_ACCESS_ERR
    with pytest.raises(hca.VerbsError, match="does not persist"):
        pair.b.pd.reg_mr(bytearray(8), Access.FLUSH_PERSISTENT)


@pytest.mark.parametrize("qp_type", [QPType.UC, QPType.UD])
def test_they_exist_on_reliable_connections_only(simulated, qp_type):
    remote = hca.RemoteMemory(0, 0, 64)
    for make in (
        lambda: hca.Flush(remote=remote),
        lambda: hca.AtomicWrite(simulated.a.mr[0:8], remote=remote),
        lambda: hca.MaskedFetchAdd(simulated.a.mr[0:8], remote=remote, add=1, boundary=0),
    ):
        qp, _ = simulated.connected(qp_type)
        options = {}
        if qp_type is QPType.UD:
            # Whatever is wrong with its address does not come first.
            options["ah"] = simulated.a.keep(simulated.a.pd.create_ah(simulated.b.device.gid))
        wr = make()
        if options:
            continue
        qp.post_send(wr)
        assert simulated.completion(simulated.a).status is WcStatus.LOC_QP_OP_ERR


def test_what_makes_no_sense_is_refused_at_once(simulated):
    remote = hca.RemoteMemory(0, 0, 64)
    part = simulated.a.mr
    with pytest.raises(hca.VerbsError, match="must be 8 bytes"):
        hca.AtomicWrite(part[0:4], remote=remote)
    with pytest.raises(hca.VerbsError, match="GLOBAL, PERSISTENT or both"):
        hca.Flush(remote=remote, flush_type=0)
    with pytest.raises(hca.VerbsError, match="level"):
        hca.Flush(remote=remote, level=2)
    with pytest.raises(hca.VerbsError, match="remote"):
        hca.Flush(remote=hca.RemoteMemory(0, 0, 1 << 32))
    with pytest.raises(hca.VerbsError, match="swap_mask"):
        hca.MaskedCmpSwap(
            part[0:8], remote=remote, compare=0, compare_mask=0, swap=0, swap_mask=WORD + 1
        )
