"""The commands that run RDMA: both ends for real, in two processes, over UDP."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from softhca.tools import census, demo
from softhca.tools.exchange import OPERATIONS
from softhca.tools.main import main, make_parser
from softhca.tools.perf import ALL_SIZES, TESTS
from softhca.tools.side_channel import SideChannel

RunJson = Callable[..., tuple[int, dict[str, Any]]]


def test_demo_holds_and_leaves_a_capture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_json: RunJson
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out = run_json("demo")
    assert status == 0, out
    assert out["ok"]
    assert [(row["operation"], row["direction"]) for row in out["rows"]] == [
        (operation, direction)
        for operation in ("SEND", "WRITE", "READ", "CMP_SWAP", "FETCH_ADD")
        for direction in ("A -> B", "B -> A")
    ]
    for row in out["rows"]:
        assert row["ok"]
        assert row["latency_us"] > 0
        assert (row["mib_per_second"] is None) == (row["operation"] in ("CMP_SWAP", "FETCH_ADD"))
    assert out["sides"]["A"]["pid"] != out["sides"]["B"]["pid"]
    assert out["sides"]["A"]["gid"] != out["sides"]["B"]["gid"]
    if shutil.which("tshark"):
        words = ("tshark", "-r", tmp_path / "softhca-demo.pcapng", "-Y", "_ws.malformed")
        assert subprocess.run(words, check=True, capture_output=True, text=True).stdout == ""
    status, capture = run_json("dump", tmp_path / "softhca-demo.pcapng")
    assert status == 0
    assert capture["bad_icrc"] == capture["malformed"] == capture["other"] == 0
    opcodes = capture["opcodes"]
    for opcode in (
        "SEND_ONLY",
        "RDMA_WRITE_ONLY",
        "RDMA_READ_REQUEST",
        "COMPARE_SWAP",
        "FETCH_ADD",
    ):
        assert opcodes[f"RC_{opcode}"] > 0


def test_demo_prints_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--capture", str(tmp_path / "other.pcapng")]) == 0
    text = capsys.readouterr().out
    assert (
        len(re.findall(r"^(SEND|WRITE|READ)\s+. -> .\s+\d+\s+\d+ all .* us .* MiB/s$", text, re.M))
        == 6
    )
    assert (
        len(re.findall(r"^(CMP_SWAP|FETCH_ADD)\s+. -> .\s+\d+\s+\d+ all .* us ", text, re.M)) == 4
    )
    assert "All 10 rows held" in text
    assert (tmp_path / "other.pcapng").exists()


def test_demo_fails_if_it_cannot_capture(run_json: RunJson) -> None:
    status, out = run_json("demo", "--capture", "/nonexistent/demo.pcapng")
    assert status == 1
    assert not out["ok"]
    assert "/nonexistent/demo.pcapng" in out["errors"][0]
    assert not any(row["ok"] for row in out["rows"])


def test_a_demo_that_cannot_begin_says_why_and_no_more(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--capture", "/nonexistent/demo.pcapng"]) == 1
    printed = capsys.readouterr()
    assert not printed.out
    assert printed.err.startswith("softhca demo: capture='/nonexistent/demo.pcapng': ")
    assert len(printed.err.splitlines()) == 1


def test_demo_fails_if_one_byte_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_json: RunJson
) -> None:
    # This process believes in another image than the second one, which keeps the right one.
    from softhca.tools import trial

    def wrong_image(sizes: tuple[int, ...]) -> bytes:
        image = bytearray(true_image(sizes))
        image[0] ^= 1
        return bytes(image)

    true_image = trial.image_of
    monkeypatch.setattr(trial, "image_of", wrong_image)
    status, out = run_json("demo", "--capture", tmp_path / "demo.pcapng")
    assert status == 1
    row = out["rows"][0]
    assert not row["ok"]
    assert "1 bytes are wrong, the first at 0" in row["error"]
    assert not any(row["ok"] and row["latency_us"] for row in out["rows"])


def test_devinfo_in_the_terms_of_ibv_devinfo(
    run_json: RunJson, capsys: pytest.CaptureFixture[str], free_address: Callable[[], str]
) -> None:
    address = free_address()
    status, out = run_json("devinfo", address)
    assert status == 0
    (port,) = out["ports"]
    assert port["state"] == "PORT_ACTIVE (4)"
    assert port["gids"]["0"] == f"::ffff:{address}, RoCE v2"
    assert out["max_qp_wr"] > 0
    assert main(["devinfo"]) == 0
    text = capsys.readouterr().out
    for name in (
        "hca_id",
        "transport",
        "fw_ver",
        "node_guid",
        "max_qp",
        "port",
        "state",
        "active_mtu",
    ):
        assert re.search(rf"^\s*{name}:\s+\S", text, re.M), name
    assert re.search(r"GID\[ *0\]:\s+::ffff:127\.", text)


def test_an_address_that_is_taken_is_named(
    run_json: RunJson, free_address: Callable[[], str]
) -> None:
    address = free_address()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
        holder.bind((address, 4791))
        status, out = run_json("devinfo", address)
    assert status == 1
    assert "4791" in out["error"]


@pytest.mark.parametrize(
    ("qp", "op"), [(qp.value, op) for qp, ops in OPERATIONS.items() for op in ops]
)
def test_pingpong_with_itself(run_json: RunJson, qp: str, op: str) -> None:
    status, out = run_json("pingpong", "--self", "--check", "--iters", 20, "--qp", qp, "--op", op)
    assert status == 0, out
    answered = 2 if op in ("send", "write") else 1
    assert out["checked_bytes"] == out["bytes"] == out["size"] * 20 * answered
    assert out["usec_per_iter"] > 0
    assert out["local"]["gid"] != out["remote"]["gid"]


@pytest.mark.parametrize("size", [0, 1, 4097, 100_000])
def test_pingpong_sizes(run_json: RunJson, size: int) -> None:
    status, out = run_json("pingpong", "--self", "--check", "--iters", 5, "--size", size)
    assert status == 0, out
    assert out["checked_bytes"] == 10 * size


def test_pingpong_with_a_smaller_mtu_and_a_capture(run_json: RunJson, tmp_path: Path) -> None:
    path = tmp_path / "pingpong.pcapng"
    status, out = run_json(
        "pingpong", "--self", "--iters", 1, "--size", 1024, "--mtu", 256, "--capture", path
    )
    assert status == 0, out
    assert out["path_mtu"] == 256
    summary = census.verify(str(path))
    assert summary.bad_icrc == 0
    # Who had to wait for a processor may have sent some of them again.
    middle = {
        (packet["qp"], packet["psn"])
        for packet in run_json("dump", path, "--packets")[1]["each"]
        if packet["opcode_name"] == "RC_SEND_MIDDLE"
    }
    assert len(middle) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--qp", "ud", "--op", "read"], "ud offers send, not read"),
        (["--qp", "uc", "--op", "atomic"], "uc offers send, write"),
        (["--op", "atomic", "--size", "16"], "atomics have 8 bytes"),
        (["--op", "write", "--size", "0"], "out of range"),
        (["--qp", "ud", "--size", "5000"], "a datagram holds 4096 bytes"),
    ],
)
def test_pingpong_refuses_what_does_not_go_together(
    run_json: RunJson, arguments: list[str], message: str
) -> None:
    status, out = run_json("pingpong", "--self", *arguments)
    assert status == 2
    assert message in out["error"]


def test_a_server_that_is_not_there(run_json: RunJson) -> None:
    # Nobody else is given the port of who has it and does not listen.
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
        status, out = run_json("pingpong", "127.0.0.1", "--port", port)
    assert status == 2
    assert f"TCP port {port}" in out["error"]


@pytest.mark.parametrize("host", ["a..b", "a" * 64 + ".example", "\udcff"])
def test_a_server_whose_name_is_none(run_json: RunJson, host: str) -> None:
    status, out = run_json("pingpong", host)
    assert status == 2
    assert "no name of a host" in out["error"]


@pytest.mark.parametrize("option", ["--address", "--capture"])
def test_names_that_are_no_text_are_refused(run_json: RunJson, option: str) -> None:
    status, out = run_json("pingpong", "--self", "--iters", 1, option, "\udcff")
    assert status == 1
    assert "must be UTF-8" in out["error"]


@contextlib.contextmanager
def server(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server process, and the TCP port that it waits on."""
    process = subprocess.Popen(
        [sys.executable, "-m", "softhca", *arguments, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        waiting = re.search(r"TCP port (\d+)", process.stderr.readline())
        assert waiting
        yield process, int(waiting[1])
    finally:
        process.kill()
        process.communicate()


def test_pingpong_between_a_server_and_a_client(run_json: RunJson) -> None:
    with server("pingpong", "--json") as (process, port):
        status, out = run_json("pingpong", "localhost", "--port", port, "--check", "--iters", 10)
        assert status == 0, out
        printed, _ = process.communicate(timeout=20)
        assert process.returncode == 0
        assert json.loads(printed) == {"served": True}


def test_perf_between_a_server_and_a_client(run_json: RunJson) -> None:
    with server("perf", "write_lat") as (process, port):
        status, out = run_json("perf", "read_lat", "127.0.0.1", "--port", port, "--iters", 10)
        assert status == 0, out
        assert out["test"] == "read_lat"
        assert process.wait(20) == 0


@pytest.mark.parametrize("command", [["pingpong"], ["perf", "send_lat"]])
@pytest.mark.parametrize(
    "line",
    [
        b"GET / HTTP/1.1\r\n",
        b"[1, 2]\n",
        b'{"qp": "rc", "op": "send"}\n',
        b'{"qp": "??", "op": "send", "size": 1, "iters": 1, "check": 0, "mtu": null}\n',
        b'{"qp": "rc", "op": "send", "size": "1", "iters": 1, "check": 0, "mtu": null}\n',
        b'{"qp": "rc", "op": "send", "size": 1e99, "iters": 1, "check": 0, "mtu": null}\n',
        b'{"measurements": [{"test": "send_lat", "size": [], "iters": 1}], "mtu": null}\n',
        b'{"measurements": [], "mtu": null}\n',
        b'{"measurements": 7, "mtu": 1}\n',
        b"x" * 200_000,
        b"[" * 60_000 + b"\n",
        b'{"qp": "rc", "op": "send", "size": 64.5, "iters": 1, "check": 0, "mtu": null}\n',
        b'{"qp": "rc", "op": "send", "size": 1, "iters": 1, "check": 0, "mtu": {}}\n',
        b'{"measurements": [{"test": "send_lat", "size": 64.5, "iters": 1}], "mtu": null}\n',
        b'{"measurements": [{"test": "send_lat", "size": 1, "iters": 1}], "mtu": {}}\n',
    ],
    ids=range(15),
)
def test_a_server_survives_clients_of_another_mind(command: list[str], line: bytes) -> None:
    with server(*command) as (process, port):
        with socket.create_connection(("127.0.0.1", port)) as client:
            with contextlib.suppress(OSError):
                client.sendall(line)
                client.shutdown(socket.SHUT_WR)
            _, errors = process.communicate(timeout=20)
        assert process.returncode in (1, 2)
        assert "Traceback" not in errors
        assert re.search(r"^softhca (pingpong|perf): ", errors, re.M)


def test_a_client_notices_that_its_server_died(run_json: RunJson) -> None:
    with server("pingpong") as (process, port):
        client = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "softhca",
                "pingpong",
                "127.0.0.1",
                "--json",
                "--iters=1G",
                f"--port={port}",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        # The server has its adapter once its side of /proc/net/udp shows port 4791 (0x12B7).
        for _ in range(100_000):
            if _holds_roce_port(process.pid):
                break
        process.kill()
        out, errors = client.communicate(timeout=60)
    assert client.returncode == 1, errors
    assert "error" in json.loads(out)
    assert "Traceback" not in errors


def _holds_roce_port(pid: int) -> bool:
    inodes = {
        fields[9]
        for fields in map(str.split, Path("/proc/net/udp").read_text().splitlines())
        if fields[1].endswith(":12B7")
    }
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if descriptor.readlink().name.strip("socket:[]") in inodes:
                return True
    return False


@pytest.mark.parametrize("test", TESTS)
def test_perf_measures(run_json: RunJson, test: str) -> None:
    status, out = run_json("perf", test, "--self", "--iters", 40)
    assert status == 0, out
    (row,) = out["rows"]
    assert row["iterations"] == 40
    if test.endswith("_lat"):
        assert 0 < row["t_min_usec"] <= row["t_typical_usec"] <= row["t_99_usec"]
        assert row["t_99_usec"] <= row["t_99_9_usec"] <= row["t_max_usec"]
        assert row["t_min_usec"] <= row["t_avg_usec"] <= row["t_max_usec"]
    else:
        assert 0 < row["bw_average_mib_s"] <= row["bw_peak_mib_s"]
        rate = row["bw_average_mib_s"] * (1 << 20) / row["bytes"]
        assert row["msg_rate_mpps"] == pytest.approx(rate / 1e6)


def test_perf_prints_the_columns_of_perftest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["perf", "send_bw", "--self", "--all", "--iters", "20"]) == 0
    _, head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == [
        "#bytes", "#iterations", "BW", "peak[MiB/sec]", "BW", "average[MiB/sec]", "MsgRate[Mpps]",
    ]  # fmt: skip
    assert [int(row.split()[0]) for row in rows] == list(ALL_SIZES)
    assert all(len(row.split()) == 5 for row in rows)

    assert main(["perf", "send_lat", "--self", "--iters", "20"]) == 0
    _, head, row = capsys.readouterr().out.splitlines()
    assert head.split()[:4] == ["#bytes", "#iterations", "t_min[usec]", "t_max[usec]"]
    assert len(row.split()) == 9


def test_perf_without_matplotlib_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, run_json: RunJson
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    # Another test may have had it imported.
    monkeypatch.delitem(sys.modules, "softhca.tools.plot", raising=False)
    status, out = run_json("perf", "read_lat", "--self", "--plot", "x.png")
    assert status == 2
    assert "softhca[plot]" in out["error"]


@pytest.mark.parametrize("test", ["read_lat", "read_bw"])
def test_perf_draws(tmp_path: Path, run_json: RunJson, test: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "picture.png"
    status, _ = run_json("perf", test, "--self", "--iters", 20, "--plot", path)
    assert status == 0
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("path", ["picture.xyz", "no-such-folder/picture.png"])
def test_perf_asks_before_it_measures_where_to_draw(run_json: RunJson, path: str) -> None:
    pytest.importorskip("matplotlib")
    status, out = run_json("perf", "read_lat", "--self", "--plot", path)
    assert status == 2
    assert list(out) == ["error"]
    assert path in out["error"]


@pytest.mark.parametrize(
    ("loss", "says"), [("abc", "'abc' is not a number"), ("1.5", "1.5 is not from 0 to 1")]
)
def test_a_loss_is_a_probability(capsys: pytest.CaptureFixture[str], loss: str, says: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["run", "--loss", loss, "true"])
    assert stopped.value.code == 2
    assert capsys.readouterr().err.endswith(f"argument --loss: {says}\n")


@pytest.mark.parametrize(
    "words",
    [
        ("perf", "write_bw", "--iters", "10", "localhost"),
        ("perf", "--iters", "10", "write_bw", "localhost"),
        ("perf", "write_bw", "localhost", "--iters", "10"),
        ("pingpong", "--check", "localhost"),
    ],
    ids=" ".join,
)
def test_the_host_may_stand_anywhere(words: tuple[str, ...]) -> None:
    assert make_parser().parse_args(words).host == "localhost"


def test_why_a_server_is_not_reached_is_what_its_best_address_says(
    monkeypatch: pytest.MonkeyPatch, run_json: RunJson
) -> None:
    # As of localhost in a container without IPv6, which has no ::1 to connect from.
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        found = [
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, port))
            for address in ("127.0.0.1", "255.255.255.255")
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        status, out = run_json("perf", "read_lat", "localhost", "--port", port)
    assert status == 2
    assert out["error"].endswith(f"TCP port {port}: Connection refused")


@pytest.mark.parametrize(
    ("family", "name", "address"),
    [
        (socket.AF_INET6, ("fe80::1", 5, 0, 1), "fe80::1%lo"),
        (socket.AF_INET6, ("fd00::1", 5, 0, 0), "fd00::1"),
        (socket.AF_INET6, ("::ffff:192.0.2.1", 5, 0, 0), "192.0.2.1"),
        (socket.AF_INET, ("192.0.2.1", 5), "192.0.2.1"),
        (socket.AF_INET, ("127.0.0.1", 5), None),
        (socket.AF_INET6, ("::1", 5, 0, 0), None),
    ],
)
def test_the_address_that_leads_to_the_other_end(
    family: socket.AddressFamily, name: tuple[str, int], address: str | None
) -> None:
    class Connected(socket.socket):
        def getsockname(self) -> tuple[str, int]:
            return name

    assert socket.if_indextoname(1) == "lo"
    with Connected(family) as connection:
        assert SideChannel(connection).local_address == address


def test_help_of_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("demo", "devinfo", "pingpong", "perf", "dump"):
        with pytest.raises(SystemExit) as stopped:
            main([command, "--help"])
        assert stopped.value.code == 0
        assert f"usage: softhca {command}" in capsys.readouterr().out


def test_the_demos_default_is_in_the_working_directory() -> None:
    assert Path(demo.DEFAULT_CAPTURE).name == demo.DEFAULT_CAPTURE
