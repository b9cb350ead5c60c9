"""Copies of a process's memory (Lambda SnapStart, a restored machine), as far as they are seen.

A snapshot of a machine is continued many times: the copies have one process id and one memory, so
nothing in Python says that there are several. Lambda says it by hooks; others show at most a clock
that jumped. Unlike a fork, a copy has all threads and goes on inside of every call.
"""

from __future__ import annotations

import os
import time
from importlib import import_module
from typing import TYPE_CHECKING, Final, TypeAlias
from weakref import WeakSet

from countledger.ledger.processes import this_process

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    class Connected(Protocol):
        """Something with connections."""

        def close(self) -> None:
            """Close those that are idle; the next request opens another one."""


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
