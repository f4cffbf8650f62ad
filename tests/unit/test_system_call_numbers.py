"""The numbers of system calls in native/uabi/system_calls.cpp, against the kernel's headers."""

import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "native" / "uabi" / "system_calls.cpp"
# What the kernel calls those that the table knows by another name, or that are two of one kind.
OTHER_NAMES = {
    "faccessat": {"faccessat", "faccessat2"},
    "getxattr": {"getxattr", "lgetxattr"},
    "listxattr": {"listxattr", "llistxattr"},
    # Of arm64; the number is the same for all structures of 64 bits.
    "newfstatat": {"newfstatat", "3264_fstatat"},
    "fstat": {"fstat", "3264_fstat"},
    "fcntl": {"fcntl", "3264_fcntl"},
}
HEADERS = {
    "kX86_64Rules": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    # Of arm64 among others, in the headers of any architecture.
    "kArm64Rules": Path("/usr/include/asm-generic/unistd.h"),
}


def rules_of(table: str) -> list[tuple[int, str]]:
    text = SOURCE.read_text()
    (rows,) = re.findall(rf"{table}\[\] = {{\n(.*?)\n}};", text, re.DOTALL)
    return [
        (int(number), name) for number, name in re.findall(r"{(\d+), (?:SystemCall::)?(\w+),", rows)
    ]


@pytest.mark.parametrize("table", HEADERS)
def test_each_number_is_the_kernels(table: str) -> None:
    header = HEADERS[table]
    if not header.exists():
        pytest.skip(f"{header} is not installed")
    numbers: dict[int, set[str]] = {}
    for name, number in re.findall(r"#define __NR(?:_|)(\w+)\s+(\d+)\b", header.read_text()):
        numbers.setdefault(int(number), set()).add(name.removeprefix("_"))
    rules = rules_of(table)
    assert len(rules) > 15
    for number, name in rules:
        assert numbers[number] & OTHER_NAMES.get(name, {name}), (number, name, numbers[number])


def test_both_tables_know_the_same_calls() -> None:
    x86_64, arm64 = ({name for _, name in rules_of(table)} for table in HEADERS)
    # Those that architectures which came later do not have.
    assert x86_64 - arm64 == {"open", "stat", "lstat", "access", "readlink"}
    assert arm64 <= x86_64
