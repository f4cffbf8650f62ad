"""The pytest plugin of softhca: fabrics as fixtures, and what a failure needs to be understood.

pytest loads it in every environment that has softhca. It costs nothing there: softhca itself is
imported when a test asks for one of the fixtures.
"""

from __future__ import annotations

import argparse
import inspect
import itertools
import re
import unittest
import zlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import softhca
    from softhca.testing import Fabric, Pair

_FIXTURES = {"rdma_fabric", "rdma_pair", "rdma_device"}
_MARK = (
    "rdma(seed=, loss=, runs=, leaks=): the seed of the fabric, the share of packets to lose, "
    "how many seeds to run, and whether objects left open are an error"
)
# What each word of the mark must be.
_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "seed": (lambda seed: type(seed) is int and 0 <= seed < 1 << 63, "must be 0 to 2^63 - 1"),
    "loss": (lambda loss: type(loss) in (int, float) and 0 <= loss <= 1, "must be 0 to 1"),
    "runs": (lambda runs: type(runs) is int and runs >= 1, "must be 1 or more"),
    "leaks": (lambda leaks: type(leaks) is bool, "must be True or False"),
}
_SHOWN_LINES = 60


def _whole_number(lowest: int, highest: int) -> Callable[[str], int]:
    def whole_number(text: str) -> int:
        if not lowest <= int(text) <= highest:
            raise argparse.ArgumentTypeError(f"{text} is not from {lowest} to {highest}")
        return int(text)

    return whole_number


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the command line."""
    group = parser.getgroup("rdma", "RDMA fabrics in virtual time (softhca)")
    group.addoption(
        "--rdma-seed", type=_whole_number(0, (1 << 63) - 1), help="seed of every fabric"
    )
    group.addoption(
        "--rdma-explore",
        type=_whole_number(0, 1 << 40),
        metavar="RUNS",
        help="run each test that takes one of the fixtures with so many seeds; shrink what fails",
    )


def pytest_configure(config: pytest.Config) -> None:
    """The mark."""
    config.addinivalue_line("markers", _MARK)


def _words(node: Any) -> dict[str, Any]:
    words: dict[str, Any] = {}
    for mark in reversed(list(node.iter_markers("rdma"))):
        if mark.args or not set(mark.kwargs) <= set(_RULES):
            raise pytest.UsageError(f"{node.nodeid}: the mark is {_MARK}")
        words |= mark.kwargs
    for name, value in words.items():
        holds, rule = _RULES[name]
        if not holds(value):
            raise pytest.UsageError(f"{node.nodeid}: rdma mark: {name}={value!r}: {rule}")
    return words


def _first_seed(node: Any) -> int:
    given = node.config.getoption("--rdma-seed")
    if given is not None:
        return int(given)
    seed = _words(node).get("seed")
    # The same on every run, and another for each test.
    name = re.sub(r"\[.*\]$", "", node.nodeid)
    return seed if seed is not None else zlib.crc32(name.encode())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each seed."""
    runs = _words(metafunc.definition).get("runs", 1)
    if runs > 1 and "rdma_seed" in metafunc.fixturenames:
        if metafunc.config.getoption("--rdma-seed") is not None:
            return  # Of all the runs this one is wanted.
        first = _first_seed(metafunc.definition)
        metafunc.parametrize("rdma_seed", range(first, first + runs), ids=lambda s: f"seed{s}")


@pytest.fixture
def rdma_seed(request: pytest.FixtureRequest) -> int:
    """The seed of the test's fabric."""
    words = _words(request.node)
    if words.get("runs", 1) > 1 and request.config.getoption("--rdma-seed") is None:
        # Whoever has runs has a seed as its parameter, and does not come here.
        rule = "a TestCase, and a test that asks for its fixtures while it runs, has one run only"
        raise pytest.UsageError(f"{request.node.nodeid}: rdma mark: runs={words['runs']}: {rule}")
    return _first_seed(request.node)


