"""Regions change and cover everything: reregistration, implicit regions (IBTA 11.2.8.7; ODP)."""

from __future__ import annotations

import errno

import pytest

import softhca as hca
from invalidation import libc
from invalidation.libc import PAGE
from softhca import Access, WcStatus
from softhca._adapter import buffer_address

from .lending import Lender, simulated_pair

WHOLE = (1 << 64) - 1


@pytest.fixture
def lender():
    with simulated_pair() as pair:
        yield Lender(pair, access=Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ)


def test_rereg_to_another_buffer_changes_the_keys_and_lets_the_old_one_go(lender):
    before, old = lender.mr.remote(), lender.memory
    other = bytearray(100)
    lender.mr.rereg(other)
    assert (lender.mr.length, lender.mr.obj) == (100, other)
    assert lender.mr.rkey != before.rkey
    assert lender.write(lender.mr.remote()) is WcStatus.SUCCESS
    assert other[:4] == b"lent"
    old.append(0)  # Nobody holds it any more.
    with pytest.raises(BufferError):
        other.append(0)
    assert lender.write(before) is WcStatus.REM_ACCESS_ERR


def test_rereg_of_rights_keeps_the_keys(lender):
    remote = lender.mr.remote()
    assert lender.write(remote) is WcStatus.SUCCESS
    lender.mr.rereg(access=Access.REMOTE_READ)
    assert lender.mr.rkey == remote.rkey
    assert lender.mr.access == Access.REMOTE_READ
    assert lender.read(remote, 4) == b"lent"
    assert lender.write(remote) is WcStatus.REM_ACCESS_ERR


def test_rereg_to_another_domain(lender):
    other = lender.pair.b.keep(lender.pair.b.device.alloc_pd())
    lender.mr.rereg(pd=other)
    assert lender.write(lender.mr.remote()) is WcStatus.REM_ACCESS_ERR
    with pytest.raises(hca.VerbsError) as refused:
        other.close()
    assert refused.value.errno == errno.EBUSY
    lender.mr.close()
    other.close()


def test_rereg_of_everything_at_once(lender):
    other = lender.pair.b.keep(lender.pair.b.device.alloc_pd())
    memory = bytearray(32)
    lender.mr.rereg(
        addr=buffer_address(memory), length=32, iova=0x4000, access=Access.REMOTE_READ, pd=other
    )
    mr = lender.mr
    assert (mr.addr, mr.length, mr.access, mr.obj) == (0x4000, 32, Access.REMOTE_READ, None)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"access": Access.REMOTE_WRITE}, errno.EINVAL),
        ({"access": 1 << 15}, errno.EINVAL),
        ({"addr": WHOLE - 5, "length": 10}, errno.EINVAL),
        ({"addr": 0x1000, "length": 10, "iova": WHOLE - 5}, errno.EINVAL),
        ({"obj": bytes(10)}, errno.EACCES),
        ({}, errno.EINVAL),
    ],
)
def test_a_rereg_that_is_refused_changes_nothing(lender, change, error):
    remote = lender.mr.remote()
    with pytest.raises(hca.VerbsError) as refused:
        lender.mr.rereg(**change)
    assert refused.value.errno == error
    assert lender.mr.remote() == remote
    assert lender.write(remote) is WcStatus.SUCCESS


def test_rereg_refuses_what_does_not_go_together(lender):
    for change in ({"obj": bytearray(4), "length": 4}, {"addr": 4}, {"iova": 4}, {"length": 4}):
        with pytest.raises(TypeError):
            lender.mr.rereg(**change)


def test_rereg_of_nothing_names_no_argument_that_it_has_not(lender):
    with pytest.raises(hca.VerbsError, match="takes a buffer, an address, access or pd") as refused:
        lender.mr.rereg()
    assert (refused.value.errno, refused.value.argument) == (errno.EINVAL, "")


def test_keys_count_from_zero_only_with_memory_that_is_named_anew(lender):
    rights = lender.mr.access | Access.ZERO_BASED
    with pytest.raises(hca.VerbsError) as refused:
        lender.mr.rereg(access=rights)
    assert (refused.value.errno, refused.value.argument) == (errno.EINVAL, "access")
    assert refused.value.value == rights
    assert "ZERO_BASED calls the first byte 0: give the buffer, or addr=, too" in str(refused.value)
    assert not lender.mr.access & Access.ZERO_BASED
    lender.mr.rereg(lender.mr.obj, rights)
    assert lender.mr.addr == 0
    lender.mr.rereg(access=rights & ~Access.REMOTE_READ)
    assert lender.mr.addr == 0


def test_rereg_with_a_window_is_refused(lender):
    lender.mr.rereg(access=Access.LOCAL_WRITE | Access.MW_BIND)
    mw = lender.window()
    remote = lender.lend(mw)
    with pytest.raises(hca.VerbsError, match="windows are bound") as refused:
        lender.mr.rereg(bytearray(4096))
    assert refused.value.errno == errno.EBUSY
    assert lender.write(remote) is WcStatus.SUCCESS


# --- the whole address space


def everything(lender: Lender, access: int = Access.LOCAL_WRITE | Access.REMOTE_WRITE) -> hca.MR:
    pd = lender.pair.b.pd
    return lender.pair.b.keep(pd.reg_mr(addr=0, length=WHOLE, access=access | Access.ON_DEMAND))


def test_the_whole_space_is_true(lender):
    region = everything(lender)
    assert region
    assert region.remote()
    with pytest.raises(OverflowError):
        len(region)


def test_an_implicit_region_reaches_what_is_there(lender):
    mr = everything(lender)
    memory = bytearray(64)
    at = buffer_address(memory)
    assert lender.write(mr.remote()[at : at + 64]) is WcStatus.SUCCESS
    assert memory[:4] == b"lent"
    lender.asking.post_recv(hca.Recv(lender.pair.a.mr[0:64]))
    lender.lending.post_send(hca.Send(mr[at : at + 4], signaled=True))
    assert lender.pair.completion(lender.pair.b).ok
    assert lender.pair.completion(lender.pair.a).byte_len == 4


def test_an_implicit_region_ends_in_a_status_where_nothing_is(lender):
    mr = everything(lender)
    at = libc.map_pages(1)
    libc.forbid(at, PAGE)
    assert lender.write(mr.remote()[at : at + 64]) is WcStatus.REM_ACCESS_ERR
    libc.unmap(at, PAGE)


def test_an_implicit_region_locally_where_nothing_is(lender):
    mr = everything(lender)
    lender.lending.post_send(hca.Send(mr[8:16], signaled=True))
    assert lender.pair.completion(lender.pair.b).status is WcStatus.LOC_PROT_ERR


@pytest.mark.parametrize(
    ("access", "rule"),
    [
        (Access.LOCAL_WRITE, "needs ON_DEMAND"),
        (Access.LOCAL_WRITE | Access.ON_DEMAND | Access.MW_BIND, "neither MW_BIND nor"),
        (Access.LOCAL_WRITE | Access.ON_DEMAND | Access.ZERO_BASED, "neither MW_BIND nor"),
    ],
)
def test_an_implicit_region_has_its_own_rules(lender, access, rule):
    with pytest.raises(hca.VerbsError, match=rule):
        lender.pair.b.pd.reg_mr(addr=0, length=WHOLE, access=access)


def test_on_demand_on_a_part_is_fine(lender):
    mr = lender.pair.b.keep(
        lender.pair.b.pd.reg_mr(bytearray(64), Access.LOCAL_WRITE | Access.ON_DEMAND)
    )
    assert mr.access & Access.ON_DEMAND
