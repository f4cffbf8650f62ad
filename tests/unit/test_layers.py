"""The arrows of ARCHITECTURE.md: who may include or import whom."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
NATIVE = TOP / "native"
PACKAGE = TOP / "src" / "softhca"

# Folder of native/ to the folders that it may include; each may include itself and vocabulary.
INCLUDES = {
    "vocabulary": set(),
    "wire": set(),
    "memory": set(),
    "queue": set(),
    "transport": {"queue", "memory", "wire"},
    "adapter": {"transport", "queue", "memory", "wire"},
    "faults": {"wire"},
    "fabric": {"adapter", "faults", "wire"},
    "link": {"faults", "wire"},
    # Of link, the descriptor that closes itself.
    "neighbour": {"adapter", "transport", "link", "memory", "wire"},
    # Of memory, what accesses to watched regions share with who watches.
    "driver": {"neighbour", "adapter", "link", "memory"},
    # Of link, the descriptor that closes itself.
    "uabi": {"driver", "adapter", "link", "queue", "memory"},
    # Conversion needs the values of every layer, but calls driver and adapter alone.
    "bindings": {
        "uabi",
        "driver",
        "neighbour",
        "fabric",
        "faults",
        "adapter",
        "transport",
        "queue",
        "wire",
    },
}

# Who may import the native adapter.
MAY_IMPORT_ADAPTER = {"completion", "verbs", "invalidation", "testing", "uabi"}

# Whose modules are built on the facade; everything else lies beneath it.
ABOVE_THE_FACADE = {"tools", "__main__.py"}


def native_sources() -> list[Path]:
    found = [p for p in NATIVE.rglob("*") if p.suffix in (".hpp", ".cpp")]
    assert found, "no native sources"
    return [p for p in found if p.relative_to(NATIVE).parts[0] != "tests"]


@pytest.mark.parametrize("folder", sorted(INCLUDES))
def test_native_folder_includes_only_what_it_may(folder: str) -> None:
    allowed = INCLUDES[folder] | {folder, "vocabulary"}
    wrong = [
        f"{source.relative_to(NATIVE)}:{number}: {included}"
        for source in native_sources()
        if source.relative_to(NATIVE).parts[0] == folder
        for number, line in enumerate(source.read_text().splitlines(), 1)
        for included in re.findall(r'^\s*#\s*include\s+"([^"]+)"', line)
        if included.split("/")[0] not in allowed
    ]
    assert not wrong, "\n".join(wrong)


def test_every_native_folder_has_its_rule() -> None:
    folders = {source.relative_to(NATIVE).parts[0] for source in native_sources()}
    assert folders <= set(INCLUDES)


def test_only_the_driver_touches_threads_and_clocks() -> None:
    forbidden = re.compile(r"#\s*include\s+<(thread|chrono|time\.h|sys/socket\.h|pthread\.h)>")
    wrong = [
        str(source.relative_to(NATIVE))
        for source in native_sources()
        if source.relative_to(NATIVE).parts[0]
        not in ("driver", "link", "neighbour", "uabi", "bindings")
        and forbidden.search(source.read_text())
    ]
    assert not wrong


def imports_of(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def python_modules() -> list[tuple[str, Path]]:
    return [(p.relative_to(PACKAGE).parts[0], p) for p in sorted(PACKAGE.rglob("*.py"))]


def test_only_verbs_invalidation_and_testing_import_the_adapter() -> None:
    wrong = [
        str(path.relative_to(PACKAGE))
        for part, path in python_modules()
        if part not in MAY_IMPORT_ADAPTER
        and any(name.startswith("softhca._adapter") for name in imports_of(path))
    ]
    assert not wrong


def test_nothing_below_the_facade_imports_it() -> None:
    facade = ast.parse((PACKAGE / "__init__.py").read_text())
    (names,) = [
        ast.literal_eval(node.value)
        for node in facade.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    exported = {"softhca", "softhca.open", *(f"softhca.{name}" for name in names)}
    wrong = [
        f"{path.relative_to(PACKAGE)}: {sorted(found)}"
        for part, path in python_modules()
        if part not in ABOVE_THE_FACADE | {"__init__.py"}
        and (found := {n for n in imports_of(path) if n in exported and n != "softhca"})
    ]
    assert not wrong
