"""Buffered producers at the end of their process or invocation, in a fork, before a snapshot.

A process sends all its events before it ends, and a fork never sends those of its parent. Lambda
freezes a process between two invocations, so a handler flushes before each invocation ends. Each
copy of a snapshot would send the events that are in it, so SnapStart's hook flushes before.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from countledger.ledger.errors import CountledgerError
from countledger.ledger.limits import SECOND_MS
from countledger.ledger.processes import before_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    class Holder(Protocol):
        """A producer that may have unsent events."""

        def close(self, timeout_s: float | None = ...) -> None:
            """Send the events that are left."""

        def flush(self, timeout_s: float | None = ...) -> None:
            """Send the events that were added."""

        def restart_in_fork(self) -> None:
            """Start empty in a fork."""


P = ParamSpec("P")
R = TypeVar("R")

_LOG: Final = logging.getLogger(__name__)
# `flush` ends this long before the time limit of a Lambda, so that it can report what is left.
_MARGIN_MS: Final = SECOND_MS
# How long the end of a process waits for a producer: it must not wait for ever.
_AT_EXIT_S: Final = 30.0
# Keeps producers alive until they are closed: garbage collection must not drop their events.
_OPEN: Final[dict[Holder, None]] = {}
# One finalizer for all producers, while `multiprocessing` has it registered.
_FINALIZERS: Final[list[Any]] = []


def opened(producer: Holder) -> None:
    """Register a producer, which may have unsent events from now on."""
    _OPEN[producer] = None
    util = _multiprocessing()
    if util is not None:
        _close_at_its_end(util)


def closed(producer: Holder) -> None:
    """Unregister a producer, which has no unsent events left."""
    _OPEN.pop(producer, None)


def _close_all() -> None:
    """Close all producers at the end of the process; the senders' threads still run."""
    for producer in list(_OPEN):
        try:
            producer.close(_AT_EXIT_S)
        except CountledgerError:
            _LOG.exception("entries were not acknowledged when the process ended")


def _flush_all() -> None:
    """Send all events, before a snapshot; an error keeps Lambda from taking one."""
    for producer in list(_OPEN):
        producer.flush()


def _restart_all() -> None:
    """Start all producers empty in a fork: its threads are gone, and its locks may be held."""
    for producer in list(_OPEN):
        producer.restart_in_fork()
    util = _multiprocessing()
    if _OPEN and util is not None:
        # `multiprocessing` drops the parent's finalizers after this, then calls this function.
        util.register_after_fork(_close_all, lambda _: _close_at_its_end(util))


def _multiprocessing() -> Any:  # noqa: ANN401 - a module
    return sys.modules.get("multiprocessing.util")


def _close_at_its_end(util: Any) -> None:  # noqa: ANN401 - a module
    """Register a finalizer: a worker of `multiprocessing` ends without `atexit`."""
    if not any(one.still_active() for one in _FINALIZERS):
        _FINALIZERS[:] = [util.Finalize(None, _close_all, exitpriority=0)]


def flushing(handler: Callable[P, R], flush: Callable[[float | None], object]) -> Callable[P, R]:
    """A handler that flushes before each invocation ends, also if the invocation fails.

    Args:
        handler: of a Lambda.
        flush: called with the time that is left, in seconds, or None if it is unknown.
    """

    @wraps(handler)
    def invoke(*arguments: P.args, **options: P.kwargs) -> R:
        try:
            return handler(*arguments, **options)
        finally:
            flush(_time_left_s(arguments))

    return invoke


def _time_left_s(arguments: tuple[Any, ...]) -> float | None:
    """The time that an invocation has left, less a margin; None if its context does not have it."""
    left_ms = getattr(arguments[1], "get_remaining_time_in_millis", None) if arguments[1:] else None
    return None if left_ms is None else max(left_ms() - _MARGIN_MS, 0) / SECOND_MS


atexit.register(_close_all)
before_snapshot(_flush_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restart_all)
