"""Taking a key back, by its owner or by a SEND of the peer (IBTA Vol 1, 9.4.1.1.3; o10-37)."""

from __future__ import annotations

import pytest

import softhca as hca
from softhca import BindInfo, BindMw, LocalInv, MwType, Reason, WcStatus

from .lending import ALL, Lender, simulated_pair

FLUSHED = WcStatus.WR_FLUSH_ERR


@pytest.fixture
def lender():
    with simulated_pair() as pair:
        yield Lender(pair)


def bad_keys(lender: Lender) -> dict[str, tuple[int, Reason, Reason]]:
    """Keys that cannot be invalidated: why not, locally and by the peer."""
    pair = lender.pair
    type_1 = lender.window(MwType.TYPE_1)
    lender.lending.bind_mw(type_1, BindInfo.of(lender.mr[0:8], ALL), signaled=True)
    assert pair.completion(pair.b).ok
    free = lender.window()
    _other, owner = pair.connected()
    foreign = lender.window()
    bind = BindMw(
        foreign, lender.mr[0:8], rkey=hca.inc_rkey(foreign.rkey), access=ALL, signaled=True
    )
    owner.post_send(bind)
    assert pair.completion(pair.b).ok
    pd = pair.b.keep(pair.b.device.alloc_pd())
    elsewhere = pair.b.keep(pd.alloc_mr(hca.MrType.SG_GAPS, 1))
    both = Reason.NOT_INVALIDATABLE, Reason.REFUSED_INVALIDATE
    return {
        "an unknown key": (0x7FFFFF00, Reason.UNKNOWN_KEY, Reason.UNKNOWN_KEY),
        "a stale tag": (free.rkey ^ 1, Reason.UNKNOWN_KEY, Reason.UNKNOWN_KEY),
        "a region": (lender.mr.lkey, *both),
        "a window of type 1": (type_1.rkey, *both),
        "a window that is not bound": (free.rkey, Reason.KEY_NOT_VALID, Reason.KEY_NOT_VALID),
        "another queue pair's window": (foreign.rkey, Reason.OTHER_QP, Reason.OTHER_QP),
        "another domain's region": (elsewhere.rkey, Reason.OTHER_PD, Reason.OTHER_PD),
    }


NAMES = [
    "an unknown key",
    "a stale tag",
    "a region",
    "a window of type 1",
    "a window that is not bound",
    "another queue pair's window",
    "another domain's region",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_local_invalidation_that_fails(lender, name):
    key, reason, _ = bad_keys(lender)[name]
    wc = lender.run(LocalInv(key))
    assert (wc.status, wc.reason, wc.key) == (WcStatus.MW_BIND_ERR, reason, key)
    assert lender.lending.state is hca.QPState.ERR


@pytest.mark.parametrize("name", NAMES)
def test_a_send_with_invalidate_that_fails_is_not_answered(lender, name):
    """Class J (IBTA Vol 1, 9.9.6.3): no NAK and no ACK; the requester's own timer ends it."""
    pair = lender.pair
    key, _, reason = bad_keys(lender)[name]
    lender.lending.post_recv([hca.Recv(wr_id=1), hca.Recv(wr_id=2)])
    pair.wire.settle()
    pair.wire.sent.clear()
    lender.send_inv(key)
    pair.wire.settle()
    assert [flying.packet.qpn for flying in pair.wire.sent] == [lender.asking.qpn]
    first, second = pair.completions(pair.b, 2)
    assert (first.wr_id, first.status, first.reason) == (1, WcStatus.REM_INV_REQ_ERR, reason)
    assert (second.wr_id, second.status) == (2, WcStatus.WR_FLUSH_ERR)
    assert lender.lending.state is hca.QPState.ERR
    assert pair.event(pair.b).event_type is hca.EventType.QP_REQ_ERR
    assert pair.completion(pair.a).status is WcStatus.RETRY_EXC_ERR


def test_a_repeated_send_with_invalidate_is_acknowledged_and_not_done_again(lender):
    pair, mw = lender.pair, lender.window()
    remote = lender.lend(mw)
    lender.lending.post_recv([hca.Recv(), hca.Recv()])
    lost = []

    def lose_the_first_ack(flying):
        if flying.decoded.opcode_name == "RC_ACKNOWLEDGE" and not lost:
            lost.append(flying)
            return []
        return [flying]

    pair.wire.hook = lose_the_first_ack
    lender.send_inv(remote.rkey)
    assert pair.completion(pair.a).ok
    assert lost
    assert pair.completion(pair.b).invalidated_rkey == remote.rkey
    assert pair.b.cq.poll() == []


def test_a_long_send_invalidates_with_its_last_packet(lender):
    pair, mw = lender.pair, lender.window()
    remote = lender.lend(mw)
    lender.lending.post_recv(hca.Recv(pair.b.mr[0:20000]))
    lender.asking.post_send(hca.SendInv(pair.a.mr[0:20000], rkey=remote.rkey))
    wc = pair.completion(pair.b)
    assert (wc.byte_len, wc.invalidated_rkey) == (20000, remote.rkey)
    names = [flying.decoded.opcode_name for flying in pair.wire.sent]
    assert "RC_SEND_LAST_WITH_INVALIDATE" in names


def test_a_read_may_lose_its_window_to_a_send_that_it_is_not_fenced_from(lender):
    """The fence people forget: the responder may take the key away while it still reads."""
    pair = lender.pair
    for fence in (True, False):
        asking, lending = pair.connected(max_send_wr=8)
        mw = lender.window()
        bind = BindMw(mw, lender.mr[0:4096], rkey=hca.inc_rkey(mw.rkey), access=ALL, signaled=True)
        lending.post_send(bind)
        assert pair.completion(pair.b).ok
        lending.post_recv(hca.Recv())
        asking.post_send(
            [
                hca.Read(pair.a.mr[0:4096], remote=bind.remote, signaled=True),
                hca.SendInv(rkey=bind.remote.rkey, fence=fence, signaled=True),
            ]
        )
        wcs = pair.completions(pair.a, 2)
        expected = [WcStatus.SUCCESS] * 2 if fence else [WcStatus.REM_ACCESS_ERR, FLUSHED]
        assert [wc.status for wc in wcs] == expected