@pytest.fixture
def rdma_fabric(rdma_seed: int) -> Iterator[Fabric]:
    """A fabric in virtual time, without hosts yet: `a, b = rdma_fabric.hosts(2)`."""
    from softhca.testing import Fabric

    fabric = Fabric(rdma_seed)
    try:
        yield fabric
    finally:
        fabric.close()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Does with a fabric what the mark says, be it one that a fixture of the user's made."""
    made = yield
    if fixturedef.argname == "rdma_fabric" and isinstance(request.node, pytest.Item):
        from softhca.testing import Fabric

        # A fixture of the user's may also give ours, with links.
        if isinstance(made, Fabric) and made is not getattr(request.node, "_rdma_fabric", None):
            _take_care_of(made, request.node, fixturedef)
    return made


def _take_care_of(fabric: Fabric, item: pytest.Item, fixturedef: pytest.FixtureDef[Any]) -> None:
    words = _words(item)
    _prepare(fabric, words)
    item._rdma_fabric = fabric  # type: ignore[attr-defined]

    def end() -> None:
        if not getattr(item, "_rdma_broken_off", False):
            _demand_good_end(fabric, words)

    fixturedef.addfinalizer(end)  # The last is the first: the fabric is still open.


def _demand_good_end(fabric: Fabric, words: dict[str, Any]) -> None:
    """Fails a test that passed, if its run broke a rule or left something open."""
    from softhca.testing import open_objects

    fabric.check()
    left = open_objects(fabric) if words.get("leaks", True) else []
    if left:
        pytest.fail(f"left open: {', '.join(left)}", pytrace=False)


def _prepare(fabric: Fabric, words: dict[str, Any]) -> None:
    if words.get("loss"):
        fabric.faults.drop(probability=float(words["loss"]), name="loss")


@pytest.fixture
def rdma_pair(rdma_fabric: Fabric) -> Pair:
    """Two hosts with a connected queue pair each; see `softhca.testing.Pair`."""
    from softhca.testing import Pair

    return Pair(rdma_fabric)


@pytest.fixture
def rdma_device(rdma_fabric: Fabric) -> softhca.Device:
    """The device of the only host of a fabric."""
    return rdma_fabric.host()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """With --rdma-explore, says so of a TestCase, which no hook can run with many seeds."""
    if isinstance(item, pytest.Function) and _is_of_a_test_case(item) and _is_to_be_explored(item):
        _warn_of_one_run(item)


@pytest.hookimpl(wrapper=True, specname="pytest_pyfunc_call")
def pytest_tell_of_one_run(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """With --rdma-explore, names tests that are run once, whichever plugin runs them."""
    if _is_to_be_explored(pyfuncitem) and _why_not_anew(pyfuncitem):
        _warn_of_one_run(pyfuncitem)
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """With --rdma-explore, runs a test with many seeds."""
    if not _is_to_be_explored(pyfuncitem) or _why_not_anew(pyfuncitem):
        return None
    runs = pyfuncitem.config.getoption("--rdma-explore")
    names = pyfuncitem._fixtureinfo.argnames
    from softhca.testing import ExploreError, Pair, explore

    words = _words(pyfuncitem)
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in names}
    makers: dict[str, Callable[[Fabric], Any]] = {
        "rdma_fabric": lambda fabric: fabric,
        "rdma_pair": Pair,
        "rdma_device": lambda fabric: fabric.host(),
        "rdma_seed": lambda fabric: fabric.seed,
    }

    def test(fabric: Fabric) -> None:
        _prepare(fabric, words)
        made = {name: makers[name](fabric) for name in names if name in makers}
        pyfuncitem.obj(**{**arguments, **made})
        _demand_good_end(fabric, words)

    try:
        seed: Any = pyfuncitem.funcargs["rdma_seed"]
        explore(test, runs, seed=seed)
    except ExploreError as found:
        # The report tells of the run that failed.
        pyfuncitem._rdma_fabric = found.finding.fabric  # type: ignore[attr-defined]
        pyfuncitem._rdma_explored = True  # type: ignore[attr-defined]
        raise
    return True


def _is_to_be_explored(item: pytest.Function) -> bool:
    return item.config.getoption("--rdma-explore") and not _FIXTURES.isdisjoint(item.fixturenames)


