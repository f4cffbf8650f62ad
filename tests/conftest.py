"""What all tests share: reproducible randomness, and signals that are heeded."""

from __future__ import annotations

import signal

from hypothesis import settings

# No deadline: a busy machine is not a failing test. A failure prints what reproduces it.
settings.register_profile("softhca", deadline=None, print_blob=True)
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
