"""IBTA Vol 1, 10.6: rights of regions, keys that go stale, ranges that wrap."""

from __future__ import annotations

import errno

import pytest

from softhca._adapter import Access, QPState, Reason, WcStatus, buffer_address

from .host import errno_of, pattern, send
from .peer import ACK, NAK_ACCESS, connect

SUCCESS = WcStatus.SUCCESS


def remote_write(peer, region, payload, *, at=0, rkey=None):
    peer.request(
        "RDMA_WRITE_ONLY",
        payload,
        virtual_address=(region.address + at) & 0xFFFFFFFFFFFFFFFF,
        rkey=region.rkey if rkey is None else rkey,
        dma_length=len(payload),
    )
    return peer.answers()


# --- rights


@pytest.mark.parametrize(
    "access",
    [
        Access.REMOTE_WRITE,
        Access.REMOTE_ATOMIC,
        Access.REMOTE_WRITE | Access.REMOTE_ATOMIC,
        Access.REMOTE_WRITE | Access.REMOTE_READ,
    ],
)
def test_10_6_3_remote_write_and_atomic_require_local_write(host, access):
    assert errno_of(host.memory, 64, access) == errno.EINVAL
    assert host.memory(64, access | Access.LOCAL_WRITE).rkey != 0


def test_10_6_3_remote_read_alone_is_fine_and_local_read_needs_no_right(host):
    assert host.memory(64, Access.REMOTE_READ).rkey != 0
    assert host.memory(64, 0).lkey != 0


@pytest.mark.parametrize("bit", range(20, 30))
def test_10_6_3_optional_flags_never_fail(host, bit):
    host.memory(64, Access.LOCAL_WRITE | 1 << bit)


@pytest.mark.parametrize("bit", [10, 15, 19, 30, 31])
def test_10_6_3_unknown_flags_are_refused(host, bit):
    assert errno_of(host.memory, 64, Access.LOCAL_WRITE | 1 << bit) == errno.EINVAL


RIGHTS = {
    "RDMA_WRITE_ONLY": Access.REMOTE_WRITE,
    "RDMA_READ_REQUEST": Access.REMOTE_READ,
    "FETCH_ADD": Access.REMOTE_ATOMIC,
    "COMPARE_SWAP": Access.REMOTE_ATOMIC,
}


@pytest.mark.parametrize("operation", RIGHTS)
@pytest.mark.parametrize("granted", sorted(set(RIGHTS.values())))
def test_10_6_3_each_right_permits_its_own_operation_only(host, operation, granted):
    qp, peer = connect(host)
    region = host.memory(64, Access.LOCAL_WRITE | granted)
    peer.request(
        operation,
        bytes(8) if operation == "RDMA_WRITE_ONLY" else b"",
        virtual_address=region.address,
        rkey=region.rkey,
        dma_length=8,
        atomic_address=region.address,
        atomic_rkey=region.rkey,
    )
    (answer,) = peer.answers()
    permitted = RIGHTS[operation] == granted
    assert (answer[1] != NAK_ACCESS) == permitted
    assert qp.state == (QPState.RTS if permitted else QPState.ERR)


# --- keys


def test_10_6_3_a_key_is_dead_after_deregistration(host):
    _, peer = connect(host)
    region = host.memory(64)
    assert remote_write(peer, region, b"alive") == [(0x100, ACK)]
    region.dereg()
    assert remote_write(peer, region, b"stale") == [(0x101, NAK_ACCESS)]
    assert region.bytes[:5] == b"alive"
    assert errno_of(region.dereg) == errno.EINVAL


def test_10_6_3_keys_are_not_given_out_again_soon(host):
    """A key that somebody kept must not open a region that was registered since."""
    seen: set[int] = set()
    for _ in range(100):
        region = host.memory(64)
        assert region.lkey not in seen
        seen.add(region.lkey)
        region.dereg()


@pytest.mark.parametrize("xor", [1, 0x80, 0x100, 0x8000, 0x80000000])
def test_10_6_3_every_bit_of_a_key_counts(host, xor):
    _, peer = connect(host)
    region = host.memory(64)
    assert remote_write(peer, region, b"x", rkey=region.rkey ^ xor) == [(0x100, NAK_ACCESS)]


# --- ranges


def test_10_6_1_a_region_may_be_empty(host):
    _, peer = connect(host)
    region = host.memory(0)
    assert remote_write(peer, region, b"") == [(0x100, ACK)]
    assert remote_write(peer, region, b"x") == [(0x101, NAK_ACCESS)]


@pytest.mark.parametrize("iova", [0, 0x1000, 1 << 47, (1 << 64) - 64])
def test_10_6_1_a_region_is_addressed_from_its_iova(host, iova):
    _, peer = connect(host)
    region = host.memory(64, iova=iova)
    assert remote_write(peer, region, b"tail", at=60) == [(0x100, ACK)]
    assert region.bytes[60:] == b"tail"


