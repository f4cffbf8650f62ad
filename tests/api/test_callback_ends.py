"""Programs that end, and that fork, while callbacks run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

import softhca as hca

from .callbacks import THREADED, Note, Told, kept, no_connection, passes
from .test_fork import in_child

PREAMBLE = """
import sys, threading, time
import softhca as hca
from softhca.completion import crew

crew.LONGEST_WAIT_S = 0.2

def flushed(device, cq):
    pd = device.alloc_pd()
    qp = pd.create_qp(hca.QPType.RC, send_cq=cq, recv_cq=cq, max_recv_wr=16)
    qp.modify(qp_state=hca.QPState.INIT, pkey_index=0, port_num=1, qp_access_flags=0)
    qp.modify(qp_state=hca.QPState.ERR)
    return qp

context = hca.PollContext[sys.argv[1]]
device = hca.open()
cq = device.alloc_cq(1024, poll_context=context)
qp = flushed(device, cq)
inside = threading.Event()
"""

ENDINGS = {
    "idle": """
        qp.post_recv(hca.Recv(cqe=hca.Cqe(lambda *_: inside.set())))
        inside.wait()
    """,
    "a callback that waits for ever": """
        def done(cq, wc):
            inside.set()
            threading.Event().wait()
        qp.post_recv(hca.Recv(cqe=hca.Cqe(done)))
        inside.wait()
    """,
    "a callback that never gives up": """
        def done(cq, wc):
            inside.set()
            while True:
                time.sleep(0.0001)
        qp.post_recv(hca.Recv(cqe=hca.Cqe(done)))
        inside.wait()
    """,
    "a callback that computes for ever": """
        def done(cq, wc):
            inside.set()
            while True:
                sum(range(1000))
        qp.post_recv(hca.Recv(cqe=hca.Cqe(done)))
        inside.wait()
    """,
    "a callback that posts for ever": """
        def done(cq, wc):
            inside.set()
            qp.post_recv(hca.Recv(cqe=cqe))
        cqe = hca.Cqe(done)
        cq.on_exception = lambda *_: None
        for _ in range(50):
            qp.post_recv(hca.Recv(cqe=cqe))
        inside.wait()
    """,
    "a callback that calls verbs for ever": """
        cq.on_exception = lambda *_: None
        def done(cq, wc):
            inside.set()
            while True:
                try:
                    device.query_port()
                except hca.VerbsError:
                    pass
        qp.post_recv(hca.Recv(cqe=hca.Cqe(done)))
        inside.wait()
    """,
    "a callback that is refused for ever": """
        cq.on_exception = lambda *_: None
        def done(cq, wc):
            inside.set()
            while True:
                try:
                    qp.post_recv([hca.Recv()] * 100)
                except hca.VerbsError:
                    pass
        qp.post_recv(hca.Recv(cqe=hca.Cqe(done)))
        inside.wait()
    """,
    "a hook that computes for ever": """
        def hook(*_):
            inside.set()
            while True:
                sum(range(1000))
        cq.on_exception = hook
        qp.post_recv(hca.Recv(cqe=hca.Cqe(lambda *_: 1 / 0)))
        inside.wait()
    """,
    "an unraisablehook that computes for ever": """
        def hook(*_):
            inside.set()
            while True:
                sum(range(1000))
        sys.unraisablehook = hook
        qp.post_recv(hca.Recv(cqe=hca.Cqe(lambda *_: 1 / 0)))
        inside.wait()
    """,
    "a callback whose end computes for ever": """
        posted = threading.Event()
        class Last(hca.Cqe):
            def done(self, cq, wc):
                posted.wait()  # So that nobody else holds it.
            def __del__(self):
                inside.set()
                while True:
                    sum(range(1000))
        qp.post_recv(hca.Recv(cqe=Last()))
        posted.set()
        inside.wait()
    """,
    "a thread that processes a direct queue for ever": """
        direct = device.alloc_cq(64, poll_context=hca.PollContext.DIRECT)
        qp = flushed(device, direct)
        def done(cq, wc):
            inside.set()
            qp.post_recv(hca.Recv(cqe=cqe))
        cqe = hca.Cqe(done)
        direct.on_exception = lambda *_: None
        qp.post_recv(hca.Recv(cqe=cqe))
        def process():
            try:
                while True:
                    direct.process_direct()
            except hca.VerbsError:
                pass
        threading.Thread(target=process, daemon=True).start()
        inside.wait()
    """,
    "closed first": """
        qp.post_recv(hca.Recv(cqe=hca.Cqe(lambda *_: inside.set())))
        inside.wait()
        device.__exit__(None, None, None)
    """,
    "exit in a callback": """
        def done(cq, wc):
            device.__exit__(None, None, None)
            inside.set()
        qp.post_recv(hca.Recv(cqe=hca.Cqe(done)))
        inside.wait()
    """,
}


@pytest.mark.parametrize("context", THREADED[:2], ids=lambda context: context.name)
@pytest.mark.parametrize("ending", ENDINGS)
def test_the_interpreter_ends(ending: str, context: hca.PollContext) -> None:
    program = PREAMBLE + textwrap.dedent(ENDINGS[ending])
    done = subprocess.run(
        [sys.executable, "-c", program, context.name],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "Traceback" not in done.stdout


@pytest.mark.filterwarnings("ignore:This process .* multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("context", THREADED, ids=lambda context: context.name)
def test_fork_with_threads_that_call_back(context: hca.PollContext) -> None:
    """The child has no threads of them, and takes them for the parent's; the parent goes on."""
    with hca.open() as device:
        pd = device.alloc_pd()
        told = Told()
        inside, leave = threading.Event(), threading.Event()

        def wait(*_: object) -> None:
            inside.set()
            passes(leave)

        cq = device.alloc_cq(64, poll_context=context)
        qp = no_connection(pd, cq)
        qp.post_recv([hca.Recv(cqe=Note(told, wait)), hca.Recv(cqe=Note(told))])
        idle = device.alloc_cq(64, poll_context=context)
        assert passes(inside)

        def use_in_child() -> None:
            for queue in (cq, idle):
                try:
                    queue.resize(100)
                except hca.VerbsError as error:
                    assert "parent process" in str(error)
                else:
                    raise AssertionError("the child used the parent's queue")
            qp.close()
            cq.free()
            idle.free()
            device.__exit__(None, None, None)
            with hca.open() as own:
                again = Told()
                other = no_connection(own.alloc_pd(), own.alloc_cq(4, poll_context=context))
                other.post_recv(hca.Recv(cqe=Note(again)))
                again.wait(1)
            kept.clear()

        in_child(use_in_child)
        leave.set()
        told.wait(2)
        again = Told()
        qp.post_recv(hca.Recv(cqe=Note(again)))
        again.wait(1)


