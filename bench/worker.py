"""A process of a contestant: it does what it is told, and sleeps in between.

    python -m bench.worker SOCKET MODULE [OPTION...]

The module has a class `Side`, made with the number of the side, 0 or 1, and the options. An order
is the name of a method and its arguments. This file runs under whatever Python has the peer.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from multiprocessing.connection import Client

# Who starts the processes in our stead tells them apart by these.
RANKS = ("BENCH_SIDE", "OMPI_COMM_WORLD_RANK", "PMI_RANK")


def number_of_side() -> int:
    """0 or 1."""
    return next(int(os.environ[name]) for name in RANKS if name in os.environ)


def main() -> None:
    """Connects, and serves until nobody is there any more."""
    address, module_name, *options = sys.argv[1:]
    number = number_of_side()
    cpus = os.environ["BENCH_CPUS"].split(",")
    os.sched_setaffinity(0, {int(cpus[number])})
    with Client(address, "AF_UNIX") as channel:
        channel.send(number)
        try:
            side = importlib.import_module(module_name).Side(number, *options)
            channel.send((True, None))
        except BaseException:
            channel.send((False, traceback.format_exc()))
            return
        while True:
            try:
                name, arguments = channel.recv()
            except EOFError:
                break
            try:
                channel.send((True, getattr(side, name)(*arguments)))
            except Exception:
                channel.send((False, traceback.format_exc()))
        close = getattr(side, "close", None)
        if close is not None:
            close()


if __name__ == "__main__":
    main()
