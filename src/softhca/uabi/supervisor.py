"""The supervisor: what stands where the kernel would be for the programs that it runs."""

from __future__ import annotations

import errno
import functools
import itertools
import os
import selectors
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from softhca._adapter import Asked, DoorbellWatch, FileWatch, Known, Listener, launch
from softhca.uabi import proc, sysfs, yama
from softhca.uabi.closing import Closings
from softhca.uabi.commands.call import AnswerError, Call, refused
from softhca.uabi.commands.ioctl_form import run_ioctl
from softhca.uabi.commands.table import BEFORE_THE_CONTEXT, METHODS, WRITES
from softhca.uabi.commands.write_form import run_write
from softhca.uabi.context import Context
from softhca.uabi.descriptors import Range, answer_with, descriptor_ranges, free_numbers
from softhca.uabi.kept_counters import KeptCounters
from softhca.uabi.program import Program
from softhca.uabi.serving import Door, Wire, close_elsewhere, is_listener
from softhca.uabi.shared_device import SharedDevice
from softhca.verbs.device import Device
from softhca.verbs.enums import EventType

# To whom this process knows no number of: the kernel would tell it none of the programs either.
_INVISIBLE = (
    "the supervisor is in another PID namespace, from which programs of this one cannot be seen; "
    "it has to be in this one, or in one that this one was made in"
)


@dataclass
class Attended:
    """A tree of programs that the kernel asks about.

    Attributes:
        listener: Takes the questions.
        numbers: Of the descriptors that are ours there.
        is_descendant: Whether this process, or what it started, has started them.
        tree: Stands for the programs.
    """

    listener: Listener
    numbers: list[Range]
    is_descendant: bool
    tree: object = field(default_factory=object)


