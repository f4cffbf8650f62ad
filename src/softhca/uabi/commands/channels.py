"""Completion channels, which are descriptors and have no handle."""

from __future__ import annotations

from typing import Any

from softhca.uabi.channels import Channel
from softhca.uabi.commands.call import NO_DESCRIPTOR, Call
from softhca.uabi.layout import Fields


def create_comp_channel(call: Call, request: Fields) -> dict[str, Any]:
    """Gives the program the reading end of a pipe."""
    call.respond({"fd": NO_DESCRIPTOR})
    channel = Channel()
    try:
        number = call.give_descriptor(channel.for_program)
    except OSError:
        channel.close()
        raise
    channel.given()
    call.context.add_channel(channel)
    return {"fd": number}
