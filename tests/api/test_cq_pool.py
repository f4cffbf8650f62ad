"""The completion queues that users of a device share."""

from __future__ import annotations

import errno
import random
import threading
from typing import Any

import pytest

import softhca as hca
from softhca import PollContext, VerbsError
from softhca.testing import open_simulated

from .callbacks import THREADED, Note, Told, no_connection


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> hca.Device:
    """A simulated device with four completion vectors."""
    monkeypatch.setattr("softhca.verbs.device.vector_count", lambda: 4)
    return open_simulated("10.0.0.1", limits={"max_cqe": 5000, "max_cq": 12})


@pytest.mark.parametrize("context", THREADED)
def test_shares_of_one_vector_are_of_one_queue(device: hca.Device, context: PollContext) -> None:
    with device:
        first = device.cq_pool_get(100, 2, context)
        assert first.poll_context is context
        assert first.comp_vector == 2
        assert first.cqe >= 4096
        assert device.cq_pool_get(3996, 2, context) is first
        second = device.cq_pool_get(1, 2, context)
        assert second is not first
        assert second.comp_vector == 2
        device.cq_pool_put(first, 3996)
        # Of those with room, the one with the least in use.
        assert device.cq_pool_get(1, 2, context) is second
        assert device.cq_pool_get(4090, 2, context) is second
        assert device.cq_pool_get(10, 2, context) is first


def test_hints_are_taken_modulo_the_vectors(device: hca.Device) -> None:
    with device:
        assert device.cq_pool_get(1, 5) is device.cq_pool_get(1, 1)
        assert device.cq_pool_get(1, 5).comp_vector == 1


def test_contexts_do_not_share(device: hca.Device) -> None:
    with device:
        queues = {device.cq_pool_get(1, 0, context) for context in THREADED}
        assert len(queues) == 3
        assert device.cq_pool_get(1, 0).poll_context is PollContext.SOFTIRQ


def test_without_a_hint_the_load_is_spread(device: hca.Device) -> None:
    with device:
        assert [device.cq_pool_get(10).comp_vector for _ in range(8)] == [0, 1, 2, 3] * 2
        heavy = device.cq_pool_get(1000, 2)
        assert [device.cq_pool_get(10).comp_vector for _ in range(6)] == [0, 1, 3] * 2
        device.cq_pool_put(heavy, 1000)
        assert device.cq_pool_get(10).comp_vector == 2


def test_more_than_a_queue_usually_has(device: hca.Device) -> None:
    with device:
        large = device.cq_pool_get(4500, 0)
        assert large.cqe >= 4500
        assert device.cq_pool_get(5000, 0) is not large


def test_a_model_agrees(device: hca.Device) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    choose = random.Random(seed)
    used: dict[Any, int] = {}
    with device:
        for _ in range(2000):
            if choose.random() < 0.5:
                wanted = choose.randrange(1, 3000)
                try:
                    cq = device.cq_pool_get(wanted, choose.randrange(-1, 4))
                except VerbsError as error:
                    assert error.errno == errno.ENOMEM
                    continue
                used[cq] = used.get(cq, 0) + wanted
                assert used[cq] <= cq.cqe
            elif used:
                cq = choose.choice(list(used))
                if used[cq]:
                    back = choose.randrange(1, used[cq] + 1)
                    device.cq_pool_put(cq, back)
                    used[cq] -= back
                with pytest.raises(VerbsError) as refused:
                    device.cq_pool_put(cq, used[cq] + 1)
                assert refused.value.argument == "nr_cqe"
        assert len(used) <= 12


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ((0,), "nr_cqe"),
        ((-1,), "nr_cqe"),
        ((5001,), "nr_cqe"),
        ((1, -2), "comp_vector_hint"),
        ((1, 0, PollContext.DIRECT), "poll_context"),
        ((1, 0, 4), "poll_context"),
        ((1, 0, -1), "poll_context"),
    ],
)
def test_bad_wishes_are_refused_by_name(
    device: hca.Device, arguments: tuple[Any, ...], argument: str
) -> None:
    with device:
        with pytest.raises(VerbsError) as refused:
            device.cq_pool_get(*arguments)
        assert refused.value.errno == errno.EINVAL
        assert refused.value.argument == argument
        assert not device._cqs
        with pytest.raises(TypeError, match="nr_cqe"):
            device.cq_pool_get("many")  # type: ignore[arg-type]


def test_what_is_not_of_the_pool_is_not_taken_back(device: hca.Device) -> None:
    with device, open_simulated("10.0.0.2") as other:
        mine = device.cq_pool_get(10)
        plain = device.create_cq(4)
        own = device.alloc_cq(16)
        for cq, nr_cqe, argument in (
            (own, 1, "cq"),
            (other.cq_pool_get(10), 1, "cq"),
            (mine, 11, "nr_cqe"),
            (mine, 0, "nr_cqe"),
        ):
            with pytest.raises(VerbsError) as refused:
                device.cq_pool_put(cq, nr_cqe)
            assert (refused.value.errno, refused.value.argument) == (errno.EINVAL, argument)
        with pytest.raises(TypeError, match="must be CallbackCQ"):
            device.cq_pool_put(plain, 1)  # type: ignore[arg-type]
        device.cq_pool_put(mine, 10)


def test_users_cannot_free_what_they_share(device: hca.Device) -> None:
    with device:
        cq = device.cq_pool_get(10)
        for free in (cq.free, cq.close):
            with pytest.raises(VerbsError, match=r"cq_pool_put\(\) \(EBUSY\)"):
                free()
        with cq:
            pass
        with pytest.raises(VerbsError, match="of one size"):
            cq.resize(64)
        assert not cq.closed
        device.cq_pool_put(cq, 10)
    assert cq.closed
    with pytest.raises(VerbsError, match="is closed"):
        device.cq_pool_get(1)


def test_a_pool_does_not_keep_its_device_open(device: hca.Device) -> None:
    cq = device.cq_pool_get(10)
    pd = device.alloc_pd()
    qp = no_connection(pd, cq)
    with pytest.raises(VerbsError, match="is still used by"):
        device.close()
    assert device.cq_pool_get(1, 0) is cq
    qp.close()
    pd.close()
    device.close()
    assert cq.closed


def test_callbacks_of_many_users_reach_their_own() -> None:
    with hca.open() as device:
        pd = device.alloc_pd()
        users = [(device.cq_pool_get(100), Told()) for _ in range(8)]
        assert len({cq for cq, _ in users}) == min(len(users), device.num_comp_vectors)
        for cq, told in users:
            qp = no_connection(pd, cq)
            for wr_id in range(100):
                qp.post_recv(hca.Recv(cqe=Note(told), wr_id=wr_id))
        for _, told in users:
            told.wait(100)
            assert told.wr_ids == list(range(100))
    assert all(cq.closed for cq, _ in users)


def test_threads_get_and_put_at_once() -> None:
    with hca.open() as device:

        def use() -> None:
            for _ in range(200):
                device.cq_pool_put(device.cq_pool_get(500), 500)

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(device._cqs) <= device.num_comp_vectors
