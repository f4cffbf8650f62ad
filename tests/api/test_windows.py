"""Memory windows: lending a range, and taking it back (IBTA Vol 1, 10.6.7; o10-36 to o10-39)."""

from __future__ import annotations

import errno

import pytest

import softhca as hca
from softhca import Access, BindInfo, BindMw, KeyState, LocalInv, MwType, Reason, WcStatus

from .lending import ALL, LENDS, Lender, simulated_pair

FLUSHED = WcStatus.WR_FLUSH_ERR


@pytest.fixture(params=["2B", "2A"])
def pair(request):
    with simulated_pair(request.param) as pair:
        yield pair


@pytest.fixture
def lender(pair):
    return Lender(pair)


def test_a_type_2_window_is_lent_used_and_taken_back(lender):
    mw = lender.window()
    assert mw.state is KeyState.FREE
    remote = lender.lend(mw)
    assert mw.state is KeyState.VALID
    assert mw.rkey == remote.rkey
    assert lender.write(remote) is WcStatus.SUCCESS
    assert lender.memory[64:68] == b"lent"
    wc = lender.run(LocalInv(mw.rkey, signaled=True))
    assert (wc.status, wc.opcode) == (WcStatus.SUCCESS, hca.WcOpcode.LOCAL_INV)
    assert mw.state is KeyState.FREE
    assert lender.write(remote, b"late") is WcStatus.REM_ACCESS_ERR
    assert lender.memory[64:68] == b"lent"


def test_the_peer_gives_a_window_back_by_send_with_invalidate(lender):
    mw = lender.window()
    remote = lender.lend(mw)
    lender.lending.post_recv(hca.Recv(lender.pair.b.mr[0:64], wr_id=7))
    lender.asking.post_send(
        [
            hca.Write(lender.pair.a.mr[0:8], remote=remote),
            hca.SendInv(lender.pair.a.mr[0:4], rkey=remote.rkey, signaled=True),
        ]
    )
    wc = lender.pair.completion(lender.pair.b)
    assert wc.ok
    assert wc.invalidated_rkey == remote.rkey
    assert wc.byte_len == 4
    assert wc.wr_id == 7
    assert mw.state is KeyState.FREE
    assert lender.pair.completion(lender.pair.a).ok
    again = lender.lend(mw)
    assert again.rkey == hca.inc_rkey(remote.rkey)
    assert lender.write(again) is WcStatus.SUCCESS


def test_a_type_1_window_is_bound_at_once_and_rebound(lender):
    mw = lender.window(MwType.TYPE_1)
    first = lender.lending.bind_mw(mw, BindInfo.of(lender.mr[0:64], ALL), signaled=True)
    assert mw.rkey == first.rkey
    assert lender.pair.completion(lender.pair.b).ok
    assert lender.write(first) is WcStatus.SUCCESS
    second = lender.lending.bind_mw(mw, BindInfo.of(lender.mr[64:128], ALL))
    lender.pair.wire.settle()
    assert second.rkey == hca.inc_rkey(first.rkey)
    assert mw.rkey == second.rkey
    assert lender.write(second) is WcStatus.SUCCESS
    assert lender.memory[64:68] == b"lent"
    assert lender.write(first) is WcStatus.REM_ACCESS_ERR


def test_a_region_stays_while_a_window_is_bound(lender):
    mw = lender.window()
    lender.lend(mw)
    with pytest.raises(hca.VerbsError, match="windows are bound") as refused:
        lender.mr.dereg()
    assert refused.value.errno == errno.EBUSY
    mw.close()
    lender.mr.dereg()


# --- type 1


