"""Threads that run functions for the suspended calls of an event loop."""

import asyncio
import gc
import logging
import threading
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from functools import partial
from threading import Event, current_thread
from typing import Any
from weakref import ref

import pytest
import uvloop
from urllib3.connection import HTTPConnection
from urllib3.exceptions import NewConnectionError

from countledger.ledger.asynchronous.calls import RequestThreads, suspended
from countledger.ledger.departure import leave
from countledger.ledger.service_errors import translated
from countledger.ledger.suspension import CallNotes

LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
ME: ContextVar[str] = ContextVar("me", default="nobody")


def call(threads: RequestThreads, function: Callable[[], Any]) -> Coroutine[Any, Any, Any]:
    """A call of the loop that runs a function in a thread."""
    return suspended(partial(threads.run, function), CallNotes())


async def until(holds: Callable[[], bool]) -> None:
    """Let the loop run until a thread has done something."""
    for _ in range(2_000):
        if holds():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not happen")


def of_requests() -> list[threading.Thread]:
    """The threads that live."""
    return [one for one in threading.enumerate() if one.name == "countledger request"]


@LOOPS
def test_no_more_than_the_number_run_at_a_time(loop: Any) -> None:  # noqa: ANN401 - a loop
    """A thousand calls at once, in ten threads, which end with the pool."""
    running: list[None] = []
    most: list[int] = []

    def work(number: int) -> int:
        running.append(None)
        most.append(len(running))
        Event().wait(0.001)
        running.pop()
        return number

    async def main() -> list[int]:
        threads = RequestThreads(10)
        calls = (call(threads, partial(work, number)) for number in range(1_000))
        answers: list[int] = await asyncio.gather(*calls)
        assert len(of_requests()) == 10
        threads.close()
        await until(lambda: not of_requests())
        return answers

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(main()) == list(range(1_000))
    assert max(most) <= 10


def test_a_thread_is_used_again() -> None:
    async def main() -> None:
        threads = RequestThreads(10)
        used = {await call(threads, current_thread) for _ in range(50)}
        assert len(used) == 1
        assert all(one.daemon for one in used)
        threads.close()

    asyncio.run(main())


def test_a_function_sees_the_context_of_its_call_and_changes_none() -> None:
    async def one(threads: RequestThreads, name: str) -> tuple[str, str]:
        ME.set(name)
        seen = await call(threads, lambda: (ME.get(), ME.set("a thread"))[0])
        return seen, ME.get()

    async def main() -> None:
        threads = RequestThreads(2)
        names = [str(number) for number in range(20)]
        assert await asyncio.gather(*(one(threads, name) for name in names)) == [
            (name, name) for name in names
        ]
        threads.close()

    asyncio.run(main())


@pytest.mark.parametrize("error", [ValueError("x"), StopIteration(1), SystemExit(2)])
def test_what_a_function_raises_is_raised_in_its_call(error: BaseException) -> None:
    """The same object, whatever it is: nothing ends the thread, or the loop."""

    def fail() -> None:
        raise error

    def caught(threads: RequestThreads) -> BaseException | None:
        try:
            threads.run(fail)
        except BaseException as raised:  # noqa: BLE001 - of any kind
            return raised
        return None

    async def main() -> None:
        threads = RequestThreads(1)
        assert await suspended(partial(caught, threads), CallNotes()) is error
        assert await call(threads, lambda: 7) == 7
        threads.close()

    asyncio.run(main())


def test_what_waits_for_a_thread_is_not_run_if_its_call_is_cancelled() -> None:
    """And what it would have used is let go at once; what runs goes on, and nobody hears of it."""
    held, run = Event(), list[str]()

    def first() -> None:
        held.wait(20)
        run.append("first")
        raise ValueError("nobody asks")

    class Large:
        def use(self) -> None:
            run.append("large")

    async def main() -> None:
        threads, large = RequestThreads(1), Large()
        kept = ref(large)
        tasks = [
            asyncio.create_task(call(threads, first)),
            asyncio.create_task(call(threads, large.use)),
        ]
        await asyncio.sleep(0.02)
        for task in tasks:
            task.cancel()
        del large
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in ends)
        del tasks, task, ends
        await asyncio.sleep(0)
        gc.collect()
        assert kept() is None
        held.set()
        assert await call(threads, lambda: 7) == 7
        threads.close()

    with pytest.MonkeyPatch.context() as patch:
        noise: list[object] = []
        patch.setattr(logging.getLogger("asyncio"), "error", lambda *more, **_: noise.append(more))
        asyncio.run(main())
        gc.collect()

    assert run == ["first"]
    assert noise == []


def test_a_request_that_left_may_be_applied_whatever_its_call_is_cancelled_with() -> None:
    """Also by the error of another request, which proves that the other one did not leave."""
    held, gone, notes = Event(), Event(), CallNotes()
    with pytest.raises(NewConnectionError) as other:
        HTTPConnection("127.0.0.1", 1).connect()

    def request() -> None:
        leave()
        gone.set()
        held.wait(20)

    def put(threads: RequestThreads) -> None:
        with translated("PutItem on ledger"):
            threads.run(request)

    async def main() -> None:
        threads = RequestThreads(1)
        task = asyncio.create_task(suspended(partial(put, threads), notes))
        await until(gone.is_set)
        task.cancel(other.value)
        with pytest.raises(asyncio.CancelledError):
            await task
        held.set()
        threads.close()

    asyncio.run(main())
    assert notes.maybe_applied


def test_a_loop_may_end_before_its_threads_do(capfd: pytest.CaptureFixture[str]) -> None:
    """Also without a close: the threads end, and nothing is written anywhere."""
    held = Event()

    async def main() -> None:
        threads = RequestThreads(4)
        tasks = [asyncio.create_task(call(threads, partial(held.wait, 20))) for _ in range(4)]
        await until(lambda: len(of_requests()) == 4)
        assert not any(task.done() for task in tasks)

    asyncio.run(main())
    held.set()
    gc.collect()
    for one in of_requests():
        one.join(10)

    assert of_requests() == []
    assert capfd.readouterr().err == ""


def test_without_threads_of_the_system_the_call_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one thread, more calls wait for it, as long as the system gives no other."""

    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        threads = RequestThreads(8)
        with monkeypatch.context() as none:
            none.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError, match="can't start"):
                await call(threads, lambda: 7)
        assert [await call(threads, lambda: 7) for _ in range(3)] == [7, 7, 7]
        assert len(of_requests()) == 1
        with monkeypatch.context() as none:
            none.setattr(threading.Thread, "start", refuse)
            calls = (call(threads, partial(Event().wait, 0.001)) for _ in range(20))
            assert await asyncio.gather(*calls) == [False] * 20
        together = threading.Barrier(8, timeout=20)
        await asyncio.gather(*(call(threads, together.wait) for _ in range(8)))
        assert len(of_requests()) == 8
        threads.close()

    asyncio.run(main())
