"""The life of an object: who keeps whom alive, and what closing means.

An object keeps its parents alive; a parent knows its children without keeping them. `close()` is
idempotent and refuses while there are children; leaving a `with` block closes the children first.
`close()` waits for events to be acknowledged; leaving a block, and the garbage collector, do not.
"""

from __future__ import annotations

import errno
import gc
import os
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn, TypeVar, cast

from softhca._adapter import Hca
from softhca.verbs.errors import VerbsError

_forks = 0

# What nobody holds any more, and the adapter refuses to give back since something else that nobody
# holds still uses it: the garbage collector comes to things in any order.
_refused: deque[VerbsObject] = deque()

# Held while an object closes, so that of several threads that close it one does. An RLock, since
# closing may let go of the last reference to another object.
_closing = threading.RLock()
# Held while a thread puts what it has made where others look for it.
_choosing = threading.RLock()


def _on_fork() -> None:
    global _choosing, _closing, _forks
    _forks += 1
    _refused.clear()  # They are the parent's.
    # Who held the old ones may not exist here.
    _choosing, _closing = threading.RLock(), threading.RLock()


os.register_at_fork(after_in_child=_on_fork)


class _Closed:
    """Stands where an object's adapter was: whatever is called on it is refused by name."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> NoReturn:
        raise VerbsError(errno.EINVAL, self._name, None, "is closed")


class VerbsObject:
    """Something that was opened, allocated, registered or created, and can be closed."""

    __slots__ = ("__weakref__", "_children", "_closed", "_forks", "_hca", "_parents")

    # Name of the object as an argument of verbs: "pd", "send_cq" and the like build on it.
    kind = "object"

    def __init__(self, hca: Hca, *parents: VerbsObject) -> None:
        self._hca = hca
        self._parents = parents
        self._children: dict[int, weakref.ref[VerbsObject]] = {}
        self._closed = False
        self._forks = _forks
        for parent in parents:
            parent._children[id(self)] = weakref.ref(self)

    def _destroy(self) -> None:
        """Gives the adapter's object back; raises what the adapter refuses."""
        raise NotImplementedError

    @property
    def _is_owned(self) -> bool:
        """True if the library closes the object, and not the program."""
        return False

    def _tell_left_open(self, told: str) -> None:
        """Tells the device of an object under it that the program forgot without closing it."""
        for parent in self._parents[:1]:
            parent._tell_left_open(told)

    def _aftermath(self) -> None:
        """What is left to do once the object is destroyed, and no lock is held."""

    @property
    def closed(self) -> bool:
        """True once the object is closed; every verb on it is refused from then on."""
        return self._closed

    def close(self) -> None:
        """Destroys the object. Does nothing the second time.

        Waits for other threads to acknowledge events of it that they took, as libibverbs does.

        Raises:
            VerbsError: EBUSY, if objects that were made from it still live, or if events of it
                are not acknowledged by anyone; it stays open.
        """
        try:
            if not self._closed and not self._inherited():
                self._refuse_with_children()
                self._await_acknowledgement()
            self._close_now()
        except BaseException:
            self._take_events_again()
            raise

    def _await_acknowledgement(self) -> None:
        """Waits until events of the object that were taken are acknowledged; EBUSY if none will.

        No more are taken then, so that nobody works on what is gone.
        """

    def _take_events_again(self) -> None:
        """Undoes that, for an object that stays."""

    def _close_now(self) -> None:
        """Closes without a wait: what is not acknowledged is given up."""
        with _closing:
            if self._closed:
                return
            if not self._inherited():
                self._refuse_with_children()
                self._destroy()
            self._forget()
        if not self._inherited():
            self._aftermath()

    def _refuse_with_children(self) -> None:
        children = self._live_children()
        if children:
            rule = "is still used by " + ", ".join(sorted(repr(child) for child in children[:4]))
            if len(children) > 4:
                rule += f" and {len(children) - 4} more"
            raise VerbsError(errno.EBUSY, self.kind, None, rule + ": close them first")

    def _inherited(self) -> bool:
        """True in a child of fork(), where the object is the parent's."""
        return self._forks != _forks

    def _demand_ours(self) -> None:
        """For what the adapter is not asked about, and so does not refuse.

        Raises:
            VerbsError: EINVAL, if the object is closed; EIO, in a child of fork().
        """
        if self._closed:
            raise VerbsError(errno.EINVAL, self.kind, None, "is closed")
        if self._inherited():
            rule = "belongs to the parent process: open a device after fork()"
            raise VerbsError(errno.EIO, self.kind, None, rule)

    def _live_children(self) -> list[VerbsObject]:
        # A list first, since other threads add and remove; None, since an empty region is false.
        references = list(self._children.values())
        return [child for ref in references if (child := ref()) is not None]

    def _forget(self) -> None:
        """Leaves the object closed, without a word to the adapter."""
        self._closed = True
        self._hca = cast(Hca, _Closed(self.kind))
        for parent in self._parents:
            parent._children.pop(id(self), None)
        self._parents = ()

    def _adopt(self, parent: VerbsObject) -> None:
        """Makes `parent` the only one."""
        for before in self._parents:
            before._children.pop(id(self), None)
        self._parents = (parent,)
        parent._children[id(self)] = weakref.ref(self)

    def _let_go(self) -> None:
        """Undoes what `close()` would refuse for and nobody else will undo."""

    def _close_with_children(self) -> None:
        for child in reversed(self._live_children()):
            child._close_with_children()
        if not self._closed and not self._inherited():
            self._let_go()
        self._close_now()

    def _forget_with_children(self) -> None:
        for child in reversed(self._live_children()):
            child._forget_with_children()
        if not self._closed:
            self._forget()

    def __enter__(self: V) -> V:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes what was made from the object, the youngest first, and then the object.

        Waits for nobody: events that were taken and not acknowledged are given up.
        """
        self._close_with_children()

    def __del__(self, _warn: Callable[..., None] = warnings.warn) -> None:
        # An object whose constructor raised has no field of ours.
        if getattr(self, "_closed", True) or self._inherited() or self._is_owned:
            return
        try:
            told = repr(self)
            self._tell_left_open(told)
            _warn(f"unclosed {told}", ResourceWarning, stacklevel=2, source=self)
        finally:  # Warnings may be errors.
            self._give_back()

    def _give_back(self) -> None:
        """Gives back what nobody holds any more, or leaves it for later as it is.

        A region's buffer must not be let go of while peers can still reach it.
        """
        try:
            self._let_go()
            self._destroy()
            self._aftermath()
        except OSError as error:
            if error.errno == errno.EBUSY:
                for parent in self._parents:
                    parent._children.pop(id(self), None)
                if _give_back_refused not in gc.callbacks:
                    gc.callbacks.append(_give_back_refused)
                _refused.append(self)
                return
            # Else the device was closed first.
        self._forget()

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError(f"cannot pickle {type(self).__name__}: it belongs to this process")


def _give_back_refused(phase: str, _: object) -> None:
    """Tries again what was refused, when the garbage collector has come to everything."""
    before = None
    while phase == "stop" and _refused and len(_refused) != before:
        before = len(_refused)
        for _ in range(before):
            _refused.popleft()._give_back()


V = TypeVar("V", bound=VerbsObject)


def alive(argument: str, value: object, cls: type[V], hca: Hca) -> V:
    """Returns `value`, an open object of `cls` on the same adapter.

    Raises:
        TypeError: If it is something else.
        VerbsError: EINVAL, if it is closed or of another device, or who asks is closed himself.
    """
    if not isinstance(value, cls):
        raise TypeError(f"{argument} must be {cls.__name__}, not {type(value).__name__}")
    if value.closed:
        raise VerbsError(errno.EINVAL, argument, None, "is closed")
    if value._hca is not hca:
        if isinstance(hca, _Closed):
            raise VerbsError(errno.EINVAL, hca._name, None, "is closed")
        raise VerbsError(errno.EINVAL, argument, None, "belongs to another device")
    return value


M = TypeVar("M")


def made_once(holder: object, field: str, make: Callable[[], M], discard: Callable[[M], Any]) -> M:
    """Returns what a field holds, made now if it holds None.

    Of several threads that make it at once each returns the same; what the others have made is
    discarded. Nothing is held while it is made.
    """
    present: M | None = getattr(holder, field)
    if present is not None:
        return present
    made = make()
    with _choosing:
        present = getattr(holder, field)
        if present is None:
            setattr(holder, field, made)
            return made
    discard(made)
    return present
