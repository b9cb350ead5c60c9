"""Functions that are called only within a quota."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from countledger.ledger.errors import QuotaDenied
from countledger.producers.quotas.outcome import Admitted, Denied

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from countledger.ledger.amount import Amount
    from countledger.producers.quotas.quotas import Quotas

_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class Guard:
    """A decorator for functions and coroutine functions.

    Attributes:
        quotas: the quotas of the stack.
        counter: whose limit.
        amount: what each call acquires, or reserves.
        actual: what a call has used, by its result; None: the amount, known before.
    """

    quotas: Quotas
    counter: str
    amount: Amount
    actual: Callable[[Any], Amount] | None

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """The function with its quota."""
        if inspect.iscoroutinefunction(function):
            return cast("Callable[_P, _R]", self._awaited(function))

        @wraps(function)
        def guarded(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            if self.actual is None:
                _expect(self.quotas.acquire(self.counter, self.amount))
                return function(*args, **kwargs)
            admitted = _expect(self.quotas.reserve(self.counter, self.amount))
            try:
                result = function(*args, **kwargs)
            except BaseException:
                self.quotas.release(admitted)
                raise
            self.quotas.commit(admitted, self.actual(result))
            return result

        return guarded

    def _awaited(
        self, function: Callable[_P, Coroutine[Any, Any, _R]]
    ) -> Callable[_P, Coroutine[Any, Any, _R]]:
        @wraps(function)
        async def guarded(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            if self.actual is None:
                _expect(await self.quotas.acquire_async(self.counter, self.amount))
                return await function(*args, **kwargs)
            admitted = _expect(await self.quotas.reserve_async(self.counter, self.amount))
            try:
                result = await function(*args, **kwargs)
            except BaseException:
                await self.quotas.release_async(admitted)
                raise
            await self.quotas.commit_async(admitted, self.actual(result))
            return result

        return guarded


def _expect(outcome: Admitted | Denied) -> Admitted:
    if isinstance(outcome, Denied):
        raise QuotaDenied(outcome.reason, outcome)
    return outcome
