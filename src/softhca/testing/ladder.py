"""Ladder diagrams: packets between hosts, from the top down, as text, SVG or a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from softhca.testing.record import Record, What
from softhca.testing.record_text import packet_text, record_text, whose
from softhca.verbs.gid import GID

# Room for most packets: opcode, PSN, payload.
_COLUMN = 46
_TOLD = (What.POST, What.COMPLETION, What.STATE, What.EVENT, What.NOTE, What.CREATED, What.KEY)

_STYLE = """
text { font: 11px ui-monospace, monospace; fill: #222 }
.host { font-weight: bold; font-size: 13px }
.life { stroke: #bbb } .time { fill: #999 }
.packet { stroke: #2563a8; fill: none } .again { stroke: #b8860b }
.lost { stroke: #c62828; stroke-dasharray: 4 3 } .made { stroke: #7b1fa2 }
.note { fill: #555 } .bad { fill: #c62828 }
@media (prefers-color-scheme: dark) { body { background: #161616 } text { fill: #ddd } }
"""


def _targets(records: Sequence[Record]) -> dict[bytes, int]:
    """Numbers of hosts by their addresses, as far as packets show them."""
    return {
        r.route.source: r.host
        for r in records
        if r.what is What.SENT and r.route is not None and r.host is not None
    }


def _fates(records: Sequence[Record]) -> dict[int, Record]:
    """Delivery, or loss, of each packet: the first of them."""
    fates: dict[int, Record] = {}
    for r in records:
        if r.what in (What.DELIVERED, What.LOST):
            fates.setdefault(r.packet, r)
    return fates


def text_ladder(hosts: Sequence[str], records: Iterable[Record], limit: int | None = None) -> str:
    """A line for each packet and each thing that a host did."""
    return "\n".join(_text_lines(hosts, list(records), limit)) + "\n"


def _text_lines(
    hosts: Sequence[str], records: Sequence[Record], limit: int | None
) -> Iterator[str]:
    fates, targets = _fates(records), _targets(records)
    columns = "".join(name.ljust(_COLUMN) for name in hosts)
    yield f"{'ns':>12}  {columns}".rstrip()
    shown = 0
    for r in records:
        if limit is not None and shown >= limit:
            yield f"{'':12}  and {len(records)} records in all"
            return
        if r.what is What.SENT:
            shown += 1
            yield _packet_line(hosts, r, fates.get(r.packet), targets)
        elif r.what is What.FAULT or (r.what is What.DELIVERED and r.text):
            shown += 1
            yield f"{r.at_ns:>12}  {' ' * _COLUMN * (r.host or 0)}! {record_text(r)}"
        elif r.what in _TOLD:
            shown += 1
            place = " " * _COLUMN * (r.host or 0)
            yield f"{r.at_ns:>12}  {place}. {record_text(r)}{whose(r)}"


def _packet_line(
    hosts: Sequence[str], sent: Record, fate: Record | None, targets: dict[bytes, int]
) -> str:
    assert sent.route is not None
    start = sent.host or 0
    end = targets.get(sent.route.destination)
    if end is None and fate is not None and fate.host is not None:
        end = fate.host
    text = packet_text(sent)
    if fate is None:
        what = "on its way"
    elif fate.what is What.LOST:
        what = f"x {fate.text}"
    else:
        what = f"at {fate.at_ns}"
    if end is None or end == start:
        there = "itself" if end == start else str(GID(sent.route.destination).ip)
        return f"{sent.at_ns:>12}  {' ' * _COLUMN * start}{text} to {there}, {what}"
    left, right = min(start, end), max(start, end)
    room = (right - left) * _COLUMN - 2
    label = f" {text} "[: room - 2]
    lost = fate is not None and fate.what is What.LOST
    if end > start:
        arrow = "|" + label.center(room - 1, "-") + ("x" if lost else ">")
    else:
        arrow = ("x" if lost else "<") + label.center(room - 1, "-") + "|"
    return f"{sent.at_ns:>12}  {' ' * _COLUMN * left}{arrow}  {what}"


def svg_ladder(hosts: Sequence[str], records: Iterable[Record], limit: int = 2000) -> str:
    """A drawing: time runs down, step by step; hovering tells more."""
    kept = list(records)
    fates, targets = _fates(kept), _targets(kept)
    drawn = [r for r in kept if r.what is What.SENT or r.what in _TOLD or r.what is What.FAULT]
    more, drawn = len(drawn) - limit, drawn[:limit]
    # Each instant at which something happens has a height of its own: time itself would leave all
    # in one place.
    instants = {r.at_ns for r in drawn}
    instants |= {f.at_ns for r in drawn if (f := fates.get(r.packet)) and r.what is What.SENT}
    heights: dict[int, float] = {}
    height = 60.0
    rows: dict[int, int] = {}
    for r in drawn:
        rows[r.at_ns] = rows.get(r.at_ns, 0) + 1
    for at_ns in sorted(instants):
        heights[at_ns] = height
        height += 14 * max(1, rows.get(at_ns, 0))
    gap = 300
    places = [160 + gap * index for index in range(len(hosts))]
    width = (places[-1] if places else 0) + 260
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height + 40:.0f}">',
        f"<style>{_STYLE}</style>",
    ]
    for name, x in zip(hosts, places, strict=True):
        out.append(f'<text class="host" x="{x}" y="24" text-anchor="middle">{escape(name)}</text>')
        out.append(f'<line class="life" x1="{x}" y1="34" x2="{x}" y2="{height:.0f}"/>')
    used: dict[int, int] = {}
    for r in drawn:
        y = heights[r.at_ns] + 14 * used.get(r.at_ns, 0)
        if not used.get(r.at_ns):
            out.append(f'<text class="time" x="4" y="{y + 4:.0f}">{r.at_ns} ns</text>')
        used[r.at_ns] = used.get(r.at_ns, 0) + 1
        if r.what is What.SENT:
            out.append(_arrow(r, fates.get(r.packet), targets, places, heights, y))
        else:
            x = places[r.host] + 6 if r.host is not None else 90
            bad = r.what is What.FAULT or (r.what is What.COMPLETION and r.b & 255)
            kind = "bad" if bad else "note"
            out.append(
                f'<text class="{kind}" x="{x}" y="{y + 4:.0f}">{escape(record_text(r))}</text>'
            )
    if more > 0:
        out.append(f'<text class="bad" x="4" y="{height + 20:.0f}">and {more} more</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def _arrow(
    sent: Record,
    fate: Record | None,
    targets: dict[bytes, int],
    places: Sequence[int],
    heights: dict[int, float],
    y: float,
) -> str:
    assert sent.route is not None
    start = places[sent.host or 0]
    to = targets.get(sent.route.destination)
    if to is None:
        to = fate.host if fate is not None else None
    end = places[to] if to is not None else start + 120
    arrives = heights.get(fate.at_ns, y + 14) if fate is not None else y + 14
    arrives = max(arrives, y + 2)
    kind = {1: "packet again", 2: "packet made"}.get(sent.b, "packet")
    lost = fate is None or fate.what is What.LOST
    if lost:
        kind, end, arrives = "packet lost", (start + end) // 2, y + (arrives - y) / 2
    title = f"{packet_text(sent)}, packet {sent.packet}"
    if fate is not None:
        title += f", {fate.what.name.lower()} at {fate.at_ns} ns {fate.text}"
    middle = start + (end - start) * 0.5
    head = -6 if end > start else 6
    mark = "x" if lost else ""
    return (
        f'<g class="{kind}"><title>{escape(title)}</title>'
        f'<line x1="{start}" y1="{y:.1f}" x2="{end}" y2="{arrives:.1f}"/>'
        f'<path d="M{end + head} {arrives - 4:.1f} L{end} {arrives:.1f} L{end + head} '
        f'{arrives + 4:.1f}"/></g>'
        f'<text x="{middle}" y="{y + (arrives - y) / 2 - 3:.1f}" text-anchor="middle">'
        f"{escape(packet_text(sent))} {mark}</text>"
    )


def html_ladder(hosts: Sequence[str], records: Iterable[Record], limit: int = 2000) -> str:
    """The drawing as a page that needs nothing else."""
    return (
        "<!doctype html>\n<meta charset=utf-8>\n<title>softhca trace</title>\n"
        f"<body>\n{svg_ladder(hosts, records, limit)}</body>\n"
    )
