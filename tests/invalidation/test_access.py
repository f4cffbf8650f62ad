"""Once a range is gone, nobody reaches what lies there now."""

from __future__ import annotations

import ctypes
import mmap

import pytest

import softhca as hca
from api.hosts import Pair
from softhca import WcStatus

from . import libc
from .libc import PAGE

Watched = tuple[hca.MR, int]


def peek(address: int, size: int) -> bytes:
    """Bytes of this process."""
    return ctypes.string_at(address, size)


@pytest.fixture
def watched(simulated: Pair) -> Watched:
    """Two watched pages of host b, of which the second has been replaced by another mapping."""
    host = simulated.b
    channel = host.keep(host.device.create_invalidation_channel())
    at = libc.map_pages(2)
    mr = host.keep(host.pd.reg_mr(addr=at, length=2 * PAGE, invalidation=channel))
    libc.map_pages(1, at=at + PAGE)
    assert [event.offset for event in channel.read()] == [PAGE]
    return mr, at


def test_what_is_left_is_reached(simulated: Pair, watched: Watched) -> None:
    mr, at = watched
    near, _ = simulated.connected()
    simulated.a.buffer[:4] = b"left"
    near.post_send(hca.Write(simulated.a.mr[:4], remote=mr.remote()[:4], signaled=True))
    assert simulated.completion(simulated.a).ok
    assert peek(at, 4) == b"left"


@pytest.mark.parametrize("offset", [PAGE, PAGE - 2, 2 * PAGE - 4])
@pytest.mark.parametrize("kind", ["write", "read", "atomic"])
def test_a_peer_is_refused(simulated: Pair, watched: Watched, kind: str, offset: int) -> None:
    mr, at = watched
    near, _ = simulated.connected()
    simulated.a.buffer[:8] = b"stranger"
    remote = mr.remote()[offset : offset + 4]
    request: hca.SendRequest
    if kind == "write":
        request = hca.Write(simulated.a.mr[:4], remote=remote, signaled=True)
    elif kind == "read":
        request = hca.Read(simulated.a.mr[:4], remote=remote, signaled=True)
    else:
        request = hca.FetchAdd(
            simulated.a.mr[:8], remote=mr.remote()[PAGE : PAGE + 8], add=1, signaled=True
        )
    near.post_send(request)
    wc = simulated.completion(simulated.a)
    assert wc.status in (WcStatus.REM_ACCESS_ERR, WcStatus.REM_OP_ERR)
    assert peek(at + PAGE, PAGE) == bytes(PAGE)
    assert bytes(simulated.a.buffer[:8]) == b"stranger"


def test_the_owner_is_refused_too(simulated: Pair, watched: Watched) -> None:
    mr, _ = watched
    _, far = simulated.connected()
    remote = simulated.a.mr.remote()[:4]
    far.post_send(hca.Write(mr[PAGE : PAGE + 4], remote=remote, signaled=True))
    assert simulated.completion(simulated.b).status is WcStatus.LOC_PROT_ERR


def test_a_receive_into_it_fails(simulated: Pair, watched: Watched) -> None:
    mr, at = watched
    near, far = simulated.connected()
    far.post_recv(hca.Recv(mr[PAGE : PAGE + 64]))
    near.post_send(hca.Send(simulated.a.mr[:8], signaled=True))
    assert simulated.completion(simulated.b).status is WcStatus.LOC_PROT_ERR
    assert peek(at + PAGE, PAGE) == bytes(PAGE)


def test_a_new_registration_reaches_the_present_mapping(simulated: Pair, watched: Watched) -> None:
    _, at = watched
    host = simulated.b
    channel = host.keep(host.device.create_invalidation_channel())
    mr = host.keep(host.pd.reg_mr(addr=at, length=2 * PAGE, invalidation=channel))
    near, _ = simulated.connected()
    simulated.a.buffer[:4] = b"anew"
    remote = mr.remote()[PAGE : PAGE + 4]
    near.post_send(hca.Write(simulated.a.mr[:4], remote=remote, signaled=True))
    assert simulated.completion(simulated.a).ok
    assert peek(at + PAGE, 4) == b"anew"


def test_dropped_content_is_gone_too(simulated: Pair) -> None:
    host = simulated.b
    channel = host.keep(host.device.create_invalidation_channel())
    with mmap.mmap(-1, 2 * PAGE) as mapping:
        mr = host.keep(host.pd.reg_mr(mapping, invalidation=channel))
        mapping.madvise(mmap.MADV_DONTNEED, 0, PAGE)
        near, _ = simulated.connected()
        remote = mr.remote()[:4]
        near.post_send(hca.Read(simulated.a.mr[:4], remote=remote, signaled=True))
        assert not simulated.completion(simulated.a).ok
