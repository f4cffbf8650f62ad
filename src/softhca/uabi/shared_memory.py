"""Memory of a program that can be mapped here too, since it is a file in memory."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator

from softhca._adapter import SharedMapping
from softhca.uabi.mappings import Mapping, mappings_from
from softhca.verbs.errors import VerbsError


def shared_mapping_of(task: int, address: int, length: int, writable: bool) -> SharedMapping | None:
    """Maps what a task has at an address; None where that is not one file in memory.

    It stays what it was registered for when the process maps something else there later, as pinned
    pages of hardware do.
    """
    mapping = _one_file(task, address, length)
    if mapping is None or (writable and not mapping.writable):
        return None
    offset = mapping.offset + (address - mapping.first)
    for descriptor in _openings(task, mapping):
        try:
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode) and _identity(status) == mapping.identity:
                return SharedMapping(descriptor, offset, length, mapping.writable)
        except (OSError, VerbsError):
            continue
        finally:
            os.close(descriptor)
    return None


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _one_file(task: int, address: int, length: int) -> Mapping | None:
    """The mapping that an address is in, if all of the range is of the same file, in its order."""
    found: Mapping | None = None
    end, reached = address + length, address
    for mapping in mappings_from(task, address):
        if mapping.first > reached or not mapping.shared or not mapping.is_of_a_file:
            return None
        if found is None:
            found = mapping
        elif (mapping.identity, mapping.writable) != (found.identity, found.writable) or (
            mapping.offset - found.offset != mapping.first - found.first
        ):
            return None
        reached = mapping.last
        if reached >= end:
            return found
    return None


def _openings(task: int, mapping: Mapping) -> Iterator[int]:
    """Descriptors of what may be the file: by privilege, by its name, by one of the process."""
    flags = os.O_RDWR if mapping.writable else os.O_RDONLY
    flags |= os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    with contextlib.suppress(OSError):
        # Needs CAP_CHECKPOINT_RESTORE; finds files that have neither a name nor a descriptor.
        yield os.open(f"/proc/{task}/map_files/{mapping.bounds}", flags)
    if mapping.path.startswith("/"):
        with contextlib.suppress(OSError):
            if _identity(os.lstat(mapping.path)) == mapping.identity:
                yield os.open(mapping.path, flags | os.O_NOFOLLOW)
    try:
        numbers = os.listdir(f"/proc/{task}/fd")
    except OSError:
        return
    for number in numbers:
        path = f"/proc/{task}/fd/{number}"
        with contextlib.suppress(OSError):
            if _identity(os.stat(path)) == mapping.identity:
                yield os.open(path, flags)
