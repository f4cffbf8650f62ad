"""Faults as words: `fabric.faults.drop(opcode="RC_ACKNOWLEDGE", nth=3)`."""

from __future__ import annotations

import _thread
import errno
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from softhca import _adapter
from softhca._adapter import CorruptPart, FaultAction
from softhca.testing.fault_demands import (
    demand_no_link,
    demand_payload,
    demand_requests,
    demand_two_hosts,
    requests_of,
)
from softhca.testing.fault_match import Match, addresses_of, rule_of, span_of, with_opcodes
from softhca.testing.fault_packet import FaultPacket
from softhca.testing.links import link_number
from softhca.testing.resource_faults import ResourceFaults
from softhca.verbs.checks import instance, unsigned
from softhca.verbs.device import Device
from softhca.verbs.errors import VerbsError
from softhca.verbs.qp import QP

if TYPE_CHECKING:
    from softhca.testing.fabric import Fabric
    from softhca.verbs.gid import GIDLike

# What a script returns: None leaves the packet; else datagrams, or (datagram, delay_ns).
ScriptResult = None | Iterable["bytes | tuple[bytes, int]"]
Script = Callable[[FaultPacket], ScriptResult]

_PARTS = {
    "anywhere": CorruptPart.ANYWHERE,
    "headers": CorruptPart.HEADERS,
    "payload": CorruptPart.PAYLOAD,
    "icrc": CorruptPart.ICRC,
}
# What a receive is needed for, by its last or only packet.
_TAKES_A_RECEIVE = ("RC_SEND*", "RC_*WITH_IMMEDIATE", "XRC_SEND*", "XRC_*WITH_IMMEDIATE")
_BYTES = bytes | bytearray | memoryview
NAKS = {
    "sequence": 0x60,
    "invalid_request": 0x61,
    "remote_access": 0x62,
    "remote_operation": 0x63,
}


class FaultHolder(Protocol):
    """Where rules go: a fabric, or the link of a real adapter."""

    def add_fault(self, rule: _adapter.FaultRule) -> int:
        """Adds a rule and returns its number."""
        ...

    def remove_fault(self, number: int) -> None:
        """Takes it away."""
        ...

    def tally(self, number: int) -> tuple[int, int]:
        """How often it matched, and struck."""
        ...

    def strikes(self, number: int) -> list[int]:
        """Numbers of the matches that it struck."""
        ...


class Fault:
    """A fault that was asked for; it ends with `remove()` or at the end of a `with` block.

    Attributes:
        name: What the trace calls it.
    """

    def __init__(self, holder: FaultHolder, number: int, name: str) -> None:
        self._holder = holder
        self.number: int = number
        self.name: str = name

    @property
    def matched(self) -> int:
        """Packets that met its conditions, before n-th and probability."""
        return self._holder.tally(self.number)[0]

    @property
    def struck(self) -> int:
        """Packets that it struck."""
        return self._holder.tally(self.number)[1]

    def remove(self) -> None:
        """Ends it."""
        self._holder.remove_fault(self.number)

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<Fault {self.name}: struck {self.struck} of {self.matched}>"


