"""What all tests share: reproducible randomness."""

from __future__ import annotations

from hypothesis import settings

# No deadline: a busy machine is not a failing test. A failure prints what reproduces it.
settings.register_profile("softhca", deadline=None, print_blob=True)
settings.load_profile("softhca")