def test_a_type_1_window_is_open_to_the_domain_and_unbound_by_zero_bytes(lender):
    pair, mw = lender.pair, lender.window(MwType.TYPE_1)
    remote = lender.lending.bind_mw(mw, BindInfo.of(lender.mr[0:64], ALL), signaled=True)
    assert pair.completion(pair.b).ok
    near, far = pair.connected()
    near.post_send(hca.Write(pair.a.mr[0:4], remote=remote, signaled=True))
    assert pair.completion(pair.a).ok
    lender.lending.bind_mw(mw, BindInfo(None), signaled=True)
    assert pair.completion(pair.b).ok
    assert mw.state is KeyState.FREE
    assert lender.write(remote) is WcStatus.REM_ACCESS_ERR
    lender.mr.dereg()
    far.close()


def test_a_bind_of_type_1_may_fail_when_it_runs_and_the_next_key_goes_on(lender):
    pair, mw = lender.pair, lender.window(MwType.TYPE_1)
    before = mw.rkey
    beyond = BindInfo(lender.mr, lender.mr.addr, lender.mr.length + 1, ALL)
    lender.lending.bind_mw(mw, beyond)
    assert mw.rkey == hca.inc_rkey(before)
    wc = pair.completion(pair.b)
    assert (wc.status, wc.reason) == (WcStatus.MW_BIND_ERR, Reason.OUT_OF_BOUNDS)
    assert "leaves the memory region" in wc.why
    assert lender.lending.state is hca.QPState.ERR
    near, far = pair.connected()
    remote = far.bind_mw(mw, BindInfo.of(lender.mr[0:8], ALL), signaled=True)
    assert pair.completion(pair.b).ok
    assert remote.rkey == hca.inc_rkey(hca.inc_rkey(before))
    near.post_send(hca.Write(pair.a.mr[0:4], remote=remote, signaled=True))
    assert pair.completion(pair.a).ok


def test_a_failed_invalidation_tells_the_key_and_nothing_that_there_was_not(lender):
    wc = lender.run(LocalInv(0x12345))
    assert wc.status is WcStatus.MW_BIND_ERR
    assert wc.why.endswith(" (key 0x12345)")  # No lkey, no address, no packet.


def test_a_failed_rebind_of_type_1_leaves_the_window_as_it_was(lender):
    pair, mw = lender.pair, lender.window(MwType.TYPE_1)
    other, owner = pair.connected()
    remote = owner.bind_mw(mw, BindInfo.of(lender.mr[0:64], ALL), signaled=True)
    assert pair.completion(pair.b).ok
    lender.lending.bind_mw(mw, BindInfo(lender.mr, 0, 8, ALL))
    assert pair.completion(pair.b).status is WcStatus.MW_BIND_ERR
    other.post_send(hca.Write(pair.a.mr[0:4], remote=remote, signaled=True))
    assert pair.completion(pair.a).ok


def test_several_binds_of_type_1_may_be_posted_at_once(lender):
    pair, mw = lender.pair, lender.window(MwType.TYPE_1)
    remotes = [
        lender.lending.bind_mw(mw, BindInfo.of(lender.mr[at : at + 8], ALL), signaled=True)
        for at in (0, 8, 16)
    ]
    assert all(wc.ok for wc in pair.completions(pair.b, 3))
    assert mw.rkey == remotes[-1].rkey
    assert lender.write(remotes[-1]) is WcStatus.SUCCESS
    assert lender.memory[16:20] == b"lent"
    assert lender.write(remotes[1]) is WcStatus.REM_ACCESS_ERR


# --- type 2


def test_a_bound_type_2_window_is_not_bound_again_before_it_is_invalidated(lender):
    mw = lender.window()
    lender.lend(mw)
    bind = BindMw(mw, lender.mr[0:8], rkey=hca.inc_rkey(mw.rkey), access=ALL)
    wc = lender.run(bind)
    assert (wc.status, wc.reason) == (WcStatus.MW_BIND_ERR, Reason.NOT_FREE)


