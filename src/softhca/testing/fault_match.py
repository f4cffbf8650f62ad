"""Which packets a fault is about: words, checked, as the rule of the native side."""

from __future__ import annotations

import difflib
import errno
import fnmatch
from collections.abc import Callable, Iterable
from numbers import Real
from typing import Any, SupportsIndex, TypedDict

from softhca import _adapter
from softhca.testing.fault_packet import FaultPacket
from softhca.verbs.checks import unsigned
from softhca.verbs.device import Device
from softhca.verbs.errors import VerbsError
from softhca.verbs.gid import GID, GIDLike
from softhca.verbs.qp import QP

Where = Callable[[FaultPacket], object]
Opcodes = str | Iterable[str]
Span = int | tuple[int, int]

_NEVER = (1 << 64) - 1
_OPCODES = {_adapter.opcode_name(code): code for code in range(256)}
_OPCODES.pop("RESERVED", None)
# Those of XRC's masked compare and swap, with the ICRC.
_LONGEST_HEADERS = 64
# From BTH to ICRC: no datagram that rules are asked about is shorter.
_SMALLEST = 16
_LARGEST = 0xFFFF  # Of a datagram; no path MTU comes near it.


class Match(TypedDict, total=False):
    """Which packets, and which of those; all that is given must hold.

    Attributes:
        opcode: Name of an opcode, a pattern such as "RC_SEND*", or several.
        nth: Only the n-th packet that matches, from 1, or several of them.
        every: Each so-many-th that matches.
        times: At most so often.
        probability: Each that is left with this probability.
        source: Device, or address, that sent it. In a fabric a device is the host, whatever its
            addresses become. Of a real adapter it stands for the address that it was opened with
            and those that it has when the fault is made.
        destination: Device, or address, that it goes to.
        qp: The queue pair it goes to, or its number.
        psn: Its PSN, or the first and last of a range, which may wrap.
        size: Bytes from BTH to ICRC, or the least and most.
        link: The link of the fabric.
        from_ns: Not before.
        until_ns: Before.
        on: Of a real adapter: "send", "receive" or "both".
        where: A predicate; it is called with a `FaultPacket`.
        name: What the trace calls the fault; of several with one name, the second is "name (2)".
    """

    opcode: Opcodes
    nth: int | Iterable[int]
    every: int
    times: int
    probability: float
    source: Device | GIDLike
    destination: Device | GIDLike
    qp: QP | int
    psn: Span
    size: Span
    link: Any
    from_ns: int
    until_ns: int
    on: str
    where: Where
    name: str


def _refuse(argument: str, value: object, rule: str) -> VerbsError:
    return VerbsError(errno.EINVAL, argument, value, rule)


def opcodes_of(opcode: Opcodes) -> list[int]:
    """Returns the codes of names and patterns.

    Raises:
        VerbsError: EINVAL, for one that names no opcode.
    """
    codes: set[int] = set()
    for name in [opcode] if isinstance(opcode, str) else listed("opcode", opcode, "a name"):
        if not isinstance(name, str):
            raise TypeError(f"opcode must be a name, or several, not {type(name).__name__}")
        found = fnmatch.filter(_OPCODES, name.upper())
        if not found:
            near = difflib.get_close_matches(name.upper(), _OPCODES, 3, 0.5)
            hint = f"; near it are {', '.join(near)}" if near else ""
            raise _refuse("opcode", name, f"must be an opcode or a pattern of some{hint}")
        codes |= {_OPCODES[one] for one in found}
    if not codes:
        raise _refuse("opcode", opcode, "must name one: this can match nothing")
    return sorted(codes)


def with_opcodes(match: Match) -> Match:
    """The match, whose opcodes can be looked at more than once, whatever they were given as."""
    if "opcode" not in match or isinstance(match["opcode"], str):
        return match
    return {**match, "opcode": list(listed("opcode", match["opcode"], "a name"))}


def carries_payload(code: int) -> bool:
    """Whether packets of an opcode have a payload."""
    name = _adapter.opcode_name(code)
    return any(word in name for word in ("SEND", "WRITE", "READ_RESPONSE", "CNP"))


def listed(argument: str, given: Any, what: str) -> Iterable[Any]:
    """Returns `given` if it is several; TypeError with the argument's name if not."""
    if not isinstance(given, Iterable):
        raise TypeError(f"{argument} must be {what}, or several, not {type(given).__name__}")
    return given


def numbers_of(argument: str, given: Any) -> Iterable[Any]:
    """Returns one number, or several, as several; TypeError with the argument's name if none."""
    is_one = isinstance(given, SupportsIndex) and not isinstance(given, Iterable)
    return [given] if is_one else listed(argument, given, "an integer")


def span_of(argument: str, span: Span, bits: int) -> tuple[int, int]:
    """The first and the last of a range, or of one number.

    Raises:
        VerbsError: EINVAL, if it has other than two ends, or one that does not fit the bits.
    """
    ends = span if isinstance(span, tuple) else (span, span)
    if len(ends) != 2:
        raise _refuse(argument, span, "must be a number, or the first and the last")
    first, last = ends
    return unsigned(argument, first, bits), unsigned(argument, last, bits)


def addresses_of(argument: str, where: Device | GIDLike) -> list[GID]:
    """Returns the addresses of a device, or the one that is given.

    Of a device whose address has changed also the first one: address vectors keep what they have.
    """
    if not isinstance(where, Device):
        return [_gid(argument, where)]
    now = [] if where.closed else [GID(raw) for raw in where.adapter.gids if any(raw)]
    return list(dict.fromkeys([where.gid, *now]))


