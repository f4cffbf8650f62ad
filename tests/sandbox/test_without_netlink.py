"""A sandbox without netlink can use the adapter; it only hears nothing of its interfaces."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from .sandboxed import run, words_without

SCRIPT = str(Path(__file__).with_name("without_netlink.py"))


def test_a_sandbox_without_netlink() -> None:
    words = words_without(f"socket:{socket.AF_NETLINK.value}=EAFNOSUPPORT")
    check = "import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)"
    assert "Errno 97" in run(*words, sys.executable, "-c", check).stderr
    done = run(*words, sys.executable, SCRIPT)
    assert done.stdout.splitlines() == ["SUCCESS 1", "address EADDRNOTAVAIL", "address ENODEV"]
