"""The client of an event loop: cancelled at each of its requests, closed, and used elsewhere."""

import asyncio
import gc
import logging
import threading
import warnings
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from random import Random
from typing import Any, Final

import pytest
from botocore.exceptions import ConnectionClosedError

from countledger import AsyncCountLedger, Event
from countledger.ledger.connection import Retries
from countledger.ledger.errors import CallCancelled, LedgerNotOpen
from countledger.producers.event import Status
from tests.engines.store import Store
from tests.faults.injection import _carry_out
from tests.faults.play import ON_THE_ENGINE, fresh

pytestmark = ON_THE_ENGINE

RETRIES: Final[tuple[Retries, ...]] = ("none", "standard")
_READS: Final = ("GetItem", "Query", "BatchGetItem", "TransactGetItems", "DescribeTable")


def ledger_of(store: Store) -> AsyncCountLedger:
    """A client of a new process."""
    return AsyncCountLedger(
        store.connection.settings,
        session=store.engine.session,
        endpoint_url=store.engine.endpoint_url,
    )


async def client_of(ledger: AsyncCountLedger, retries: Retries) -> Any:  # noqa: ANN401 - the SDK's
    """The client of the loop by which an object makes its requests."""
    connection: Any = ledger._ledger.connection
    service = ledger._opened.get().service(connection, ("dynamodb", retries, connection.region))
    return await asyncio.to_thread(lambda: service.client)


@dataclass(eq=False)
class Held:
    """Holds the n-th request of a call, as the network would, until the call is over.

    Attributes:
        number: which request, from 0.
        applied: whether the engine carries it out.
        operations: that were sent, the held one included.
        reached: set once it is held.
        over: lets it go on.
    """

    number: int
    applied: bool
    operations: list[str] = field(default_factory=list)
    reached: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)

    def __call__(self, request: Any, event_name: str, **_: object) -> None:  # noqa: ANN401
        """Let a request through, or hold it; what was held is not sent."""
        self.operations.append(event_name.rpartition(".")[2])
        if len(self.operations) <= self.number:
            return
        if self.applied:
            _carry_out(request)
        self.reached.set()
        self.over.wait(60)
        raise ConnectionClosedError(endpoint_url=request.url)

    @property
    def may_have_written(self) -> bool:
        """Whether a write was let through, or was held after it had left this machine."""
        return any(one not in _READS for one in self.operations)


async def cancelled_at(
    ledger: AsyncCountLedger,
    number: int,
    call: Awaitable[object],
    *,
    applied: bool,
) -> tuple[Held, CallCancelled | None]:
    """Cancel a call while its n-th request is under way; None: the call has made fewer requests."""
    held = Held(number, applied)
    clients = [await client_of(ledger, retries) for retries in RETRIES]
    for client in clients:
        client.meta.events.register_last("before-send", held, unique_id="held")
    task = asyncio.ensure_future(call)
    while not (task.done() or held.reached.is_set()):  # noqa: ASYNC110 - a thread sets it
        await asyncio.sleep(0.001)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError as error:
        return held, CallCancelled.of(error)
    finally:
        held.over.set()
        for client in clients:
            client.meta.events.unregister("before-send", unique_id="held")
    return held, None


@dataclass(frozen=True)
class Case:
    """A call that can be repeated.

    Attributes:
        call: makes the call.
        effect: how often its effect is stored.
        prepare: what must exist.
    """

    call: Callable[[AsyncCountLedger, str], Awaitable[object]]
    effect: Callable[[AsyncCountLedger, str], Awaitable[object]]
    prepare: Callable[[AsyncCountLedger, str], Awaitable[object]] | None = None


async def _recorded(ledger: AsyncCountLedger, counter: str) -> object:
    return (await ledger.exact(counter)).value


async def _strict(ledger: AsyncCountLedger, counter: str) -> object:
    return await ledger.strict.create(counter, method="marker", lower=0, upper=9, opening=9)


async def _sold(ledger: AsyncCountLedger, counter: str) -> object:
    return 9 - int((await ledger.strict.show(counter)).value)


async def _held_back(ledger: AsyncCountLedger, counter: str) -> object:
    return int((await ledger.strict.show(counter)).held)


CASES: Final = {
    "record": Case(lambda ledger, name: ledger.record(name, 1, key="k"), _recorded),
    "record many": Case(lambda ledger, name: ledger.record_many([Event(name, 1, "k")]), _recorded),
    "strict": Case(lambda ledger, name: ledger.strict.change(name, -1, key="k"), _sold, _strict),
    "hold": Case(
        lambda ledger, name: ledger.strict.hold(name, 1, expires_in=timedelta(hours=1), key="k"),
        _held_back,
        _strict,
    ),
}


