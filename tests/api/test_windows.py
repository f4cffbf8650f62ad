"""Memory windows: lending a range, and taking it back (IBTA Vol 1, 10.6.7; o10-36 to o10-39)."""

from __future__ import annotations

import errno

import pytest

import softhca as hca
from softhca import BindInfo, KeyState, LocalInv, MwType, WcStatus

from .lending import ALL, Lender, simulated_pair


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
