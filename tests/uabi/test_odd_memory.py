"""Memory that is not as most is: what may be registered of it."""

from __future__ import annotations

from pathlib import Path

from .programs import compiled, needs_verbs_headers, run_under


@needs_verbs_headers
def test_what_the_kernel_would_pin_is_registered_and_nothing_else(tmp_path: Path) -> None:
    """As pin_user_pages(9) has it."""
    said = run_under(compiled("odd_memory", tmp_path)).stdout.splitlines()
    if said[-1].startswith("secret"):  # Where there is such memory.
        assert said.pop() == "secret: EFAULT"
    of_files = ["up to a file's end: registered", "beyond it: EFAULT"]
    assert said == [
        "write only, to be read: EFAULT",
        "write only, to be written: registered",
        "32 bytes: success, 7 7",
        "65536 bytes: success, 7 7",
        "read only, to be written: EFAULT",
        *of_files,
        *of_files,
    ]
