"""Commands in the newer form: an ioctl(2) with a list of attributes.

Errors are those of the kernel's uverbs_ioctl.c, in its order: each attribute is judged as it comes,
handles among them; then it is seen whether one is missing; only then are pointers followed. What is
not known at all is EPROTONOSUPPORT, by which libraries find out that they must use write(2).
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from softhca.uabi.commands.call import AnswerError, Call, refused
from softhca.uabi.commands.forms import (
    Attribute,
    Const,
    Created,
    Descriptor,
    Flags,
    Handle,
    Handler,
    In,
    Method,
    Octets,
    Out,
)
from softhca.uabi.commands.write_form import (
    WriteTable,
    find,
    name_of,
    packed_response,
    read_request,
    what_is_short,
)
from softhca.uabi.layout import Fields
from softhca.uabi.structures import IOCTL_ATTRIBUTE, IOCTL_HEADER

MethodTable = Mapping[tuple[int, int], tuple[Handler, Method]]

DRIVER_RXE = 14
_LONGEST = 4096
_MANDATORY = 1
_VALID_OUTPUT = 2
_INLINE = 8
_INVOKE_WRITE = (0, 0)
_CORE_IN, _CORE_OUT, _DRIVER_IN, _DRIVER_OUT = 0, 1, 0x1000, 0x1001
_OF_DRIVERS: tuple[Attribute, ...] = (
    Octets(_DRIVER_IN, "driver_in"),
    Out(_DRIVER_OUT, "driver", bytes=None, optional=True),
)
_WRITE_METHOD = Method(
    *_INVOKE_WRITE,
    (
        Octets(_CORE_IN, "core_in", least=4),
        Out(_CORE_OUT, "core", bytes=None, optional=True),
        Const(2, "command"),
    ),
    driver=True,
)


@dataclass
class _Given:
    """An attribute as the program gave it, and where it stands in its memory."""

    length: int
    flags: int
    zero: int
    value: int
    address: int

    @property
    def is_inline(self) -> bool:
        """Whether what it passes stands in place of a pointer."""
        return self.length <= _INLINE

    @property
    def place(self) -> int:
        """Where what it passes lies."""
        return self.address + 8 if self.is_inline else self.value

    @property
    def number(self) -> int:
        """A number in place."""
        return self.value & (1 << 8 * self.length) - 1

    def fill(self, call: Call, octets: bytes) -> None:
        """Writes where it points, and marks it as written."""
        call.write(self.value, octets[: self.length])
        flags = self.flags | _VALID_OUTPUT
        call.write(self.address + 4, flags.to_bytes(2, "little"))

    def replace(self, call: Call, value: int) -> None:
        """Writes a number in place."""
        call.write(self.address + 8, value.to_bytes(8, "little"))


def run_ioctl(call: Call, methods: MethodTable, writes: WriteTable) -> int:
    """Does the command of an ioctl(2); returns 0."""
    address = call.asked.arguments[2]
    header = IOCTL_HEADER.unpack(call.read(address, IOCTL_HEADER.size))
    expected = IOCTL_HEADER.size + header.num_attrs * IOCTL_ATTRIBUTE.size
    if header.length != expected or expected > _LONGEST:
        raise refused(errno.EINVAL, f"{header.length} bytes for {header.num_attrs} attributes")
    if header.zero1 or header.zero2:
        raise refused(errno.EPROTONOSUPPORT, "reserved fields of the header")
    if header.driver_id != DRIVER_RXE:
        raise refused(errno.EINVAL, f"driver {header.driver_id}")
    key = (header.object_id, header.method_id)
    if key != _INVOKE_WRITE and key not in methods:
        why = f"there is no method {header.method_id} of object {header.object_id}"
        raise refused(errno.EPROTONOSUPPORT, why)
    handler, method = (None, _WRITE_METHOD) if key == _INVOKE_WRITE else methods[key]
    call.doing = "invoke_write" if handler is None else handler.__name__
    given = _attributes(call, method, address + IOCTL_HEADER.size, header.num_attrs)
    request = _request(call, method, given)
    if _DRIVER_IN in given:
        call.driver_in_at = given[_DRIVER_IN].place
        call.driver_in_length = given[_DRIVER_IN].length
    if _DRIVER_OUT in given:
        call.driver_out_length = given[_DRIVER_OUT].length
    if handler is None:
        answer = _invoke_write(call, given, request, writes)
    else:
        call.respond = lambda answer: _respond(call, method, given, answer)
        answer = call.run(handler, request)
        call.respond(answer)
    if _DRIVER_OUT in given and answer.get("driver"):
        given[_DRIVER_OUT].fill(call, answer["driver"])
    return 0


def _attributes(call: Call, method: Method, address: int, count: int) -> dict[int, _Given]:
    """The attributes that are known, each of them judged; EINVAL, if one is missing."""
    size = IOCTL_ATTRIBUTE.size
    octets = call.read(address, count * size)
    known = {
        attribute.number: attribute
        for attribute in (*method.attributes, *(_OF_DRIVERS if method.driver else ()))
    }
    given: dict[int, _Given] = {}
    for index in range(count):
        one = IOCTL_ATTRIBUTE.unpack(octets[index * size :])
        if one.id not in known:
            if one.flags & _MANDATORY:
                raise refused(errno.EPROTONOSUPPORT, f"attribute {one.id} is not known")
            continue
        if one.id in given:
            raise refused(errno.EINVAL, f"attribute {one.id} twice")
        found = _Given(one.length, one.flags, one.zero, one.value, address + index * size)
        _judge(call, known[one.id], found)
        given[one.id] = found
    for attribute in method.attributes:
        if not attribute.optional and attribute.number not in given:
            why = f"attribute {attribute.number} ({attribute.name}) is missing"
            raise refused(errno.EINVAL, why)
    return given


def _judge(call: Call, attribute: Attribute, given: _Given) -> None:
    match attribute:
        case In(layout=None) | Const():
            fits = given.length == attribute.bytes
        case In(layout=layout):
            assert layout is not None
            if given.length > layout.size:
                call.demand_zero(given.place + layout.size, given.length - layout.size)
            fits = given.length >= layout.size
        case Flags():
            fits = given.length in (4, 8)
        case Octets():
            fits = given.length >= attribute.least
        case Out():
            fits = attribute.fits(given.length)
        case Handle() | Descriptor() | Created():
            fits = given.length == 0
    if not fits or given.zero:
        why = "not 0 where it is reserved" if fits else f"{given.length} bytes"
        raise refused(errno.EINVAL, f"attribute {attribute.number} ({attribute.name}): {why}")
    if isinstance(attribute, Octets) and attribute.is_copied:
        call.read(given.place, given.length)
    elif isinstance(attribute, Handle):
        if attribute.kind is None:
            raise refused(errno.EINVAL, f"there is no {attribute.name}")
        call.context.objects.get(given.value, attribute.kind)
    elif isinstance(attribute, Descriptor):
        _judge_descriptor(call, attribute, given.value)


def _judge_descriptor(call: Call, attribute: Descriptor, value: int) -> None:
    """EINVAL for what is no number of a descriptor; EBADF for what is none of ours."""
    if 1 << 31 <= value < (1 << 64) - (1 << 31):
        raise refused(errno.EINVAL, f"descriptor {value}")
    context, task = call.context, call.asked.task
    find_it = context.channel_of if attribute.is_channel else context.async_pipe_of
    if value >> 63 or find_it(task, value) is None:
        raise refused(errno.EBADF, f"descriptor {value}")


def _request(call: Call, method: Method, given: dict[int, _Given]) -> Fields:
    """What was passed, read."""
    request = Fields()
    for attribute in method.attributes:
        one = given.get(attribute.number)
        if one is None:
            continue
        match attribute:
            case In(layout=layout) if layout is not None:
                request.update(layout.unpack(call.read(one.place, layout.size)))
            case Const():
                if one.number > attribute.most:
                    raise refused(errno.EINVAL, f"{attribute.name} {one.number}")
                request[attribute.name] = one.number
            case In() | Flags():
                request[attribute.name] = one.number
            case Handle() | Descriptor():
                request[attribute.name] = one.value & 0xFFFFFFFF
            case Out():
                request[f"room_of_{attribute.name}"] = one.length
    return request


def _invoke_write(
    call: Call, given: dict[int, _Given], request: Fields, writes: WriteTable
) -> dict[str, Any]:
    call.doing = f"command {request.command:#x}"
    handler, form = find(writes, request.command)
    call.doing = name_of(handler)
    core = given.get(_CORE_IN)
    length = 0 if core is None else core.length
    room = request.get("room_of_core", 0)
    if length < form.least_request or room < form.least_response:
        # Libraries give a command with nothing in it to find out whether any can be given so.
        refusal = AnswerError if core is None else refused
        raise refusal(errno.ENOSPC, what_is_short(form, length, room))

    def respond(answer: dict[str, Any]) -> None:
        if room and form.response.size:
            given[_CORE_OUT].fill(call, packed_response(form, answer, room))

    call.respond = respond
    fields = read_request(call, form, 0 if core is None else core.place, length)
    answer = call.run(handler, fields)
    respond(answer)
    return answer


def _respond(call: Call, method: Method, given: dict[int, _Given], answer: dict[str, Any]) -> None:
    for attribute in method.attributes:
        one = given.get(attribute.number)
        if one is None or (attribute.name not in answer and not _is_structure(attribute)):
            continue
        if isinstance(attribute, Created):
            one.replace(call, answer[attribute.name])
        elif isinstance(attribute, Out):
            one.fill(call, _packed(attribute, answer, one.length))


def _is_structure(attribute: object) -> bool:
    return isinstance(attribute, Out) and attribute.layout is not None


def _packed(attribute: Out, answer: dict[str, Any], room: int) -> bytes:
    if attribute.layout is not None:
        return attribute.layout.pack(answer).ljust(room, b"\0")
    value = answer[attribute.name]
    if isinstance(value, bytes):
        return value
    assert attribute.bytes is not None
    return int(value).to_bytes(attribute.bytes, "little")
