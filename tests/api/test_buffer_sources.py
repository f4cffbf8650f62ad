"""Buffers of real libraries, each skipped by name where the library is not there."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from multiprocessing import shared_memory
from typing import Any

import numpy as np
import pytest

import softhca as hca
from softhca import VerbsError

from .hosts import Host, Pair

BYTES = bytes(range(64))
# What to register, and what it holds now.
Source = tuple[Any, Callable[[], bytes]]


@pytest.fixture
def shared_block() -> Iterator[shared_memory.SharedMemory]:
    """A named block of shared memory, unlinked in the end."""
    block = shared_memory.SharedMemory(create=True, size=64)
    yield block
    block.close()
    block.unlink()


def numpy_array() -> Source:
    """A structured array of NumPy."""
    array = np.zeros(8, [("number", "<i4"), ("weight", "<f4")])
    return array, array.tobytes


def numpy_transposed() -> Source:
    """An array of NumPy in Fortran's order, as its transpose, which is contiguous."""
    array = np.zeros((4, 16), "u1", order="F")
    return array.T, array.T.tobytes


def torch_tensor() -> Source:
    """A CPU tensor of torch, which has DLPack and no buffer protocol."""
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(16, dtype=torch.float32)
    return tensor, lambda: tensor.numpy().tobytes()


def torch_bfloat16() -> Source:
    """A tensor of an element type that NumPy does not know."""
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(4, 8, dtype=torch.bfloat16)
    return tensor, lambda: tensor.view(torch.int16).numpy().tobytes()


def torch_parameter() -> Source:
    """A part of the weights of a layer, without its gradient's bookkeeping."""
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(8, 4)
    weight = layer.weight.detach()[2:4]
    return weight, lambda: weight.numpy().tobytes()


def arrow_buffer() -> Source:
    """A mutable buffer of Arrow."""
    pyarrow = pytest.importorskip("pyarrow")
    buffer = pyarrow.allocate_buffer(64)
    return buffer, buffer.to_pybytes


def memory_mapped_file() -> Source:
    """A mapping of mmap."""
    mapping = mmap.mmap(-1, 64)
    return mapping, lambda: mapping[:64]


SOURCES = [
    numpy_array,
    numpy_transposed,
    torch_tensor,
    torch_bfloat16,
    torch_parameter,
    arrow_buffer,
    memory_mapped_file,
]


@pytest.mark.parametrize("make", SOURCES, ids=lambda make: make.__name__)
def test_a_peer_writes_into_it(simulated: Pair, make: Callable[[], Source]) -> None:
    source, content = make()
    write_and_read_back(simulated, source, content)


def test_a_peer_writes_into_shared_memory(
    simulated: Pair, shared_block: shared_memory.SharedMemory
) -> None:
    assert shared_block.buf is not None
    view = shared_block.buf
    write_and_read_back(simulated, view[:64], lambda: bytes(view[:64]))


def write_and_read_back(pair: Pair, source: Any, content: Callable[[], bytes]) -> None:
    """Writes a pattern into a buffer of host b, and reads it back."""
    near, _ = pair.connected()
    pair.a.buffer[:64] = BYTES
    with pair.b.pd.reg_mr(source) as mr:
        assert mr.length == 64
        near.post_send(hca.Write(pair.a.mr[:64], remote=mr.remote(), signaled=True))
        pair.completion(pair.a).raise_for_status()
        assert content() == BYTES
        near.post_send(hca.Read(pair.a.mr[64:128], remote=mr.remote(), signaled=True))
        pair.completion(pair.a).raise_for_status()
    assert pair.a.buffer[64:128] == BYTES


def test_an_arrow_buffer_of_constant_bytes_is_read_only(host: Host) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    data = pyarrow.py_buffer(b"constant")
    with host.pd.reg_mr(data) as mr:
        assert mr.access == hca.Access.REMOTE_READ
    with pytest.raises(VerbsError, match="read-only"):
        host.pd.reg_mr(data, hca.Access.LOCAL_WRITE)


def test_arrow_table_buffers(simulated: Pair) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    column = pyarrow.array(range(8), type=pyarrow.int64())
    data = column.buffers()[1]
    near, _ = simulated.connected()
    with simulated.b.pd.reg_mr(data) as mr:
        near.post_send(hca.Read(simulated.a.mr[:64], remote=mr.remote()[:64], signaled=True))
        simulated.completion(simulated.a).raise_for_status()
    assert np.frombuffer(simulated.a.buffer, "i8", 8).tolist() == list(range(8))


@pytest.mark.parametrize("make", ["stride", "transpose"])
def test_torch_tensors_with_gaps_are_refused(host: Host, make: str) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(8, 8)
    with pytest.raises(VerbsError, match="contiguous"):
        host.pd.reg_mr(tensor[:, ::2] if make == "stride" else tensor.T[:2])