def _is_of_a_test_case(item: pytest.Function) -> bool:
    return item.cls is not None and issubclass(item.cls, unittest.TestCase)


def _warn_of_one_run(item: pytest.Function) -> None:
    why = _why_not_anew(item)
    item.warn(pytest.PytestWarning(f"--rdma-explore: {why}: the test is run once"))


def _why_not_anew(item: pytest.Function) -> str | None:
    """Why a test cannot be called once for each seed; None if it can."""
    if _is_of_a_test_case(item):
        return "tests of a TestCase cannot be called again"
    if inspect.iscoroutinefunction(item.obj):
        return "an async function cannot be called again"
    stale = [name for name in item.fixturenames if _is_stale(item, name)]
    return f"{', '.join(stale)} cannot be made anew for each seed" if stale else None


def _is_stale(item: pytest.Function, name: str) -> bool:
    """What the fixture gives, or has done, is of the first fabric alone."""
    if name == "rdma_seed":
        return False
    if name in _FIXTURES:  # Or a fixture of the user's under that name.
        made = item._fixtureinfo.name2fixturedefs.get(name)
        return made is not None and made[-1].func.__module__ != __name__
    return _leads_here(item, name)


def _leads_here(item: pytest.Function, name: str) -> bool:
    """A fixture of the user's depends on one of ours."""
    made = item._fixtureinfo.name2fixturedefs.get(name)
    needs = made[-1].argnames if made else ()
    return any(one in _FIXTURES or _leads_here(item, one) for one in needs if one != name)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attaches seed, command, trace and capture to the report of a test that failed."""
    report = yield
    if call.excinfo is not None:
        # Failed, skipped or expected to fail: it came to no end at which objects are closed.
        item._rdma_broken_off = True  # type: ignore[attr-defined]
    fabric = getattr(item, "_rdma_fabric", None)
    if fabric is not None and report.failed and not getattr(item, "_rdma_failed", False):
        item._rdma_failed = True  # type: ignore[attr-defined]
        report.sections.append(("rdma", _story(item, fabric)))
    return report


def _story(item: pytest.Item, fabric: Fabric) -> str:
    factory = item.config._tmp_path_factory  # type: ignore[attr-defined]
    folder: Path = factory.getbasetemp() / "rdma"
    folder.mkdir(exist_ok=True)
    name = _file_name(folder, item)
    files = []
    for suffix in ("trace", "pcapng", "html"):
        files.append(folder / f"{name}.{suffix}")
        fabric.trace.save(files[-1])
    lines = fabric.trace.text().splitlines()
    shown = lines[:1] + lines[1:][-_SHOWN_LINES:]
    if len(lines) > _SHOWN_LINES + 1:
        shown.insert(1, f"{'':12}  ... {len(lines) - _SHOWN_LINES - 1} lines before")
    # One run of the same kind, since exploration permutes what a plain run leaves in order.
    explored = " --rdma-explore=1" if hasattr(item, "_rdma_explored") else ""
    return "\n".join(
        [
            f"seed {fabric.seed}, {fabric.now_ns} ns of virtual time",
            f"again: pytest '{_without_seed(item)}' --rdma-seed={fabric.seed}{explored}",
            *(f"saved: {file}" for file in files),
            *shown,
        ]
    )


def _file_name(folder: Path, item: pytest.Item) -> str:
    """What its files are called: tests whose names differ by a sign have files of their own."""
    name = re.sub(r"\W+", "-", item.nodeid).strip("-")[-100:]
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(one for one in names if not (folder / f"{one}.trace").exists())


def _without_seed(item: pytest.Item) -> str:
    """The test's name if one seed is given, and so none is a parameter of it."""
    callspec = getattr(item, "callspec", None)
    if callspec is None or "rdma_seed" not in callspec.params:
        return item.nodeid
    seed = f"seed{callspec.params['rdma_seed']}"
    name, _, rest = item.nodeid.rpartition("[")
    left = re.sub(rf"(^|-){seed}(?=-|$)", "", rest.removesuffix("]"), count=1).removeprefix("-")
    return f"{name}[{left}]" if left else name
