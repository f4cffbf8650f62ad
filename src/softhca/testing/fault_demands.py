"""What the words of faults must fulfil together: one that can match nothing is refused."""

from __future__ import annotations

import errno
import fnmatch
from typing import Any

from softhca import _adapter
from softhca.testing.fault_match import Match, addresses_of, carries_payload, opcodes_of
from softhca.verbs.errors import VerbsError
from softhca.verbs.qp import QP

_NO_REQUESTS = ("*ACKNOWLEDGE", "*_RESPONSE_*")


def demand_payload(opcode: Any) -> None:
    """Refuses opcodes of which none has a payload."""
    if not any(map(carries_payload, opcodes_of(opcode))):
        raise VerbsError(errno.EINVAL, "opcode", opcode, "carries no payload: can match nothing")


def requests_of(opcode: Any) -> list[str]:
    """Names of those opcodes that a responder answers."""
    names = [_adapter.opcode_name(code) for code in opcodes_of(opcode)]
    return [
        name
        for name in names
        if name.startswith(("RC_", "XRC_"))
        and not any(fnmatch.fnmatchcase(name, other) for other in _NO_REQUESTS)
    ]


def demand_requests(match: Match) -> None:
    """Refuses opcodes of which none is answered."""
    if "opcode" in match and not requests_of(match["opcode"]):
        rule = "is no request that is answered: can match nothing"
        raise VerbsError(errno.EINVAL, "opcode", match["opcode"], rule)


def demand_no_link(match: Match) -> None:
    """Refuses a link: what answers in a responder's place stands at its host."""
    if "link" in match:
        rule = "is not for what answers a request in the responder's place: give destination"
        raise VerbsError(errno.EINVAL, "link", match["link"], rule)


def demand_two_hosts(match: Match) -> None:
    """Refuses packets of a host to itself."""
    qp = match.get("qp")
    far = qp.device if isinstance(qp, QP) else match.get("destination")
    if far is None or "source" not in match:
        return
    if addresses_of("source", match["source"]) == addresses_of("destination", far):
        rule = "is the destination too, and what a host sends to itself passes no link: "
        raise VerbsError(errno.EINVAL, "source", match["source"], rule + "can match nothing")
