"""Commands in the newer form: an ioctl(2) with a list of attributes.

Errors are those of the kernel's uverbs_ioctl.c: what is not known at all is EPROTONOSUPPORT, by
which libraries find out that they must use write(2).
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from softhca.uabi.commands.call import Call, refused
from softhca.uabi.commands.forms import Created, Descriptor, Handle, Handler, In, Method, Out
from softhca.uabi.commands.write_form import WriteTable, demand_zero, find, packed_response
from softhca.uabi.layout import Fields
from softhca.uabi.structures import IOCTL_ATTRIBUTE, IOCTL_HEADER

MethodTable = Mapping[tuple[int, int], tuple[Handler, Method]]

DRIVER_RXE = 14
_LONGEST = 4096
_MANDATORY = 1
_VALID_OUTPUT = 2
_DRIVER_IN, _DRIVER_OUT = 0x1000, 0x1001
_INVOKE_WRITE = (0, 0)
_CORE_IN, _CORE_OUT, _WRITE_COMMAND = 0, 1, 2


@dataclass
class _Given:
    """An attribute as the program gave it, and where it stands in its memory."""

    id: int
    length: int
    flags: int
    value: int
    address: int

    def octets(self, call: Call) -> bytes:
        """Its bytes: in place up to eight of them, else behind a pointer."""
        if self.length <= 8:
            return self.value.to_bytes(8, "little")[: self.length]
        return call.read(self.value, self.length)

    def fill(self, call: Call, octets: bytes) -> None:
        """Writes where it points, and marks it as written."""
        call.write(self.value, octets[: self.length])
        self.mark(call)

    def mark(self, call: Call) -> None:
        """Says that it was written."""
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
        raise refused(errno.EINVAL)
    if header.zero1 or header.zero2:
        raise refused(errno.EPROTONOSUPPORT)
    if header.driver_id != DRIVER_RXE:
        raise refused(errno.EINVAL, f"driver {header.driver_id}")
    key = (header.object_id, header.method_id)
    if key != _INVOKE_WRITE and key not in methods:
        raise refused(errno.EPROTONOSUPPORT, f"method {key}")
    given = _attributes(call, address + IOCTL_HEADER.size, header.num_attrs)
    if _DRIVER_IN in given:
        call.driver_in = given[_DRIVER_IN].octets(call)
    if _DRIVER_OUT in given:
        call.driver_out_length = given[_DRIVER_OUT].length
    if key == _INVOKE_WRITE:
        answer = _invoke_write(call, given, writes)
    else:
        answer = _run_method(call, given, *methods[key])
    if _DRIVER_OUT in given and answer.get("driver"):
        given[_DRIVER_OUT].fill(call, answer["driver"])
    return 0


def _attributes(call: Call, address: int, count: int) -> dict[int, _Given]:
    size = IOCTL_ATTRIBUTE.size
    octets = call.read(address, count * size)
    given: dict[int, _Given] = {}
    for index in range(count):
        one = IOCTL_ATTRIBUTE.unpack(octets[index * size :])
        if one.id in given:
            raise refused(errno.EINVAL, "an attribute twice")
        given[one.id] = _Given(one.id, one.length, one.flags, one.value, address + index * size)
    return given


def _refuse_unknown(given: dict[int, _Given], known: set[int]) -> None:
    for attribute in given.values():
        if attribute.id not in known and attribute.flags & _MANDATORY:
            raise refused(errno.EPROTONOSUPPORT, f"attribute {attribute.id}")


def _invoke_write(call: Call, given: dict[int, _Given], writes: WriteTable) -> dict[str, Any]:
    _refuse_unknown(given, {_CORE_IN, _CORE_OUT, _WRITE_COMMAND, _DRIVER_IN, _DRIVER_OUT})
    number = given.get(_WRITE_COMMAND)
    if number is None or number.length > 8:
        raise refused(errno.EINVAL)
    handler, form = find(writes, number.value & 0xFFFFFFFF)
    core = given[_CORE_IN].octets(call) if _CORE_IN in given else b""
    room = given[_CORE_OUT].length if _CORE_OUT in given else 0
    if len(core) < form.least_request or room < form.least_response:
        raise refused(errno.ENOSPC)
    if form.extended:
        demand_zero(core[form.request.size :])
    answer = call.run(handler, form.request.unpack(core))
    if _CORE_OUT in given:
        given[_CORE_OUT].fill(call, packed_response(form, answer, room))
    return answer


def _run_method(
    call: Call, given: dict[int, _Given], handler: Handler, method: Method
) -> dict[str, Any]:
    known = {attribute.number for attribute in method.attributes} | {_DRIVER_IN, _DRIVER_OUT}
    _refuse_unknown(given, known)
    request = Fields()
    for attribute in method.attributes:
        one = given.get(attribute.number)
        if one is None:
            if isinstance(attribute, Created) or not attribute.optional:
                raise refused(errno.EINVAL, f"attribute {attribute.number} is missing")
            continue
        _take(call, request, attribute, one)
    objects = call.context.objects
    objects.unknown = errno.ENOENT
    try:
        answer = call.run(handler, request)
    finally:
        objects.unknown = errno.EINVAL
    for attribute in method.attributes:
        one = given.get(attribute.number)
        if one is None or (attribute.name not in answer and not _is_structure(attribute)):
            continue
        if isinstance(attribute, Created):
            one.replace(call, answer[attribute.name])
        elif isinstance(attribute, Out):
            one.fill(call, _packed(attribute, answer))
    return answer


def _is_structure(attribute: object) -> bool:
    return isinstance(attribute, Out) and attribute.layout is not None


def _packed(attribute: Out, answer: dict[str, Any]) -> bytes:
    if attribute.layout is not None:
        return attribute.layout.pack(answer)
    value = answer[attribute.name]
    if isinstance(value, bytes):
        return value
    assert attribute.bytes is not None
    return int(value).to_bytes(attribute.bytes, "little")


def _take(
    call: Call,
    request: Fields,
    attribute: In | Handle | Descriptor | Created | Out,
    given: _Given,
) -> None:
    match attribute:
        case In(layout=None):
            # A number may come as wide as the program likes, but no narrower than it is.
            if given.length < attribute.bytes or given.length > 8:
                raise refused(errno.EINVAL)
            request[attribute.name] = int.from_bytes(given.octets(call), "little")
        case In(layout=layout):
            assert layout is not None
            if given.length < layout.size:
                raise refused(errno.EINVAL)
            request.update(layout.unpack(given.octets(call)))
        case Handle() | Descriptor():
            if given.length != 0:
                raise refused(errno.EINVAL)
            request[attribute.name] = given.value & 0xFFFFFFFF
        case Out():
            if given.length < attribute.required:
                raise refused(errno.EINVAL)
            request[f"room_of_{attribute.name}"] = given.length
        case Created():
            if given.length != 0:
                raise refused(errno.EINVAL)
