"""Rights, generated: key kinds, operations, bounds, domains and queue pairs, local and remote.

Each case ends as an independent model says (`rights.py`), and no byte is read or written that may
not be; semantics of IBTA Vol 1, 10.6 and 9.7.4.1.5, o10-36 to o10-39.
"""

from __future__ import annotations

import itertools

import pytest

import softhca as hca
from softhca import Access, BindInfo, BindMw, MwType, QPState, Reason, WcStatus

from .lending import simulated_pair
from .rights import (
    FLUSH,
    LW,
    NEEDS,
    NONE,
    RA,
    REGION,
    REGION_RIGHTS,
    RR,
    RW,
    TOP,
    WHOLE,
    WINDOW,
    WINDOW_RIGHTS,
    Attempt,
    Bench,
    Key,
    attempts,
    ranges_of,
)

# The region's first byte as keys call it: its address, and so that it ends at 2^64.
IOVAS = [None, TOP - len(REGION)]
BIND = Access.MW_BIND
ZERO = Access.ZERO_BASED


@pytest.fixture
def bench():
    with simulated_pair() as pair:
        yield Bench(pair)


@pytest.mark.parametrize("iova", [*IOVAS, 0], ids=["natural", "at the top", "zero-based"])
@pytest.mark.parametrize("op", NEEDS)
def test_regions(bench, op, iova):
    for rights in REGION_RIGHTS + [rights | FLUSH for rights in (NONE, LW | RW)]:
        with bench.region(rights | (ZERO if iova == 0 else NONE), iova) as mr:
            key = bench.key_of_region(mr)
            for attempt in attempts(op, key):
                bench.attempt(key, attempt)


@pytest.mark.parametrize("kind", ["type 1", "2A", "2B"])
@pytest.mark.parametrize("op", NEEDS)
def test_windows(op, kind):
    """Rights of a window are its own: the region under it gives no remote right, or all."""
    with simulated_pair("2A" if kind == "2A" else "2B") as pair:
        bench = Bench(pair)
        mw = pair.b.pd.alloc_mw(MwType.TYPE_1 if kind == "type 1" else MwType.TYPE_2)
        unders = (BIND, LW | BIND, LW | RR | RW | RA | BIND)
        based = (NONE,) if kind == "type 1" else (NONE, ZERO)
        for under, iova, zero in itertools.product(unders, IOVAS, based):
            if zero and under is not unders[-1]:
                continue
            for right in WINDOW_RIGHTS:
                if right & (RW | RA) and LW not in under:
                    continue  # Cannot be bound; see test_binding.
                rights = right | zero
                mr = bench.region(under, iova)
                key = bench.bind(mw, mr, rights)
                assert key.first == (0 if zero else mr.addr + WINDOW.start)
                assert key.kind == kind
                for attempt in attempts(op, key):
                    bench.attempt(key, attempt)
                    if mw.state is not hca.KeyState.VALID:
                        # A queue pair that begins anew has lost its windows.
                        key = bench.bind(mw, mr, rights)
                mw.close()
                mw = pair.b.pd.alloc_mw(mw.type)
                mr.close()
        mw.close()


@pytest.mark.parametrize("kind", ["region", "type 1", "2B"])
@pytest.mark.parametrize("op", ["WRITE", "WRITE_IMM"])
def test_unreliable_connections(op, kind):
    with simulated_pair() as pair:
        bench = Bench(pair, hca.QPType.UC)
        for rights in (LW | RR, LW | RW):
            mr = bench.region(rights if kind == "region" else LW | BIND)
            key = bench.key_of_region(mr)
            if kind != "region":
                mw = pair.b.pd.alloc_mw(MwType.TYPE_1 if kind == "type 1" else MwType.TYPE_2)
                key = bench.bind(mw, mr, rights & ~LW)
            for attempt in attempts(op, key):
                bench.attempt(key, attempt)
                if kind != "region" and mw.state is not hca.KeyState.VALID:
                    key = bench.bind(mw, mr, rights & ~LW)
            if kind != "region":
                mw.close()
            mr.close()


