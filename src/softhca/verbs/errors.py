"""How a verb says no."""

from __future__ import annotations

import errno as errno_names
from typing import Any

from softhca import _adapter
from softhca.verbs.enums import QPAttrMask, QPState, QPType

# Arguments whose numbers say more as names.
_NAMED = {"attr_mask": QPAttrMask, "qp_state": QPState, "cur_qp_state": QPState, "qp_type": QPType}
# Arguments that are no number, and calls, whatever number the adapter gives for them.
_NUMBERLESS = (
    *("device", "dgid", "gid", "invalidation", "invalidation_channel", "mr", "mw", "qp"),
    *("attach_mcast", "close", "detach_mcast", "link_counters", "path"),
)
# Numbers with several names, of which Python knows one: those of the manual pages.
_NAMES = {errno_names.EDEADLK: "EDEADLK", errno_names.EOPNOTSUPP: "EOPNOTSUPP"}


def errno_name(number: int) -> str:
    """Name of an errno, as documents have it; its digits if it has none."""
    return _NAMES.get(number) or errno_names.errorcode.get(number, str(number))


class VerbsError(OSError):
    """A verb refused its arguments, or cannot be done now; nothing was changed.

    Attributes:
        errno: As libibverbs documents it for the verb.
        argument: Name of the argument that was refused; empty if it was none of them.
        value: What the argument was; None where a number says nothing.
        rule: What the argument must satisfy.
        bad_wr: The work request that was refused; those before it in the list stay posted.

    It can be pickled: of a value that cannot be, such as a region, what it looks like goes along,
    and `bad_wr` where it is an index.
    """

    errno: int

    def __init__(
        self,
        errno: int,
        argument: str = "",
        value: object = None,
        rule: str = "",
        bad_wr: Any = None,
    ) -> None:
        """Makes the message of its parts, such as `nr_cqe=0: must be 1 to 4096 (EINVAL)`."""
        if argument in _NUMBERLESS and isinstance(value, int):
            value = None
        self.argument: str = argument
        self.value: object = value
        self.rule: str = rule
        self.bad_wr: Any = bad_wr
        shown = ""
        if value is not None:
            named = _NAMED.get(argument)
            shown = f"={_name_of(named, value)}" if named is not None else f"={value!r}"
        subject = f"{argument}{shown}: " if argument else ""
        super().__init__(errno, f"{subject}{rule} ({errno_name(errno)})")

    def __str__(self) -> str:
        return str(self.strerror)

    def __reduce__(self) -> tuple[Any, ...]:
        value = _for_others(self.value)
        # A work request stays in its process; the index of one goes along.
        bad_wr = self.bad_wr if isinstance(self.bad_wr, int) else None
        return type(self), (self.errno, self.argument, value, self.rule, bad_wr)


class _Shown(str):
    """What is left of a value that belongs to another process: how it looks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _for_others(value: object) -> object:
    import pickle  # Takes long, and most programs do without.

    try:
        pickle.dumps(value)
    except Exception:  # Whatever its class raises.
        return _Shown(repr(value))
    return value


def _name_of(named: type, value: object) -> str:
    try:
        return repr(named(value))
    except ValueError:
        return repr(value)


_adapter.raise_as(VerbsError)
