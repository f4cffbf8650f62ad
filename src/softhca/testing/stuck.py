"""What state everything is in, for the message when nothing goes on."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from softhca import _adapter
from softhca.verbs.device import Device

# Whose frames tell a program's author nothing.
_LIBRARIES = {"softhca", "asyncio", "trio", "outcome"}
# What a suspended coroutine, generator or async generator calls its frame, and what it awaits.
_FRAMES = ("cr_frame", "gi_frame", "ag_frame")
_AWAITED = ("cr_await", "gi_yieldfrom", "ag_await")

_TOLD = (
    "local_ack_timeout_err",
    "rnr_nak_retry_err",
    "packet_seq_err",
    "out_of_sequence",
    "rx_icrc_encapsulated",
    "rx_unknown_qp",
    "port_down_drops",
)


def awaited_by(coroutine: Any) -> str | None:
    """What a suspended task waits for: the last line of the program itself, and where that is.

    Args:
        coroutine: Of the task.

    Returns:
        Such as "`await qp.recv(mr)` (client.py, line 12, in main)"; of a task that is one of our
        own coroutines, its name; None for a task of the loop.
    """
    frame: FrameType | None = None
    inner = coroutine
    while inner is not None:
        here = _first_of(inner, _FRAMES)
        if here is not None and _library_of(here) not in _LIBRARIES:
            frame = here
        inner = _first_of(inner, _AWAITED)
    if frame is None:
        outer = _first_of(coroutine, _FRAMES)
        is_ours = outer is not None and _library_of(outer) == "softhca"
        return f"{coroutine.__qualname__}()" if is_ours else None
    file = frame.f_code.co_filename
    line = linecache.getline(file, frame.f_lineno, frame.f_globals).strip()
    where = f"{Path(file).name}, line {frame.f_lineno}, in {frame.f_code.co_name}"
    return f"`{line}` ({where})" if line else where


def _library_of(frame: FrameType) -> str:
    name: str = frame.f_globals.get("__name__", "")
    return name.split(".")[0]


def _first_of(one: Any, names: Sequence[str]) -> Any:
    return next((found for name in names if (found := getattr(one, name, None)) is not None), None)


def describe_hosts(devices: Sequence[Device]) -> list[str]:
    """Lines about queue pairs, unread events and whatever went wrong on each host."""
    lines: list[str] = []
    for device in devices:
        if device.closed:
            lines.append(f"  {device.name} is closed")
            continue
        counters = device.adapter.counters()
        wrong = [f"{name} {counters[name]}" for name in _TOLD if counters.get(name)]
        lines.append(f"  {device.name}" + (f": {', '.join(wrong)}" if wrong else ""))
        for number in sorted(device._qps):
            qp = device._qps.get(number)
            if qp is None or qp.closed:
                continue
            # Not by the object's own attribute: a fault may refuse the verb.
            attr, _ = _adapter.Hca.query_qp(device.adapter, number)
            lines.append(
                f"    {qp!r} {attr.qp_state.name}, to {attr.dest_qp_num:#x}, "
                f"next PSN sent {attr.sq_psn}, expected {attr.rq_psn}"
            )
    return lines
