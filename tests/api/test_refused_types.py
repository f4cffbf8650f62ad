"""What is of a type that no verb takes is refused by the name of its argument."""

from __future__ import annotations

import errno
from typing import Any

import pytest

import softhca as hca
from softhca import VerbsError
from softhca.testing import open_simulated

from .hosts import Host


@pytest.mark.parametrize("mtu", [[], {}, slice(1)])
def test_an_mtu_that_is_no_number(mtu: Any) -> None:
    with pytest.raises(VerbsError, match=r"^mtu=.*: must be 256, 512") as raised:
        hca.open(mtu=mtu)
    assert raised.value.errno == errno.EINVAL


@pytest.mark.parametrize("packed", [None, 5, "x" * 36, [0] * 36, object()])
def test_what_was_never_packed(packed: Any) -> None:
    for unpack in (hca.QPInfo.from_bytes, hca.RemoteMemory.from_bytes):
        with pytest.raises(TypeError, match="packed must be bytes-like, not "):
            unpack(packed)


@pytest.mark.parametrize("wrong", [None, -1, 5000, 1.5, "RC", []])
def test_what_a_peer_would_not_understand(wrong: Any) -> None:
    """It is refused where it is made, and not when it is packed for the peer."""
    gid = hca.GID("10.0.0.1")
    with pytest.raises(TypeError, match="gid must be GID, not "):
        hca.QPInfo(wrong, 1, 1, hca.Mtu.MTU_1024)
    for argument, example in (("mtu", "Mtu.MTU_1024"), ("qp_type", "QPType.RC")):
        given = {"mtu": hca.Mtu.MTU_1024, argument: wrong}
        with pytest.raises(VerbsError, match=rf"^{argument}.*: must be of .*{example}") as raised:
            hca.QPInfo(gid, 1, 1, **given)
        assert (raised.value.errno, raised.value.value) == (errno.EINVAL, wrong)


def test_codes_are_names_in_what_a_peer_gets() -> None:
    info = hca.QPInfo(hca.GID("10.0.0.1"), 1, 1, mtu=3, qp_type=2)  # type: ignore[arg-type]
    assert (info.mtu, info.qp_type) == (hca.Mtu.MTU_1024, hca.QPType.RC)
    assert repr(info.mtu) in repr(hca.QPInfo.from_bytes(info.to_bytes()))


@pytest.mark.parametrize("given", [(None, 1), (None, None, 1), (hca.QPAttr(),)])
def test_half_of_what_modify_takes(host: Host, given: tuple[Any, ...]) -> None:
    qp = host.qp()
    with pytest.raises(TypeError):
        qp.modify(*given)
    with pytest.raises(TypeError, match="attr_mask must be an integer, not list"):
        qp.modify(hca.QPAttr(), [])  # type: ignore[arg-type]


def test_a_send_has_nowhere_to_write(host: Host) -> None:
    """Who says where, means a WRITE: a SEND would go into a receive."""
    remote: dict[str, Any] = {"remote": host.mr.remote()}
    for make in (lambda: hca.Send(host.mr[:4], **remote), lambda: hca.LocalInv(5, **remote)):
        with pytest.raises(TypeError, match="remote is for WRITEs, READs and atomics, not for"):
            make()


def test_refusals_of_windows_and_regions_have_no_numbers_that_nobody_gave(host: Host) -> None:
    qp = host.qp()
    qp.connect(qp.info())
    type_2 = host.keep(host.pd.alloc_mw(hca.MwType.TYPE_2))
    with pytest.raises(VerbsError, match=r"^mw: is of type 2"):
        qp.bind_mw(type_2, hca.BindInfo(None))
    with open_simulated("10.0.0.8") as other, other.alloc_pd() as pd:
        foreign = pd.alloc_mr(hca.MrType.MEM_REG, 4)
        with pytest.raises(VerbsError, match=r"^mr: belongs to another device"):
            qp.post_send(hca.RegMr(foreign, access=hca.Access.LOCAL_WRITE))


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
