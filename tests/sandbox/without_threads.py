"""Makes a supervisor where no more threads are to be had, as under a limit of processes.

Exits with 77 where that cannot be arranged.
"""

from __future__ import annotations

import sys

from refusing import refuse

import softhca
from softhca.uabi.supervisor import Supervisor

with softhca.open() as adapter:
    refuse(["clone=EAGAIN", "clone3=EAGAIN"])
    try:
        with Supervisor([adapter], doorbells_are_written=True):
            sys.exit("there was a thread")
    except OSError as error:
        print(error)