def test_10_6_1_a_zero_based_region_is_addressed_from_0(host):
    access = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.ZERO_BASED
    qp, peer = connect(host)
    region = host.memory(64, access, iova=0)
    assert remote_write(peer, region, b"head") == [(0x100, ACK)]
    assert region.bytes[:4] == b"head"
    qp.post(send(region.sge(0, 4)))
    assert [packet.payload for packet in peer.take()] == [b"head"]
    assert errno_of(host.memory, 64, access, iova=0x1000) == errno.EINVAL


def test_10_6_1_a_region_that_wraps_2_64_is_refused(host):
    assert errno_of(host.memory, 64, iova=(1 << 64) - 63) == errno.EINVAL
    call = host.hca.reg_mr
    assert errno_of(call, host.pd, (1 << 64) - 10, 11, 0, 0) == errno.EINVAL
    assert errno_of(call, host.pd, 0x1000, (1 << 64) - 1, 0x1000, 0) == errno.EINVAL


WRAPPING = [
    (0, 65),
    (64, 1),
    (63, 2),
    (-1, 1),
    (-1, 2),
    (-0x1000, 0x1040),
    (1 << 63, 1),
]


@pytest.mark.parametrize(("at", "length"), WRAPPING)
@pytest.mark.parametrize("iova", [0x1000, (1 << 64) - 64, 1 << 63])
def test_10_6_3_no_arithmetic_opens_what_lies_outside(host, at, length, iova):
    qp, peer = connect(host, path_mtu=5)
    region = host.memory(64, iova=iova)
    peer.request(
        "RDMA_READ_REQUEST",
        virtual_address=(iova + at) & 0xFFFFFFFFFFFFFFFF,
        rkey=region.rkey,
        dma_length=length,
    )
    assert peer.answers() == [(0x100, NAK_ACCESS)]
    assert qp.state == QPState.ERR


@pytest.mark.parametrize("iova", [0x1000, (1 << 64) - 64, 1 << 63])
def test_10_6_3_local_entries_are_bounded_likewise(host, iova):
    region = host.memory(64, iova=iova)
    for at, length in WRAPPING:
        qp, peer = connect(host)
        address = (iova + at) & 0xFFFFFFFFFFFFFFFF
        qp.post(send((address, length, region.lkey), wr_id=1))
        assert peer.take() == []
        (wc,) = host.send_wcs()
        assert (wc.status, wc.reason) == (WcStatus.LOC_PROT_ERR, Reason.OUT_OF_BOUNDS)
        qp.destroy()


def test_10_6_3_two_regions_over_the_same_bytes_have_rights_of_their_own(host):
    """One may be written from afar, the other only be read."""
    _, peer = connect(host)
    first = host.memory(64)
    start = buffer_address(first.bytes)
    info = host.hca.reg_mr(host.pd, start, 64, start, int(Access.REMOTE_READ))
    assert remote_write(peer, first, b"by the first") == [(0x100, ACK)]
    assert remote_write(peer, first, b"by the other", rkey=info.rkey) == [(0x101, NAK_ACCESS)]
    assert first.bytes[:12] == b"by the first"


def test_10_6_3_a_failed_completion_says_what_was_missed(host):
    qp, peer = connect(host)
    region = host.memory(64)
    qp.post(send(region.sge(60, 8), wr_id=1))
    peer.take()
    (wc,) = host.send_wcs()
    assert (wc.reason, wc.key, wc.address, wc.length) == (
        Reason.OUT_OF_BOUNDS,
        region.lkey,
        region.address + 60,
        8,
    )
    assert not wc.by_peer


@pytest.mark.parametrize("deregistered", [False, True])
def test_10_6_6_a_long_write_lands_in_increasing_addresses(host, deregistered):
    """Who polls the last byte of a message may rely on the ones before it."""
    qp, peer = connect(host, path_mtu=1)
    region = host.memory(1024)
    content = pattern(1024, salt=1)
    names = ["FIRST", "MIDDLE", "MIDDLE", "LAST"]
    for number, name in enumerate(names):
        if deregistered and number == 2:
            region.dereg()
        peer.request(
            f"RDMA_WRITE_{name}",
            content[256 * number : 256 * (number + 1)],
            virtual_address=region.address,
            rkey=region.rkey,
            dma_length=1024,
        )
        reached = min(number + 1, 2) if deregistered else number + 1
        assert region.bytes[: 256 * reached] == content[: 256 * reached]
        assert region.bytes[256 * reached :] == bytes(1024 - 256 * reached)
    assert qp.state == (QPState.ERR if deregistered else QPState.RTS)
