"""What a forked process must not use of its parent: locks that are held, connections, threads.

After a fork parent and child share each socket. On one TLS session both then write with the same
keys and count, and one of them reads the other's answer as its own. So a child does not use what
its parent had opened, and opens its own. It does not close the parent's sockets either: what the
child sends or takes out of an event queue would be missing at the parent. Nor may the garbage
collector close them.
"""

from __future__ import annotations

import mmap
import os
import sys
import time
from collections import deque
from contextlib import suppress
from functools import cached_property
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, Self, TypeAlias, TypeVar, overload
from weakref import WeakSet

from countledger.ledger.suspension import current_call

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from countledger.ledger.suspension import Signal


_T = TypeVar("_T")
# Forks that Python has seen on the way to this process.
_FORKS: Final = [0]


_Identity: TypeAlias = tuple[int, int]
# Of Linux, from 4.14 on; Python has no name for it.
_WIPE_ON_FORK: Final = 18
_NO_ADVICE: Final = -1


def _wiped_page() -> mmap.mmap | None:
    """Memory that is 0 in each fork, because the kernel wipes it there; None: it cannot."""
    if sys.platform != "linux":
        return None
    page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        page.madvise(_WIPE_ON_FORK)
    except OSError:
        return None
    try:
        page.madvise(_NO_ADVICE)
    except OSError:
        return page
    return None  # an emulator of Linux accepts any advice, and wipes nothing


_WIPED: Final = _wiped_page()
# Whether the identity is known: read by every event, and asking the kernel takes longer.
_KNOWN: Final = bytearray(1) if _WIPED is None else _WIPED
_IDENTITY: Final[list[_Identity]] = [(0, 0)]


def this_process() -> _Identity:
    """What is equal in one process only.

    Some servers fork without Python's hooks: then the process id differs. An id may come again, as
    in a container of the child's own: then the number of forks differs.
    """
    return _IDENTITY[0] if _KNOWN[0] else _identify()


def _identify() -> _Identity:
    """Ask the kernel for the identity of this process: at first, and after each fork."""
    _IDENTITY[0] = here = os.getpid(), _FORKS[0]
    if _WIPED is not None:
        _WIPED[0] = 1
    return here


def _begin_in_child() -> None:
    _FORKS[0] += 1
    _KNOWN[0] = 0  # an emulator of Linux may accept the advice and wipe nothing
    for what in _TO_ABANDON:
        abandon(what)


def _before_fork() -> None:
    # In a child another thread's import would never end.
    import ctypes  # noqa: F401, PLC0415 - for `abandon`


_TO_ABANDON: Final[WeakSet[object]] = WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_begin_in_child)
_AT_THE_START: Final = this_process()


def is_forked() -> bool:
    """Whether this process may have inherited what was made with this library loaded."""
    return this_process() != _AT_THE_START


def abandon(what: object) -> None:
    """Keep something of the parent's from being closed here, also as Python ends."""
    import ctypes  # noqa: PLC0415 - few processes fork, or are forks

    # A reference that is never given back.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(what))


def abandon_in_forks(what: object) -> None:
    """Abandon something in each fork that Python sees, for as long as it lives here."""
    _TO_ABANDON.add(what)


class PerProcess(Generic[_T]):
    """A value that each process makes at its first use; of two threads' values one is kept."""

    __slots__ = ("_made", "_make", "_mine")

    def __init__(self, make: Callable[[], _T]) -> None:
        self._make = make
        self._mine = this_process(), make()
        self._made = dict([self._mine])

    def get(self) -> _T:
        process, value = self._mine
        here = this_process()
        if process == here:
            return value
        abandon(value)
        # One step, which no other thread can divide: every thread gets the value that came first.
        value = self._made.setdefault(here, self._make())
        self._mine = here, value
        return value


class LockPerProcess:
    """A lock of each process's own, also where a server forks without Python's hooks.

    A fork has only one of its parent's threads: a lock that another thread held would stay held
    there for ever.
    """

    __slots__ = ("_lock",)

    def __init__(self, make: Callable[[], Any] = Lock) -> None:
        self._lock = PerProcess(make)

    @property
    def here(self) -> Any:  # noqa: ANN401 - of `make`
        """The lock of this process: `with lock.here` asks once which process this is."""
        return self._lock.get()

    def __enter__(self) -> None:
        self.here.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        self.here.release()


def lock_open_in_forks() -> LockPerProcess:
    """A lock for a module to keep.

    Python forks only while it is free, so what it guards is whole in a fork.
    """
    lock = LockPerProcess()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.__enter__, after_in_parent=lock.release)
    return lock


def refuse_to_pickle() -> NoReturn:
    raise TypeError(
        "what uses a client of AWS cannot be pickled: pickle the `CountLedger`, and take what "
        "you need from it in the other process"
    )


