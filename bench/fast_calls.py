"""The calls of softhca that benches make in a loop: what is fastest is chosen here."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence

import softhca as hca


def open_device(link: str = "", address: str = "") -> hca.Device:
    """Opens an adapter; `link` "udp" keeps it from taking a shorter way."""
    opening: Callable[..., hca.Device] = hca.open
    if link and "link" in inspect.signature(opening).parameters:
        return opening(address or None, link=link)
    return opening(address or None)


def _given(cq: hca.CQ | None) -> hca.CQ:
    # A queue pair of XRC may lack one; those of the benches do not.
    assert cq is not None
    return cq


def poller(cq: hca.CQ | None, most: int = 1) -> Callable[[], object]:
    """A call that takes up to `most` completions; what it returns is true if there were any."""
    return functools.partial(_given(cq).poll, most)


def counting_poller(cq: hca.CQ | None, most: int) -> Callable[[], int]:
    """A call that takes up to `most` completions, and returns how many."""
    poll = _given(cq).poll
    return lambda: len(poll(most))


def poster(qp: hca.QP, wr: hca.SendRequest) -> Callable[[], object]:
    """A call that posts a work request that was made before."""
    return functools.partial(qp.post_send, wr)


def list_poster(qp: hca.QP, wrs: Sequence[hca.SendRequest]) -> Callable[[], object]:
    """A call that posts several at once."""
    return functools.partial(qp.post_send, wrs)


def receive_poster(qp: hca.QP, wr: hca.Recv, count: int) -> Callable[[], object]:
    """A call that posts the same receive so many times."""
    return functools.partial(qp.post_recv, [wr] * count)
