"""An app with an event loop under load, its entries sent in the background."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import cycle
from time import monotonic
from typing import Any

import pytest

from countledger import Buffering
from countledger.ledger import keys
from countledger.ledger.asynchronous.calls import OpenClients, loop_connection
from countledger.ledger.connection import Connection
from countledger.ledger.departure import guarded
from countledger.ledger.errors import KeyExpired
from countledger.ledger.operations import Absent, Put
from countledger.ledger.suspension import CallNotes
from countledger.producers.event import Status
from tests.engines.store import Store
from tests.faults.injection import Fault, Kind, faults
from tests.faults.play import ON_THE_ENGINE
from tests.faults.test_async_ledger import ledger_of
from tests.faults.test_buffered import expect

pytestmark = ON_THE_ENGINE

HANDLERS, REQUESTS = 50, 40
# What a request may wait for the loop; an engine beside it on one core takes its share as well.
PATIENCE_S = 2.0


def broken_now_and_then() -> Iterator[Fault | None]:
    """Of five attempts one is never answered, applied or not."""
    lost = cycle([Fault(Kind.TIMEOUT, applied=True), Fault(Kind.RESET)])
    for number in range(1_000):
        yield next(lost) if number % 5 == 1 else None


def test_p1_an_event_loop_under_load_counts_every_request_once(store: Store, counter: str) -> None:
    """Two thousand requests of fifty handlers on a bad network; the loop is never held up."""
    store.app().namespaces.create(keys.namespace_of(counter))
    gaps: list[float] = []

    async def tick() -> None:
        last = monotonic()
        while True:
            await asyncio.sleep(0.005)
            gaps.append(monotonic() - last)
            last = monotonic()

    async def serve(producer: Any, name: int) -> None:  # noqa: ANN401
        for number in range(REQUESTS):
            key = f"{name}-{number}" if number % 10 == 0 else None
            pending = await producer.add(counter, 1, key=key)
            if number % 8 == 0:
                assert (await pending.result()).status is Status.RECORDED

    async def app() -> None:
        async with (
            ledger_of(store) as ledger,
            await ledger.buffered(Buffering(linger_ms=20)) as producer,
        ):
            own = producer._producer._here()
            own._delivery = own._make_delivery()
            client = own._delivery.sender.dynamo.client
            attempts = injected.enter_context(faults(client, plan=broken_now_and_then()))
            ticker = asyncio.create_task(tick())
            await asyncio.gather(*(serve(producer, name) for name in range(HANDLERS)))
            await producer.flush()
            ticker.cancel()
            statistics = producer.statistics
        broken = sum(fault is not None for fault in attempts.made)
        assert statistics.recorded == statistics.events == HANDLERS * REQUESTS
        assert statistics.waits == broken > 10

    with ExitStack() as injected:
        asyncio.run(asyncio.wait_for(app(), 120))

    expect(store, counter, total=HANDLERS * REQUESTS, events=HANDLERS * REQUESTS)
    assert max(gaps) < PATIENCE_S


async def put_in_a_loop(plain: Connection, write: Put) -> None:
    """A put as a call of the loop."""
    opened = OpenClients()
    opened.open()
    dynamo = loop_connection(plain, opened).dynamo("none")
    try:
        await opened.get().run(lambda: dynamo.put(write), CallNotes())
    finally:
        await opened.aclose()


def test_the_last_look_is_taken_on_this_way_too(store: Store, counter: str) -> None:
    """What must not leave does not, though it is signed already."""

    def too_late() -> None:
        raise KeyExpired("too late")

    item = {"counter": counter, "entry": "e#x", "delta": 1}
    with guarded(too_late), pytest.raises(KeyExpired):
        asyncio.run(put_in_a_loop(store.connection, Put(store.ledger, item, Absent("entry"))))
    expect(store, counter, total=0, events=0)
