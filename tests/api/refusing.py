"""What every refusal has to say."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from softhca import VerbsError
from softhca.verbs.errors import errno_name


def refused(call: Callable[[], object], argument: str, error: int = errno.EINVAL) -> VerbsError:
    """Calls, and returns the refusal that names `argument`."""
    with pytest.raises(VerbsError) as raised:
        call()
    assert raised.value.errno == error, raised.value
    assert raised.value.argument == argument, raised.value
    assert argument in str(raised.value)
    assert f"({errno_name(error)})" in str(raised.value)
    return raised.value
