"""Regions whose key work requests make valid and invalid (IBTA Vol 1, 10.6.4.8; 10.8.3.3)."""

from __future__ import annotations

import errno
import itertools
import mmap

import pytest

import softhca as hca
from softhca import Access, KeyState, LocalInv, MrType, Reason, RegMr, WcStatus

from .lending import ALL, Lender, simulated_pair

RIGHTS = ALL | Access.LOCAL_WRITE
PAGE = 4096


@pytest.fixture
def lender():
    with simulated_pair() as pair:
        yield Lender(pair)


def pieces_of(*sizes: int) -> list[bytearray]:
    return [bytearray([65 + at]) * size for at, size in enumerate(sizes)]


def region(lender: Lender, pieces, mr_type=MrType.SG_GAPS, **options) -> hca.FastMR:
    mr = lender.pair.b.keep(lender.pair.b.pd.alloc_mr(mr_type, 16))
    mr.map_mr_sg(pieces, **options)
    return mr


def register(lender: Lender, mr: hca.FastMR, access: int = RIGHTS, **options) -> hca.WC:
    return lender.run(RegMr(mr, access=access, signaled=True, **options))


def test_states_and_keys(lender):
    mr = region(lender, pieces_of(100))
    assert mr.state is KeyState.FREE
    assert lender.write(mr.remote()) is WcStatus.REM_ACCESS_ERR
    with simulated_pair() as fresh:
        lender = Lender(fresh)
        mr = region(lender, pieces_of(100))
        first = mr.rkey
        mr.update_fast_reg_key(first + 7 & 0xFF)
        wc = register(lender, mr)
        assert (wc.status, wc.opcode) == (WcStatus.SUCCESS, hca.WcOpcode.REG_MR)
        assert mr.state is KeyState.VALID
        assert lender.write(mr.remote()) is WcStatus.SUCCESS
        assert lender.run(LocalInv(mr.rkey, signaled=True)).ok
        assert mr.state is KeyState.FREE
        mr.update_fast_reg_key(mr.rkey + 1 & 0xFF)
        assert register(lender, mr).ok
        old = hca.RemoteMemory(mr.addr, first, mr.length)
        assert lender.write(mr.remote()) is WcStatus.SUCCESS
        assert lender.write(old) is WcStatus.REM_ACCESS_ERR
        mr.close()
        assert mr.state is KeyState.INVALID


def test_every_copy_crosses_the_pieces(lender):
    pieces = pieces_of(10, 1, 300, 5000)
    mr = region(lender, pieces, iova=1 << 40)
    assert register(lender, mr).ok
    whole = b"".join(pieces)
    assert mr.length == len(whole)
    for start, stop in [(0, 5311), (9, 12), (10, 11), (5, 400), (311, 5311), (5310, 5311)]:
        part = mr.remote()[start:stop]
        assert lender.read(part, stop - start) == whole[start:stop]
    content = bytes(range(256)) * 8
    assert lender.write(mr.remote()[7:], content) is WcStatus.SUCCESS
    after = whole[:7] + content + whole[7 + len(content) :]
    assert b"".join(pieces) == after
    # And as a local buffer: gathered into a SEND, scattered by a receive.
    pair = lender.pair
    lender.asking.post_recv(hca.Recv(pair.a.mr[0:600]))
    lender.lending.post_send(hca.Send(mr[5:305], mr[0:12], signaled=True))
    assert pair.completion(pair.b).ok
    assert pair.completion(pair.a).byte_len == 312
    assert pair.a.buffer[0:312] == after[5:305] + after[0:12]
    lender.lending.post_recv(hca.Recv(mr[8:40], mr[300:400]))
    pair.a.buffer[0:100] = bytes(100)
    lender.asking.post_send(hca.Send(pair.a.mr[0:100], signaled=True))
    assert pair.completion(pair.b).ok
    after = after[:8] + bytes(32) + after[40:300] + bytes(68) + after[368:]
    assert b"".join(pieces) == after