@pytest.mark.parametrize(
    ("why", "reason"),
    [
        ("a key of another window", Reason.KEY_INDEX),
        ("no bytes", Reason.EMPTY_BIND),
        ("a right that windows do not have", Reason.BAD_ACCESS),
        ("a window that is gone", Reason.WRONG_WINDOW),
        ("a region that is gone", Reason.UNKNOWN_KEY),
        ("a region of another domain", Reason.OTHER_PD),
        ("a window of another domain", Reason.OTHER_PD),
        ("a region for fast registration that is free", Reason.KEY_NOT_VALID),
    ],
)
def test_a_bind_of_type_2_that_fails(lender, why, reason):
    pair, mw = lender.pair, lender.window()
    mr, access, part, key = lender.mr, ALL, slice(0, 8), hca.inc_rkey(mw.rkey)
    other = pair.b.keep(pair.b.device.alloc_pd())
    if why == "a key of another window":
        key ^= 0x100
    elif why == "no bytes":
        part = slice(8, 8)
    elif why == "a right that windows do not have":
        access = Access.ON_DEMAND
    elif why == "a region of another domain":
        mr = other.reg_mr(bytearray(64), LENDS)
    elif why == "a window of another domain":
        mw = other.alloc_mw(MwType.TYPE_2)
        key = hca.inc_rkey(mw.rkey)
    elif why == "a region for fast registration that is free":
        mr = pair.b.keep(pair.b.pd.alloc_mr(hca.MrType.SG_GAPS, 1))
        mr.map_mr_sg([bytearray(64)])
    bind = BindMw(mw, mr[part], rkey=key, access=access, signaled=True)
    if why == "a window that is gone":
        mw.close()
    elif why == "a region that is gone":
        mr.close()
    wc = lender.run(bind)
    assert (wc.status, wc.reason) == (WcStatus.MW_BIND_ERR, reason)
    assert wc.why
    assert lender.lending.state is hca.QPState.ERR
    if not mw.closed:
        assert mw.state is KeyState.FREE
    other.__exit__(None, None, None)


def test_a_zero_based_type_2_window_is_addressed_from_0(lender):
    mw = lender.window()
    remote = lender.lend(mw, ALL | Access.ZERO_BASED, 100, 200)
    assert (remote.addr, remote.length) == (0, 100)
    assert lender.write(remote[96:]) is WcStatus.SUCCESS
    assert lender.memory[196:200] == b"lent"
    assert lender.read(remote[0:4], 4) == bytes(range(100, 104))
    assert lender.write(hca.RemoteMemory(97, remote.rkey, 4)) is WcStatus.REM_ACCESS_ERR


def test_a_bind_takes_effect_before_what_is_posted_behind_it(lender):
    """BIND and SEND in one list: whoever gets the message can use the key."""
    pair, mw = lender.pair, lender.window()
    bind = BindMw(mw, lender.mr[0:64], rkey=hca.inc_rkey(mw.rkey), access=ALL)
    pair.b.buffer[0:20] = bind.remote.to_bytes()
    lender.asking.post_recv(hca.Recv(pair.a.mr[0:20]))
    lender.lending.post_send([bind, hca.Send(pair.b.mr[0:20], signaled=True)])
    assert pair.completion(pair.a).ok
    assert pair.completion(pair.b).ok
    remote = hca.RemoteMemory.from_bytes(bytes(pair.a.buffer[0:20]))
    assert remote == bind.remote
    assert lender.write(remote) is WcStatus.SUCCESS