def _gid(argument: str, where: GIDLike) -> GID:
    try:
        return GID(where)
    except VerbsError:
        raise _refuse(argument, where, "must be a device or an address") from None


def _set_counts(rule: _adapter.FaultRule, match: Match) -> None:
    if "nth" in match:
        nth = match["nth"]
        rule.nth = [unsigned("nth", n, 63) for n in numbers_of("nth", nth)]
        if not rule.nth or min(rule.nth) == 0:
            raise _refuse("nth", nth, "must be 1 or more: this can match nothing")
    for name in ("every", "times"):
        if name in match:
            value = unsigned(name, match[name], 63)
            if value == 0:
                raise _refuse(name, value, "must be 1 or more: this can strike nothing")
            setattr(rule, name, value)
    if rule.nth and "every" in match and all(n % rule.every for n in rule.nth):
        told = f"every={rule.every}"
        raise _refuse("nth", match["nth"], f"is no match of {told}: this can strike nothing")
    if "probability" in match:
        probability = match["probability"]
        is_number = isinstance(probability, Real) and not isinstance(probability, bool)
        if not is_number or not 0 < float(probability) <= 1:
            raise _refuse("probability", probability, "must be a number above 0 and at most 1")
        rule.probability = float(probability)


def _set_ends(
    rule: _adapter.FaultRule, match: Match, host_number: Callable[[Device], int | None]
) -> None:
    """Says who sends, and to whom: hosts by number where they have one, else addresses."""
    hosts = {"source": -1, "destination": -1}
    addresses: dict[str, list[GID]] = {}

    def add(end: str, argument: str, where: Device | GIDLike) -> None:
        given = addresses_of(argument, where)
        number = host_number(where) if isinstance(where, Device) else None
        if number is None:
            addresses[end] = [gid for gid in given if gid in addresses.get(end, given)]
        else:
            hosts[end] = number

    if "source" in match:
        add("source", "source", match["source"])
    qp = match.get("qp")
    if isinstance(qp, QP):
        add("destination", "qp", qp.device)
    if "destination" in match:
        where_to = match["destination"]
        there = addresses_of("destination", where_to)
        if isinstance(qp, QP) and not set(there) & set(addresses_of("qp", qp.device)):
            told = "is not where that queue pair is: can match nothing"
            raise _refuse("destination", where_to, told)
        add("destination", "destination", where_to)
    rule.set_hosts(**hosts)
    rule.set_sources([gid.raw for gid in addresses.get("source", [])])
    rule.set_destinations([gid.raw for gid in addresses.get("destination", [])])


def rule_of(
    match: Match,
    now_ns: int,
    link_number: Callable[[Any], int],
    host_number: Callable[[Device], int | None],
) -> _adapter.FaultRule:
    """Makes the native rule of words, without what happens to the packets.

    Args:
        match: The words.
        now_ns: Before, nothing happens any more.
        link_number: Number of a link.
        host_number: Number of the host that a device is; None where hosts have addresses only.

    Raises:
        VerbsError: EINVAL, for words that contradict each other or can match no packet.
        TypeError: For a word that there is not.
    """
    unknown = sorted(set(match) - set(Match.__annotations__))
    if unknown:
        raise TypeError(f"{unknown[0]!r} is no condition: {', '.join(Match.__annotations__)}")
    rule = _adapter.FaultRule()
    codes = opcodes_of(match["opcode"]) if "opcode" in match else list(_OPCODES.values())
    if "opcode" in match:
        rule.set_opcodes(codes)
    _set_counts(rule, match)
    _set_ends(rule, match, host_number)
    qpn = -1
    if "qp" in match:
        qp = match["qp"]
        qpn = qp.qpn if isinstance(qp, QP) else unsigned("qp", qp, 24)
    first_psn, last_psn = span_of("psn", match.get("psn", (0, 0xFFFFFF)), 24)
    least, most = span_of("size", match.get("size", (0, 0xFFFFFFFF)), 32)
    if least > most or most < _SMALLEST or least > _LARGEST:
        raise _refuse("size", match.get("size"), "can match no packet: they have 16 to 65535 bytes")
    if least > _LONGEST_HEADERS and not any(map(carries_payload, codes)):
        told = f"can match nothing: without a payload packets have {_LONGEST_HEADERS} bytes at most"
        raise _refuse("size", match.get("size"), told)
    from_ns = unsigned("from_ns", match.get("from_ns", 0), 64)
    until_ns = unsigned("until_ns", match.get("until_ns", _NEVER), 64)
    if until_ns <= from_ns or until_ns <= now_ns:
        rule_text = f"must be after from_ns and after now, {now_ns}: this can match nothing"
        raise _refuse("until_ns", until_ns, rule_text)
    on = match.get("on", "both")
    if on not in ("send", "receive", "both"):
        raise _refuse("on", on, "must be send, receive or both")
    rule.set_numbers(
        qpn=qpn,
        first_psn=first_psn,
        last_psn=last_psn,
        min_bytes=least,
        max_bytes=most,
        from_ns=from_ns,
        until_ns=until_ns,
        link=link_number(match["link"]) if "link" in match else -1,
        direction={"both": 0, "send": 1, "receive": 2}[on],
    )
    if "where" in match:
        where = match["where"]
        if not callable(where):
            raise TypeError("where must be callable with a FaultPacket")
        rule.set_predicate(lambda *about: bool(where(FaultPacket(*about))))
    return rule
