"""A page has 4 KiB on x86-64, but 16 or 64 KiB on many kernels of arm64."""

import re
from pathlib import Path

NATIVE = Path(__file__).parents[2] / "native"
CONSTANT = re.compile(r"\bk\w*Page\w* = (4096|4095|0x1000|0xfff|1u? << 12)\b")
# Not how much the kernel maps at once, but:
MEANT = {
    "driver/invalidation/channel.cpp",  # What is promised of the generation's mapping.
    "uabi/task_memory.cpp",  # The least that there is, into which any page can be divided.
}


def test_the_native_code_asks_the_kernel_how_large_a_page_is() -> None:
    found = {
        str(path.relative_to(NATIVE))
        for path in NATIVE.rglob("*.[ch]pp")
        if CONSTANT.search(path.read_text())
    }
    assert found == MEANT
