"""Traces: what they tell, and the files they become."""

from __future__ import annotations

import gc
import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import softhca as hca
from softhca import Access
from softhca.testing import Fabric, SavedTrace, Trace, What
from softhca.testing.record_text import record_text

from .ends import End, connected, pair


def scene(fabric: Fabric) -> tuple[End, End]:
    """A WRITE whose first packet is lost, and a SEND."""
    a, b = pair(fabric)
    fabric.faults.drop(opcode="RC_RDMA_WRITE_ONLY", nth=1, name="the first one")
    a.buffer[:4] = b"abcd"
    a.qp.post_send(hca.Write(a.mr[:4], remote=b.mr.remote()[100:104], wr_id=7, signaled=True))
    assert a.next().ok
    b.qp.post_recv(hca.Recv(b.mr[:10], wr_id=9))
    a.qp.post_send(hca.Send(a.mr[:3], wr_id=8, signaled=True))
    assert b.next().ok
    assert a.next().ok
    return a, b


def test_everything_is_recorded() -> None:
    with Fabric() as fabric:
        kept = scene(fabric)
        assert kept
        kinds = {record.what for record in fabric.trace}
        told = [record_text(r) for r in fabric.trace]
    assert kinds == set(What) - {What.EVENT, What.NOTE} or kinds == set(What) - {What.NOTE}
    assert "post_send RDMA_WRITE wr 0x7 of 4 bytes" in told
    assert "completes send wr 0x7: SUCCESS, 0 bytes" in told
    assert "post_recv wr 0x9 of 10 bytes" in told
    assert "RTR to RTS" in told
    assert "fault: the first one" in told


def test_who_wrote_this_byte() -> None:
    with Fabric() as fabric:
        a, b = scene(fabric)
        ((write, packet),) = fabric.trace.who_wrote(b.mr, 102)
        assert (write.before, write.after) == (bytes(4), b"abcd")
        assert packet is not None
        assert packet.host == 0
        assert packet.a == 7
        assert packet.b == 1  # The first was lost.
        assert fabric.trace.who_wrote(b.mr, 104) == []
        assert fabric.trace.who_wrote(a.mr, 102) == []


def test_atomics_and_reads_are_writes_too() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        a.qp.post_send(hca.FetchAdd(a.mr[:8], remote=b.mr.remote()[:8], add=5, signaled=True))
        assert a.next().ok
        ((there, _),) = fabric.trace.who_wrote(b.mr, 0)
        assert int.from_bytes(there.after, "little") == 5
        ((here, response),) = fabric.trace.who_wrote(a.mr, 0)
        assert here.after == bytes(8)
        assert response is not None
        assert response.host == 1


def test_a_ladder_as_text() -> None:
    with Fabric() as fabric:
        kept = scene(fabric)
        assert kept
        text = fabric.trace.text()
        first = text.splitlines()[0]
        assert first.split() == ["ns", "h1", "h2"]
        assert "RDMA_WRITE_ONLY" in text
        assert "x fault" in text
        assert "! fault: the first one" in text
        for limit in range(len(text.splitlines()) - 1):  # With a fault among them.
            assert len(fabric.trace.text(limit).splitlines()) == limit + 2


def test_a_ladder_as_a_page() -> None:
    with Fabric() as fabric:
        kept = scene(fabric)
        assert kept
        page = fabric.trace.html()
        assert page.startswith("<!doctype html>")
        assert page.count("<svg") == 1
        assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
        assert "and " in fabric.trace.svg(limit=3)


def test_files_hold_the_same(tmp_path: Path) -> None:
    with Fabric() as fabric:
        ends = scene(fabric)
        assert ends
        kept = list(fabric.trace)
        for suffix in ("trace", "html", "svg", "txt", "pcapng"):
            fabric.trace.save(tmp_path / f"run.{suffix}")
        text = fabric.trace.text()
        with pytest.raises(hca.VerbsError, match="must end in"):
            fabric.trace.save(tmp_path / "run.doc")
    saved = SavedTrace(tmp_path / "run.trace")
    assert saved.hosts == ["h1", "h2"]
    assert len(saved) == len(kept)
    for one, other in zip(saved, kept, strict=True):
        assert (one.at_ns, one.what, one.host, one.a, one.data) == (
            other.at_ns,
            other.what,
            other.host,
            other.a,
            other.data,
        )
    assert saved.text() == text


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "softhca", "trace", *words], capture_output=True, text=True
    )


