"""Peers that are not here."""

from bench.turns import WithdrawnError


class AbsentError(WithdrawnError):
    """The peer is not on this machine, or does not work here; says what is missing."""
