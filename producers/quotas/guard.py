"""Functions of which each call is counted in a quota first, and refused beyond its limit."""

from __future__ import annotations

import asyncio
import inspect
import logging
from dataclasses import dataclass
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast

from countledger.ledger.errors import BadQuota, QuotaDenied, shown
from countledger.producers.quotas.quota import Admitted, Denied, check_amount

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from countledger.ledger.amount import Amount
    from countledger.producers.quotas.quotas import Quotas

_LOG: Final = logging.getLogger(__name__)
# What is counted after an error, for the log: of the counter.
_NO_ACTUAL: Final = (
    "`actual` of the guard of %r returned no usable amount: the reserved amount is committed"
)
_NOT_COMMITTED: Final = (
    "the guard of %r could not commit what a call has used: its reservation may stay counted"
)
_NOT_RELEASED: Final = (
    "the guard of %r could not release the reservation of a call that raised: it may stay counted"
)
_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class Guard:
    """A decorator for functions and coroutine functions: see `Quotas.guard`."""

    quotas: Quotas
    counter: str
    amount: Amount
    actual: Callable[[Any], Amount] | None
    on_error: Callable[[Exception], object] | None = None

    def __post_init__(self) -> None:
        calls: dict[str, object] = {"actual": self.actual, "on_error": self.on_error}
        for name, call in calls.items():
            if call is not None and (not callable(call) or awaits(call)):
                raise BadQuota(
                    f"{name} {shown(call)} must be a function, and no coroutine function"
                )

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """The guarded function; of a class method or a static method the same kind of method."""
        awaited = awaits(function)
        if isinstance(function, classmethod | staticmethod):
            return cast("Callable[_P, _R]", type(function)(self(function.__func__)))
        if awaited:
            return cast("Callable[_P, _R]", self._awaited(cast("Any", function)))

        @wraps(function)
        def guarded(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            if self.actual is None:
                _expect(self.quotas.acquire(self.counter, self.amount))
                return function(*args, **kwargs)
            admitted = _expect(self.quotas.reserve(self.counter, self.amount))
            try:
                result = function(*args, **kwargs)
            except BaseException:
                try:
                    self.quotas.release(admitted)
                except Exception as error:  # noqa: BLE001 - the function's error is raised
                    self._report(_NOT_RELEASED, error)
                raise
            try:
                self.quotas.commit(admitted, self._used(admitted, result))
            except Exception as error:  # noqa: BLE001 - the result is returned in any case
                self._report(_NOT_COMMITTED, error)
            return result

        return guarded

    def _awaited(
        self, function: Callable[_P, Coroutine[Any, Any, _R]]
    ) -> Callable[_P, Coroutine[Any, Any, _R]]:
        @wraps(function)
        async def guarded(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            if self.actual is None:
                _expect(await _awaited(self.quotas.acquire, self.counter, self.amount))
                return await function(*args, **kwargs)
            admitted = _expect(await _awaited(self.quotas.reserve, self.counter, self.amount))
            try:
                result = await function(*args, **kwargs)
            except BaseException:
                try:
                    await _awaited(self.quotas.release, admitted)
                except Exception as error:  # noqa: BLE001 - as above
                    self._report(_NOT_RELEASED, error)
                raise
            try:
                await _awaited(self.quotas.commit, admitted, self._used(admitted, result))
            except Exception as error:  # noqa: BLE001 - as above
                self._report(_NOT_COMMITTED, error)
            return result

        return guarded

    def _used(self, admitted: Admitted, result: object) -> Amount:
        """What the call has used by `actual`; what was reserved, if that gives no amount."""
        try:
            return check_amount("actual", cast("Any", self.actual)(result), zero=True)
        except Exception as error:  # noqa: BLE001 - the result is returned in any case
            self._report(_NO_ACTUAL, error)
            return admitted.amount

    def _report(self, counted: str, error: Exception) -> None:
        if self.on_error is not None:
            try:
                self.on_error(error)
            except Exception as failed:  # noqa: BLE001 - it must not replace the result either
                _LOG.exception(
                    "`on_error` of the guard of %r raised", self.counter, exc_info=failed
                )
            else:
                return
        _LOG.error(counted, self.counter, exc_info=error)


async def _awaited(call: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 - its result
    """Await a call of `AsyncQuotas`, or make one of `Quotas` in a thread."""
    if inspect.iscoroutinefunction(call):
        return await call(*arguments)
    return await asyncio.to_thread(call, *arguments)


def awaits(function: object) -> bool:
    """Whether it is a coroutine function; a method, a partial and a callable object may be one."""
    plain: Any = function
    while True:
        if isinstance(plain, partial):
            plain = plain.func
        elif isinstance(plain, staticmethod | classmethod) or inspect.ismethod(plain):
            plain = plain.__func__
        else:
            break
    if not callable(plain):
        raise BadQuota(f"{shown(function)} is no function")
    if not (inspect.isroutine(plain) or inspect.isclass(plain)):
        call = type(plain).__call__  # an object that is called
        if inspect.isfunction(call) and not inspect.iscoroutinefunction(plain):
            plain = call
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise BadQuota(
            f"{shown(function)} is a generator function: its cost is known when the generator "
            "ends, but a guard commits when the function returns; use `reserve`, and `commit` at "
            "the end of the generator"
        )
    return inspect.iscoroutinefunction(plain)


def _expect(outcome: Admitted | Denied) -> Admitted:
    if isinstance(outcome, Denied):
        raise QuotaDenied(outcome.reason, outcome)
    return outcome
