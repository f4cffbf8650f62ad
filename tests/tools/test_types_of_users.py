"""Type checkers refuse what would be refused at run time, and accept what would not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]

GIVEN = """
import asyncio
import collections
import softhca as hca
from softhca import Recv, Send, Write

seen: collections.deque[hca.WC] = collections.deque()

async def program(
    cq: hca.CQ, qp: hca.QP, mr: hca.MR, far: hca.RemoteMemory, ah: hca.AH
) -> None:
"""
RIGHT = """
hca.Cqe(lambda cq, wc: print(wc.wr_id))
hca.Cqe(lambda cq, wc: seen.append(wc))
hca.Cqe(done=None).done(cq, hca.CompletionBuffer(1)[0])
Write(mr[0:4], mr[4:8], remote=far, signaled=True, cqe=hca.Cqe(), srqn=5)
Send(mr, [mr[0:4]], ah=ah, remote_qpn=5, remote_qkey=6, cqe=None, fence=True)
Send(b"bytes", bytearray(5), inline=True)
qp.post_send([Write(mr[0:4], remote=far), Send()])
qp.post_recv((Recv(mr[0:4], wr_id=5), Recv()))
(await qp.write(mr[0:4], far, wr_id=5, fence=True)).raise_for_status()
(await qp.read(mr[0:4], remote=far, solicited=True)).raise_for_status()
await qp.send(mr, ah=ah, remote_qpn=5, remote_qkey=6, inline=True, srqn=7)
called: hca.Cqe | None = seen[0].cqe
await asyncio.gather(*(qp.fetch_add(mr[0:8], far, add=1) for _ in range(5)))
"""
WRONG = """
hca.Cqe(lambda wc: print(wc))
hca.Cqe(5)
Write(mr[0:4])
Write(mr[0:4], far)
Write(mr[0:4], remote=mr)
Write(mr[0:4], remote=far, ah=ah)
Send(mr[0:4], ah="10.0.0.1")
Send(mr[0:4], signalled=True)
Send("text", inline=True)
Recv(b"bytes")
Recv(mr, signaled=True)
qp.post_send(Recv(mr))
qp.post_recv(Send(mr))
mr[0]
cq.poll(1).status
cq.poll(1)[0].wr_id = 5
cq.poll(1)[0].cqe = hca.Cqe()
cq.poll(1)[0].cqe.done(cq, seen[0])
Send(mr).wr_id = 5
await qp.write(mr[0:4], far, signaled=True)
await qp.send(mr, cqe=hca.Cqe(print))
await qp.recv(mr, cqe=hca.Cqe(print))
await qp.fetch_add(mr[0:8], far)
"""


def test_a_checker_refuses_what_the_verbs_would(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    lines = GIVEN.splitlines()
    lines += [f"    {line}" for line in RIGHT.split("\n") if line]
    wrong = [line for line in WRONG.split("\n") if line]
    first = len(lines) + 1
    lines += [f"    {line}" for line in wrong]
    program = tmp_path / "program.py"
    program.write_text("\n".join(lines) + "\n")
    options = ["--strict", "--config-file=", f"--cache-dir={tmp_path / 'cache'}"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, str(program)],
        capture_output=True,
        text=True,
        env={**os.environ, "MYPYPATH": str(TOP / "src")},
    )
    complaints = {int(at) for at in re.findall(r"program\.py:(\d+): error", done.stdout)}
    assert {lines[at - 1].strip() for at in complaints if at < first} == set(), done.stdout
    assert [line for at, line in enumerate(wrong, first) if at not in complaints] == []
