"""What is said to commands that are nearly right, each on a device of its own.

`errno_list.py SEED COUNT`: a line for each with its number, the command and the errno. It needs
`/dev/infiniband/uverbs0` alone, so that it runs on the kernel's rxe and under `softhca run`, and
what they say can be compared: `tests/interop/run --script errnos.sh SEED COUNT`.
"""

from __future__ import annotations

import errno
import os
import sys

from command_fuzz import PAGE, Fuzzer

from softhca.uabi.layout import Layout


class Lister(Fuzzer):
    """A fuzzer whose pointers lead to where both systems have the same."""

    def structure(self, layout: Layout) -> bytes:
        """Bytes of a request; what would be read or written anywhere is in the arena or nowhere."""
        octets = super().structure(layout)
        for index, (name, _, _) in enumerate(layout._fields[:2]):
            at = 8 * index
            where = int.from_bytes(octets[at : at + 8], "little") - self.arena.start
            inside = 0 <= where < 64 * PAGE or where + self.arena.start in self.arena.bad
            if name in ("response", "start") and not inside:
                place = (self.arena.start + 32 * PAGE).to_bytes(8, "little")
                octets = octets[:at] + place + octets[at + 8 :]
        return octets


def say(number: int, seed: int) -> None:
    """Gives one command, and prints what was said."""
    fuzzer = Lister(seed * 1_000_003 + number)
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
