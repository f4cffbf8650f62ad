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


def test_an_arrow_array_is_read_only_and_holds_still(simulated: Pair) -> None:
    """It has DLPack and no buffer protocol, and says that its bytes are not to be written."""
    pyarrow = pytest.importorskip("pyarrow")
    column = pyarrow.array(range(8), type=pyarrow.int64())
    near, _ = simulated.connected()
    with simulated.b.pd.reg_mr(column) as mr:
        assert mr.access == hca.Access.REMOTE_READ
        near.post_send(hca.Read(simulated.a.mr[:64], remote=mr.remote(), signaled=True))
        simulated.completion(simulated.a).raise_for_status()
    assert np.frombuffer(simulated.a.buffer, "i8", 8).tolist() == list(range(8))
    with pytest.raises(VerbsError, match="read-only"):
        simulated.b.pd.reg_mr(column, hca.Access.LOCAL_WRITE)


TORCH_REFUSALS = {
    "gradient": (lambda torch: torch.zeros(4, requires_grad=True), "require gradient"),
    "conjugate": (lambda torch: torch.zeros(4, dtype=torch.complex64).conj(), "conjugate"),
    "sparse": (lambda torch: torch.zeros(4).to_sparse(), "layout"),
    "without memory": (lambda torch: torch.zeros(4, device="meta"), "meta"),
}


@pytest.mark.parametrize("case", TORCH_REFUSALS)
def test_what_torch_refuses_to_export_is_refused_in_its_words(host: Host, case: str) -> None:
    torch = pytest.importorskip("torch")
    make, text = TORCH_REFUSALS[case]
    with pytest.raises(VerbsError, match=rf"obj='Tensor': gives no DLPack: .*{text}"):
        host.pd.reg_mr(make(torch))


class OnAccelerator:
    """A tensor whose bytes lie on a device."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 1)

    def __dlpack__(self) -> object:
        raise AssertionError("nobody asks for bytes that cannot be reached")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (OnAccelerator(), "lies on DLPack device 2:1: copy it to the CPU's memory"),
        (np.zeros(4, "M8[s]"), "gives no buffer: cannot include dtype 'M'"),
        (np.zeros(4, object), "holds references to Python objects"),
        (np.zeros(4, [("O", "i4"), ("thing", object)]), "holds references to Python objects"),
        (np.zeros((4, 4))[::-1], "is not contiguous"),
    ],
)
def test_what_cannot_be_registered_is_refused_by_name(host: Host, source: Any, text: str) -> None:
    with pytest.raises(VerbsError, match=text):
        host.pd.reg_mr(source)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_the_order_of_fortran_is_contiguous_too(simulated: Pair, library: str) -> None:
    if library == "numpy":
        array = np.zeros((4, 16), "u1", order="F")
        write_and_read_back(simulated, array, lambda: array.tobytes("A"))
    else:
        torch = pytest.importorskip("torch")
        tensor = torch.zeros(16, 4, dtype=torch.uint8)
        write_and_read_back(simulated, tensor.T, lambda: tensor.numpy().tobytes())


def test_a_field_that_is_called_as_objects_are_is_no_object(host: Host) -> None:
    with host.pd.reg_mr(np.zeros(4, [("O", "i4")])) as mr:
        assert mr.length == 16
