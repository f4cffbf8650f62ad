"""Commands in the older form: a header and a structure that a program writes to the device.

Lengths are judged as by the kernel's verify_hdr(): what is wrong with the header is EINVAL, what is
too short is ENOSPC.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping

from softhca.uabi.commands.call import Call, refused
from softhca.uabi.commands.forms import Handler, Write
from softhca.uabi.structures import EXTENDED_HEADER, WRITE_HEADER

EXTENDED = 1 << 31
_COMMAND_MASK = 0xFF
DESTROY_CQ = 20

# By the number, with EXTENDED for those of the newer kind.
WriteTable = Mapping[int, tuple[Handler, Write]]

_LONGEST = 65536 * 16


def run_write(call: Call, table: WriteTable) -> int:
    """Does the command that a program writes; returns the bytes that it is told it wrote."""
    _, address, count = call.asked.arguments[:3]
    if count < WRITE_HEADER.size or count > _LONGEST:
        raise refused(errno.EINVAL)
    octets = call.read(address, count)
    header = WRITE_HEADER.unpack(octets)
    handler, form = find(table, header.command)
    if form.extended:
        _run_extended(call, handler, form, octets)
    else:
        _run_plain(call, handler, form, octets)
    return int(count)


def find(table: WriteTable, command: int) -> tuple[Handler, Write]:
    """The command of a number; EINVAL for one that cannot be, EOPNOTSUPP for one that is not."""
    if command & ~(_COMMAND_MASK | EXTENDED):
        raise refused(errno.EINVAL)
    found = table.get(command)
    if found is None:
        raise refused(errno.EOPNOTSUPP, f"command {command:#x}")
    return found


def _run_plain(call: Call, handler: Handler, form: Write, octets: bytes) -> None:
    header = WRITE_HEADER.unpack(octets)
    if header.in_words * 4 != len(octets):
        raise refused(errno.EINVAL)
    room = header.out_words * 4
    body = octets[WRITE_HEADER.size :]
    # Two releases of rdma-core say of this one command that it is shorter than they mean.
    short_destroy = form.number == DESTROY_CQ and len(octets) == 16
    if (len(body) < form.least_request and not short_destroy) or room < form.least_response:
        raise refused(errno.ENOSPC)
    call.driver_in = body[form.request.size :]
    call.driver_out_length = max(0, room - form.response.size)
    request = form.request.unpack(body)
    answer = call.run(handler, request)
    # What has an answer begins with the pointer to it.
    if form.response.size and room and "response" in request:
        packed = form.response.pack(answer) + answer.get("driver", b"")
        call.write(request.response, packed[:room])


def _run_extended(call: Call, handler: Handler, form: Write, octets: bytes) -> None:
    header = WRITE_HEADER.unpack(octets)
    start = WRITE_HEADER.size + EXTENDED_HEADER.size
    if len(octets) < start:
        raise refused(errno.EINVAL)
    more = EXTENDED_HEADER.unpack(octets[WRITE_HEADER.size :])
    body = octets[start:]
    if (header.in_words + more.provider_in_words) * 8 != len(body):
        raise refused(errno.EINVAL)
    core = body[: header.in_words * 8]
    if len(core) < form.least_request:
        raise refused(errno.ENOSPC)
    if more.zero:
        raise refused(errno.EINVAL)
    room, driver_room = header.out_words * 8, more.provider_out_words * 8
    if bool(more.response) != bool(room or driver_room):
        raise refused(errno.EINVAL)
    if more.response and room < form.least_response:
        raise refused(errno.ENOSPC)
    demand_zero(core[form.request.size :])
    call.driver_in = body[header.in_words * 8 :]
    call.driver_out_length = driver_room
    answer = call.run(handler, form.request.unpack(core))
    if more.response:
        call.write(more.response, packed_response(form, answer, room))
        call.write(more.response + room, answer.get("driver", b"")[:driver_room])


def packed_response(form: Write, answer: dict[str, object], room: int) -> bytes:
    """As much of a response as there is room for; in all of the room of an extended one."""
    packed = form.response.pack({"response_length": min(room, form.response.size), **answer})
    return packed[:room].ljust(room if form.extended else 0, b"\0")


def demand_zero(tail: bytes) -> None:
    """Refuses what a longer structure than ours says; EOPNOTSUPP."""
    if any(tail):
        raise refused(errno.EOPNOTSUPP)