def test_the_whole_sequence_over_a_bad_network(lender):
    """BIND, SEND, work, SEND with invalidate, a hundred times, each fifth packet lost."""
    pair, mw = lender.pair, lender.window()
    count = [0]

    def lose(flying):
        count[0] += 1
        return [] if count[0] % 5 == 0 else [flying]

    pair.wire.hook = lose
    for number in range(100):
        start = number * 16
        part = lender.mr[start : start + 16]
        bind = BindMw(mw, part, rkey=hca.inc_rkey(mw.rkey), access=ALL)
        pair.b.buffer[0:20] = bind.remote.to_bytes()
        lender.asking.post_recv(hca.Recv(pair.a.mr[100:120]))
        lender.lending.post_recv(hca.Recv())
        lender.lending.post_send([bind, hca.Send(pair.b.mr[0:20], signaled=True)])
        assert pair.completion(pair.a).ok
        assert pair.completion(pair.b).ok
        remote = hca.RemoteMemory.from_bytes(bytes(pair.a.buffer[100:120]))
        pair.a.buffer[0:16] = bytes([number]) * 16
        lender.asking.post_send(
            [
                hca.Write(pair.a.mr[0:16], remote=remote),
                hca.SendInv(rkey=remote.rkey, signaled=True),
            ]
        )
        assert pair.completion(pair.b).invalidated_rkey == remote.rkey
        assert pair.completion(pair.a).ok
        assert mw.state is KeyState.FREE
        assert lender.memory[start : start + 16] == bytes([number]) * 16


def test_completions_of_binds_keep_their_order(lender):
    pair, mw = lender.pair, lender.window()
    pair.wire.hook = lambda flying: [flying]
    far = pair.a.mr.remote()
    key = hca.inc_rkey(mw.rkey)
    lender.lending.post_send(
        [
            hca.Write(pair.b.mr[0:9000], remote=far, signaled=True, wr_id=1),
            BindMw(mw, lender.mr[0:8], rkey=key, access=ALL, signaled=True, wr_id=2),
            hca.Read(pair.b.mr[0:9000], remote=far, signaled=True, wr_id=3),
            LocalInv(key, signaled=True, wr_id=4),
            hca.Write(pair.b.mr[0:8], remote=far, signaled=True, wr_id=5),
        ]
    )
    wcs = pair.completions(pair.b, 5)
    assert [(wc.wr_id, wc.status) for wc in wcs] == [(n, WcStatus.SUCCESS) for n in range(1, 6)]


def test_a_fenced_bind_waits_for_a_read(lender):
    pair, mw = lender.pair, lender.window()
    held = []

    def hold_responses(flying):
        if flying.decoded.opcode_name.startswith("RC_RDMA_READ_RESPONSE"):
            held.append(flying)
            return []
        return [flying]

    far = pair.a.mr.remote()
    for fence, state in ((False, KeyState.VALID), (True, KeyState.FREE)):
        pair.wire.hook = hold_responses
        bind = BindMw(mw, lender.mr[0:8], rkey=hca.inc_rkey(mw.rkey), access=ALL, fence=fence)
        lender.lending.post_send([hca.Read(pair.b.mr[0:8], remote=far), bind])
        pair.wire.settle()
        assert held
        assert mw.state is state
        pair.wire.hook = None
        held.clear()
        pair.wire.run_until(lambda: mw.state is KeyState.VALID)
        assert lender.run(LocalInv(mw.rkey, signaled=True)).ok


# --- ends


def test_what_ends_a_window(lender):
    """Closing it, and resetting its queue pair; what ERR does is that nothing arrives any more."""
    pair, mw = lender.pair, lender.window()
    lender.lend(mw)
    lender.lending.modify(qp_state=hca.QPState.ERR)
    assert mw.state is KeyState.VALID
    lender.lending.modify(qp_state=hca.QPState.RESET)
    assert mw.state is KeyState.FREE
    lender.mr.dereg()
    assert pair.b.cq.poll() == []


def test_closing_a_bound_window_unbinds_it(lender):
    mw = lender.window()
    remote = lender.lend(mw)
    mw.close()
    assert mw.state is KeyState.INVALID
    assert lender.write(remote) is WcStatus.REM_ACCESS_ERR
    lender.mr.dereg()


