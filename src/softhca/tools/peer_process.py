"""The other end of a test, in a process of its own: `python -m softhca.tools.peer_process`.

It imports the function that it is told, and calls it with a side channel to whoever started it. A
plain subprocess and not `multiprocessing`, which would import the program's own main module again.
"""

from __future__ import annotations

import importlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from softhca.tools.command import FAILED, CommandError, print_error
from softhca.tools.side_channel import SideChannel

Peer = Callable[[SideChannel], None]
_GRACE_SECONDS = 5


@contextmanager
def peer_process(function: Peer) -> Iterator[SideChannel]:
    """Runs `function(channel)` in another process; gives this end's channel.

    Waits for the process at the end, and ends it if this side fails.

    Raises:
        CommandError: it ended with an error of its own.
    """
    ours, theirs = socket.socketpair()
    name = f"{function.__module__}:{function.__qualname__}"
    command = [sys.executable, "-P", "-m", __name__, name, str(theirs.fileno())]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment)
    theirs.close()
    try:
        with SideChannel(ours) as channel:
            yield channel
        status = process.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        raise CommandError("the second process does not end", FAILED) from None
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if status != 0:
        raise CommandError(f"the second process ended with status {status}", FAILED)


def main() -> int:
    """Runs the function that the command line names."""
    name, descriptor = sys.argv[1:]
    module, _, attribute = name.partition(":")
    try:
        with SideChannel(socket.socket(fileno=int(descriptor))) as channel:
            peer: Peer = getattr(importlib.import_module(module), attribute)
            peer(channel)
    except KeyboardInterrupt:
        return FAILED
    except (CommandError, OSError) as error:
        print_error(f"second process: {error}")
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