class PacketFaults:
    """Faults of packets. Each method takes the conditions of `Match` besides its own words.

    The conditions are opcode, nth, every, times, probability, source, destination, qp, psn, size,
    link, from_ns, until_ns, on, where and name. Each method returns the `Fault`, which counts what
    it struck and can be taken away. It raises a VerbsError, EINVAL, for values out of range and for
    conditions that no packet can meet, and a TypeError for a word that there is not.

    Faults are asked in the order in which they were made, until one loses the packet.
    """

    def __init__(self, holder: FaultHolder, seed: int) -> None:
        self._holder = holder
        self._seed = seed
        self.all: list[Fault] = []
        self._names: Counter[str] = Counter()
        # Some fault lets through what no network would: what comes of it is not the transport's
        # fault.
        self.forges: bool = False
        # Some fault damages packets, which whoever looks at the ICRC notices.
        self.damages: bool = False
        self.allowed: frozenset[tuple[str, int]] | None = None

    def _now_ns(self) -> int:
        return 0

    def _link_number(self, link: Any) -> int:
        raise VerbsError(errno.EINVAL, "link", link, "is for fabrics: this is a real network")

    def _host_number(self, device: Device) -> int | None:
        return None

    def _rule_of(self, match: Match) -> _adapter.FaultRule:
        checked = self._with_guard(match)
        return rule_of(checked, self._now_ns(), self._link_number, self._host_number)

    def _guarded(
        self, call: Callable[..., Any], instead: Any, function: Callable[..., Any]
    ) -> Callable[..., Any]:
        """What stands between the native side and a function of the program, which `call` calls."""
        return call

    def _demand_known(self, argument: str, given: object) -> None:
        """Refuses a device or queue pair whose packets never come by here."""

    def _with_guard(self, match: Match) -> Match:
        for argument in ("source", "destination", "qp"):
            self._demand_known(argument, match.get(argument))
        if "where" not in match or not callable(match["where"]):
            return match
        where = match["where"]
        return {**match, "where": self._guarded(lambda packet: bool(where(packet)), False, where)}

    def _add(self, action: FaultAction, match: Match, word: str, **settings: Any) -> Fault:
        rule = self._rule_of(match)
        rule.action = action
        return self._add_rule(rule, match, word, **settings)

    def _add_rule(
        self, rule: _adapter.FaultRule, match: Match, word: str, **settings: Any
    ) -> Fault:
        for name, value in settings.items():
            setattr(rule, name, value)
        # Of the fault's place and the seed alone: what another fault draws changes nothing here.
        rule.seed = (self._seed * 0x9E3779B97F4A7C15 + len(self.all) * 0xD1B54A32D192ED03) % 2**64
        name = instance("name", match.get("name", f"{word} #{len(self.all) + 1}"), str)
        rule.name = self._unlike_others(name)
        if self.allowed is not None:
            rule.set_only([number for name, number in self.allowed if name == rule.name])
        fault = Fault(self._holder, self._holder.add_fault(rule), rule.name)
        self.all.append(fault)
        self._names[name] += 1
        self._names[rule.name] |= 1
        return fault

    def _unlike_others(self, name: str) -> str:
        """The name, with a number behind it if there is one like it: strikes go by names."""
        number = self._names[name]
        while self._names[told := f"{name} ({number + 1})" if number else name]:
            number += 1
        return told

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.all}>"

    def strikes(self) -> list[tuple[str, int]]:
        """Every strike: the fault's name, and the number of its match, from 1."""
        return [
            (fault.name, number)
            for fault in self.all
            for number in self._holder.strikes(fault.number)
        ]

    def drop(self, **match: Unpack[Match]) -> Fault:
        """Loses packets."""
        return self._add(FaultAction.DROP, match, "drop")

    def duplicate(self, copies: int = 1, delay_ns: int = 0, **match: Unpack[Match]) -> Fault:
        """Delivers packets more than once.

        Args:
            copies: How many come besides the packet itself, 1 or more.
            delay_ns: How much later than it, in nanoseconds.
            match: Which packets.
        """
        count = unsigned("copies", copies, 16)
        if count == 0:
            raise VerbsError(errno.EINVAL, "copies", copies, "must be 1 or more")
        delay = unsigned("delay_ns", delay_ns, 63)
        return self._add(FaultAction.DUPLICATE, match, "duplicate", count=count, delay_ns=delay)

    def ghost(self, delay_ns: int, **match: Unpack[Match]) -> Fault:
        """Delivers packets once more, much later: when the queue pair may be of another peer.

        Args:
            delay_ns: How much later, in nanoseconds.
            match: Which packets.
        """
        delay = unsigned("delay_ns", delay_ns, 63)
        return self._add(FaultAction.DUPLICATE, match, "ghost", delay_ns=delay)

    def delay(self, delay_ns: int | tuple[int, int], **match: Unpack[Match]) -> Fault:
        """Lets packets come later.

        Those that are not delayed overtake them. Of those that are, the one that is due first comes
        first, and of several that are due at once the one that was sent first: equal delays keep
        their order, and drawn ones change it in the way that the seed says.

        Args:
            delay_ns: By how many nanoseconds; of the least and the most one is drawn for each.
            match: Which packets.
        """
        least, most = span_of("delay_ns", delay_ns, 63)
        if least > most:
            raise VerbsError(errno.EINVAL, "delay_ns", delay_ns, "must be the least, then the most")
        return self._add(FaultAction.DELAY, match, "delay", delay_ns=least, most_delay_ns=most)

    def reorder(self, by: int = 4, **match: Unpack[Match]) -> Fault:
        """Holds packets until later ones of the link have overtaken them.

        Held packets count as nobody's overtakers. Those that may go on at once go in the order in
        which they were sent, and when nothing is left that could overtake them, all go.

        Args:
            by: How many at most; from one on, it is drawn for each.
            match: Which packets.
        """
        count = unsigned("by", by, 16)
        if count == 0:
            raise VerbsError(errno.EINVAL, "by", by, "must be 1 or more")
        return self._add(FaultAction.REORDER, match, "reorder", count=count)

    def corrupt(
        self, part: str = "anywhere", *, mend_icrc: bool = False, **match: Unpack[Match]
    ) -> Fault:
        """Flips one bit: of "anywhere", "headers", "payload" or "icrc".

        Args:
            part: Where.
            mend_icrc: Make the ICRC fit again, so that the damage is not noticed by it.
            match: Which packets.
        """
        if part not in _PARTS:
            raise VerbsError(errno.EINVAL, "part", part, f"must be one of {', '.join(_PARTS)}")
        match = with_opcodes(match)
        if part == "payload" and "opcode" in match:
            demand_payload(match["opcode"])
        if part == "icrc" and mend_icrc:
            raise VerbsError(errno.EINVAL, "mend_icrc", True, "undoes damage of the ICRC")
        mends = bool(mend_icrc)
        fault = self._add(
            FaultAction.CORRUPT, match, f"corrupt {part}", part=_PARTS[part], mend_icrc=mends
        )
        self.forges |= mends
        self.damages = True
        return fault

    def truncate(self, to_bytes: int, **match: Unpack[Match]) -> Fault:
        """Cuts packets.

        Args:
            to_bytes: How many bytes are left, counted from the BTH.
            match: Which packets.
        """
        fault = self._add(
            FaultAction.TRUNCATE, match, "truncate", count=unsigned("to_bytes", to_bytes, 16)
        )
        self.damages = True
        return fault

    def mark(self, **match: Unpack[Match]) -> Fault:
        """Marks packets with congestion experienced."""
        return self._add(FaultAction.MARK, match, "mark")

    def script(self, script: Script, **match: Unpack[Match]) -> Fault:
        """Lets a function decide.

        Args:
            script: Called with a `FaultPacket`. It returns None to leave it as it is, or what is to
                arrive in its place: an iterable, empty to lose it, of datagrams or of pairs of a
                datagram and a delay in nanoseconds.
            match: Which packets.
        """
        if not callable(script):
            raise TypeError("script must be callable with a FaultPacket")
        rule = self._rule_of(match)
        rule.action = FaultAction.SCRIPT

        def called(*about: Any) -> list[tuple[bytes, int]] | None:
            told = script(FaultPacket(*about))
            return None if told is None else _datagrams(told)

        rule.set_script(self._guarded(called, None, script))
        fault = self._add_rule(rule, match, "script")
        self.forges = True
        return fault

    def mute(self, host: Device | GIDLike, **match: Unpack[Match]) -> Fault:
        """Loses all that a host sends: it hears, and says nothing.

        Args:
            host: Its device or address.
            match: Which of its packets; all by default.
        """
        if "source" in match:
            rule = "is the host that is muted: drop() takes any"
            raise VerbsError(errno.EINVAL, "source", match["source"], rule)
        self._demand_known("host", host)
        addresses_of("host", host)  # Refuses what is none by the name that it was given as.
        return self._add(FaultAction.DROP, {**match, "source": host}, "mute")

    def cnp(self, **match: Unpack[Match]) -> Fault:
        """Sends a congestion notification back for packets, which arrive.

        A real adapter sends it for packets that come to it.
        """
        return self._add_at_arrival(FaultAction.CNP, match, "cnp")

    def rnr(self, tries: int = 1, *, timer_code: int = 1, **match: Unpack[Match]) -> Fault:
        """Answers requests that need a receive with RNR NAKs, `tries` times.

        Only the request that is due is answered, as a responder would: a NAK acknowledges all
        before it. A real adapter answers requests that come to it. The same is so for `nak`.

        Args:
            tries: How many.
            timer_code: When the requester may come back (IBTA Vol 1, table 45).
            match: Which requests; by default all that need a receive.
        """
        code = unsigned("timer_code", timer_code, 5)
        demand_no_link(match)
        match = with_opcodes(match)
        demand_requests(match)
        if "times" in match:
            raise VerbsError(errno.EINVAL, "times", match["times"], "is called tries here")
        if unsigned("tries", tries, 63) == 0:
            raise VerbsError(errno.EINVAL, "tries", tries, "must be 1 or more")
        chosen: Match = {"opcode": _TAKES_A_RECEIVE, **match, "times": tries}
        return self._add_at_arrival(FaultAction.ANSWER, chosen, "rnr", syndrome=0x20 | code)

    def nak(self, kind: str, **match: Unpack[Match]) -> Fault:
        """Answers requests in the responder's place, which does not see them.

        Args:
            kind: "sequence", "invalid_request", "remote_access" or "remote_operation".
            match: Which requests.
        """
        if kind not in NAKS:
            raise VerbsError(errno.EINVAL, "kind", kind, f"must be one of {', '.join(NAKS)}")
        demand_no_link(match)
        match = with_opcodes(match)
        demand_requests(match)
        chosen: Match = {"opcode": requests_of(("RC_*", "XRC_*")), **match}
        return self._add_at_arrival(FaultAction.ANSWER, chosen, f"nak {kind}", syndrome=NAKS[kind])

    def _add_at_arrival(
        self, action: FaultAction, match: Match, word: str, **settings: Any
    ) -> Fault:
        return self._add(action, match, word, **settings)


