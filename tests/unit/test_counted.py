"""Functions whose calls are counted: once for each call that returns, and never in its way."""

import asyncio
import logging
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from countledger import counted
from countledger.ledger.errors import BadCounterName, Unclear


@dataclass
class Added:
    """What was added, and by which thread; `broken` refuses."""

    calls: list[tuple[str, int, str | None]] = field(default_factory=list)
    threads: list[int] = field(default_factory=list)
    broken: bool = False

    def add(self, counter: str, delta: int, *, key: str | None) -> None:
        if self.broken:
            raise Unclear("no answer")
        self.calls.append((counter, delta, key))
        self.threads.append(threading.get_ident())

    async def add_soon(self, counter: str, delta: int, *, key: str | None) -> None:
        await asyncio.sleep(0)
        self.add(counter, delta, key=key)


@pytest.fixture
def added() -> Added:
    return Added()


def test_a_call_that_returns_is_counted(added: Added) -> None:
    @counted("calls:double", add=added.add)
    def double(number: int) -> int:
        """Twice a number."""
        return 2 * number

    assert [double(2), double(number=3)] == [4, 6]
    assert added.calls == [("calls:double", 1, None)] * 2
    assert (double.__name__, double.__doc__) == ("double", "Twice a number.")


def test_a_call_that_raises_is_not_counted(added: Added) -> None:
    @counted("calls:fail", add=added.add)
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert added.calls == []


def test_counter_and_key_follow_the_arguments(added: Added) -> None:
    @counted(lambda user, **_: f"orders:{user}", 3, key=lambda _, order: order, add=added.add)
    def place(user: str, *, order: str) -> None:
        """Place an order."""

    place("ann", order="o-1")

    assert added.calls == [("orders:ann", 3, "o-1")]


def test_an_error_of_counting_is_logged_and_the_result_returned(
    added: Added, caplog: pytest.LogCaptureFixture
) -> None:
    added.broken = True

    @counted("calls:a", add=added.add)
    def call() -> str:
        return "done"

    with caplog.at_level(logging.WARNING):
        assert call() == "done"
    assert "a call was not counted: no answer" in caplog.text


def test_an_error_of_making_the_key_is_handled_alike(added: Added) -> None:
    errors: list[Exception] = []

    @counted("calls:a", key=lambda order: order["id"], add=added.add, on_error=errors.append)
    def call(_order: dict[str, str]) -> str:
        return "done"

    assert call({}) == "done"
    assert [type(error) for error in errors] == [KeyError]


def test_what_on_error_raises_reaches_the_caller(added: Added) -> None:
    added.broken = True

    def reraise(error: Exception) -> None:
        raise error

    with pytest.raises(Unclear):
        counted("calls:a", add=added.add, on_error=reraise)(int)()


def test_a_coroutine_function_does_not_block_its_loop(added: Added) -> None:
    @counted("calls:soon", add=added.add)
    async def soon() -> int:
        return threading.get_ident()

    loop_thread = asyncio.run(soon())

    assert added.calls == [("calls:soon", 1, None)]
    assert added.threads != [loop_thread]


@pytest.mark.parametrize("hidden", [False, True])
def test_a_coroutine_function_awaits_an_add_that_is_one(added: Added, hidden: bool) -> None:  # noqa: FBT001
    def not_by_its_type(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        return added.add_soon(*args, **kwargs)

    @counted("calls:soon", add=not_by_its_type if hidden else added.add_soon)
    async def soon() -> int:
        return threading.get_ident()

    loop_thread = asyncio.run(soon())

    assert added.calls == [("calls:soon", 1, None)]
    assert added.threads == [loop_thread]


def test_an_error_does_not_reach_who_awaits(added: Added) -> None:
    added.broken = True
    errors: list[Exception] = []

    @counted("calls:soon", add=added.add_soon, on_error=errors.append)
    async def soon() -> str:
        return "done"

    assert asyncio.run(soon()) == "done"
    assert len(errors) == 1


def test_a_name_that_is_not_valid_is_refused_where_it_is_written() -> None:
    with pytest.raises(BadCounterName):
        counted("calls:a#b")
