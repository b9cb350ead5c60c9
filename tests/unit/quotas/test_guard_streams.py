"""A guarded generator: its reservation is resolved by what was given of it."""

import asyncio
import gc
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing
from typing import Any

import pytest

from countledger.ledger.errors import NotPriced, QuotaDenied
from countledger.producers.quotas.guard import Guard, OnFailure, OnUnpriced
from countledger.producers.quotas.quotas import Quotas
from countledger.testing import MemoryStack
from tests.unit.quotas.processes import TEAM


class _Source:
    """Gives costs, then fails if it should; `closed`: it was left."""

    def __init__(self, *costs: int, error: Exception | None = None) -> None:
        self.costs = costs
        self.error = error
        self.closed = 0

    def plain(self) -> Generator[int, Any, str]:
        try:
            yield from self.costs
            if self.error is not None:
                raise self.error
        finally:
            self.closed += 1
        return "returned"

    async def later(self) -> AsyncGenerator[int, Any]:
        for cost in self.plain():
            await asyncio.sleep(0)
            yield cost


def _read(guard: Guard, source: _Source, form: str, most: int | None = None) -> list[int]:
    """The parts of a guarded stream; it is closed after the given number."""
    read: list[int] = []

    def full() -> bool:
        return len(read) == most

    if form == "plain":
        stream = guard(source.plain)()
        for part in stream:
            read.append(part)
            if full():
                stream.close()
        return read

    async def read_later() -> None:
        async with aclosing(guard(source.later)()) as parts:
            async for part in parts:
                read.append(part)
                if full():
                    break

    asyncio.run(read_later())
    return read


_each_form = pytest.mark.parametrize("form", ["plain", "asynchronous"])


@_each_form
def test_a_stream_that_ends_commits_the_cost_of_all_its_parts(quotas: Quotas, form: str) -> None:
    assert _read(quotas.guard(TEAM, 9, actual=sum), _Source(1, 2, 3), form) == [1, 2, 3]
    assert quotas.show(TEAM)[0].used == 6


@_each_form
def test_a_stream_that_is_closed_commits_the_cost_of_what_was_read(
    quotas: Quotas, form: str
) -> None:
    source = _Source(1, 2, 3, error=ZeroDivisionError())

    assert _read(quotas.guard(TEAM, 9, actual=sum), source, form, most=2) == [1, 2]

    assert source.closed == 1
    assert quotas.show(TEAM)[0].used == 3


@pytest.mark.parametrize(("on_failure", "used"), [("release", 0), ("commit", 3)])
@_each_form
def test_a_stream_that_raises_does_as_on_failure_says(
    quotas: Quotas, on_failure: OnFailure, used: int, form: str
) -> None:
    guard = quotas.guard(TEAM, 9, actual=sum, on_failure=on_failure)

    with pytest.raises(ZeroDivisionError):
        _read(guard, _Source(1, 2, error=ZeroDivisionError()), form)
    assert quotas.show(TEAM)[0].used == used


def _last_usage(parts: list[int]) -> int:
    """The cost is in the last part alone, as in streams of models."""
    if parts[-1] < 3:
        raise ZeroDivisionError
    return parts[-1]


@pytest.mark.parametrize("on_unpriced", ["commit", "raise"])
@_each_form
def test_a_stream_closed_before_its_cost_is_known_commits_what_was_reserved(
    quotas: Quotas,
    on_unpriced: OnUnpriced,
    form: str,
) -> None:
    """And the error is reported: nobody waits for an answer any more."""
    told: list[Exception] = []
    guard = quotas.guard(TEAM, 9, actual=_last_usage, on_unpriced=on_unpriced, on_error=told.append)

    assert _read(guard, _Source(1, 2, 3), form, most=2) == [1, 2]

    assert quotas.show(TEAM)[0].used == 9
    assert len(told) == 1