class ClientPerProcess:
    """A client of AWS, or another object, whose attributes are those of this process's own."""

    __slots__ = ("__weakref__", "_client")

    def __init__(self, make: Callable[[], object]) -> None:
        self._client = PerProcess(make)

    def __reduce__(self) -> tuple[Any, ...]:
        refuse_to_pickle()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a client has
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._client.get(), name)


class SuspendableLock:
    """A lock that may be held while a request is made, of each process's own.

    A thread that waits for it is blocked. A call of an event loop is suspended, so that the call
    that holds the lock, which may be of the same thread, can go on.
    """

    __slots__ = ("_mine",)

    def __init__(self) -> None:
        self._mine: PerProcess[tuple[Lock, deque[Signal]]] = PerProcess(lambda: (Lock(), deque()))

    def __enter__(self) -> None:
        lock, waiting = self._mine.get()
        call = current_call()
        if call is None:
            lock.acquire()
            return
        while not lock.acquire(blocking=False):
            signal = call.signal()
            waiting.append(signal)
            if lock.acquire(blocking=False):  # freed before the signal was there
                return
            signal.wait()

    def __exit__(self, *_: object) -> None:
        lock, waiting = self._mine.get()
        lock.release()
        with suppress(IndexError):  # another holder has taken the last one
            while waiting:
                waiting.popleft().send()


class made_once(cached_property[_T]):  # noqa: N801 - a decorator, as the one that it extends
    """`cached_property` that computes a value once, also for threads and calls of event loops.

    Each object has a lock of its own, which no fork inherits held.
    """

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> _T: ...
    def __get__(self, instance: object, owner: type[Any] | None = None) -> Self | _T:
        if instance is None:
            return self
        known, name = vars(instance), str(self.attrname)
        if name not in known:
            with known.setdefault(f"{name} is being made", SuspendableLock()):
                if name not in known:
                    known[name] = self.func(instance)
            known.pop(f"{name} is being made", None)
        value: _T = known[name]
        return value


# Copies of a process's memory (Lambda SnapStart, a restored machine), as far as they are seen.
#
# A snapshot of a machine is continued many times: the copies have one process id and one memory,
# so nothing in Python says that there are several. Lambda says it by hooks; others show at most a
# clock that jumped. Unlike a fork, a copy has all threads and goes on inside of every call.


if TYPE_CHECKING:

    class Connected(Protocol):
        def close(self) -> None:
            """Close the connections that are idle; the next request opens another one."""


_Copy: TypeAlias = tuple[object, int]
# Lambda sets the variable in each function; the library is part of its runtimes for Python.
_INITIALIZATION: Final = "AWS_LAMBDA_INITIALIZATION_TYPE"
_SNAP_START: Final = "snap-start"
_HOOKS: Final = "snapshot_restore_py"
# Of a clock that is set: less is corrected bit by bit, which both clocks follow alike.
_JUMP_S: Final = 1.0

# How often this memory was restored, and what prepares it for a snapshot.
_RESTORES: Final = [0]
_PREPARATIONS: Final[list[Callable[[], object]]] = []
_CONNECTED: Final[WeakSet[Connected]] = WeakSet()


def this_copy() -> _Copy:
    """What is equal in one process only, and in one copy of it as far as Lambda's hooks say."""
    return this_process(), _RESTORES[0]


def clock_offset_s() -> float:
    """The time of day less the time since the start: constant, until the clock of a copy is set."""
    return time.time() - time.monotonic()


def has_jumped(offset_s: float, before_s: float) -> bool:
    """Whether the clock was set between two offsets, as that of a copy is."""
    return abs(offset_s - before_s) >= _JUMP_S


def before_snapshot(prepare: Callable[[], object]) -> None:
    """Call a function before each snapshot that Lambda takes; if it raises, none is taken.

    What was registered later is called first.
    """
    _PREPARATIONS.append(prepare)


def close_before_snapshot(connected: Connected) -> None:
    """Let connections be closed before a snapshot: no copy could use them."""
    _CONNECTED.add(connected)


def _close_connections() -> None:
    for one in list(_CONNECTED):
        one.close()


def _prepare() -> None:
    for prepare in reversed(_PREPARATIONS):
        prepare()


def _restored() -> None:
    _RESTORES[0] += 1


def _listen() -> None:
    """Register with the runtime, in a function whose memory is copied.

    The runtime calls in the reverse order what is registered here and by the app, which registers
    later: what the app's own preparation adds to a buffer is sent as well.
    """
    if os.environ.get(_INITIALIZATION) != _SNAP_START:
        return
    try:
        hooks = import_module(_HOOKS)
    except ImportError:
        return
    hooks.register_before_snapshot(_prepare)
    hooks.register_after_restore(_restored)


before_snapshot(_close_connections)
_listen()
