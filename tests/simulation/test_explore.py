"""Exploration: the first seed that fails, and what it takes."""

from __future__ import annotations

import pytest

import softhca as hca
from softhca.testing import ExploreError, Fabric, What, explore

from .ends import pair


def survives(fabric: Fabric) -> None:
    a, b = pair(fabric, timeout=8)
    fabric.faults.drop(probability=0.1)
    for _ in range(4):
        a.qp.post_send(hca.Write(a.mr[:9000], remote=b.mr.remote(), signaled=True))
        assert a.next().ok


def test_a_test_that_passes() -> None:
    assert explore(survives, runs=20) == 20


def test_a_failure_is_shrunk_to_what_it_takes() -> None:
    def fails(fabric: Fabric) -> None:
        """Gives up when a WRITE is lost twice in a row: a retry count that is too low."""
        a, b = pair(fabric, timeout=8, retry_cnt=1)
        fabric.faults.drop(probability=0.15, name="loss")
        fabric.faults.delay((0, 5000), probability=0.3, name="delay")
        for _ in range(4):
            a.qp.post_send(hca.Write(a.mr[:100], remote=b.mr.remote(), signaled=True))
            assert a.next().ok

    with pytest.raises(ExploreError) as raised:
        explore(fails, runs=500)
    finding = raised.value.finding
    assert isinstance(finding.error, AssertionError)
    # Two packets in a row, be it requests or acknowledgements, and no delay.
    assert [name for name, _ in finding.strikes] == ["loss", "loss"]
    assert "strikes its match" in str(finding)


def test_jitter_changes_the_order_between_flows() -> None:
    def order(seed: int, jitter_ns: int) -> list[int]:
        with Fabric(seed, jitter_ns=jitter_ns) as fabric:
            pairs = [pair(fabric) for _ in range(4)]
            for a, b in pairs:
                b.qp.post_recv(hca.Recv(b.mr[:8]))
                a.qp.post_send(hca.Send(a.mr[:8]))
            fabric.run_for(0.001)
            times = [(b.cq.poll()[0].timestamp_ns, n) for n, (_, b) in enumerate(pairs)]
            return [n for _, n in sorted(times)]

    assert {tuple(order(seed, 0)) for seed in range(5)} == {(0, 1, 2, 3)}
    assert len({tuple(order(seed, 5000)) for seed in range(5)}) > 1


def test_acknowledgements_come_together_or_alone() -> None:
    def acknowledgements(seed: int, ack_delay_ns: int) -> int:
        with Fabric(seed, ack_delay_ns=ack_delay_ns) as fabric:
            a, b = pair(fabric)
            write = hca.Write(a.mr[:8], remote=b.mr.remote()[:8], signaled=True)
            a.qp.post_send([write] * 20)
            done = 0
            while done < 20:
                assert a.next().ok
                done += 1
            return sum(r.what is What.SENT and r.data[0] == 0x11 for r in fabric.trace)

    assert {acknowledgements(seed, 0) for seed in range(3)} == {20}
    delayed = [acknowledgements(seed, 2000) for seed in range(10)]
    assert len(set(delayed)) > 2, delayed
    assert min(delayed) < 10


def test_what_pytest_calls_failed_is_a_failure() -> None:
    def test(fabric: Fabric) -> None:
        if fabric.seed == 3:
            with pytest.raises(hca.VerbsError):
                pass

    with pytest.raises(ExploreError, match="seed 3 fails: Failed: DID NOT RAISE"):
        explore(test, 5)


def test_a_failure_is_told_though_the_run_broke_rules_too() -> None:
    def test(fabric: Fabric) -> None:
        fabric.watch_memory()
        a, b = pair(fabric)
        a.qp.post_send(hca.Write(a.mr[:5], remote=b.mr.remote(), signaled=True))
        a.buffer[:5] = b"later"
        raise AssertionError("mine")

    with pytest.raises(ExploreError, match="seed 1 fails: AssertionError: mine"):
        explore(test, 5)


@pytest.mark.parametrize("ends", [KeyboardInterrupt, pytest.skip.Exception])
def test_what_ends_a_test_ends_all_runs(ends: type[BaseException]) -> None:
    seen: list[Fabric] = []

    def test(fabric: Fabric) -> None:
        seen.append(fabric)
        fabric.host()
        raise ends

    with pytest.raises(ends):
        explore(test, 5)
    (fabric,) = seen
    assert fabric.devices[0].closed


def test_faults_of_one_name_are_told_apart() -> None:
    def fails(fabric: Fabric) -> None:
        a, b = pair(fabric, timeout=8)
        requests = fabric.faults.drop(probability=0.2, opcode="RC_RDMA_WRITE_ONLY", name="loss")
        answers = fabric.faults.drop(probability=0.2, opcode="RC_ACKNOWLEDGE", name="loss")
        for _ in range(10):
            a.qp.post_send(hca.Write(a.mr[:9], remote=b.mr.remote(), signaled=True))
            assert a.next().ok
        assert requests.struck < 1 or answers.struck < 2

    with pytest.raises(ExploreError) as raised:
        explore(fails, runs=300)
    finding = raised.value.finding
    assert [name for name, _ in finding.strikes] == ["loss", "loss (2)", "loss (2)"]
    # The run that was kept is no longer than what is told of it.
    assert tuple(finding.fabric.faults.strikes()) == finding.strikes


def test_names_stay_unlike_each_other() -> None:
    with Fabric() as fabric:
        names = ["a", "a", "a (3)", "a", "drop #6", "b"]
        faults = [fabric.faults.drop(name=name) for name in names] + [fabric.faults.drop()]
        assert [fault.name for fault in faults] == [
            "a",
            "a (2)",
            "a (3)",
            "a (4)",
            "drop #6",
            "b",
            "drop #7",
        ]
        assert [fabric.faults.drop(name="drop #9").name, fabric.faults.drop().name] == [
            "drop #9",
            "drop #9 (2)",
        ]


def test_an_async_test_does_not_pass_without_having_run() -> None:
    async def fails(fabric: Fabric) -> None:
        raise AssertionError

    with pytest.raises(TypeError, match=r"^test must not be async"):
        explore(fails, runs=3)