@pytest.mark.parametrize("op", NEEDS)
def test_regions_of_pieces(bench, op):
    for rights, iova in itertools.product(REGION_RIGHTS, (None, 1 << 40)):
        with bench.fast_region(iova) as mr:
            key = bench.register(mr, rights)
            for attempt in attempts(op, key):
                bench.attempt(key, attempt)
            # Across the seams between the pieces.
            for at in (784, 792, 800) if op != "FLUSH" else ():
                for size in (8,) if "ADD" in op or "SWAP" in op or "ATOMIC" in op else (8, 40):
                    start = -(-(key.first + at) // 8) * 8
                    bench.attempt(key, Attempt(op, start, size))


@pytest.mark.parametrize("op", [op for op in NEEDS if op != "FLUSH"])
def test_the_implicit_region(bench, op):
    """It reaches what is mapped; what is not ends as a refusal. Its places are the process's."""
    for rights in REGION_RIGHTS:
        access = rights | Access.ON_DEMAND
        with bench.b.pd.reg_mr(addr=0, length=WHOLE, access=access) as mr:
            start = bench.start + REGION.start
            key = Key("implicit", mr.lkey, start, list(REGION), rights)
            size = 8 if "ADD" in op or "SWAP" in op or "ATOMIC" in op else 16
            for address in (start, start + 8, start + len(REGION) - size, 0, 8, TOP - 64):
                bench.attempt(key, Attempt(op, address, size))
            bench.attempt(key, Attempt(op, start, size, "another domain"))


@pytest.mark.parametrize("missing", [RR, RW, RA, FLUSH])
def test_rights_of_the_queue_pair(bench, missing):
    bench.qp_rights = (RR | RW | RA | FLUSH) & ~missing
    bench.connect_all()
    with bench.region(LW | RR | RW | RA | FLUSH | BIND) as mr:
        for op in NEEDS:
            key = bench.key_of_region(mr)
            bench.attempt(key, Attempt(op, key.first, 8))


@pytest.mark.parametrize("op", [op for op in NEEDS if op != "FLUSH"])
def test_zero_bytes_need_no_key(bench, op):
    if "ADD" in op or "SWAP" in op or "ATOMIC" in op:
        return
    near, far = bench.lines["the owner"]
    if op == "WRITE_IMM":
        far.post_recv(hca.Recv())
    near.post_send(bench.request(Attempt(op, 5, 0), 0xDEAD00))
    assert bench.done(bench.a).ok


# --- local


LOCAL = ("SEND", "WRITE", "RECV", "READ", "FETCH_ADD")


def local_status(op: str, rights: Access, fits: bool, ours: bool) -> WcStatus:
    """The same rules for what a queue pair does with its own memory."""
    writes = op in ("RECV", "READ", "FETCH_ADD")
    good = fits and ours and (LW in rights or not writes)
    return WcStatus.SUCCESS if good else WcStatus.LOC_PROT_ERR


def run_local(bench: Bench, op: str, entry: tuple[int, int, int], through: str) -> hca.WC:
    """Host b works on its own memory through an entry that is made by hand."""
    near, far = bench.lines[through]
    address, length, lkey = entry
    sge = hca.Sge(address, length, lkey)
    remote = bench.a.mr.remote()[64 : 64 + length]
    if op == "RECV":
        far.post_recv(hca.Recv(sge))
        near.post_send(hca.Send(bench.a.mr[64 : 64 + length], signaled=True))
        wc, asked = bench.done(bench.b), bench.done(bench.a)
        assert asked.status is (WcStatus.SUCCESS if wc.ok else WcStatus.REM_OP_ERR)
        return wc
    if op == "SEND":
        near.post_recv(hca.Recv(bench.a.mr[64 : 64 + length]))
        far.post_send(hca.Send(sge, signaled=True))
    elif op == "WRITE":
        far.post_send(hca.Write(sge, remote=remote, signaled=True))
    elif op == "READ":
        far.post_send(hca.Read(sge, remote=remote, signaled=True))
    else:
        far.post_send(hca.FetchAdd(sge, remote=remote, add=0, signaled=True))
    return bench.done(bench.b)


@pytest.mark.parametrize("op", LOCAL)
@pytest.mark.parametrize("kind", ["region", "fast", "window"])
def test_local_access(bench, op, kind):
    length = 8 if op == "FETCH_ADD" else 24
    for rights in REGION_RIGHTS:
        if kind == "fast":
            mr = bench.fast_region()
            key = bench.register(mr, rights)
        else:
            mr = bench.region(rights | (BIND if kind == "window" else NONE))
            key = bench.key_of_region(mr)
        lkey = key.rkey
        if kind == "window":
            mw = bench.b.pd.alloc_mw(MwType.TYPE_2)
            key = bench.bind(mw, mr, RR)
            lkey = key.rkey
        places = [(address, size) for address, size in ranges_of(key.first, key.length, (length,))]
        tried = [(place, "the owner") for place in places]
        tried.append(((key.first, length), "another domain"))
        for (address, size), through in tried:
            bench.arena[:] = b"\x07" * len(bench.arena)
            bench.a.buffer[:256] = b"\x55" * 256
            fits = kind != "window" and key.covers(address, size)
            expected = local_status(op, rights, fits, through != "another domain")
            wc = run_local(bench, op, (address, size, lkey), through)
            assert wc.status is expected, (kind, rights, op, address, size, through, wc.why)
            arena = bytearray(b"\x07" * len(bench.arena))
            asker = bytearray(b"\x55" * 256)
            if wc.ok:
                at = address - key.first
                for place in key.places[at : at + size] if op not in ("SEND", "WRITE") else ():
                    arena[place] = 0x55
                if op in ("SEND", "WRITE"):
                    asker[64 : 64 + size] = b"\x07" * size
            assert bench.arena == arena, (kind, rights, op, address)
            assert bench.a.buffer[:256] == asker, (kind, rights, op, address)
            bench.connect(*bench.lines[through])
        if kind == "window":
            mw.close()
        mr.close()


# --- binding


def bind_reason(mw_type: MwType, under: Access, rights: Access, start: int, size: int):
    """Why a bind must fail, or NONE; `start` is counted from the region's first byte."""
    if mw_type is MwType.TYPE_2 and not size:
        return Reason.EMPTY_BIND
    if mw_type is MwType.TYPE_1 and not size:
        return Reason.NONE
    if Access.ZERO_BASED in under:
        return Reason.ZERO_BASED_REGION
    if BIND not in under:
        return Reason.NO_BIND_RIGHT
    if rights & (RW | RA) and LW not in under:
        return Reason.WINDOW_WRITES
    if not 0 <= start <= start + size <= len(REGION):
        return Reason.OUT_OF_BOUNDS
    return Reason.NONE


@pytest.mark.parametrize("mw_type", list(MwType))
def test_binding(bench, mw_type):
    starts = [(0, 8), (0, len(REGION)), (1, len(REGION)), (-1, 8), (2047, 1), (2048, 1), (2040, 9)]
    starts += [(5, 0), (-4096, TOP - 1), (8, TOP - 8)]
    for rights, under in itertools.product((*WINDOW_RIGHTS, RR | LW), REGION_RIGHTS):
        for more in (NONE, BIND, BIND | Access.ZERO_BASED):
            mr = bench.region(under | more, 0 if Access.ZERO_BASED in more else None)
            mw = bench.b.pd.alloc_mw(mw_type)
            for start, size in starts if under in (NONE, LW) else starts[:1]:
                reason = bind_reason(mw_type, under | more, rights, start, size)
                bind = BindInfo(mr, (mr.addr + start) % TOP, size, rights)
                key = hca.inc_rkey(mw.rkey)
                if mw_type is MwType.TYPE_1:
                    bench.owner.bind_mw(mw, bind, signaled=True)
                else:
                    bench.owner.post_send(BindMw(mw, bind, rkey=key, signaled=True))
                wc = bench.done(bench.b)
                good = reason is Reason.NONE
                status = WcStatus.SUCCESS if good else WcStatus.MW_BIND_ERR
                assert (wc.status, wc.reason) == (status, reason), (under | more, bind, wc.why)
                assert mw.rkey == key or (mw_type is MwType.TYPE_2 and not good)
                if good and mw_type is MwType.TYPE_2:
                    bench.owner.post_send(hca.LocalInv(mw.rkey, signaled=True))
                    assert bench.done(bench.b).ok
                if not good:
                    assert bench.owner.state is QPState.ERR
                    bench.connect(*bench.lines["the owner"])
            mw.close()
            mr.close()
