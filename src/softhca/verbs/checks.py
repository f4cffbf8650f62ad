"""Checks of arguments before they cross into the adapter, so that a refusal names them."""

from __future__ import annotations

import errno
from numbers import Real
from operator import index
from typing import Any, SupportsIndex, TypeVar

from softhca.verbs.enums import Access
from softhca.verbs.errors import VerbsError

T = TypeVar("T")

_KNOWN_ACCESS = sum(Access) | 0x3FF00000


def integer(argument: str, value: SupportsIndex) -> int:
    """Returns `value` as an integer; TypeError with the argument's name if it is none.

    True and False are none either: who gives one has mixed up arguments.
    """
    if type(value) is int:
        return value
    if isinstance(value, bool):
        raise TypeError(f"{argument} must be an integer, not {value}")
    try:
        return index(value)
    except TypeError:
        raise TypeError(f"{argument} must be an integer, not {type(value).__name__}") from None


def unsigned(argument: str, value: SupportsIndex, bits: int, most: int | None = None) -> int:
    """Returns `value` as an integer of `bits` bits.

    Raises:
        VerbsError: EINVAL, if it is negative or above `most` or what fits the bits.
        TypeError: If it is no integer.
    """
    number = value if type(value) is int else integer(argument, value)
    limit = (1 << bits) - 1 if most is None else most
    if not 0 <= number <= limit:
        raise VerbsError(errno.EINVAL, argument, number, f"must be 0 to {limit}")
    return number


def rights(argument: str, value: SupportsIndex) -> Access:
    """Returns `value` as access flags; whether they suit what they are for is not asked here.

    Raises:
        VerbsError: EINVAL, if it has bits that are no access flag, nor optional ones (20 to 29),
            which an adapter may ignore.
        TypeError: If it is no integer.
    """
    number = unsigned(argument, value, 32)
    if number & ~_KNOWN_ACCESS:
        raise VerbsError(errno.EINVAL, argument, number, "has bits that are no access flag")
    return Access(number)


def real(argument: str, value: object, least: float, most: float) -> float:
    """Returns `value` if it is a number from `least` to `most`.

    Raises:
        VerbsError: EINVAL, if it is another number, or none such as NaN.
        TypeError: If it is something else.
    """
    if isinstance(value, bool):
        raise TypeError(f"{argument} must be a number, not {value}")
    if not isinstance(value, Real):
        raise TypeError(f"{argument} must be a number, not {type(value).__name__}")
    number: Any = value
    if not least <= number <= most:
        raise VerbsError(errno.EINVAL, argument, value, f"must be {least:g} to {most:g}")
    return float(number)


def packed_bytes(argument: str, packed: object, size: int) -> bytes:
    """Returns bytes that were packed into so many.

    Raises:
        VerbsError: EINVAL, if there are more or fewer.
        TypeError: If they are no bytes.
    """
    if not isinstance(packed, bytes | bytearray | memoryview):
        raise TypeError(f"{argument} must be bytes-like, not {type(packed).__name__}")
    taken = bytes(packed)
    if len(taken) != size:
        raise VerbsError(errno.EINVAL, argument, len(taken), f"must be {size} bytes")
    return taken


def instance(argument: str, value: object, cls: type[T]) -> T:
    """Returns `value` if it is an instance of `cls`; TypeError with the argument's name if not."""
    if not isinstance(value, cls):
        raise TypeError(f"{argument} must be {cls.__name__}, not {type(value).__name__}")
    return value