@_each_form
def test_a_stream_without_a_cost_gives_all_its_parts_before_it_raises(
    quotas: Quotas, form: str
) -> None:
    guard = quotas.guard(TEAM, 9, actual=_last_usage, on_unpriced="raise")

    with pytest.raises(NotPriced) as raised:
        _read(guard, _Source(1, 2), form)
    assert raised.value.answer == [1, 2]
    assert quotas.show(TEAM)[0].used == 9


@_each_form
def test_without_actual_a_stream_is_acquired(quotas: Quotas, form: str) -> None:
    guard = quotas.guard(TEAM, 6)

    assert _read(guard, _Source(1, 2), form, most=1) == [1]
    assert quotas.show(TEAM)[0].used == 6
    with pytest.raises(QuotaDenied):
        _read(guard, source := _Source(1), form)
    assert source.closed == 0


def test_a_stream_that_is_forgotten_is_counted(quotas: Quotas) -> None:
    """Python closes a generator that nobody has any longer."""
    stream = quotas.guard(TEAM, 9, actual=sum)(_Source(1, 2, 3).plain)()
    assert next(stream) == 1

    del stream
    gc.collect()

    assert quotas.show(TEAM)[0].used == 1


def test_a_generator_gets_what_is_sent_and_thrown_and_returns_its_value(quotas: Quotas) -> None:
    def echo() -> Generator[Any, Any, str]:
        sent: object = "first"
        while sent != "end":
            try:
                sent = yield sent
            except LookupError as error:
                sent = error
        return "returned"

    guarded = quotas.guard(TEAM, 9, actual=len)(echo)()
    thrown = LookupError()
    assert [next(guarded), guarded.send("second"), guarded.throw(thrown)] == [
        "first",
        "second",
        thrown,
    ]
    with pytest.raises(StopIteration, match="returned"):
        guarded.send("end")
    assert quotas.show(TEAM)[0].used == 3


def test_an_asynchronous_generator_gets_what_is_sent_and_thrown(quotas: Quotas) -> None:
    async def echo() -> AsyncGenerator[Any, Any]:
        sent: object = "first"
        while sent != "end":
            try:
                sent = yield sent
            except LookupError as error:
                sent = error

    thrown = LookupError()

    async def talk() -> list[object]:
        stream = quotas.guard(TEAM, 9, actual=len)(echo)()
        said = [await anext(stream), await stream.asend("second"), await stream.athrow(thrown)]
        with pytest.raises(StopAsyncIteration):
            await stream.asend("end")
        return said

    assert asyncio.run(talk()) == ["first", "second", thrown]
    assert quotas.show(TEAM)[0].used == 3


async def _cancelled_often(task: asyncio.Task[Any], reached: asyncio.Event) -> None:
    """Cancel a task at each of its next waits, as a scope that has ended does."""
    await reached.wait()
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task


def _waiting(reached: asyncio.Event) -> Callable[[], AsyncGenerator[int, None]]:
    async def parts() -> AsyncGenerator[int, None]:
        yield 1
        yield 2
        reached.set()
        await asyncio.Event().wait()

    return parts


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_cancelled_stream_commits_what_was_read(
    quotas: Quotas, stack: MemoryStack, *, asynchronous: bool
) -> None:
    """Also if it is cancelled again while it commits."""

    async def run(chosen: Any) -> None:  # noqa: ANN401 - of either client
        reached = asyncio.Event()
        guarded = chosen.guard(TEAM, 9, actual=sum)(_waiting(reached))

        async def read() -> None:
            async for _ in guarded():
                pass

        await _cancelled_often(asyncio.create_task(read()), reached)
        mine = asyncio.current_task()
        await asyncio.gather(*(task for task in asyncio.all_tasks() if task is not mine))

    async def run_async() -> None:
        async with stack.async_ledger as ledger:
            await run(ledger.quotas)

    asyncio.run(run_async() if asynchronous else run(quotas))
    assert quotas.show(TEAM)[0].used == 3