def test_an_atomic_in_one_piece_works_and_across_two_is_refused(lender):
    pieces = [bytearray(8), bytearray(12), bytearray(12)]
    mr = region(lender, pieces, iova=0x1000)
    assert register(lender, mr).ok

    def add(at: int) -> hca.WC:
        remote = mr.remote()[at : at + 8]
        wr = hca.FetchAdd(lender.pair.a.mr[0:8], remote=remote, add=5, signaled=True)
        return lender.run(wr, on="asking")

    assert add(8).ok
    assert pieces[1][0] == 5
    wc = add(16)
    assert wc.status is WcStatus.REM_ACCESS_ERR
    assert pieces[1] == bytearray([5]) + bytes(11)
    assert pieces[2] == bytes(12)


def test_pages_without_gaps(lender):
    pages = [mmap.mmap(-1, 3 * PAGE) for _ in range(3)]
    mr = lender.pair.b.keep(lender.pair.b.pd.alloc_mr(MrType.MEM_REG, 5))
    views = [memoryview(page) for page in pages]
    mr.map_mr_sg([views[0][PAGE + 100 : 2 * PAGE], views[1][: 2 * PAGE], views[2][:50]])
    assert mr.length == PAGE - 100 + 2 * PAGE + 50
    assert register(lender, mr).ok
    assert lender.write(mr.remote()[PAGE - 102 :], b"seam") is WcStatus.SUCCESS
    assert pages[0][2 * PAGE - 2 : 2 * PAGE] == b"se"
    assert pages[1][:2] == b"am"
    mr.close()


def test_entries_that_go_on_from_one_another_need_no_page_boundary(lender):
    """As ib_map_mr_sg() has it: aligned, or contiguous with the entry before."""
    memory = mmap.mmap(-1, 4 * PAGE)
    view = memoryview(memory)
    mr = lender.pair.b.keep(lender.pair.b.pd.alloc_mr(MrType.MEM_REG, 3))
    cuts = [104, 1004, 1004, PAGE + 100, 3 * PAGE]
    mr.map_mr_sg([view[start:stop] for start, stop in itertools.pairwise(cuts)])
    assert mr.length == 3 * PAGE - 104
    assert register(lender, mr).ok
    assert lender.write(mr.remote()[898:], b"seam") is WcStatus.SUCCESS
    assert memory[1002:1006] == b"seam"
    # One run of bytes: an atomic may lie on both sides of a seam.
    word = mr.remote()[896:904]
    add = hca.FetchAdd(lender.pair.a.mr[0:8], remote=word, add=1, signaled=True)
    assert lender.run(add, on="asking").ok
    assert memory[1000] == 1
    mr.close()


@pytest.mark.parametrize(
    ("ranges", "rule"),
    [
        ([(0x1000, 4096), (0x2000, 100), (0, 0), (0x3000, 10)], "sg=1: may not end inside a page"),
        ([(0x1000, 4096), (0, 0), (0x3001, 10)], "sg=2: may not begin inside a page"),
        ([(0x1FFF, 4096), (0x2FFF, 3 * 4096 + 1)], "more pages than max_sg"),
        ([(0x1000, 4096), (0x3001, 10)], "begin inside a page"),
        ([(0x1000, 100), (0x3000, 10)], "end inside a page"),
        ([(0x1FFF, 4 * 4096 + 1)], "more pages than max_sg"),
        ([], "a byte at least"),
        ([(0x1000, 0)], "a byte at least"),
        ([((1 << 64) - 4096, 4097)], "wrap"),
    ],
)
def test_a_mapping_that_does_not_fit_is_refused_and_the_last_one_stays(lender, ranges, rule):
    mr = lender.pair.b.keep(lender.pair.b.pd.alloc_mr(MrType.MEM_REG, 4))
    memory = bytearray(64)
    mr.map_mr_sg([memory])
    before = mr.addr, mr.length
    with pytest.raises(hca.VerbsError, match=rule) as refused:
        mr.map_mr_sg(ranges)
    assert refused.value.errno == errno.EINVAL
    assert (mr.addr, mr.length) == before
    assert register(lender, mr).ok
    assert lender.write(mr.remote()) is WcStatus.SUCCESS
    assert memory[:4] == b"lent"
    with pytest.raises(hca.VerbsError, match="invalidate it first") as refused:
        mr.map_mr_sg([memory])
    assert refused.value.errno == errno.EBUSY


