"""Buffered producers and the end of their process, a fork of it, and the end of an invocation.

No process ends with events in hand, and no fork sends its parent's. Between two invocations the
process of a Lambda is frozen, so a handler flushes before each ends.
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

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    class Holder(Protocol):
        """What has events in hand."""

        def close(self, timeout_s: float | None = ...) -> None:
            """Send what is left."""

        def restart_in_fork(self) -> None:
            """Begin again in a fork, with nothing in hand."""


P = ParamSpec("P")
R = TypeVar("R")

_LOG: Final = logging.getLogger(__name__)
# So long before a Lambda's time is over it is told that not all was sent.
_MARGIN_MS: Final = SECOND_MS
# For how long the end of a process waits for a producer: whoever ended it does not wait for ever.
_AT_EXIT_S: Final = 30.0
# They are kept alive until they are closed: what they hold must not be collected with them.
_OPEN: Final[dict[Holder, None]] = {}
# One for all of them, as long as `multiprocessing` knows of it.
_FINALIZERS: Final[list[Any]] = []


def opened(producer: Holder) -> None:
    """A producer may have events in hand from now on."""
    _OPEN[producer] = None
    util = _multiprocessing()
    if util is not None:
        _close_at_its_end(util)


def closed(producer: Holder) -> None:
    """A producer has none any more."""
    _OPEN.pop(producer, None)


def _close_all() -> None:
    """The process ends; the senders' threads still run."""
    for producer in list(_OPEN):
        try:
            producer.close(_AT_EXIT_S)
        except CountledgerError:
            _LOG.exception("entries were in hand as the process ended")


def _restart_all() -> None:
    """A fork has none of the threads, its locks may be held for ever, the events are not its."""
    for producer in list(_OPEN):
        producer.restart_in_fork()
    util = _multiprocessing()
    if _OPEN and util is not None:
        # It drops the finalizers of its parent behind this, and calls then what is named here.
        util.register_after_fork(_close_all, lambda _: _close_at_its_end(util))


def _multiprocessing() -> Any:  # noqa: ANN401 - a module
    return sys.modules.get("multiprocessing.util")


def _close_at_its_end(util: Any) -> None:  # noqa: ANN401 - a module
    """A worker of `multiprocessing` ends without `atexit`, but by finalizers of its own."""
    if not any(one.still_active() for one in _FINALIZERS):
        _FINALIZERS[:] = [util.Finalize(None, _close_all, exitpriority=0)]


def flushing(handler: Callable[P, R], flush: Callable[[float | None], object]) -> Callable[P, R]:
    """A handler that flushes before each invocation ends, also where that fails.

    Args:
        handler: of a Lambda.
        flush: called with the time that is left, in seconds, or None where nobody knows it.
    """

    @wraps(handler)
    def invoke(*arguments: P.args, **options: P.kwargs) -> R:
        try:
            return handler(*arguments, **options)
        finally:
            flush(_time_left_s(arguments))

    return invoke


def _time_left_s(arguments: tuple[Any, ...]) -> float | None:
    """What an invocation has left, less a margin; None for a context that does not tell."""
    tell = getattr(arguments[1], "get_remaining_time_in_millis", None) if arguments[1:] else None
    return None if tell is None else max(tell() - _MARGIN_MS, 0) / SECOND_MS


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restart_all)