def test_the_command(tmp_path: Path) -> None:
    file = tmp_path / "run.trace"
    with Fabric() as fabric:
        _, b = scene(fabric)
        fabric.trace.save(file)
        address = b.mr.addr + 100
    shown = command(str(file))
    assert shown.returncode == 0
    assert "RDMA_WRITE_ONLY" in shown.stdout
    asked = command(str(file), "--who-wrote", "h2", hex(address))
    assert "0x00 to 0x61, by h1 sends RDMA_WRITE_ONLY" in asked.stdout
    assert json.loads(command(str(file), "--json").stdout)["hosts"] == ["h1", "h2"]
    page = tmp_path / "run.html"
    assert command(str(file), "--to", str(page)).returncode == 0
    assert page.read_text().startswith("<!doctype html>")
    told = json.loads(command(str(file), "--to", str(page), "--json").stdout)
    assert told == {"hosts": ["h1", "h2"], "written": str(page)}
    dumped = tmp_path / "run.pcapng"
    command(str(file), "--to", str(dumped))
    checked = subprocess.run(
        [sys.executable, "-m", "softhca", "dump", str(dumped)], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_bad_files(tmp_path: Path) -> None:
    (tmp_path / "a.trace").write_bytes(b"nothing")
    (tmp_path / "b.trace").write_bytes(gzip.compress(b"nothing"))
    (tmp_path / "c.trace").write_bytes(gzip.compress(b'{"format":"another"}'))
    for name in ("a.trace", "b.trace", "c.trace", "none.trace"):
        refused = command(str(tmp_path / name))
        assert refused.returncode == 2
        assert refused.stderr.startswith(f"softhca trace: {tmp_path / name}: ")
    assert "Traceback" not in refused.stderr


@pytest.mark.skipif(shutil.which("tshark") is None, reason="needs tshark")
def test_tshark_shows_comments(tmp_path: Path) -> None:
    with Fabric() as fabric:
        kept = scene(fabric)
        assert kept
        fabric.trace.save(tmp_path / "run.pcapng")
    shown = subprocess.run(
        ["tshark", "-r", str(tmp_path / "run.pcapng"), "-T", "fields", "-e", "frame.comment"],
        capture_output=True,
        text=True,
    )
    assert "fault: the first one; lost: fault" in shown.stdout


def test_a_page_is_written_in_the_letters_that_it_names(tmp_path: Path) -> None:
    program = r"""
import sys
from softhca.testing import Fabric
with Fabric() as fabric:
    fabric.host("gr\xfcn")
    for suffix in ("html", "svg", "txt"):
        fabric.trace.save(f"{sys.argv[1]}/run.{suffix}")
"""
    plain = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], env={**os.environ, **plain}, check=True
    )
    for suffix in ("html", "svg", "txt"):
        assert "grün" in (tmp_path / f"run.{suffix}").read_text(encoding="utf-8")


def test_a_packet_that_comes_thousands_of_times_is_saved(tmp_path: Path) -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        fabric.faults.duplicate(2500, opcode="RC_RDMA_WRITE_ONLY")
        a.qp.post_send(hca.Write(a.mr[:4], remote=b.mr.remote(), signaled=True))
        assert a.next().ok
        fabric.settle()
        fabric.trace.save(tmp_path / "run.pcapng")
    dump = [sys.executable, "-m", "softhca", "dump", str(tmp_path / "run.pcapng")]
    assert subprocess.run(dump, capture_output=True).returncode == 0


def test_stepping_back_to_a_point() -> None:
    with Fabric() as fabric:
        kept = scene(fabric)
        assert kept
        last = len(fabric.trace)
        when = fabric.now_ns
    with Fabric() as fabric:
        a, b = pair(fabric)
        fabric.faults.drop(opcode="RC_RDMA_WRITE_ONLY", nth=1, name="the first one")
        a.qp.post_send(hca.Write(a.mr[:4], remote=b.mr.remote()[100:104], signaled=True))
        steps = 0
        while fabric.step():
            steps += 1
        assert steps >= 3
        assert not fabric.step()
    assert last > 10
    assert when > 0