def test_fork_in_a_callback() -> None:
    with hca.open() as device:
        told = Told()
        failures: list[BaseException] = []

        def fork(*_: object) -> None:
            in_child(lambda: device.__exit__(None, None, None))

        cq = device.alloc_cq(16, on_exception=lambda error, wc, wr: failures.append(error))
        qp = no_connection(device.alloc_pd(), cq)
        qp.post_recv([hca.Recv(cqe=Note(told, fork)), hca.Recv(cqe=Note(told))])
        told.wait(2)
        assert not failures


@pytest.mark.parametrize("context", THREADED)
def test_an_interrupt_ends_the_wait_for_a_callback(context: hca.PollContext) -> None:
    with hca.open() as device:
        cq = device.alloc_cq(64, poll_context=context)
        qp = no_connection(device.alloc_pd(), cq)
        told = Told()
        inside, over = threading.Event(), threading.Event()

        def wait(*_: object) -> None:
            inside.set()
            passes(over)

        qp.post_recv(hca.Recv(cqe=Note(told, wait)))
        assert passes(inside)
        qp.close()

        def interrupt() -> None:
            while not cq.closed:
                pass
            os.kill(os.getpid(), signal.SIGINT)

        other = threading.Thread(target=interrupt)
        other.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                cq.free()
        finally:
            over.set()
            other.join()
        cq.free()  # Waits for the rest.
        assert told.wr_ids == [0]