def test_closing_the_queue_pair_takes_a_2b_window_and_is_refused_with_a_2a(lender):
    pair, mw = lender.pair, lender.window()
    lender.lend(mw)
    caps = pair.b.device.query_device().device_cap_flags
    if hca.DeviceCap.MEM_WINDOW_TYPE_2A in caps:
        with pytest.raises(hca.VerbsError, match="2A windows are bound") as refused:
            lender.lending.close()
        assert refused.value.errno == errno.EBUSY
        assert str(refused.value).startswith("qp: ")  # Whatever number it has.
        assert lender.run(LocalInv(mw.rkey, signaled=True)).ok
    lender.lending.close()
    assert mw.state is KeyState.FREE
    lender.mr.dereg()
    mw.close()


def test_a_flushed_bind_changes_nothing(lender):
    pair, mw = lender.pair, lender.window()
    lender.lending.modify(qp_state=hca.QPState.ERR)
    before = mw.rkey
    bind = BindMw(mw, lender.mr[0:8], rkey=hca.inc_rkey(before), access=ALL)
    lender.lending.post_send(bind)
    assert pair.completion(pair.b).status is FLUSHED
    assert (mw.rkey, mw.state) == (before, KeyState.FREE)


def test_a_queue_pair_that_drains_does_not_begin_a_bind(lender):
    pair, mw = lender.pair, lender.window()
    lender.lending.modify(qp_state=hca.QPState.SQD)
    bind = BindMw(mw, lender.mr[0:8], rkey=hca.inc_rkey(mw.rkey), access=ALL, signaled=True)
    lender.lending.post_send(bind)
    pair.wire.settle()
    assert mw.state is KeyState.FREE
    lender.lending.modify(qp_state=hca.QPState.RTS)
    assert pair.completion(pair.b).ok
    assert mw.state is KeyState.VALID


# --- other service types


def test_windows_on_an_unreliable_connection(pair):
    lender = Lender(pair, hca.QPType.UC)
    mw = lender.window()
    remote = lender.lend(mw)
    assert lender.write(remote) is WcStatus.SUCCESS
    pair.wire.settle()
    assert lender.memory[64:68] == b"lent"
    assert lender.run(LocalInv(mw.rkey, signaled=True)).ok
    assert lender.write(remote, b"late") is WcStatus.SUCCESS
    pair.wire.settle()
    assert lender.memory[64:68] == b"lent"
    wc = lender.run(LocalInv(mw.rkey))
    assert wc.status is WcStatus.MW_BIND_ERR
    assert lender.lending.state is hca.QPState.SQE


def test_datagrams_have_no_windows(pair):
    qp = pair.b.qp(hca.QPType.UD)
    qp.activate()
    mw = pair.b.keep(pair.b.pd.alloc_mw(MwType.TYPE_2))
    qp.post_send(LocalInv(mw.rkey))
    assert pair.completion(pair.b).status is WcStatus.LOC_QP_OP_ERR


# --- bad input, refused at once


def test_what_makes_no_sense_is_refused_by_name(lender):
    pair = lender.pair
    one, two = lender.window(MwType.TYPE_1), lender.window()
    whole = BindInfo.of(lender.mr, ALL)
    with pytest.raises(hca.VerbsError, match="TYPE_1 or TYPE_2"):
        pair.b.pd.alloc_mw(3)
    with pytest.raises(hca.VerbsError, match=r"type 1: bind it with qp.bind_mw"):
        BindMw(one, whole, rkey=one.rkey)
    with pytest.raises(hca.VerbsError, match="type 2: bind it by a BindMw"):
        lender.lending.bind_mw(two, whole)
    with pytest.raises(hca.VerbsError, match="cannot be ZERO_BASED"):
        lender.lending.bind_mw(one, BindInfo.of(lender.mr, ALL | Access.ZERO_BASED))
    with pytest.raises(hca.VerbsError, match="length=5: must be 0 without a region"):
        BindInfo(None, 0, 5)
    with pytest.raises(TypeError, match="access"):
        BindMw(two, lender.mr[0:8], rkey=two.rkey)
    with pytest.raises(TypeError, match="in the BindInfo already"):
        BindMw(two, whole, rkey=two.rkey, access=ALL)
    with pytest.raises(TypeError, match=r"where.mr"):
        BindMw(two, hca.Sge(0, 8, 5), rkey=two.rkey, access=ALL)
    with pytest.raises(hca.VerbsError, match="rkey"):
        BindMw(two, whole, rkey=1 << 32)
    with pytest.raises(hca.VerbsError, match="windows"):
        hca.open(windows="2C")
    closed = lender.window()
    closed.close()
    with pytest.raises(hca.VerbsError, match="mw: is closed"):
        BindMw(closed, whole, rkey=5)
    before = one.rkey
    reset = pair.b.qp()
    with pytest.raises(hca.VerbsError, match="qp_state"):
        reset.bind_mw(one, whole)
    assert one.rkey == before


