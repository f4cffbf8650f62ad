"""What is said to commands that are nearly right, each on a device of its own.

`errno_list.py SEED COUNT`: a line for each with its number, the command and the errno. It needs
`/dev/infiniband/uverbs0` alone, so that it runs on the kernel's rxe and under `softhca run`, and
what they say can be compared: `tests/interop/run --script errnos.sh SEED COUNT`.
"""

from __future__ import annotations

import errno
import os
import sys

from command_fuzz import Fuzzer


def say(number: int, seed: int) -> None:
    """Gives one command, and prints what was said."""
    fuzzer = Fuzzer(seed * 1_000_003 + number)
    try:
        if fuzzer.random.random() < 0.5:
            fuzzer.write()
        else:
            fuzzer.ioctl()
        said = "0"
    except OSError as error:
        said = errno.errorcode.get(error.errno or 0, str(error.errno))
    print(number, fuzzer.last, said, sep="\t", flush=True)


def main() -> None:
    """Each in a process of its own, which may harm itself."""
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    for number in range(count):
        child = os.fork()
        if child == 0:
            say(number, seed)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
