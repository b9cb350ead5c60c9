"""A buffered producer in a Lambda: between two invocations its process is frozen."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from countledger.ledger.limits import SECOND_MS

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")

# So long before a Lambda's time is over it is told that not all was sent.
_MARGIN_MS: Final = SECOND_MS


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