@pytest.mark.parametrize("applied", [False, True], ids=["not applied", "applied"])
@pytest.mark.parametrize("case", CASES)
def test_a_cancelled_call_says_what_it_may_have_done(
    store: Store,
    case: str,
    applied: bool,  # noqa: FBT001 - a case
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Cancelled at each request; the same call again completes it, once."""
    one = CASES[case]

    async def work() -> int:
        for number in count():
            async with ledger_of(store) as ledger:
                counter = f"n{fresh()}:c"
                if one.prepare is not None:
                    await one.prepare(ledger, counter)
                caplog.clear()
                held, cancelled = await cancelled_at(
                    ledger, number, one.call(ledger, counter), applied=applied
                )
                if cancelled is None:
                    return number
                assert cancelled.maybe_applied == held.may_have_written
                assert len(caplog.records) == int(held.may_have_written)
                await one.call(ledger, counter)
                assert await one.effect(ledger, counter) == 1
        return 0

    with caplog.at_level(logging.WARNING, "countledger"):
        assert asyncio.run(work()) >= 1


@pytest.mark.parametrize("applied", [False, True], ids=["not applied", "applied"])
@pytest.mark.parametrize(
    ("events", "number"), [(1, 0), (120, 3)], ids=["record", "record_many, a later batch"]
)
def test_a_cancelled_call_hands_over_its_entries(
    store: Store, events: int, number: int, *, applied: bool
) -> None:
    """Without a key nobody else could send them again: sent again, each event counts once."""

    async def work() -> None:
        async with ledger_of(store) as ledger:
            counter = f"n{fresh()}:c"
            await ledger.record(counter, 1)
            many = [Event(counter, 1)] * events
            call = ledger.record(counter, 1) if events == 1 else ledger.record_many(many)
            _, cancelled = await cancelled_at(ledger, number, call, applied=applied)
            assert cancelled is not None
            assert len(cancelled.entries) == events
            again = await asyncio.gather(*map(ledger.resend, cancelled.entries))
            if events == 1:
                assert again[0].status is (Status.DUPLICATE if applied else Status.RECORDED)
            assert (await ledger.exact(counter)).value == 1 + events

    asyncio.run(work())


def test_an_entry_that_had_not_left_is_not_applied(store: Store) -> None:
    """Cancelled while its namespace is read, or made, nothing was recorded."""

    async def work() -> None:
        for number in (0, 1):
            async with ledger_of(store) as ledger:
                counter = f"n{fresh()}:c"
                held, cancelled = await cancelled_at(
                    ledger, number, ledger.record(counter, 1), applied=True
                )
                assert cancelled is not None
                assert held.operations[-1] == ("GetItem", "PutItem")[number]
                assert cancelled.entries == ()
                assert (await ledger.exact(counter)).value == 0

    asyncio.run(work())


def test_a_time_out_says_it_too(store: Store) -> None:
    """`asyncio.timeout` raises its own error; `of` finds the call behind it."""

    async def work() -> None:
        async with ledger_of(store) as ledger:
            counter = f"n{fresh()}:c"
            await ledger.record(counter, 1)
            client = await client_of(ledger, "none")
            held = Held(0, applied=True)
            client.meta.events.register_last("before-send", held, unique_id="held")
            with pytest.raises(TimeoutError) as raised:
                async with asyncio.timeout(0.5):
                    await ledger.record(counter, 1)
            held.over.set()
            cancelled = CallCancelled.of(raised.value)
            assert cancelled is not None
            assert cancelled.maybe_applied
            assert [entry.counter for entry in cancelled.entries] == [counter]
            assert "it may have been applied" in str(cancelled)

    asyncio.run(work())


def test_closing_waits_for_calls_and_leaves_nothing(store: Store) -> None:
    """No task, no connection, no warning; a call afterwards says that the client is closed."""

    async def work() -> set[Any]:
        ledger = ledger_of(store)
        counter = f"n{fresh()}:c"
        with pytest.raises(LedgerNotOpen, match="use it within `async with`"):
            await ledger.record(counter, 1)
        before = asyncio.all_tasks()
        async with ledger:
            recording = [asyncio.create_task(ledger.record(counter, 1)) for _ in range(20)]
            await asyncio.sleep(0)
            with pytest.raises(LedgerNotOpen, match="open already"):
                await ledger.__aenter__()
        assert len([await one for one in recording]) == 20
        with pytest.raises(LedgerNotOpen, match="use it within `async with`"):
            await ledger.record(counter, 1)
        async with ledger:
            assert (await ledger.exact(counter)).value == 20
        return asyncio.all_tasks() - before

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert asyncio.run(work()) == set()
        gc.collect()
    assert [str(one.message) for one in warned] == []


def test_a_storm_of_cancellations_counts_every_event_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand calls over ten connections, each cancelled at any moment; then sent again."""
    monkeypatch.setattr("countledger.ledger.asynchronous.calls.CONNECTIONS", 10)
    random = Random(1)  # noqa: S311 - no secret

    async def add(ledger: AsyncCountLedger, counter: str) -> int:
        try:
            async with asyncio.timeout(random.choice([None, 0.001, 0.02, 0.2, 0.5])):
                await ledger.record(counter, 1)
        except TimeoutError as error:
            cancelled = CallCancelled.of(error)
            entries = cancelled.entries if cancelled else ()
            for entry in entries:
                await ledger.resend(entry)
            return len(entries)
        return 1

    async def work() -> None:
        counter = f"n{fresh()}:c"
        async with ledger_of(store) as ledger:
            await ledger.record(counter, 1)
            counted = sum(await asyncio.gather(*(add(ledger, counter) for _ in range(1_000))))
        async with ledger_of(store) as ledger:
            assert (await ledger.exact(counter)).value == 1 + counted
        assert 0 < counted < 1_000

    asyncio.run(work())


def test_another_loop_is_told_what_to_do(store: Store) -> None:
    ledger = ledger_of(store)
    with asyncio.Runner() as first, asyncio.Runner() as second:
        first.run(ledger.__aenter__())
        with pytest.raises(LedgerNotOpen, match="opened on another event loop"):
            second.run(ledger.exact("n:c"))
        assert first.run(ledger.exact(f"n{fresh()}:c")).value == 0
        first.run(ledger.aclose())
