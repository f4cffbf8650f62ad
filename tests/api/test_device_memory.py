"""Device memory: allocated, copied, registered, reached by work requests (ibv_alloc_dm)."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

import softhca as hca
from softhca import Access, VerbsError
from softhca.testing import open_simulated

from .hosts import Host, Pair


def test_copies_in_and_out(host: Host) -> None:
    with host.device.alloc_dm(100, log_align_req=6) as dm:
        assert len(dm) == dm.length == 100
        assert dm.memcpy_from(0, 100) == bytes(100)
        dm.memcpy_to(90, b"0123456789")
        assert dm.memcpy_from(88, 4) == b"\0\x0001"
        dm.memcpy_to(100, b"")


def test_a_peer_reaches_it_from_0(simulated: Pair) -> None:
    near, _ = simulated.connected()
    host = simulated.b
    dm = host.keep(host.device.alloc_dm(4096))
    mr = host.keep(host.pd.reg_dm_mr(dm, 1000, 2000))
    assert (mr.addr, mr.length) == (0, 2000)
    assert Access.ZERO_BASED in mr.access
    simulated.a.buffer[:4] = b"near"
    remote = mr.remote()
    near.post_send(hca.Write(simulated.a.mr[:4], remote=remote[8:12], signaled=True))
    simulated.completion(simulated.a).raise_for_status()
    assert dm.memcpy_from(1008, 4) == b"near"
    dm.memcpy_to(1000, (41).to_bytes(8, "little"))
    near.post_send(hca.FetchAdd(simulated.a.mr[:8], remote=remote[:8], add=1, signaled=True))
    simulated.completion(simulated.a).raise_for_status()
    assert int.from_bytes(dm.memcpy_from(1000, 8), "little") == 42


def test_a_peer_stays_in_the_part(simulated: Pair) -> None:
    near, _ = simulated.connected()
    host = simulated.b
    dm = host.keep(host.device.alloc_dm(4096))
    mr = host.keep(host.pd.reg_dm_mr(dm, 0, 100))
    beyond = hca.RemoteMemory(98, mr.rkey, 4)
    near.post_send(hca.Write(simulated.a.mr[:4], remote=beyond, signaled=True))
    assert simulated.completion(simulated.a).status is hca.WcStatus.REM_ACCESS_ERR
    assert dm.memcpy_from(0, 4096) == bytes(4096)


def test_the_owner_sends_from_it(simulated: Pair) -> None:
    _, far = simulated.connected()
    host = simulated.b
    dm = host.keep(host.device.alloc_dm(64))
    dm.memcpy_to(0, b"from the device")
    mr = host.keep(host.pd.reg_dm_mr(dm))
    remote = simulated.a.mr.remote()[:15]
    far.post_send(hca.Write(mr[0:15], remote=remote, signaled=True))
    simulated.completion(host).raise_for_status()
    assert simulated.a.buffer[:15] == b"from the device"


def test_it_stays_while_a_region_lies_in_it(host: Host) -> None:
    dm = host.device.alloc_dm(64)
    mr = host.pd.reg_dm_mr(dm, access=Access.ZERO_BASED | Access.LOCAL_WRITE)
    with pytest.raises(VerbsError, match="dm: is still used by") as refused:
        dm.close()
    assert refused.value.errno == errno.EBUSY
    with pytest.raises(VerbsError, match="stays there"):
        mr.rereg(bytearray(8))
    mr.close()
    dm.close()


def test_there_is_as_much_as_reported() -> None:
    with open_simulated("10.0.0.1", seed=1) as device:
        most = device.query_device().max_dm_size
        half = device.alloc_dm(most // 2)
        with pytest.raises(VerbsError, match="max_dm_size") as refused:
            device.alloc_dm(most // 2 + 1)
        assert refused.value.errno == errno.ENOMEM
        rest = device.alloc_dm(most - most // 2)
        half.close()
        device.alloc_dm(1).close()
        rest.close()


Attempt = Callable[[Host, hca.DM], Any]
REFUSALS: dict[str, tuple[Attempt, str]] = {
    "nothing": (lambda host, dm: host.device.alloc_dm(0), "length=0: must be 1 to max_dm_size"),
    "alignment": (
        lambda host, dm: host.device.alloc_dm(8, 13),
        "log_align_req=13: must be at most 12",
    ),
    "copy behind": (lambda host, dm: dm.memcpy_to(60, b"12345"), "dm_offset=60"),
    "copy far behind": (lambda host, dm: dm.memcpy_to((1 << 64) - 1, b"12"), "must stay within"),
    "read behind": (lambda host, dm: dm.memcpy_from(0, 65), "dm_offset=0"),
    "read very much": (lambda host, dm: dm.memcpy_from(0, 1 << 63), "dm_offset=0"),
    "register behind": (lambda host, dm: host.pd.reg_dm_mr(dm, 1, 64), "dm_offset=1"),
    "register from behind": (lambda host, dm: host.pd.reg_dm_mr(dm, 65), "dm_offset=65"),
    "not zero-based": (
        lambda host, dm: host.pd.reg_dm_mr(dm, access=Access.LOCAL_WRITE),
        "must have ZERO_BASED",
    ),
    "rights": (
        lambda host, dm: host.pd.reg_dm_mr(dm, access=Access.ZERO_BASED | Access.REMOTE_WRITE),
        "require LOCAL_WRITE",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(host: Host, case: str) -> None:
    attempt, text = REFUSALS[case]
    with host.device.alloc_dm(64) as dm:
        with pytest.raises(VerbsError, match=text) as refused:
            attempt(host, dm)
        assert refused.value.errno == errno.EINVAL
        dm.memcpy_to(0, bytes(64))


@pytest.mark.parametrize("what", [8, [1, 2], None, "text"], ids=repr)
def test_what_is_no_buffer_is_not_copied(host: Host, what: Any) -> None:
    with host.device.alloc_dm(8) as dm:
        dm.memcpy_to(0, b"contents")
        with pytest.raises(TypeError, match="host_bytes must be bytes-like, not "):
            dm.memcpy_to(0, what)
        assert dm.memcpy_from(0, 8) == b"contents"