def test_a_damaged_trace_is_told(tmp_path: Path) -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        a.qp.post_send(hca.Write(a.mr[:9], remote=b.mr.remote(), signaled=True))
        a.next()
        fabric.trace.save(tmp_path / "good.trace")
    good = (tmp_path / "good.trace").read_bytes()
    damaged = tmp_path / "damaged.trace"
    told = 0
    for at in range(len(good)):
        damaged.write_bytes(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
        try:
            SavedTrace(damaged)
        except ValueError:
            told += 1
    assert told > len(good) // 2  # All but the file name and the like in the head.
    damaged.write_bytes(gzip.compress(gzip.decompress(good).replace(b'"hosts"', b'"guests"')))
    with pytest.raises(ValueError, match="is no trace"):
        SavedTrace(damaged)


@pytest.mark.skipif(shutil.which("tshark") is None, reason="needs tshark")
def test_tshark_finds_nothing_wrong_over_ipv6(tmp_path: Path) -> None:
    with Fabric() as fabric:
        hosts = [fabric.host(gid=f"fd00::{number}") for number in (1, 2)]
        a, b = connected(fabric, *hosts)
        a.qp.post_send(hca.Write(a.mr[:5001], remote=b.mr.remote(), signaled=True))
        assert a.next().ok
        fabric.trace.save(tmp_path / "run.pcapng")
    command = ["tshark", "-r", str(tmp_path / "run.pcapng"), "-o", "udp.check_checksum:TRUE"]
    fields = ["-T", "fields", "-e", "udp.checksum.status", "-e", "ipv6.dst"]
    shown = subprocess.run([*command, *fields], capture_output=True, text=True)
    assert set(shown.stdout.split("\n")) == {"1\tfd00::1", "1\tfd00::2", ""}  # 1: good.


def test_a_trace_outlives_all_else_of_its_run() -> None:
    def run() -> Trace:
        with Fabric() as fabric:
            scene(fabric)
            return fabric.trace

    trace = run()
    gc.collect()
    assert trace.hosts == ["h1", "h2"]
    assert "RDMA_WRITE_ONLY" in trace.text()


def test_a_region_of_another_fabric_is_refused() -> None:
    with Fabric() as fabric, Fabric() as other:
        pair(fabric)
        far, _ = pair(other)
        with pytest.raises(hca.VerbsError) as raised:
            fabric.trace.who_wrote(far.mr, 0)
        assert raised.value.argument == "mr"
        with pytest.raises(hca.VerbsError) as raised:
            other.trace.who_wrote(far.mr, -1)
        assert raised.value.argument == "offset"


def test_posts_to_a_shared_receive_queue_are_told() -> None:
    with Fabric() as fabric:
        _, b = pair(fabric)
        srq = b.pd.create_srq(max_wr=2)
        with pytest.raises(hca.VerbsError, match="full"):
            srq.post_recv([hca.Recv(b.mr[:100], wr_id=n) for n in (5, 6, 7)])
        told = [r for r in fabric.trace if r.what is What.POST]
        assert [(r.host, r.a, r.number) for r in told] == [(1, 5, 100), (1, 6, 100)]
        assert f"post_srq_recv wr 0x5 of 100 bytes srq {srq.handle}" in fabric.trace.text()


def test_events_name_what_they_are_of() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric, timeout=8, retry_cnt=1)
        fabric.faults.port_down(b.device)
        fabric.faults.cq_overflow(a.cq)
        told = fabric.trace.text()
        assert "event PORT_ERR port 1\n" in told
        assert f"event CQ_ERR cq {a.cq.handle}\n" in told
        assert f"event QP_FATAL qp {a.qp.qpn:#x}\n" in told


def test_each_kind_of_work_request_has_its_name() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        word = b.mr.remote()[:8]
        for wr, name in (
            (hca.AtomicWrite(a.mr[:8], remote=word, signaled=True), "ATOMIC_WRITE"),
            (hca.Flush(remote=word, signaled=True), "FLUSH"),
        ):
            a.qp.post_send(wr)
            a.next()
            assert f"post_send {name} wr" in fabric.trace.text()


def test_who_wrote_through_a_window_or_another_region() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        memory = bytearray(4096)
        region = b.pd.reg_mr(memory, Access.LOCAL_WRITE | Access.MW_BIND)
        other = b.pd.reg_mr(memoryview(memory)[1000:])
        mw = b.pd.alloc_mw(hca.MwType.TYPE_2)
        rights = Access.REMOTE_WRITE | Access.ZERO_BASED
        bind = hca.BindMw(mw, region[1100:1200], rkey=hca.inc_rkey(mw.rkey), access=rights)
        b.qp.post_send([bind, hca.Write(b.mr[:1], remote=a.mr.remote()[:1], signaled=True)])
        assert b.next().ok
        for wr_id, far in ((1, bind.remote[10:18]), (2, other.remote()[112:120])):
            a.qp.post_send(hca.Write(a.mr[:8], remote=far, wr_id=wr_id, signaled=True))
            assert a.next().ok

        def writers(mr: hca.MR, offset: int) -> list[int]:
            return [sent.a for _, sent in fabric.trace.who_wrote(mr, offset) if sent is not None]

        assert writers(region, 1110) == writers(other, 110) == [1]
        assert writers(region, 1112) == writers(other, 112) == [1, 2]
        assert writers(region, 1109) == writers(region, 10) == []
        host = fabric.host_number(b.device)
        assert len(fabric.trace.writes_to(host, region.addr + 1110)) == 1


def test_who_wrote_into_one_of_two_regions_that_begin_at_0() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        rights = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.ZERO_BASED
        written, other = (b.pd.reg_mr(bytearray(16), rights) for _ in range(2))
        a.qp.post_send(hca.Write(a.mr[:8], remote=written.remote()[:8], signaled=True))
        assert a.next().ok
        assert len(fabric.trace.who_wrote(written, 3)) == 1
        assert fabric.trace.who_wrote(other, 3) == []
        with pytest.raises(hca.VerbsError, match="offset=16: must be 0 to 15"):
            fabric.trace.who_wrote(other, 16)


def test_who_wrote_into_a_region_for_fast_registration() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        mr = b.pd.alloc_mr(hca.MrType.SG_GAPS, 2)
        mr.map_mr_sg([bytearray(10), bytearray(20)])
        rights = Access.LOCAL_WRITE | Access.REMOTE_WRITE
        b.qp.post_send(hca.RegMr(mr, access=rights, signaled=True))
        assert b.next().ok
        a.qp.post_send(hca.Write(a.mr[:20], remote=mr.remote()[5:25], signaled=True))
        assert a.next().ok
        assert [len(fabric.trace.who_wrote(mr, n)) for n in (4, 5, 12, 24, 25)] == [0, 1, 1, 1, 0]