class Supervisor:
    """Adapters, and the programs that share them as programs share the devices of a host.

    One thread does everything: it is the one that calls `launch` and `serve`. Programs are killed
    when it ends, however it ends.

    Attributes:
        devices: The adapters.
    """

    def __init__(
        self,
        adapters: Sequence[Device],
        *,
        write_only: bool = False,
        doorbells_are_written: bool = False,
        descriptor_limit: int = 0,
        on_refusal: Callable[[int, OSError], object] | None = None,
        on_trouble: Callable[[str], object] | None = None,
    ) -> None:
        """Makes the adapters known.

        Args:
            adapters: Programs find them in this order.
            write_only: Refuse ioctl(2), as kernels before 4.20 did.
            doorbells_are_written: Posting of sends is a write that nobody answers. Not with
                `write_only`: other commands that are as long would not be answered either.
            descriptor_limit: How many descriptors programs may have that it starts; by default (0)
                as many as this process.
            on_refusal: Called with the task and the error of each command that is refused, which
                names the command, but for those that only answer a question (AnswerError).
            on_trouble: Called with what keeps programs from finding their devices.

        Raises:
            PermissionError: EPERM, where Yama lets nobody do what this does.
            OSError: EOPNOTSUPP, where /proc is none or another PID namespace's, or a sandbox
                forbids what reaches the memory of programs.
        """
        proc.demand_own()
        yama.demand_reach()
        proc.demand_memory()
        self._on_trouble = on_trouble
        self._on_refusal = on_refusal
        self._write_only = write_only
        self._doorbells_are_written = doorbells_are_written and not write_only
        self._numbers = descriptor_ranges(descriptor_limit)
        self._descriptor_limit = descriptor_limit
        self._tree = sysfs.SysfsTree()
        self._kept_counters = KeptCounters(self._tree)
        nodes = self._tree.make_nodes(len(adapters))
        self.devices = [
            SharedDevice(adapter, index, node)
            for index, (adapter, node) in enumerate(zip(adapters, nodes, strict=True))
        ]
        self._known = Known()
        if write_only:
            self._known.forget_ioctl()
        self._doorbells = DoorbellWatch(self._known) if self._doorbells_are_written else None
        self._programs: list[Program] = []
        self._shut_doors: list[Door] = []
        self._contexts: dict[int, Context] = {}  # By the inode of their file.
        self._watch = FileWatch()
        self._watched: dict[int, Context] = {}
        self._closings = Closings()
        # What is answered only when what is being closed is gone.
        self._waiting: list[tuple[Attended, Asked]] = []
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._watch.fd, selectors.EVENT_READ, self._close_contexts)
        self._known.set_live_directories(list(sysfs.LIVE_DIRECTORIES))
        for path, directory in sysfs.SHOWN.items():
            self._known.show(path, os.fsencode(self._tree.top / directory))
        for device in self.devices:
            self._tree.add(device)
            self._known.add_device(device.path, device.number)
            self._selector.register(
                device.adapter.async_event_fileno(),
                selectors.EVENT_READ,
                functools.partial(self._forward_events, device),
            )

    def close(self) -> None:
        """Ends what still runs, and forgets everything."""
        self._shut_doors.clear()
        self._waiting.clear()
        for program in self._programs:
            program.close()
        for context in list(self._contexts.values()):
            self._close_context(context)
        while self._closings:
            self._close_some()
        if self._doorbells is not None:
            self._doorbells.close()
        self._selector.close()
        self._tree.remove()

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(self, *exception: object) -> None:
        """Closes it."""
        self.close()

    def launch(
        self, path: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Program:
        """Starts a program.

        Args:
            path: Of the program.
            arguments: All of them, the program's name included.
            environment: By default this process's.

        Raises:
            VerbsError: EBUSY, where another seccomp notifier is in the way; EOPNOTSUPP, where the
                system has none; what execve(2) says.
        """
        variables = os.environ if environment is None else environment
        process, guardian, socket, descriptor = launch(
            os.fsencode(path),
            [os.fsencode(one) for one in arguments],
            [os.fsencode(f"{name}={value}") for name, value in variables.items()],
            self._numbers,
            os.fsencode(self._tree.top),
            self._doorbells_are_written,
            descriptor_limit=self._descriptor_limit,
        )
        self._listen(descriptor, self._numbers, is_descendant=True)
        program = Program(process, guardian, socket, self._selector)
        self._programs.append(program)
        return program

    def _listen(self, descriptor: int, numbers: list[Range], *, is_descendant: bool) -> Attended:
        """Takes a descriptor over on which the kernel asks about a program."""
        attended = Attended(Listener(descriptor, self._known), numbers, is_descendant)
        attended.listener.start()
        self._selector.register(
            attended.listener.fd, selectors.EVENT_READ, lambda: self._serve_listener(attended)
        )
        return attended

    def open_door(self, door: Door) -> None:
        """Lets programs in that others start (softhca.uabi.attached)."""
        self._selector.register(door.listener, selectors.EVENT_READ, lambda: self._let_in(door))

    def _open_shut_doors(self) -> None:
        """Looks again who waits at the doors for which there was no descriptor left."""
        doors, self._shut_doors = self._shut_doors, []
        for door in doors:
            self.open_door(door)

    def _let_in(self, door: Door) -> None:
        try:
            wire = door.accept()
        except OSError as error:
            if error.errno == errno.EMFILE:
                self._selector.unregister(door.listener)
                self._shut_doors.append(door)
            return  # If it has not gone, it waits.
        is_visible = wire.peer != 0
        words = {"doorbells_are_written": self._doorbells_are_written}
        try:
            wire.tell(words if is_visible else {"refusal": _INVISIBLE})
        except OSError:
            is_visible = False  # It has thought better of it.
        if not is_visible:
            wire.hang_up()
            return
        self._selector.register(
            wire.connection, selectors.EVENT_READ, lambda: self._hear_from(wire)
        )

    def _hear_from(self, wire: Wire) -> None:
        has_ended = False
        try:
            heard = wire.hear()
            has_ended = heard is None
            if heard is not None:
                self._take_over(*heard)
                return
        except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
            traceback.print_exc()
            with suppress(OSError):  # It may have gone.
                wire.tell({"refusal": str(error) or type(error).__name__})
        # Programs end with whoever started them: the kernel will say so.
        self._selector.unregister(wire.connection)
        if has_ended:
            wire.connection.close()
        else:
            wire.hang_up()
        self._open_shut_doors()

    def _take_over(self, words: Mapping[str, Any], descriptors: list[int]) -> None:
        """Attends to the program of somebody who came to the door."""
        try:
            numbers = [(int(first), int(last)) for first, last in words["numbers"]]
            (descriptor,) = descriptors
            if not is_listener(descriptor):
                raise ValueError("what came along is no listener of seccomp")
        except (ValueError, KeyError, TypeError, OverflowError):
            close_elsewhere(descriptors)
            raise
        self._listen(descriptor, numbers, is_descendant=False)

    def serve(self, program: Program) -> int:
        """Serves all programs until one has ended; returns its status, as of os.waitstatus()."""
        while program.status is None:
            self.serve_once(None)
        return program.status

    def serve_once(self, timeout: float | None) -> None:
        """Does what there is to do, after waiting for it if there is nothing."""
        wait = 0 if self._closings else self._kept_counters.shorten(timeout)
        for key, _ in self._selector.select(wait):
            callback: Callable[[], object] = key.data
            callback()
        self._close_some()
        self._kept_counters.take_turn()

    def _serve_listener(self, attended: Attended) -> None:
        listener = attended.listener
        while (asked := listener.next()) is not None:
            self._close_contexts()
            self._answer_in_turn(attended, asked)
        task = listener.take_refused_task()
        if task and self._on_trouble is not None:
            self._on_trouble(yama.explain(task, is_descendant=attended.is_descendant))
        if listener.is_over:
            self._selector.unregister(listener.fd)
            listener.stop()
            self._open_shut_doors()

    def _answer_in_turn(self, attended: Attended, asked: Asked) -> None:
        """Answers a call, for those who may know of it after what was closed before it is gone.

        That is whoever closed it and what they have started, and who begins with the device now.
        """
        if self._closings and (
            self._closings.has_any_of(attended.tree)
            or (asked.call == "open" and self._device_of(asked) is not None)
        ):
            self._waiting.append((attended, asked))
        else:
            self._answer(attended, asked)

    def _answer(self, attended: Attended, asked: Asked) -> None:
        listener = attended.listener
        call: Call | None = None
        try:
            if asked.call == "open":
                self._open(attended, asked)
                return
            context = self._contexts.get(asked.inode)
            if context is None:
                raise refused(errno.ENODEV)
            if asked.call == "dup":
                self._duplicate(attended, asked, context)
                return
            # A command finds done what the program has posted before it.
            self._ring_written(context)
            call = Call(listener, asked, context, before_the_context=BEFORE_THE_CONTEXT)
            told = self._command(call)
            if not listener.give(asked, told):
                call.take_back()  # It was killed meanwhile.
        except OSError as error:
            self._refuse(listener, asked, call, error)
        except Exception as error:  # One program's command must not be every program's end.
            traceback.print_exc()
            self._refuse(listener, asked, call, OSError(errno.EIO, repr(error)))
        finally:
            if call is not None:
                call.end()

    def _refuse(self, listener: Listener, asked: Asked, call: Call | None, error: OSError) -> None:
        if call is not None:
            call.take_back()
        listener.refuse(asked, error.errno or errno.EIO)
        if self._on_refusal is not None and not isinstance(error, AnswerError):
            doing = asked.call if call is None else call.doing or asked.call
            why = error.strerror or str(error)
            self._on_refusal(asked.task, OSError(error.errno, f"{doing}: {why}"))

    def _ring_written(self, context: Context) -> None:
        if self._doorbells is not None:
            self._doorbells.ring_written(context.file.inode)

    def _command(self, call: Call) -> int:
        if call.asked.call == "write":
            return run_write(call, WRITES)
        if self._write_only:
            raise AnswerError(errno.ENOTTY, "there is no ioctl")
        return run_ioctl(call, METHODS, WRITES)

    def _open(self, attended: Attended, asked: Asked) -> None:
        listener = attended.listener
        device = self._device_of(asked)
        if device is None:
            self._refresh(_path_of(asked))
            listener.answer_from_tree(asked)
            return
        numbers = free_numbers(asked.task, attended.numbers)
        first = next(numbers)
        context = Context(device, self._known, attended.tree)
        file = context.file
        descriptor = file.open_again()
        try:
            context.watch = self._watch.add(descriptor)
            self._watched[context.watch] = context
            self._contexts[file.inode] = context
            self._known.add_file(file.file_system, file.inode, device.number)
            if self._doorbells is not None:
                self._doorbells.add(file.rings)
            close_on_exec = bool(asked.open_flags & os.O_CLOEXEC)
            answer_with(
                listener, asked, descriptor, itertools.chain((first,), numbers), close_on_exec
            )
        finally:
            # If nobody has it by now, this is the last close, and the context goes.
            os.close(descriptor)

    def _device_of(self, asked: Asked) -> SharedDevice | None:
        """The device that is opened; None, if something else is."""
        path = _path_of(asked)
        return next((device for device in self.devices if device.path == path), None)

    def _duplicate(self, attended: Attended, asked: Asked, context: Context) -> None:
        """dup(2) and F_DUPFD, whose result shall be in our range too."""
        numbers = free_numbers(asked.task, attended.numbers, asked.least_number)
        try:
            source = asked.take_descriptor()
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOSYS):
                raise
            # Docker's profile of seccomp refuses pidfd_getfd(2). Another description of the file
            # does as well: a device has nothing that its descriptions would share.
            source = context.file.open_again()
        try:
            answer_with(attended.listener, asked, source, numbers, asked.closes_on_exec)
        finally:
            os.close(source)

    def _refresh(self, path: str) -> None:
        """Brings counters up to date that a path is of, or a directory that they are below."""
        for device in self.devices:
            own = f"{sysfs.DEVICES}/{device.name}"
            if path in (sysfs.DEVICES, own) or path.startswith(f"{own}/"):
                self._tree.refresh_counters(device)
                self._kept_counters.opened(device)

    def _forward_events(self, device: SharedDevice) -> None:
        while (event := device.adapter.poll_async_event()) is not None:
            with event:
                if isinstance(event.element, (int, Device)):
                    self._tell_all(device, event.event_type, event.element)
                elif event.element in device.owners:
                    pipe, user_handle = device.owners[event.element]
                    if pipe is not None:
                        pipe.put(event.event_type, user_handle)

    def _tell_all(self, device: SharedDevice, event_type: int, element: int | Device) -> None:
        """Tells of an event of the port or of the device."""
        device.times_down += event_type == EventType.PORT_ERR
        self._tree.refresh_port(device)
        for context in self._contexts.values():
            if context.device is device:
                context.tell(event_type, element if isinstance(element, int) else 0)

    def _close_contexts(self) -> None:
        for watch in self._watch.take_closed():
            context = self._watched.get(watch)
            # It may have been another description, such as of who opened /proc/self/fd/N.
            if context is not None and not context.file.is_open():
                self._close_context(context)

    def _close_context(self, context: Context) -> None:
        self._watch.remove(context.watch)
        del self._watched[context.watch]
        del self._contexts[context.file.inode]
        self._known.remove_file(context.file.inode)
        if self._doorbells is not None:
            self._ring_written(context)
            self._doorbells.remove(context.file.inode)
        if self._closings.begin(context):
            self._open_shut_doors()

    def _close_some(self) -> None:
        """Does a portion of what is being closed; answers who waited for the end of it."""
        if not self._closings.go_on():
            return
        self._open_shut_doors()
        waiting, self._waiting = self._waiting, []
        for attended, asked in waiting:
            self._answer_in_turn(attended, asked)


def _path_of(asked: Asked) -> str:
    # What begins with two slashes would keep them.
    return os.path.normpath("/" + os.fsdecode(asked.path).lstrip("/"))
