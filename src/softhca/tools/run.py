"""`softhca run`: runs a program of verbs, unmodified, on adapters of its own."""

from __future__ import annotations

import argparse
import errno
import os
import shutil
import signal
import threading
from contextlib import ExitStack

from softhca.tools import supervising
from softhca.tools.command import FAILED, UNUSABLE, Command, CommandError, print_error
from softhca.uabi.attached import AttachedProgram
from softhca.uabi.program import Program
from softhca.verbs.errors import VerbsError

DESCRIPTION = """Runs a program that uses RDMA through libibverbs, or any other way that ends at the
kernel's user ABI, without anything in the kernel: what it finds under /dev/infiniband is an adapter
of softhca. The programs that it starts share the adapter. The exit status is the program's."""

_UNEXECUTABLE = "this cannot be executed"
_SENT = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_TYPED = (signal.SIGINT, signal.SIGQUIT)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what `run` understands."""
    supervising.add_arguments(parser)
    parser.add_argument(
        "--attach",
        metavar="NAME",
        help="use the adapters of `softhca serve NAME`, whose options hold instead of these",
    )
    parser.add_argument("program", metavar="PROGRAM", help="what to run")
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="...", help="arguments of the program"
    )


def run(args: argparse.Namespace) -> int:
    """Runs the program; returns its status as a shell would."""
    path = shutil.which(args.program)
    if path is None:
        # A name alone is looked for in PATH, and not here.
        is_there = os.path.dirname(args.program) and os.path.exists(args.program)
        why = _UNEXECUTABLE if is_there else "there is no such program"
        raise CommandError(f"{args.program}: {why}", UNUSABLE)
    words = [args.program, *args.arguments]
    # What is typed at the terminal reaches the program, and its end is ours. It inherits what is
    # ignored: what is not shall not be ignored here either.
    for number in _TYPED:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, _: None)
    way = _run_here if args.attach is None else _run_attached
    try:
        status = way(args, path, words)
    except VerbsError as error:
        if error.argument != "path":
            raise
        why = os.strerror(error.errno)
        if error.errno == errno.ENOENT:
            why = "there is no such interpreter"  # It is there itself: see above.
        raise CommandError(f"{args.program}: {_UNEXECUTABLE}: {why}", UNUSABLE) from None
    return status if status >= 0 else 128 - status


def _run_here(args: argparse.Namespace, path: str, words: list[str]) -> int:
    with ExitStack() as stack:
        supervisor = supervising.supervisor_of(args, stack)
        relay = _SignalRelay()
        program = supervisor.launch(path, words)
        relay.reach(program)
        return supervisor.serve(program)


def _run_attached(args: argparse.Namespace, path: str, words: list[str]) -> int:
    supervising.demand_untouched(args)
    with AttachedProgram(args.attach) as attached:
        relay = _SignalRelay()
        program = attached.launch(path, words)
        relay.reach(program)
        status = attached.wait(program)
    if status is None:
        if attached.refusal is None:
            why = f"the supervisor {args.attach!r} has ended, and so has the program"
        else:
            why = f"the supervisor {args.attach!r} does not take the program: {attached.refusal}"
        print_error(f"softhca run: {why}")
        return FAILED
    return status


class _SignalRelay:
    """Passes signals on to the program from the moment on when it is started.

    It may run, and be known to do so, before this process hears that it has been started: what
    comes until then waits. The program is started with no signal blocked that was not before.
    """

    def __init__(self) -> None:
        self._program: Program | None = None
        self._early: list[int] = []
        relayed = (*_SENT, *_TYPED)
        self._numbers = [one for one in relayed if signal.getsignal(one) != signal.SIG_IGN]
        for number in self._numbers:
            signal.signal(number, lambda number, _: self._on_signal(number))

    def reach(self, program: Program) -> None:
        """The program is there.

        From now on a thread waits for signals, however fast they come. Handlers would interrupt
        each other and the supervisor; they are what is left where there may be no more threads.
        """
        self._program = program
        # A program that takes the terminal for itself, as a shell does, leaves this process in the
        # background, where what it says of refusals would stop it (`stty tostop`), and whoever
        # waits for an answer of it.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTOU, *self._numbers])
        for number in self._early:
            self._on_signal(number)
        try:
            threading.Thread(target=self._serve, name="signals", daemon=True).start()
        except RuntimeError:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, self._numbers)

    def _serve(self) -> None:
        while True:
            self._on_signal(signal.sigwait(self._numbers))

    def _on_signal(self, number: int) -> None:
        if self._program is None:
            self._early.append(number)
        # What is typed at a terminal goes to all that are in front of it, the program among them.
        elif number not in _TYPED or not _is_in_front():
            self._program.signal(number)


def _is_in_front() -> bool:
    """Whether this process has a terminal, and gets what is typed there."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


COMMAND = Command(
    name="run",
    summary="run an unmodified program of verbs on adapters of its own",
    description=DESCRIPTION,
    add_arguments=add_arguments,
    run=run,
    json_help="print an object that says why the program could not be run; its output is its own",
)