@pytest.mark.parametrize("access", [1 << 10, 1 << 31, ALL | 1 << 19])
def test_bits_that_are_no_access_flag_are_refused_at_once(lender, access):
    mw = lender.window()
    fast = lender.pair.b.keep(lender.pair.b.pd.alloc_mr(hca.MrType.SG_GAPS, 1))
    for make in (
        lambda: BindMw(mw, lender.mr[0:8], rkey=hca.inc_rkey(mw.rkey), access=access),
        lambda: BindInfo.of(lender.mr, access),
        lambda: BindInfo(lender.mr, lender.mr.addr, 8, access),
        lambda: hca.RegMr(fast, access=access),
    ):
        with pytest.raises(hca.VerbsError, match=f"access={access}: has bits that") as refused:
            make()
        assert refused.value.errno == errno.EINVAL
    # An adapter may ignore these.
    assert BindInfo.of(lender.mr, 1 << 29).access == 1 << 29
    assert hca.RegMr(fast, access=1 << 20).mr is fast


def test_objects_of_another_device_are_refused(lender):
    pair = lender.pair
    mine = pair.a.keep(pair.a.pd.alloc_mw(MwType.TYPE_2))
    fast = pair.a.keep(pair.a.pd.alloc_mr(hca.MrType.SG_GAPS, 1))
    own = pair.a.keep(pair.a.pd.reg_mr(bytearray(64), LENDS))
    with pytest.raises(hca.VerbsError, match="belongs to another device"):
        BindMw(mine, lender.mr[0:8], rkey=mine.rkey, access=ALL)
    bind = BindMw(mine, own[0:8], rkey=mine.rkey, access=ALL)
    send = hca.Send(signaled=True, wr_id=5)
    lender.asking.post_recv(hca.Recv())
    with pytest.raises(hca.VerbsError, match=r"mw.*belongs to another device") as refused:
        lender.lending.post_send([send, bind])
    assert refused.value.bad_wr is bind
    assert pair.completion(pair.b).wr_id == 5
    with pytest.raises(hca.VerbsError, match=r"mr.*belongs to another device"):
        lender.lending.post_send(hca.RegMr(fast, access=0))
    type_1 = pair.a.keep(pair.a.pd.alloc_mw(MwType.TYPE_1))
    with pytest.raises(hca.VerbsError, match="belongs to another device"):
        lender.lending.bind_mw(type_1, BindInfo.of(own, ALL))


def test_inc_rkey_counts_the_low_8_bits():
    assert hca.inc_rkey(0x123456FF) == 0x12345600
    assert hca.inc_rkey(0x12345600) == 0x12345601


def test_with_blocks_close_windows_before_what_they_cover(pair):
    with pair.b.device.alloc_pd() as pd:
        mw = pd.alloc_mw(MwType.TYPE_1)
        mr = pd.reg_mr(bytearray(64), LENDS)
        near, far = pair.a.qp(), pd.create_qp(hca.QPType.RC, send_cq=pair.b.cq, recv_cq=pair.b.cq)
        near.connect(far.info())
        far.connect(near.info())
        far.bind_mw(mw, BindInfo.of(mr, ALL), signaled=True)
        assert pair.completion(pair.b).ok
    assert mw.closed
    assert mr.closed
