"""A guarded function: what it refuses, and what never costs its caller the result."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from functools import cache, partial
from typing import Any

import pytest

from countledger.infra.memory.tables import COUNTERS
from countledger.ledger.errors import BadQuota, NotPriced, TicketResolved
from countledger.producers.quotas.guard import Guard, OnFailure
from countledger.producers.quotas.quotas import Quotas
from countledger.testing import MemoryStack
from tests.unit.quotas.processes import TEAM, process_like


def _stream(parts: int) -> Iterator[int]:
    yield from range(parts)


async def _async_stream(parts: int) -> AsyncIterator[int]:
    for part in range(parts):
        yield part


class _Streams:
    """Generators that are called in other ways."""

    def __call__(self, parts: int) -> Iterator[int]:
        yield from range(parts)

    def method(self, parts: int) -> Iterator[int]:
        yield from range(parts)

    @staticmethod
    async def static(parts: int) -> AsyncIterator[int]:
        yield parts


class _AsyncStreams:
    async def __call__(self, parts: int) -> AsyncIterator[int]:
        yield parts


@pytest.mark.parametrize(
    "function",
    [
        _stream,
        _async_stream,
        partial(_stream),
        partial(partial(_async_stream)),
        _Streams(),
        partial(_Streams()),
        _Streams().method,
        partial(_Streams().method),
        _Streams.static,
        _AsyncStreams(),
    ],
)
def test_each_function_of_a_generator_is_counted_when_it_has_ended(
    quotas: Quotas, function: Callable[..., Any]
) -> None:
    guarded = quotas.guard(TEAM, 4, actual=len)(function)

    async def read(stream: AsyncIterator[int]) -> list[int]:
        return [part async for part in stream]

    stream = guarded(1)
    assert quotas.show(TEAM)[0].used == 0
    parts = asyncio.run(read(stream)) if hasattr(stream, "asend") else list(stream)
    assert len(parts) == 1
    assert quotas.show(TEAM)[0].used == 1


@cache
def _cached(cost: int) -> int:
    return cost


@pytest.mark.parametrize("function", [None, 5, classmethod(5), _Streams, _cached, property(abs)])  # type: ignore[arg-type]
def test_what_is_no_function_is_refused(quotas: Quotas, function: Any) -> None:  # noqa: ANN401 - no function
    with pytest.raises(BadQuota, match="is no function"):
        quotas.guard(TEAM)(function)


@pytest.mark.parametrize("name", ["on_failure", "on_unpriced"])
def test_an_unknown_choice_is_refused(quotas: Quotas, name: str) -> None:
    given: dict[str, Any] = {name: "ignore"}
    with pytest.raises(BadQuota, match=f"{name} 'ignore' must be `[a-z]+` or `[a-z]+`"):
        quotas.guard(TEAM, 4, **given)


async def _used_later(result: int) -> int:
    return result


@pytest.mark.parametrize("call", [_used_later, _stream, 5])
@pytest.mark.parametrize("name", ["actual", "on_error"])
def test_a_call_that_could_not_be_made_is_refused(quotas: Quotas, name: str, call: object) -> None:
    given: dict[str, Any] = {name: call}
    with pytest.raises(BadQuota):
        quotas.guard(TEAM, 4, **given)


class _Model:
    """A model that is called as an object."""

    async def __call__(self, cost: int) -> int:
        await asyncio.sleep(0)
        return cost


@pytest.mark.parametrize("function", [_Model(), partial(_Model()), _Model().__call__])
def test_each_coroutine_function_is_counted_when_it_has_ended(
    quotas: Quotas, function: Callable[[int], Any]
) -> None:
    guarded = quotas.guard(TEAM, 4, actual=abs)(function)
    assert asyncio.run(guarded(3)) == 3
    assert quotas.show(TEAM)[0].used == 3


def _methods(guard: Guard) -> type[Any]:
    """A class whose methods are guarded after they were made class methods and static ones."""

    class Shop:
        @guard
        @classmethod
        def of_class(cls, cost: int) -> tuple[str, int]:
            return cls.__name__, cost

        @guard
        @staticmethod
        def static(cost: int) -> tuple[str, int]:
            return "static", cost

        @guard
        @classmethod
        async def awaited(cls, cost: int) -> tuple[str, int]:
            await asyncio.sleep(0)
            return cls.__name__, cost

    return Shop


@pytest.mark.parametrize("of_instance", [False, True])
def test_a_method_of_a_class_is_guarded_and_stays_one(quotas: Quotas, *, of_instance: bool) -> None:
    shop: Any = _methods(quotas.guard(TEAM, 4, actual=lambda result: result[1]))
    called = shop() if of_instance else shop

    assert called.of_class(1) == ("Shop", 1)
    assert called.static(2) == ("static", 2)
    assert asyncio.run(called.awaited(3)) == ("Shop", 3)
    assert quotas.show(TEAM)[0].used == 6


def _broken(_result: object) -> int:
    raise ZeroDivisionError


_UNUSABLE: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (_broken, ZeroDivisionError, ""),
    (lambda answer: answer["cost"], TypeError, ""),
    (lambda _: 0.5, BadQuota, "float"),
    (lambda _: True, BadQuota, "bool"),
    (lambda _: None, BadQuota, "NoneType"),
    (lambda _: "3", BadQuota, "str"),
    (lambda _: -1, BadQuota, "0 or more"),
    (lambda _: Decimal("NaN"), BadQuota, "finite"),
    (lambda _: Decimal("0.1234567891"), BadQuota, "9 after it"),
]


def _call_of(guard: Guard, form: str, work: Callable[[int], int] = abs) -> Callable[[int], int]:
    """A guarded function, plain or as a coroutine function."""
    if form == "plain":
        return guard(work)

    async def later(cost: int) -> int:
        await asyncio.sleep(0)
        return work(cost)

    waited = guard(later)
    return lambda cost: asyncio.run(waited(cost))


_each_form = pytest.mark.parametrize("form", ["plain", "coroutine"])


@pytest.mark.parametrize(("actual", "error", "words"), _UNUSABLE)
@_each_form
def test_an_answer_that_was_paid_for_reaches_its_caller(
    quotas: Quotas,
    stack: MemoryStack,
    *,
    actual: Callable[[Any], Any],
    error: type[Exception],
    words: str,
    form: str,
) -> None:
    """What was reserved is committed, and the error is told."""
    told: list[Exception] = []
    call = _call_of(quotas.guard(TEAM, 4, actual=actual, on_error=told.append), form)

    assert call(1) == 1

    (one,) = told
    assert type(one) is error
    assert words in str(one)
    assert quotas.show(TEAM)[0].used == 4
    assert [one["state"] for one in stack.items(COUNTERS) if "state" in one] == ["committed"]


@_each_form
def test_a_cost_that_is_no_amount_can_be_raised_with_the_answer(
    quotas: Quotas, caplog: pytest.LogCaptureFixture, form: str
) -> None:
    call = _call_of(quotas.guard(TEAM, 4, actual=_broken, on_unpriced="raise"), form)

    with pytest.raises(NotPriced, match="what was reserved is committed") as raised:
        call(1)

    assert raised.value.answer == 1
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert quotas.show(TEAM)[0].used == 4
    assert caplog.records == []


@pytest.mark.parametrize(("on_failure", "used"), [("release", 0), ("commit", 4)])
@_each_form
def test_a_reservation_of_a_function_that_raised(
    quotas: Quotas, on_failure: OnFailure, used: int, form: str
) -> None:
    def fails(_cost: int) -> int:
        raise ZeroDivisionError

    call = _call_of(quotas.guard(TEAM, 4, actual=abs, on_failure=on_failure), form, fails)
    with pytest.raises(ZeroDivisionError):
        call(1)
    assert quotas.show(TEAM)[0].used == used


@_each_form
def test_without_on_error_it_is_logged(
    quotas: Quotas, caplog: pytest.LogCaptureFixture, form: str
) -> None:
    assert _call_of(quotas.guard(TEAM, 4, actual=_broken), form)(1) == 1

    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert TEAM in record.getMessage()
    assert "the reserved amount is committed" in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


@_each_form
def test_an_error_of_on_error_costs_no_answer(
    quotas: Quotas, caplog: pytest.LogCaptureFixture, form: str
) -> None:
    def fails(error: Exception) -> None:
        raise LookupError from error

    call = _call_of(quotas.guard(TEAM, 4, actual=_broken, on_error=fails), form)
    assert call(1) == 1

    errors = [record.exc_info and record.exc_info[0] for record in caplog.records]
    assert errors == [LookupError, ZeroDivisionError]
    assert quotas.show(TEAM)[0].used == 4


def _resolved_meanwhile(
    quotas: Quotas, how: str, told: list[Exception], error: type[Exception] | None = None
) -> tuple[Guard, Callable[[int], int]]:
    """A guard, and a function whose reservation another process resolves while it runs."""
    outcomes: list[Any] = []
    guard = replace(quotas, observe=outcomes.append).guard(
        TEAM, 4, actual=abs, on_error=told.append
    )

    def work(cost: int) -> int:
        getattr(process_like(quotas), how)(outcomes[-1])
        if error is not None:
            raise error
        return cost

    return guard, work


@_each_form
def test_a_commit_that_fails_costs_no_answer(quotas: Quotas, form: str) -> None:
    told: list[Exception] = []
    guard, work = _resolved_meanwhile(quotas, "release", told)

    assert _call_of(guard, form, work)(1) == 1
    assert [type(one) for one in told] == [TicketResolved]


@_each_form
def test_a_release_that_fails_does_not_replace_the_error_of_the_function(
    quotas: Quotas, form: str
) -> None:
    told: list[Exception] = []
    guard, work = _resolved_meanwhile(quotas, "commit", told, ZeroDivisionError)

    with pytest.raises(ZeroDivisionError):
        _call_of(guard, form, work)(1)
    assert [type(one) for one in told] == [TicketResolved]
    assert quotas.show(TEAM)[0].used == 4


@pytest.mark.parametrize(
    ("how", "error", "said"),
    [
        ("release", None, "could not commit what a call has used: its reservation may"),
        ("commit", ZeroDivisionError, "could not release the reservation of a call that raised"),
    ],
)
@_each_form
def test_the_log_says_what_is_counted(  # noqa: PLR0917 - a table
    quotas: Quotas,
    caplog: pytest.LogCaptureFixture,
    how: str,
    error: type[Exception] | None,
    said: str,
    form: str,
) -> None:
    guard, work = _resolved_meanwhile(quotas, how, [], error)

    with contextlib.suppress(ZeroDivisionError):
        _call_of(replace(guard, on_error=None), form, work)(1)

    assert said in caplog.text
