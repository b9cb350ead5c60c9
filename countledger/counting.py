"""Functions whose calls are counted."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, Protocol, TypeVar, cast

from countledger.ledger.keys import check_counter

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from countledger.ledger.amount import Amount
    from countledger.ledger.ids import IdempotencyKey

_LOG: Final = logging.getLogger(__name__)
_P = ParamSpec("_P")
_R = TypeVar("_R")
_F = TypeVar("_F", bound="Callable[..., Any]")


class Decorator(Protocol):
    """Takes any function, and gives one of the same type."""

    def __call__(self, function: _F, /) -> _F:
        """The function whose calls are counted."""


def counted(
    counter: str | Callable[..., str],
    delta: Amount = 1,
    *,
    key: Callable[..., str | IdempotencyKey | None] | None = None,
    add: Callable[..., Any] | None = None,
    on_error: Callable[[Exception], object] | None = None,
) -> Decorator:
    """Count the calls of a function that return; a call that raises is not counted.

        @counted("calls:checkout")
        def checkout(cart): ...

    Counting never breaks the function: what goes wrong is logged, and the result is returned. Each
    call waits for one round trip after the function has returned; `add=producer.add` of a buffered
    producer does not wait. One write unit a call, or what `add` costs. A coroutine function awaits
    an `add` that is one too; any other runs in a thread, so the event loop is not blocked.

    Args:
        counter: `namespace:rest`, or what makes it of the arguments of a call.
        delta: what each call adds, not zero.
        key: makes the idempotency key of the arguments of a call, such as the id of a task: a task
            that is repeated counts once. None: each call is another change.
        add: records, with the arguments of `record`; None is `countledger.record`. `add` of a
            buffered producer, or `record` of a `CountLedger` or an `AsyncCountLedger`.
        on_error: called with the error of a call that could not be counted, instead of the log;
            what it raises reaches the caller of the function. The `entry` of an `Unacknowledged`
            can be sent again by `resend`.

    Raises:
        BadCounterName: the name is not valid.
    """
    if isinstance(counter, str):
        counter = check_counter(counter)
    return cast("Decorator", _Counted(counter, delta, key, add, on_error or _log))


@dataclass(frozen=True, slots=True)
class _Counted(Generic[_P]):
    """The decorator; its attributes are the arguments of `counted`."""

    counter: str | Callable[_P, str]
    delta: Amount
    key: Callable[_P, str | IdempotencyKey | None] | None
    add: Callable[..., Any] | None
    on_error: Callable[[Exception], object]

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        if inspect.iscoroutinefunction(function):
            return cast("Callable[_P, _R]", self._awaited(function))

        @wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            result = function(*args, **kwargs)
            try:
                self._count(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - whatever it is, the call was made
                self.on_error(error)
            return result

        return call

    def _awaited(
        self, function: Callable[_P, Coroutine[Any, Any, _R]]
    ) -> Callable[_P, Coroutine[Any, Any, _R]]:
        @wraps(function)
        async def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            result = await function(*args, **kwargs)
            try:
                if inspect.iscoroutinefunction(self.add):
                    added = self._count(*args, **kwargs)
                else:
                    added = await asyncio.to_thread(self._count, *args, **kwargs)
                if isinstance(added, Awaitable):
                    await added
            except Exception as error:  # noqa: BLE001 - as above
                self.on_error(error)
            return result

        return call

    def _count(self, *args: _P.args, **kwargs: _P.kwargs) -> object:
        if self.add is None:
            from countledger import record as add  # noqa: PLC0415 - loaded at its first use
        else:
            add = self.add
        counter = self.counter if isinstance(self.counter, str) else self.counter(*args, **kwargs)
        key = None if self.key is None else self.key(*args, **kwargs)
        return add(counter, self.delta, key=key)


def _log(error: Exception) -> None:
    _LOG.warning("a call was not counted: %s", error, exc_info=error)
