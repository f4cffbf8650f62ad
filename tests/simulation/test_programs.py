"""Programs that go side by side: their errors and their end."""

from __future__ import annotations

import errno
import os
import signal
import threading

import pytest

import softhca as hca
from softhca.testing import Fabric, Pair


def test_a_program_hears_itself_that_its_wait_is_over() -> None:
    with Fabric() as fabric:
        channel = fabric.host().create_comp_channel()

        def waits() -> int | None:
            try:
                channel.get_event()
            except hca.VerbsError as error:
                return error.errno
            return None

        def closes() -> None:
            fabric.sleep(1e-3)
            channel.close()

        assert fabric.run(waits, closes) == [errno.ECANCELED, None]


def test_programs_end_when_a_fault_raises() -> None:
    ended: list[str] = []

    def fails(_: object) -> bool:
        raise ZeroDivisionError

    with Fabric() as fabric:
        pair = Pair(fabric)
        fabric.faults.drop(where=fails)

        def writes() -> None:
            try:
                pair.a.qp.post_send(
                    hca.Write(pair.a.mr[:5], remote=pair.b.mr.remote(), signaled=True)
                )
                pair.a.next()
            finally:
                ended.append(threading.current_thread().name)

        def waits() -> None:
            try:
                pair.b.next()
            finally:
                ended.append(threading.current_thread().name)

        with pytest.raises(ZeroDivisionError):
            fabric.run(writes, waits)
        assert sorted(ended) == ["waits", "writes"]


def test_an_interrupt_ends_the_programs() -> None:
    ended: list[str] = []
    with Fabric() as fabric:
        pair = Pair(fabric)

        def polls() -> None:
            try:
                os.kill(os.getpid(), signal.SIGINT)
                while True:
                    pair.a.cq.poll()
                    fabric.sleep(1e-6)
            finally:
                ended.append("polls")

        def waits() -> None:
            try:
                pair.b.next()
            finally:
                ended.append("waits")

        with pytest.raises(KeyboardInterrupt):
            fabric.run(waits, polls)
        assert sorted(ended) == ["polls", "waits"]
        # And the fabric goes on.
        assert fabric.run(lambda: 1, lambda: fabric.sleep(1e-6)) == [1, None]


def test_an_async_program_does_not_pass_without_having_run() -> None:
    async def client() -> None:
        raise AssertionError

    with Fabric() as fabric, pytest.raises(TypeError, match=r"^client must not be async"):
        fabric.run(client)
