"""Peers that are not here."""


class AbsentError(Exception):
    """The peer is not on this machine, or does not work here; says what is missing."""
