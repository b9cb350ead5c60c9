"""A process that uses a client, forks, and goes on in parent and child at the same time.

    python -m tests.transport.forking OPERATION FORK ROUNDS

The environment names the stack. The process forks many times: after each fork parent and child
share one connection, so they can take each other's answer once. Both begin at the same instant, and
print one line: what they were told of each of their calls.
"""

import asyncio
import ctypes
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from time import monotonic, sleep
from typing import Any, Final
from uuid import uuid4

import boto3

from countledger import AsyncCountLedger, Buffering, CountLedger, CountledgerError, Event
from countledger.ledger.errors import LedgerNotOpen
from countledger.producers.buffer.producer import BufferedProducer

CALLS: Final = 3
ALL_AT_ONCE: Final = 60
# Longer than a fork takes.
HEAD_START_S: Final = 0.02


def told(call: Callable[[], Any]) -> Any:  # noqa: ANN401 - what a call returns
    """A call's answer, or what it says is wrong."""
    try:
        return call()
    except CountledgerError as error:
        return f"{type(error).__name__}: {error}"


def record(ledger: CountLedger, name: str) -> list[Any]:
    """Entries, one at a time; the ids of those that were acknowledged."""
    return [told(lambda: ledger.record(name, 1).id) for _ in range(CALLS)]


def strict(ledger: CountLedger, name: str) -> list[Any]:
    """Changes of a strict counter."""
    counter = f"strict:{name}"
    return [
        told(lambda: type(ledger.strict.change(counter, 1, key=uuid4().hex)).__name__)
        for _ in range(CALLS)
    ]


def total(ledger: CountLedger, name: str) -> list[Any]:
    """Reads of a counter of one's own; its name and value."""

    def read() -> str:
        found = ledger.total(f"strict-totals:{name}")
        return f"{found.counter}={found.value}"

    return [told(read) for _ in range(CALLS)]


def buffered(ledger: CountLedger, name: str) -> list[Any]:
    """Entries by the producer that was opened before the fork."""
    pendings = _producer(ledger).add_many([Event(name, 1)] * CALLS)
    return [told(lambda one=one: one.result(20).id) for one in pendings]  # type: ignore[misc]


_PRODUCERS: Final[list[BufferedProducer]] = []


def _producer(ledger: CountLedger) -> BufferedProducer:
    if not _PRODUCERS:
        _PRODUCERS.append(ledger.buffered(Buffering(linger_ms=1)))
    return _PRODUCERS[0]


def kinesis(ledger: CountLedger, name: str) -> list[Any]:
    """Entries through the stream."""
    sent = [one for _ in range(CALLS) for one in ledger.kinesis.send_many([Event(name, 1)])]
    return [str(one) if isinstance(one, CountledgerError) else one.id for one in sent]


OPERATIONS: Final = {one.__name__: one for one in (record, strict, total, buffered, kinesis)}


def say(name: str, answers: list[Any]) -> None:
    """One line, written at once."""
    os.write(1, (json.dumps({name: answers}) + "\n").encode())


def by_os_fork(work: Callable[[str], None]) -> None:
    """Both processes at once."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        work("child")
        os._exit(0)
    work("parent")
    os.waitpid(child, 0)


def by_multiprocessing(work: Callable[[str], None]) -> None:
    """The child is a worker."""
    child = multiprocessing.get_context("fork").Process(target=work, args=("child",))
    child.start()
    work("parent")
    child.join(60)


def without_hooks(work: Callable[[str], None]) -> None:
    """As a server forks that does it by itself: Python hears nothing of it."""
    child = ctypes.PyDLL(None).fork()
    if child == 0:
        work("child")
        os._exit(0)
    work("parent")
    os.waitpid(child, 0)


FORKS: Final = {one.__name__: one for one in (by_os_fork, by_multiprocessing, without_hooks)}


def main(operation: str, fork: str, rounds: int) -> None:
    """Use the clients, fork, and use them again; many times."""
    looping = {"looped": looped, "awaited": awaited}.get(operation)
    if looping is not None:
        asyncio.run(looping(AsyncCountLedger(session=boto3.Session()), FORKS[fork]))
        return
    ledger = CountLedger(session=boto3.Session())
    use = OPERATIONS[operation]
    say("parent", use(ledger, "parent"))
    for _ in range(rounds):
        begin_s = monotonic() + HEAD_START_S

        def work(name: str, begin_s: float = begin_s) -> None:
            sleep(max(0, begin_s - monotonic()))
            say(name, use(ledger, name))

        FORKS[fork](work)


async def awaited(ledger: AsyncCountLedger, fork: Callable[[Callable[[str], None]], None]) -> None:
    """Entries by a producer that is open as its event loop's process forks."""

    async def add(name: str) -> None:
        pendings = await producer.add_many([Event(name, 1)] * ALL_AT_ONCE)
        await producer.flush(20)
        say(name, [(await one.result()).id for one in pendings])

    def work(name: str) -> None:
        """The child, on a loop of its own: what was added before the fork is the parent's."""
        if name == "child":
            asyncio._set_running_loop(None)
            asyncio.run(add("child"))

    async with ledger, await ledger.buffered(Buffering(linger_ms=1)) as producer:
        await add("parent")
        fork(work)
        await add("parent")


async def looped(ledger: AsyncCountLedger, fork: Callable[[Callable[[str], None]], None]) -> None:
    """Entries by a client that is open as its event loop's process forks."""

    async def record(name: str) -> None:
        receipts = await asyncio.gather(*(ledger.record(name, 1) for _ in range(ALL_AT_ONCE)))
        say(name, [one.id for one in receipts])

    async def child() -> None:
        """On a loop of its own: what was opened before the fork is the parent's."""
        for use in (ledger.record("child", 1), ledger.audit.verify("child")):
            try:
                await use
            except LedgerNotOpen:
                continue
            os._exit(3)
        async with ledger:
            await record("child")

    def work(name: str) -> None:
        if name == "child":
            asyncio._set_running_loop(None)
            asyncio.run(child())

    async with ledger:
        await record("parent")
        half_way = asyncio.create_task(record("parent"))
        if fork is without_hooks:  # in which Python cannot go on if another thread was running
            await half_way
        await asyncio.sleep(0.01)
        fork(work)
        await half_way
        await record("parent")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
