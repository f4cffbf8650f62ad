"""The pytest plugin of softhca: fabrics as fixtures, and what a failure needs to be understood.

pytest loads it in every environment that has softhca. It costs nothing there: softhca itself is
imported when a test asks for one of the fixtures.
"""

from __future__ import annotations

import re
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
_MADE_ANEW = _FIXTURES | {"rdma_seed"}
_WORDS = {"seed", "loss", "runs", "leaks"}
_SHOWN_LINES = 60


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the command line."""
    group = parser.getgroup("rdma", "RDMA fabrics in virtual time (softhca)")
    group.addoption("--rdma-seed", type=int, help="seed of every fabric")
    group.addoption(
        "--rdma-explore",
        type=int,
        metavar="RUNS",
        help="run each test that takes one of the fixtures with so many seeds; shrink what fails",
    )


def pytest_configure(config: pytest.Config) -> None:
    """The mark."""
    config.addinivalue_line("markers", _MARK)


def _words(node: Any) -> dict[str, Any]:
    words: dict[str, Any] = {}
    for mark in reversed(list(node.iter_markers("rdma"))):
        if mark.args or not set(mark.kwargs) <= _WORDS:
            raise pytest.UsageError(f"{node.nodeid}: the mark is {_MARK}")
        words |= mark.kwargs
    return words


def _first_seed(node: Any) -> int:
    given = node.config.getoption("--rdma-seed")
    if given is not None:
        return int(given)
    seed = _words(node).get("seed")
    # The same on every run, and another for each test.
    name = re.sub(r"\[.*\]$", "", node.nodeid)
    return int(seed) if seed is not None else zlib.crc32(name.encode())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each seed."""
    runs = int(_words(metafunc.definition).get("runs", 1))
    if runs > 1 and "rdma_seed" in metafunc.fixturenames:
        if metafunc.config.getoption("--rdma-seed") is not None:
            return  # Of all the runs this one is wanted.
        first = _first_seed(metafunc.definition)
        metafunc.parametrize("rdma_seed", range(first, first + runs), ids=lambda s: f"seed{s}")


@pytest.fixture
def rdma_seed(request: pytest.FixtureRequest) -> int:
    """The seed of the test's fabric."""
    return _first_seed(request.node)


@pytest.fixture
def rdma_fabric(request: pytest.FixtureRequest, rdma_seed: int) -> Iterator[Fabric]:
    """A fabric in virtual time, without hosts yet: `a, b = rdma_fabric.hosts(2)`."""
    from softhca.testing import Fabric, open_objects

    words = _words(request.node)
    fabric = Fabric(rdma_seed)
    _prepare(fabric, words)
    request.node._rdma_fabric = fabric
    owned: list[Any] = []
    request.node._rdma_owned = owned
    try:
        yield fabric
        if not getattr(request.node, "_rdma_failed", False):
            fabric.check()
            left = open_objects(fabric, owned) if words.get("leaks", True) else []
            if left:
                pytest.fail(f"left open: {', '.join(left)}", pytrace=False)
    finally:
        fabric.close()


def _prepare(fabric: Fabric, words: dict[str, Any]) -> None:
    if words.get("loss"):
        fabric.faults.drop(probability=float(words["loss"]), name="loss")


@pytest.fixture
def rdma_pair(request: pytest.FixtureRequest, rdma_fabric: Fabric) -> Pair:
    """Two hosts with a connected queue pair each; see `softhca.testing.Pair`."""
    from softhca.testing import Pair

    pair = Pair(rdma_fabric)
    request.node._rdma_owned += pair.objects
    return pair


@pytest.fixture
def rdma_device(rdma_fabric: Fabric) -> softhca.Device:
    """The device of the only host of a fabric."""
    return rdma_fabric.host()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """With --rdma-explore, runs a test with many seeds."""
    runs = pyfuncitem.config.getoption("--rdma-explore")
    names = pyfuncitem._fixtureinfo.argnames
    if not runs or not _FIXTURES & set(names):
        return None
    if stale := [
        name for name in names if name not in _MADE_ANEW and _leads_here(pyfuncitem, name)
    ]:
        rule = "cannot be made anew for each seed: the test is run once"
        pyfuncitem.warn(pytest.PytestWarning(f"--rdma-explore: {', '.join(stale)} {rule}"))
        return None
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

    try:
        explore(test, runs, seed=_first_seed(pyfuncitem))
    except ExploreError as found:
        # The report tells of the run that failed.
        pyfuncitem._rdma_fabric = found.finding.fabric  # type: ignore[attr-defined]
        pyfuncitem._rdma_explored = True  # type: ignore[attr-defined]
        raise
    return True


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
    fabric = getattr(item, "_rdma_fabric", None)
    if fabric is not None and report.failed and not getattr(item, "_rdma_failed", False):
        item._rdma_failed = True  # type: ignore[attr-defined]
        report.sections.append(("rdma", _story(item, fabric)))
    return report


def _story(item: pytest.Item, fabric: Fabric) -> str:
    name = re.sub(r"\W+", "-", item.nodeid).strip("-")[-100:]
    factory = item.config._tmp_path_factory  # type: ignore[attr-defined]
    folder: Path = factory.getbasetemp() / "rdma"
    folder.mkdir(exist_ok=True)
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


def _without_seed(item: pytest.Item) -> str:
    """The test's name if one seed is given, and so none is a parameter of it."""
    callspec = getattr(item, "callspec", None)
    if callspec is None or "rdma_seed" not in callspec.params:
        return item.nodeid
    seed = f"seed{callspec.params['rdma_seed']}"
    name, _, rest = item.nodeid.rpartition("[")
    left = re.sub(rf"(^|-){seed}(?=-|$)", "", rest.removesuffix("]"), count=1).removeprefix("-")
    return f"{name}[{left}]" if left else name
