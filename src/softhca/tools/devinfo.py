"""`softhca devinfo`: an adapter, its port, GIDs and limits, in ibv_devinfo's terms."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

import softhca
from softhca import Device, Mtu
from softhca.tools.command import Command, print_json

DESCRIPTION = """Opens an adapter and prints what ibv_devinfo -v prints of a device. Without
ADDRESS it is one of its own, on a free loopback address."""

_FIRST_COLUMN = 32


def gather(device: Device) -> dict[str, Any]:
    """All that is known of an adapter."""
    attr = device.query_device()
    port = device.query_port()
    gids = [device.query_gid(1, index) for index in range(port.gid_tbl_len)]
    return {
        "hca_id": device.name,
        "transport": "InfiniBand (0)",
        **asdict(attr),
        "node_guid": _guid(attr.node_guid),
        "sys_image_guid": _guid(attr.sys_image_guid),
        "atomic_cap": f"ATOMIC_{attr.atomic_cap.name} ({attr.atomic_cap.value})",
        "ports": [
            {
                "port": 1,
                **asdict(port),
                "state": f"PORT_{port.state.name} ({port.state.value})",
                "max_mtu": _mtu(port.max_mtu),
                "active_mtu": _mtu(port.active_mtu),
                "pkeys": [device.query_pkey(1, index) for index in range(port.pkey_tbl_len)],
                "gids": {
                    index: f"{gid}, RoCE v2" for index, gid in enumerate(gids) if any(gid.raw)
                },
            }
        ],
    }


def _guid(value: int) -> str:
    return ":".join(f"{value >> shift & 0xFFFF:04x}" for shift in (48, 32, 16, 0))


def _mtu(code: Mtu) -> str:
    return f"{128 << code} ({code.value})"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what `devinfo` understands."""
    parser.add_argument(
        "address", nargs="?", metavar="ADDRESS", help="local address or interface to open"
    )


def run(args: argparse.Namespace) -> int:
    """Prints the description of one adapter."""
    with softhca.open(args.address) as device:
        info = gather(device)
    if args.json:
        print_json(info)
    else:
        _print_text(info)
    return 0


def _print_text(info: dict[str, Any]) -> None:
    print(f"hca_id:\t{info['hca_id']}")
    for name, value in info.items():
        if name not in ("hca_id", "ports"):
            _print_field(1, name, value)
    for port in info["ports"]:
        _print_field(2, "port", port["port"])
        for name, value in port.items():
            if name not in ("port", "gids", "pkeys"):
                _print_field(3, name, value)
        for index, pkey in enumerate(port["pkeys"]):
            _print_field(3, f"P_Key[{index:3}]", f"{pkey:#06x}")
        for index, gid in port["gids"].items():
            _print_field(3, f"GID[{index:3}]", gid)


def _print_field(depth: int, name: str, value: object) -> None:
    if name in ("vendor_id", "hw_ver", "max_mr_size"):
        value = f"{value:#x}"
    indent = "\t" * depth
    print(f"{indent}{name + ':':<{_FIRST_COLUMN - 8 * (depth - 1)}}{value}")


COMMAND = Command(
    name="devinfo",
    summary="an adapter, its port, GIDs and limits",
    description=DESCRIPTION,
    add_arguments=add_arguments,
    run=run,
)