class LinkFaults(PacketFaults):
    """Faults around a real adapter: `softhca.open(faults=LinkFaults())`.

    The words are those of a fabric, and so a script of faults runs there and here. They strike what
    the adapter sends and what comes to it; `on` chooses. Times count from the opening. Faults may
    be added while the adapter is open. A predicate or script that raises is reported by
    `sys.unraisablehook`, and leaves the packet as it is. It runs within the adapter's own work, and
    so must not wait for the end of that: closing the adapter, its `link_counters` and its multicast
    groups are refused there with EDEADLK. Posting, polling, and asking for faults or changing them
    is fine.

    Args:
        seed: Of what is drawn.
    """

    def __init__(self, seed: int = 1) -> None:
        self.shared: _adapter.SharedFaults = _adapter.SharedFaults()
        super().__init__(self.shared, unsigned("seed", seed, 63))

    def _guarded(
        self, call: Callable[..., Any], instead: Any, function: Callable[..., Any]
    ) -> Callable[..., Any]:
        # Called from the adapter's thread, and from whichever polls: nobody there could catch it.
        def guarded(*about: Any) -> Any:
            try:
                return call(*about)
            except KeyboardInterrupt:
                _thread.interrupt_main()
            except BaseException as error:
                _adapter.report_unraisable(error, function)
            return instead

        return guarded

    def _add_at_arrival(
        self, action: FaultAction, match: Match, word: str, **settings: Any
    ) -> Fault:
        if match.get("on", "receive") == "send":
            rule = f"must be receive: {word.split()[0]} takes the place of who gets the packet"
            raise VerbsError(errno.EINVAL, "on", "send", rule)
        return self._add(action, {**match, "on": "receive"}, word, **settings)


