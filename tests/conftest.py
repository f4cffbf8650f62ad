"""What all tests share: reproducible randomness, signals that are heeded, and addresses."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from hypothesis import settings

import softhca as hca

# No deadline: a busy machine is not a failing test. A failure prints what reproduces it, so that
# nothing need be kept in the checkout, which may be read-only.
settings.register_profile("softhca", deadline=None, print_blob=True, database=None)
settings.load_profile("softhca")

# Who starts the tests in the background of a shell script has them ignore these, and so what they
# start; tests that signal something would wait for ever.
HEEDED = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGQUIT: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}
for number, handler in HEEDED.items():
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


@pytest.fixture
def free_address() -> Callable[[], str]:
    """Gives loopback addresses that nobody has: not another run of these tests either."""

    def of_one_that_was() -> str:
        with hca.open() as device:
            return str(device.gid.ip)

    return of_one_that_was
