"""Commands in the older form: a header and a structure that a program writes to the device.

Lengths are judged as by the kernel's verify_hdr(): what is wrong with the header is EINVAL, what is
too short is ENOSPC. Only then is anything read or written.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any

from softhca.uabi.commands.call import Call, refused
from softhca.uabi.commands.forms import Handler, Write
from softhca.uabi.layout import Fields
from softhca.uabi.structures import EXTENDED_HEADER, NOTHING, WRITE_HEADER

EXTENDED = 1 << 31
_COMMAND_MASK = 0xFF
DESTROY_CQ = 20

# By the number, with EXTENDED for those of the newer kind.
WriteTable = Mapping[int, tuple[Handler, Write]]

# One more than the last command that the kernel has for rxe: from there on it looks at no header.
_COMMANDS = 40
_EXTENDED_COMMANDS = 27
# Behind the addresses of programs; what reaches beyond is EFAULT before anything else is looked at.
_ADDRESSES_END = 1 << 56


def run_write(call: Call, table: WriteTable) -> int:
    """Does the command that a program writes; returns the bytes that it is told it wrote."""
    _, address, count = call.asked.arguments[:3]
    if count < WRITE_HEADER.size:
        raise refused(errno.EINVAL, f"{count} bytes are no header")
    header = WRITE_HEADER.unpack(call.read(address, WRITE_HEADER.size))
    call.doing = f"command {header.command:#x}"
    handler, form = find(table, header.command)
    call.doing = name_of(handler)
    if form.extended:
        _run_extended(call, handler, form, header)
    else:
        _run_plain(call, handler, form, header)
    return int(count)


def find(table: WriteTable, command: int) -> tuple[Handler, Write]:
    """The command of a number; EINVAL for one that cannot be, EOPNOTSUPP for one that is not."""
    if command & ~(_COMMAND_MASK | EXTENDED):
        raise refused(errno.EINVAL, "flags that no command has")
    found = table.get(command)
    if found is not None:
        return found
    if command & _COMMAND_MASK < (_EXTENDED_COMMANDS if command & EXTENDED else _COMMANDS):
        return _unsupported, Write(command & _COMMAND_MASK, NOTHING)
    raise refused(errno.EOPNOTSUPP, "there is no such command")


def name_of(handler: Handler) -> str:
    """What a command is called when it is refused."""
    return handler.__name__.lstrip("_")


def what_is_short(form: Write, length: int, room: int) -> str:
    """Says whether it is the request or the room for the response, for whoever debugs."""
    if length < form.least_request:
        return f"a request of {length} bytes, not {form.least_request}"
    return f"room for {room} bytes of response, not {form.least_response}"


def _unsupported(call: Call, request: Fields) -> dict[str, Any]:
    raise refused(errno.EOPNOTSUPP, "there is no such command")


def _run_plain(call: Call, handler: Handler, form: Write, header: Fields) -> None:
    _, address, count = call.asked.arguments[:3]
    if header.in_words * 4 != count:
        raise refused(errno.EINVAL, f"in_words {header.in_words} of {count} bytes")
    start, length = address + WRITE_HEADER.size, count - WRITE_HEADER.size
    # Two releases of rdma-core say of this one command that it is shorter than it is.
    if form.number == DESTROY_CQ and count == 16:
        length = form.request.size
    room = header.out_words * 4
    if length < form.least_request or room < form.least_response:
        raise refused(errno.ENOSPC, what_is_short(form, length, room))
    if form.driver:
        call.driver_in_at = start + form.request.size
        call.driver_in_length = length - form.request.size
        length = form.request.size
        call.driver_out_length = room - form.response.size
        room = form.response.size
    request = read_request(call, form, start, length)

    def respond(answer: dict[str, Any]) -> None:
        # What has an answer begins with the pointer to it.
        if form.response.size:
            packed = packed_response(form, answer, room)
            driver = answer.get("driver", b"")[: call.driver_out_length]
            call.write(request.response, packed + driver)

    call.respond = respond
    respond(call.run(handler, request))


def _run_extended(call: Call, handler: Handler, form: Write, header: Fields) -> None:
    _, address, count = call.asked.arguments[:3]
    start = address + WRITE_HEADER.size + EXTENDED_HEADER.size
    if count < WRITE_HEADER.size + EXTENDED_HEADER.size:
        raise refused(errno.EINVAL, f"{count} bytes are no header")
    more = EXTENDED_HEADER.unpack(call.read(address + WRITE_HEADER.size, EXTENDED_HEADER.size))
    length, driver_length = header.in_words * 8, more.provider_in_words * 8
    if start + length + driver_length != address + count:
        words = f"in_words {header.in_words} and {more.provider_in_words}"
        raise refused(errno.EINVAL, f"{words} of {count} bytes")
    if length < form.least_request:
        raise refused(errno.ENOSPC, what_is_short(form, length, form.least_response))
    if more.zero:
        raise refused(errno.EINVAL, "reserved field of the header")
    room, driver_room = header.out_words * 8, more.provider_out_words * 8
    if bool(more.response) != bool(room or driver_room):
        why = f"response {more.response:#x} with room for {room + driver_room} bytes"
        raise refused(errno.EINVAL, why)
    if more.response and room < form.least_response:
        raise refused(errno.ENOSPC, what_is_short(form, length, room))
    if more.response + room + driver_room > _ADDRESSES_END:
        raise refused(errno.EFAULT, f"response {more.response:#x}")
    call.driver_in_at, call.driver_in_length = start + length, driver_length
    call.driver_out_length = driver_room

    def respond(answer: dict[str, Any]) -> None:
        if more.response and form.response.size:
            call.write(more.response, packed_response(form, answer, room))
            call.write(more.response + room, answer.get("driver", b"")[:driver_room])

    call.respond = respond
    respond(call.run(handler, read_request(call, form, start, length)))


def read_request(call: Call, form: Write, address: int, length: int) -> Fields:
    """Reads a request, as uverbs_request() does.

    Raises:
        OSError: EFAULT; EOPNOTSUPP, if it is longer than ours and says something there.
    """
    size = form.request.size
    octets = call.read(address, min(length, size))
    if form.has_rest:
        call.rest_at, call.rest_length = address + size, length - size
    else:
        call.demand_zero(address + size, length - size if length > size else 0)
    return form.request.unpack(octets)


def packed_response(form: Write, answer: dict[str, Any], room: int) -> bytes:
    """As much of a response as there is room for, and zeros in the rest of the room."""
    packed = form.response.pack({"response_length": min(room, form.response.size), **answer})
    return packed[:room].ljust(room, b"\0")
