"""Threads beside the test, which no fabric knows of."""

from __future__ import annotations

import sys
import threading

import softhca as hca
from softhca.testing import Fabric, FabricError, Pair, What


def test_what_a_thread_beside_posts_is_in_the_trace() -> None:
    rounds, posts = 300, 100
    interval = sys.getswitchinterval()
    with Fabric() as fabric:
        busy, beside = Pair(fabric), Pair(fabric)
        wr = hca.Recv(beside.a.mr[:8])
        failed: list[BaseException] = []

        def posts_receives() -> None:
            try:
                for _ in range(rounds):
                    beside.a.qp.post_recv([wr] * posts)
                    beside.a.qp.modify(qp_state=hca.QPState.RESET)
                    beside.a.qp.modify(
                        qp_state=hca.QPState.INIT,
                        pkey_index=0,
                        port_num=1,
                        qp_access_flags=hca.Access(0),
                    )
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=posts_receives)
        write = hca.Write(busy.a.mr[:8], remote=busy.b.mr.remote(), signaled=True)
        sys.setswitchinterval(1e-5)
        try:
            thread.start()
            while thread.is_alive():
                busy.a.qp.post_send(write)
                assert busy.a.next().ok
        finally:
            sys.setswitchinterval(interval)
            thread.join()
        assert not failed
        host = fabric.host_number(beside.a.device)
        made = [r for r in fabric.trace if r.what is What.POST and r.host == host]
        assert len(made) == rounds * posts


def test_a_second_thread_cannot_let_time_pass() -> None:
    with Fabric() as fabric:
        pair = Pair(fabric)
        refused: list[str] = []

        def sleeps() -> None:
            try:
                fabric.sleep(1e-6)
            except FabricError as error:
                refused.append(str(error))

        def looks(_: object) -> bool:
            thread = threading.Thread(target=sleeps)
            thread.start()
            thread.join()
            return False

        fabric.faults.drop(nth=1, where=looks)
        pair.a.qp.post_send(hca.Write(pair.a.mr[:5], remote=pair.b.mr.remote(), signaled=True))
        assert pair.a.next().ok
        assert refused
        assert "another thread" in refused[0]
