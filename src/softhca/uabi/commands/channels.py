"""Completion channels, which are descriptors and have no handle."""

from __future__ import annotations

import os
from typing import Any

from softhca.uabi.commands.call import Call
from softhca.uabi.events import EventPipe
from softhca.uabi.layout import Fields
from softhca.uabi.structures import COMPLETION_EVENT


def create_comp_channel(call: Call, request: Fields) -> dict[str, Any]:
    """Gives the program the reading end of a pipe."""
    pipe = EventPipe(COMPLETION_EVENT, "cq_handle")
    try:
        number = call.give_descriptor(pipe.for_program)
    except OSError:
        pipe.close()
        raise
    pipe.given()
    call.context.channels[os.fstat(pipe.descriptor).st_ino] = pipe
    return {"fd": number}