def test_it_is_registered_from_free_only(lender):
    mr = region(lender, pieces_of(100))
    assert register(lender, mr).ok
    wc = register(lender, mr)
    assert (wc.status, wc.reason) == (WcStatus.MW_BIND_ERR, Reason.NOT_FREE)
    assert lender.lending.state is hca.QPState.ERR


@pytest.mark.parametrize(
    ("why", "reason"),
    [
        ("not mapped", Reason.NOT_MAPPED),
        ("another domain", Reason.OTHER_PD),
        ("another key", Reason.KEY_INDEX),
        ("rights that contradict", Reason.BAD_ACCESS),
        ("a read-only buffer", Reason.BAD_ACCESS),
        ("closed", Reason.UNKNOWN_KEY),
    ],
)
def test_a_registration_that_fails(lender, why, reason):
    pd = lender.pair.b.pd
    if why == "another domain":
        pd = lender.pair.b.keep(lender.pair.b.device.alloc_pd())
    mr = lender.pair.b.keep(pd.alloc_mr(MrType.SG_GAPS, 4))
    if why != "not mapped":
        mr.map_mr_sg([bytes(100) if why == "a read-only buffer" else bytearray(100)])
    access = Access.REMOTE_WRITE if why == "rights that contradict" else RIGHTS
    key = mr.rkey ^ 0x100 if why == "another key" else mr.rkey
    wr = RegMr(mr, access=access, key=key, signaled=True)
    if why == "closed":
        mr.close()
    wc = lender.run(wr)
    assert (wc.status, wc.reason) == (WcStatus.MW_BIND_ERR, reason)
    assert wc.why


def test_the_peer_gives_it_back_by_send_with_invalidate(lender):
    memory = bytearray(100)
    mr = region(lender, [memory])
    assert register(lender, mr).ok
    lender.lending.post_recv(hca.Recv(wr_id=3))
    lender.asking.post_send(
        [
            hca.Write(lender.pair.a.mr[0:100], remote=mr.remote()),
            hca.SendInv(rkey=mr.rkey, signaled=True),
        ]
    )
    wc = lender.pair.completion(lender.pair.b)
    assert (wc.wr_id, wc.invalidated_rkey) == (3, mr.rkey)
    assert mr.state is KeyState.FREE
    mr.map_mr_sg([bytearray(10)])  # Lets go of the old buffer.
    memory.append(1)


def test_a_peer_without_a_right_to_the_key_cannot_take_it_away(lender):
    mr = region(lender, [bytearray(100)])
    assert register(lender, mr, Access.LOCAL_WRITE).ok
    lender.lending.post_recv(hca.Recv())
    lender.asking.post_send(hca.SendInv(rkey=mr.rkey, signaled=True))
    wc = lender.pair.completion(lender.pair.b)
    assert (wc.status, wc.reason) == (WcStatus.REM_INV_REQ_ERR, Reason.MISSING_RIGHT)
    assert mr.state is KeyState.VALID


@pytest.mark.parametrize("fence", [False, True])
def test_an_invalidation_waits_for_a_read_only_with_a_fence(lender, fence):
    """The READ lands in the region; without the fence its memory is gone when the answer comes."""
    far = lender.pair.a.pd.reg_mr(bytearray(b"far away" * 8), Access.REMOTE_READ)
    memory = bytearray(64)
    mr = region(lender, [memory])
    assert register(lender, mr).ok
    lender.lending.post_send(
        [
            hca.Read(mr[0:64], remote=far.remote(), signaled=True, wr_id=1),
            LocalInv(mr.rkey, fence=fence, signaled=True, wr_id=2),
        ]
    )
    statuses = [(wc.wr_id, wc.status) for wc in lender.pair.completions(lender.pair.b, 2)]
    if fence:
        assert statuses == [(1, WcStatus.SUCCESS), (2, WcStatus.SUCCESS)]
        assert memory == b"far away" * 8
    else:
        assert statuses == [(1, WcStatus.LOC_PROT_ERR), (2, WcStatus.WR_FLUSH_ERR)]
        assert memory == bytes(64)
    assert mr.state is KeyState.FREE
    far.close()


