"""What all tests share: reproducible randomness, and Ctrl-C."""

from __future__ import annotations

import signal

from hypothesis import settings

# No deadline: a busy machine is not a failing test. A failure prints what reproduces it.
settings.register_profile("softhca", deadline=None, print_blob=True)
settings.load_profile("softhca")

# Who starts the tests in the background of a shell script has them ignore it, and tests that
# interrupt what waits would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
