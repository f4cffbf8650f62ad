"""What state everything is in, for the message when nothing goes on."""

from __future__ import annotations

from collections.abc import Sequence

from softhca.verbs.device import Device

_TOLD = (
    "local_ack_timeout_err",
    "rnr_nak_retry_err",
    "packet_seq_err",
    "out_of_sequence",
    "rx_icrc_encapsulated",
    "rx_unknown_qp",
    "port_down_drops",
)


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
            attr = qp.query()
            lines.append(
                f"    {qp!r} {attr.qp_state.name}, to {attr.dest_qp_num:#x}, "
                f"next PSN sent {attr.sq_psn}, expected {attr.rq_psn}"
            )
    return lines
