"""What a fabric says when a test cannot go on."""

from __future__ import annotations


class FabricError(Exception):
    """A topology, a fault or a program that cannot be."""


class DeadlockError(FabricError):
    """Programs wait for what can never come: nothing is on its way, and no timer runs.

    The message says who waits for what, since when in virtual time, and what state the queue pairs
    are in.
    """
