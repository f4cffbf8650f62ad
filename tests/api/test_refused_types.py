"""What is of a type that no verb takes is refused by the name of its argument."""

from __future__ import annotations

import errno
from typing import Any

import pytest

import softhca as hca
from softhca import VerbsError

from .hosts import Host


@pytest.mark.parametrize("mtu", [[], {}, slice(1)])
def test_an_mtu_that_is_no_number(mtu: Any) -> None:
    with pytest.raises(VerbsError, match=r"^mtu=.*: must be 256, 512") as raised:
        hca.open(mtu=mtu)
    assert raised.value.errno == errno.EINVAL


@pytest.mark.parametrize(
    ("sg", "says"),
    [
        (5, "sg must be buffers, not int"),
        ([(1, 2, 3)], r"sg must hold buffers, or \(address, length\), not \(1, 2, 3\)"),
        ([()], r"sg must hold buffers, or \(address, length\), not \(\)"),
        ([("x", 1)], "addr must be an integer, not str"),
    ],
)
def test_pieces_that_are_none(host: Host, sg: Any, says: str) -> None:
    mr = host.keep(host.pd.alloc_mr(hca.MrType.SG_GAPS, 4))
    mr.map_mr_sg([bytearray(8)])
    before = mr.addr, mr.length
    with pytest.raises(TypeError, match=says):
        mr.map_mr_sg(sg)
    assert (mr.addr, mr.length) == before