def test_an_invalidation_waits_for_a_write_that_may_have_to_be_sent_again(lender):
    far = lender.pair.a.keep(lender.pair.a.pd.reg_mr(bytearray(64)))
    mr = region(lender, [bytearray(b"once more" * 7)])
    assert register(lender, mr).ok
    lost = []

    def lose_the_first(flying):
        if flying.decoded.opcode_name == "RC_RDMA_WRITE_ONLY" and not lost:
            lost.append(flying)
            return []
        return [flying]

    lender.pair.wire.hook = lose_the_first
    lender.lending.post_send(
        [
            hca.Write(mr[0:63], remote=far.remote(), signaled=True, wr_id=1),
            LocalInv(mr.rkey, signaled=True, wr_id=2),
        ]
    )
    statuses = [(wc.wr_id, wc.status) for wc in lender.pair.completions(lender.pair.b, 2)]
    assert statuses == [(1, WcStatus.SUCCESS), (2, WcStatus.SUCCESS)]
    assert lost
    assert far.obj[:63] == b"once more" * 7


def test_a_zero_based_one_is_addressed_from_0(lender):
    memory = bytearray(64)
    mr = region(lender, [memory])
    assert register(lender, mr, RIGHTS | Access.ZERO_BASED).ok
    assert lender.write(hca.RemoteMemory(60, mr.rkey, 4)) is WcStatus.SUCCESS
    assert memory[60:] == b"lent"
    assert lender.write(mr.remote()[20:24]) is WcStatus.SUCCESS
    assert memory[20:24] == b"lent"
    assert (mr[8:12].addr, mr.access) == (8, RIGHTS | Access.ZERO_BASED)
    assert lender.run(hca.LocalInv(mr.rkey, signaled=True)).ok
    mr.map_mr_sg([memory])
    assert mr.addr == 0
    assert register(lender, mr, RIGHTS).ok
    assert lender.write(mr.remote()[40:44]) is WcStatus.SUCCESS
    assert memory[40:44] == b"lent"


def test_a_window_on_it_holds_it(lender):
    mr = region(lender, pieces_of(20, 20))
    assert register(lender, mr, Access.LOCAL_WRITE | Access.MW_BIND).ok
    mw = lender.window()
    bind = hca.BindMw(mw, mr[10:30], rkey=hca.inc_rkey(mw.rkey), access=ALL, signaled=True)
    assert lender.run(bind).ok
    assert lender.write(bind.remote[8:], b"seam") is WcStatus.SUCCESS
    assert lender.read(bind.remote, 20) == b"A" * 8 + b"seam" + b"B" * 8
    wc = lender.run(LocalInv(mr.rkey, signaled=True))
    assert (wc.status, wc.reason) == (WcStatus.MW_BIND_ERR, Reason.WINDOWS_BOUND)


def test_what_it_cannot_do_is_refused_by_name(lender):
    pd = lender.pair.b.pd
    with pytest.raises(hca.VerbsError, match="MEM_REG or SG_GAPS"):
        pd.alloc_mr(7, 4)
    for max_sg in (0, 1 << 17):
        with pytest.raises(hca.VerbsError, match="max_fast_reg_page_list_len"):
            pd.alloc_mr(MrType.MEM_REG, max_sg)
    mr = region(lender, pieces_of(20, 20))
    with pytest.raises(hca.VerbsError, match="several pieces"):
        hca.Send(mr[0:4], inline=True)
    with pytest.raises(hca.VerbsError, match="map_mr_sg"):
        mr.rereg(bytearray(5))
    for page_size in (0, 2048, 4097):
        with pytest.raises(hca.VerbsError, match="power of two"):
            mr.map_mr_sg([bytearray(8)], page_size=page_size)
