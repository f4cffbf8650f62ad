"""Whatever has a buffer can be registered."""

from __future__ import annotations

import mmap
from array import array
from typing import Any

import numpy as np
import pytest

import softhca as hca
from invalidation import libc
from invalidation.libc import PAGE
from softhca import Access, VerbsError

from .hosts import Host, Pair


class Tensor:
    """An array that shows itself through DLPack alone, as torch's do."""

    def __init__(self, inner: np.ndarray[Any, Any]) -> None:
        self.inner = inner

    def __dlpack__(self, **options: Any) -> Any:
        return self.inner.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.inner.__dlpack_device__()


BUFFERS = {
    "bytearray": bytearray(64),
    "memoryview": memoryview(bytearray(80))[8:72],
    "array": array("d", range(8)),
    "mmap": mmap.mmap(-1, 64),
    "numpy": np.zeros(16, "f4"),
    "numpy-2d": np.zeros((4, 2), "i8"),
    "dlpack": Tensor(np.zeros(16, "f4")),
}


@pytest.mark.parametrize("kind", BUFFERS)
def test_a_peer_writes_into_any_buffer(simulated: Pair, kind: str) -> None:
    near, _ = simulated.connected()
    simulated.a.buffer[:64] = bytes(range(64))
    target = BUFFERS[kind]
    with simulated.b.pd.reg_mr(target) as mr:
        assert mr.length == 64
        near.post_send(hca.Write(simulated.a.mr[:64], remote=mr.remote(), signaled=True))
        assert simulated.completion(simulated.a).ok
    content = target.inner if isinstance(target, Tensor) else target
    assert bytes(memoryview(content).cast("B")) == bytes(range(64))


def test_a_strided_tensor_is_refused(host: Host) -> None:
    with pytest.raises(VerbsError, match="contiguous"):
        host.pd.reg_mr(Tensor(np.zeros(16, "f4")[::2]))
    with pytest.raises(VerbsError, match="contiguous"):
        host.pd.reg_mr(np.zeros((4, 4), "f4").T[1:])


def test_a_read_only_array_is_refused_for_writing(host: Host) -> None:
    constant = np.zeros(4)
    constant.flags.writeable = False
    with pytest.raises(VerbsError, match="read-only"):
        host.pd.reg_mr(constant, Access.LOCAL_WRITE)


def test_a_read_only_buffer_can_be_sent_and_read(simulated: Pair) -> None:
    near, _ = simulated.connected()
    with simulated.b.pd.reg_mr(b"constant") as mr:
        near.post_send(hca.Read(simulated.a.mr[:8], remote=mr.remote(), signaled=True))
        assert simulated.completion(simulated.a).ok
        assert simulated.a.buffer[:8] == b"constant"
        near.post_send(hca.Write(simulated.a.mr[:8], remote=mr.remote()))
        assert simulated.completion(simulated.a).status is hca.WcStatus.REM_ACCESS_ERR


def test_empty_buffers(simulated: Pair) -> None:
    near, _ = simulated.connected()
    with simulated.b.pd.reg_mr(bytearray()) as mr:
        near.post_send(hca.Write(remote=mr.remote(), signaled=True))
        assert simulated.completion(simulated.a).ok


def test_iova_is_what_the_keys_call_the_first_byte(simulated: Pair) -> None:
    near, _ = simulated.connected()
    target = bytearray(16)
    held = simulated.b.pd.reg_mr(target)
    with held, simulated.b.pd.reg_mr(addr=held.addr, length=16, iova=0x10) as mr:
        assert mr.addr == 0x10
        simulated.a.buffer[:4] = b"iova"
        remote = hca.RemoteMemory(0x14, mr.rkey, 4)
        near.post_send(hca.Write(simulated.a.mr[:4], remote=remote, signaled=True))
        assert simulated.completion(simulated.a).ok
        assert target == b"\0\0\0\0iova" + bytes(8)


def test_memory_that_goes_away_is_an_error_not_a_crash(simulated: Pair) -> None:
    near, _ = simulated.connected()
    address = libc.map_pages(2)
    mr = simulated.b.keep(simulated.b.pd.reg_mr(addr=address, length=2 * PAGE))
    libc.forbid(address, 2 * PAGE)
    near.post_send(hca.Write(simulated.a.mr[:64], remote=mr.remote()[PAGE:], signaled=True))
    wc = simulated.completion(simulated.a)
    assert not wc.ok
    assert wc.by_peer
    libc.unmap(address, 2 * PAGE)


def test_a_closed_region_refuses_by_name(host: Host) -> None:
    mr = host.pd.reg_mr(bytearray(8))
    mr.close()
    for use in (lambda: mr[:], mr.remote, lambda: hca.Send(mr)):
        with pytest.raises(VerbsError, match="mr: is closed"):
            use()