def _datagrams(told: Any) -> list[tuple[bytes, int]]:
    """What a script returned, checked: where it is called natively nobody could be told."""
    if isinstance(told, _BYTES) or not isinstance(told, Iterable):
        raise TypeError(f"a script returns None or several datagrams, not {type(told).__name__}")
    made = []
    for one in told:
        datagram, delay_ns = one if isinstance(one, tuple) and len(one) == 2 else (one, 0)
        if not isinstance(datagram, _BYTES):
            rule = "datagrams, or pairs of a datagram and a delay"
            raise TypeError(f"a script returns {rule}, not {type(datagram).__name__}")
        made.append((bytes(datagram), unsigned("delay_ns", delay_ns, 63)))
    return made


class FabricFaults(PacketFaults, ResourceFaults):
    """Faults of a fabric: of packets, of what answers them, and of the hosts.

    What a predicate or script raises comes out of the wait that let time pass; it leaves the packet
    as it is.
    """

    def __init__(self, fabric: Fabric) -> None:
        super().__init__(fabric, fabric.seed)
        self._fabric: Fabric = weakref.proxy(fabric)

    def _with_guard(self, match: Match) -> Match:
        if "on" in match:
            rule = "is for real adapters: in a fabric give source or destination"
            raise VerbsError(errno.EINVAL, "on", match["on"], rule)
        guarded = super()._with_guard(match)
        demand_two_hosts(match)
        return guarded

    def _demand_known(self, argument: str, given: object) -> None:
        device = given.device if isinstance(given, QP) else given
        if isinstance(device, Device) and device not in self._fabric.devices:
            # Fabrics give the same addresses: it would strike another host's packets.
            raise VerbsError(errno.EINVAL, argument, given, "is of no host of this fabric")

    def _now_ns(self) -> int:
        return int(self._fabric.now_ns)

    def _link_number(self, link: Any) -> int:
        return link_number(link, self._fabric.links)

    def _host_number(self, device: Device) -> int:
        return self._fabric.host_number(device)
