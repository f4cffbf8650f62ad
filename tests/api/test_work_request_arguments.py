"""What work requests refuse when they are made, and by which name."""

from __future__ import annotations

import errno
from typing import Any

import pytest

import softhca as hca
from softhca import VerbsError

from .hosts import Host

SENDS: list[tuple[Any, dict[str, int]]] = [
    (hca.Send, {}),
    (hca.SendImm, {"imm": 1}),
    (hca.SendInv, {"rkey": 1}),
]


@pytest.mark.parametrize(("kind", "options"), SENDS)
@pytest.mark.parametrize("wrong", [5, True, "127.0.0.1", hca.GID("10.0.0.1")])
def test_what_is_no_address_handle_is_refused_by_name(
    host: Host, kind: Any, options: dict[str, int], wrong: object
) -> None:
    """A destination, or the number of a handle, is what programs give instead of one."""
    with pytest.raises(TypeError, match=f"ah must be AH, not {type(wrong).__name__}"):
        kind(host.mr[0:8], ah=wrong, **options)


def test_references_are_not_copied_inline(host: Host) -> None:
    """As they are not registered: a peer would get addresses of this process."""
    numpy = pytest.importorskip("numpy")
    for buffer in (numpy.array([object()]), numpy.zeros(2, [("name", "O"), ("size", "i8")])):
        with pytest.raises(VerbsError, match="references to Python objects") as raised:
            hca.Write(buffer, remote=host.mr.remote(), inline=True)
        assert (raised.value.errno, raised.value.argument) == (errno.EINVAL, "buffers")
    # A name with the letter in it is none, nor are bytes with gaps between them.
    for buffer in (numpy.zeros(1, [("O", "i8")]), numpy.arange(8, dtype="u1")[::2]):
        assert hca.Write(buffer, remote=host.mr.remote(), inline=True).byte_count == buffer.nbytes


def test_what_gives_no_bytes_is_refused_in_its_own_words() -> None:
    released = memoryview(b"bytes")
    released.release()
    with pytest.raises(VerbsError, match="released memoryview") as raised:
        hca.Send(released, inline=True)
    assert (raised.value.errno, raised.value.argument) == (errno.EINVAL, "buffers")
