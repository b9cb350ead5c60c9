"""Synchronous code in an event loop: its waits suspend it, and hold up nobody."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from threading import Thread
from typing import Any, TypeVar

import pytest
import uvloop

from countledger.ledger.asynchronous.calls import running_call, suspended
from countledger.ledger.clock import SystemClock
from countledger.ledger.departure import guarded, leave
from countledger.ledger.errors import KeyExpired
from countledger.ledger.processes import SuspendableLock, made_once
from countledger.ledger.suspension import CallNotes, Interrupted, current_call, sleep, workers
from countledger.producers.sequences.sequences import Lease

_T = TypeVar("_T")


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, _T]], _T]:
    """Runs a coroutine on each kind of loop; a loop that is held up for ever fails."""

    async def bounded(work: Coroutine[Any, Any, _T]) -> _T:
        async with asyncio.timeout(20):
            return await work

    def run_once(work: Coroutine[Any, Any, _T]) -> _T:
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(bounded(work))

    return run_once


def call(function: Callable[[], _T]) -> Coroutine[Any, Any, _T]:
    """A call in the running loop."""
    return suspended(function, CallNotes())


def test_a_wait_suspends_its_call_alone(run: Any) -> None:  # noqa: ANN401
    """A thousand calls sleep at the same time, in one thread."""
    asleep: list[int] = []

    def work(number: int) -> int:
        asleep.append(number)
        while len(asleep) < 1_000:  # each needs all the others to go on
            SystemClock().sleep_ms(1)
        return number

    async def main() -> list[int]:
        return await asyncio.gather(*(call(partial(work, n)) for n in range(1_000)))

    assert run(main()) == list(range(1_000))


def test_a_thread_waits_as_it_always_did() -> None:
    assert current_call() is None
    sleep(0)
    with workers(2, "test") as pool:
        assert list(pool.map(abs, [-1, -2])) == [1, 2]


def test_an_error_of_what_a_call_waits_for_is_raised_in_it(run: Any) -> None:  # noqa: ANN401
    async def fail() -> None:
        raise KeyError("x")

    def work() -> str:
        try:
            running_call().wait(fail())
        except KeyError as error:
            return str(error)
        return "nothing"

    assert run(call(work)) == "'x'"


def test_a_check_of_one_call_is_not_seen_by_another(run: Any) -> None:  # noqa: ANN401
    """Each request meets the check of its own call, however the calls alternate."""

    async def depart() -> None:
        await asyncio.sleep(0.001)
        leave()

    def work(late: bool) -> str:  # noqa: FBT001 - a case
        def look() -> None:
            if late:
                raise KeyExpired("too late")

        for _ in range(20):
            with guarded(look):
                try:
                    running_call().wait(depart())
                except KeyExpired:
                    if late:
                        continue
                    raise
            assert not late
        return "late" if late else "left"

    async def main() -> list[str]:
        return await asyncio.gather(*(call(partial(work, n % 2 == 0)) for n in range(20)))

    assert run(main()) == ["late", "left"] * 10


def test_a_value_is_made_once_for_all_tasks_and_threads(run: Any) -> None:  # noqa: ANN401
    """The first one waits while it makes the value; the others wait for it, and the loop runs."""
    made: list[int] = []

    class Owner:
        @made_once
        def value(self) -> int:
            sleep(0.02)
            made.append(1)
            return len(made)

    owner, other, found = Owner(), Owner(), list[int]()
    thread = Thread(target=lambda: found.append(owner.value))

    async def main() -> list[int]:
        calls = [call(lambda: owner.value) for _ in range(50)]
        gathered = asyncio.gather(*calls, call(lambda: other.value))
        await asyncio.sleep(0)
        thread.start()
        return await gathered

    values = run(main())
    thread.join()

    assert sorted(values) == [1] * 50 + [2] or sorted(values) == [1] + [2] * 50
    assert len(made) == 2
    assert set(vars(owner)) == {"value"}
    assert found == [owner.value]


def test_a_lock_that_a_suspended_call_holds_holds_up_no_loop(run: Any) -> None:  # noqa: ANN401
    """With a lock of threads, the second call would block the thread that the first one needs."""
    lock, inside, most = SuspendableLock(), [0], [0]

    def work() -> None:
        for _ in range(5):
            with lock:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                sleep(0.001)
                inside[0] -= 1

    async def main() -> None:
        threads = [asyncio.to_thread(work) for _ in range(3)]
        await asyncio.gather(*(call(work) for _ in range(10)), *threads)

    run(main())
    assert most == [1]


def test_the_numbers_of_a_lease_are_given_once_to_all_tasks(run: Any) -> None:  # noqa: ANN401
    """A task that finds the block empty waits for the task that takes the next one."""
    taken: list[range] = []

    def take() -> range:
        sleep(0.001)
        taken.append(range(10 * len(taken), 10 * len(taken) + 10))
        return taken[-1]

    lease = Lease(take)

    async def main() -> list[int]:
        return await asyncio.gather(*(call(lease.draw) for _ in range(100)))

    assert sorted(run(main())) == list(range(100))
    assert len(taken) == 10


def test_workers_are_bounded_and_keep_the_order(run: Any) -> None:  # noqa: ANN401
    inside, most = [0], [0]

    def work(number: int) -> int:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        sleep(0.001)
        inside[0] -= 1
        return number

    def main() -> list[int]:
        with workers(4, "test") as pool:
            return list(pool.map(work, range(30)))

    assert run(call(main)) == list(range(30))
    assert most == [4]


def test_an_error_of_a_worker_is_its_callers_and_leaves_no_task(run: Any) -> None:  # noqa: ANN401
    def fail(number: int) -> None:
        sleep(0.001)
        raise ValueError(number)

    def main() -> None:
        with workers(2, "test") as pool:
            list(pool.map(fail, range(10)))

    async def alone() -> int:
        with pytest.raises(ValueError, match="0"):
            await call(main)
        return len(asyncio.all_tasks())

    assert run(alone()) == 1


def test_a_cancellation_passes_through_the_code_as_one(run: Any) -> None:  # noqa: ANN401
    """Its clean-up may wait as well; its workers are cancelled, and have ended."""
    steps: list[str] = []

    def work() -> None:
        try:
            sleep(10)
        except Interrupted as stop:
            steps.append(type(stop.cancelled).__name__)
            raise
        finally:
            sleep(0.001)
            steps.append("cleaned up")

    def main() -> None:
        with workers(2, "test") as pool:
            pool.submit(work).result()

    async def cancel(code: Callable[[], None]) -> int:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await call(code)
        return len(asyncio.all_tasks())

    assert run(cancel(work)) == 1
    assert run(cancel(main)) == 1
    assert steps == ["CancelledError", "cleaned up"] * 2
