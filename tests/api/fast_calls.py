"""Records of requests and completions, and what tests of them do again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import softhca as hca
from softhca import (
    QPState,
    Recv,
    SendFlags,
    VerbsError,
    WrOpcode,
)

from .hosts import Host, Pair

SIGNALED = int(SendFlags.SIGNALED)


def sends(host: Host, count: int, **fields: Any) -> Any:
    """Records of SENDs of eight bytes each, one after the other in the host's buffer."""
    wrs = np.zeros(count, hca.SEND_DTYPE)
    wrs["opcode"] = WrOpcode.SEND
    wrs["send_flags"] = SIGNALED
    wrs["wr_id"] = np.arange(count)
    wrs["addr"] = host.mr.addr + 8 * np.arange(count, dtype="u8")
    wrs["length"] = 8
    wrs["lkey"] = host.mr.lkey
    for name, value in fields.items():
        wrs[name] = value
    return wrs


def receives(host: Host, count: int) -> Any:
    """Records of receives of eight bytes each, one after the other in the host's buffer."""
    wrs = np.zeros(count, hca.RECV_DTYPE)
    wrs["wr_id"] = 1000 + np.arange(count)
    wrs["addr"] = host.mr.addr + 8 * np.arange(count, dtype="u8")
    wrs["length"] = 8
    wrs["lkey"] = host.mr.lkey
    return wrs


def polled(pair: Pair, host: Host, count: int) -> Any:
    """Waits for so many completions, as records."""
    found = np.zeros(count, hca.WC_DTYPE)
    so_far = 0

    def enough() -> bool:
        nonlocal so_far
        so_far += host.cq.poll_into(found[so_far:]) if so_far < count else 0
        return so_far == count

    pair.until(enough)
    return found


def refused(call: Callable[[], object]) -> VerbsError:
    with pytest.raises(VerbsError) as refusal:
        call()
    return refusal.value


def flushed(host: Host, count: int) -> hca.QP:
    """A queue pair whose receives complete at once, in error."""
    qp = host.qp(max_recv_wr=max(count, 1))
    qp.modify(qp_state=QPState.INIT, pkey_index=0, port_num=1, qp_access_flags=0)
    qp.modify(qp_state=QPState.ERR)
    qp.post_recv_many(Recv(), range(count))
    return qp
