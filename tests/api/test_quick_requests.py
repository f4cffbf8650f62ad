"""Work requests that are made quickly are those that the constructors make."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import softhca as hca
from softhca import Read, Recv, RemoteMemory, Send, SendImm, SendInv, VerbsError, Write, WriteImm

from .hosts import Host, Pair

KINDS: dict[type, tuple[str, ...]] = {
    Send: (),
    SendImm: ("imm",),
    SendInv: ("rkey",),
    Write: ("remote",),
    WriteImm: ("remote", "imm"),
    Read: ("remote",),
    Recv: (),
}
FIELDS = (
    *("wr_id", "opcode", "send_flags", "immediate", "invalidate_rkey", "remote_address", "rkey"),
    *("compare_add", "swap", "remote_qpn", "remote_qkey", "xrc_srqn"),
    *("cqe", "_kept", "ah", "byte_count"),
)


def constructed(kind: type, *buffers: Any, **options: Any) -> Any:
    """One that the constructor has made."""
    made = kind.__new__(kind)
    made.__init__(*buffers, **options)
    return made


def shown(wr: Any) -> dict[str, object]:
    """What can be seen of a work request."""
    return {name: getattr(wr, name) for name in FIELDS if hasattr(wr, name)}


def outcome(make: Callable[[], Any]) -> object:
    """What became of making one."""
    try:
        return shown(make())
    except (TypeError, VerbsError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("kind", KINDS)
def test_any_arguments_make_what_the_constructor_makes(host: Host, kind: type) -> None:
    seed = random.getrandbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    cqe, ah = hca.Cqe(print), host.keep(host.pd.create_ah("10.0.0.1"))
    far, mr = host.mr.remote(), host.mr
    plain = mr[0:64]
    values: dict[str, list[Any]] = {
        "wr_id": [0, 7, (1 << 64) - 1, 1 << 64, -1, True, "x", 1.5],
        "signaled": [True, False, 1, None, ""],
        "fence": [True, False, 2],
        "solicited": [True, False],
        "inline": [False, True],
        "srqn": [0, 5],
        "cqe": [None, cqe, 5],
        "ah": [None, ah],
        "remote_qpn": [0, 9],
        "imm": [0, 77, (1 << 32) - 1, 1 << 32, -1, None],
        "rkey": [0, 77, 1 << 32, "x"],
        "remote": [far, far[64:128], far[0:8], None, 5, RemoteMemory(1 << 63, 5, 1 << 40)],
        "nonsense": [1],
    }
    buffers = [
        *([plain], [], [mr[0:0]], [plain, mr[64:70]], [[plain, plain]], [mr], [b"bytes"]),
        *([plain] * 4, [plain] * 6, [hca.Sge(mr.addr, 8, mr.lkey)], [None]),
    ]
    for _ in range(1500):
        options = {name: chance.choice(values[name]) for name in KINDS[kind]}
        for name in chance.sample(list(values), chance.choice((0, 1, 1, 2, 4))):
            # Mostly what programs give, so that there is something to compare.
            options[name] = chance.choice(values[name][: chance.choice((1, 2, 2, 8))])
        given = chance.choice(buffers[: chance.choice((1, 4, len(buffers)))])
        quick = outcome(lambda: kind(*given, **options))  # noqa: B023
        slow = outcome(lambda: constructed(kind, *given, **options))  # noqa: B023
        # Bytes that were copied are others each time.
        for made in (quick, slow):
            if isinstance(made, dict) and options.get("inline"):
                made.pop("_kept")
        assert quick == slow, (given, options)


def test_what_was_made_quickly_moves_bytes(pair: Pair) -> None:
    near, far = pair.connected(max_send_wr=8, max_recv_wr=8, max_send_sge=4)
    pair.a.buffer[:16] = b"0123456789abcdef"
    remote = pair.b.mr.remote()[100:116]
    near.post_send(Write(pair.a.mr[8:16], pair.a.mr[0:8], remote=remote, wr_id=5, signaled=True))
    wc = pair.completion(pair.a)
    assert (wc.wr_id, wc.ok) == (5, True)
    assert pair.b.buffer[100:116] == b"89abcdef01234567"
    near.post_send(Read(pair.a.mr[200:208], remote=remote[0:8], signaled=True))
    assert pair.completion(pair.a).ok
    assert pair.a.buffer[200:208] == b"89abcdef"
    far.post_recv(Recv(pair.b.mr[300:316], wr_id=6))
    near.post_send(WriteImm(pair.a.mr[0:8], remote=remote, imm=99))
    wc = pair.completion(pair.b)
    assert (wc.wr_id, wc.imm_data, wc.byte_len) == (6, 99, 8)


def test_a_subclass_has_its_own_constructor(host: Host) -> None:
    class Marked(Write):
        def __init__(self, *buffers: Any, **options: Any) -> None:
            super().__init__(*buffers, remote=host.mr.remote(), **options)
            self.mark = 5

    marked = Marked(host.mr[0:8], wr_id=3)
    assert (marked.mark, marked.wr_id, marked.byte_count) == (5, 3, 8)
    assert isinstance(marked, Write)


def test_a_work_request_keeps_its_region(host: Host) -> None:
    buffer = bytearray(64)
    mr = host.pd.reg_mr(buffer)
    gone = weakref.ref(mr)
    wr = Write(mr[0:64], remote=mr.remote())
    held = Recv(mr[0:8], mr[8:16])
    del mr
    gc.collect()
    assert gone() is not None
    (sge,) = wr._kept
    sge.mr.close()
    del wr, held, sge
    gc.collect()
    assert gone() is None


def test_cycles_through_callbacks_are_collected(host: Host) -> None:
    class Told(hca.Cqe):
        wr: Any = None

        def done(self, cq: hca.CQ, wc: hca.WC) -> None:
            """Does nothing."""

    told = Told()
    told.wr = Recv(host.mr[0:8], cqe=told)
    gone = weakref.ref(told)
    del told
    gc.collect()
    assert gone() is None
