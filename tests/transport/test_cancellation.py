"""A cancelled call of an event loop: whether it may have been applied, operation by operation.

Not applied is said only where no byte of a request has left, and none will: before it is signed.
From then on a thread carries the request through, also where it still has to connect. An answer
that was on its way does not make it certain.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from threading import Event
from threading import enumerate as enumerate_threads
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import boto3
import botocore.session
import psutil
import pytest
import uvloop
from botocore.credentials import DeferredRefreshableCredentials

from countledger.ledger.asynchronous.calls import LoopConnection, OpenClients, loop_connection
from countledger.ledger.settings import TRANSPORTS
from countledger.ledger.suspension import CallNotes
from tests.transport.server import Behaviour
from tests.transport.test_contract import is_stored, place_in, says_nothing
from tests.transport.transports import READS, WRITES, Place, impatient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from countledger.ledger.asynchronous.calls import ClientKind
    from countledger.ledger.connection import Connection
    from tests.engines.store import Store
    from tests.transport.server import HostileServer

OPERATIONS: Final = {**READS, **WRITES}
LOOPS: Final = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@dataclass(eq=False)
class SlowSource:
    """Gives credentials late.

    Attributes:
        asked: set once somebody waits for them.
        there: lets them be given.
    """

    asked: Event = field(default_factory=Event)
    there: Event = field(default_factory=Event)

    def __call__(self) -> dict[str, str]:
        """Credentials."""
        self.asked.set()
        self.there.wait(30)
        ends = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        return {"access_key": "k", "secret_key": "s", "token": "t", "expiry_time": ends}


def kind_of(connection: LoopConnection) -> ClientKind:
    """Of the clients in these tests."""
    return ("dynamodb", "none", connection.region)


async def ended(connection: LoopConnection) -> None:
    """Wait until the threads of a loop have ended what they do."""
    threads = connection.opened.get().service(connection, kind_of(connection)).threads
    while threads._unfinished:  # noqa: ASYNC110 - threads note it
        await asyncio.sleep(0.01)


@asynccontextmanager
async def connection_of(plain: Connection) -> AsyncIterator[LoopConnection]:
    """The same, whose clients are open for this loop."""
    opened = OpenClients()
    opened.open()
    connection = loop_connection(plain, opened)
    assert isinstance(connection, LoopConnection)
    yield connection
    await opened.aclose()


async def notes_of(
    connection: LoopConnection, operation: str, place: Place, until: Callable[[], bool]
) -> CallNotes:
    """What a call may have done that is cancelled once something holds."""
    notes = CallNotes()
    run = partial(OPERATIONS[operation], connection.dynamo("none"), place)
    task = asyncio.create_task(connection.opened.get().run(run, notes))
    while not until():  # noqa: ASYNC110 - a thread of the server notes it
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return notes


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_has_left_may_be_applied(
    store: Store, server: HostileServer, operation: str, loop: str
) -> None:
    """The service has stored it and says nothing; only a write changes anything."""

    async def work() -> CallNotes:
        async with connection_of(store.connection) as connection:
            server.seen.clear()
            server.plan[:] = [Behaviour.STORED_STALL]
            return await notes_of(connection, operation, place, lambda: bool(server.seen))

    place = place_in(store)
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        notes = runner.run(work())

    assert notes.maybe_applied == (operation in WRITES)
    if operation in WRITES:
        assert is_stored(store, operation, place)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_has_not_left_is_not_applied_and_never_leaves(
    store: Store, server: HostileServer, operation: str, transport: str
) -> None:
    """The credentials come after the call was cancelled: the thread that waited sends nothing."""
    source = SlowSource()
    core = botocore.session.Session()
    core._credentials = DeferredRefreshableCredentials(source, "own")  # type: ignore[attr-defined]
    session = boto3.Session(botocore_session=core, region_name=store.connection.region)
    settings = replace(store.connection.settings, transport=transport)
    plain = replace(store.connection, session=session, settings=settings)
    place = place_in(store)

    async def work() -> CallNotes:
        async with connection_of(plain) as connection:
            server.seen.clear()
            notes = await notes_of(connection, operation, place, source.asked.is_set)
            source.there.set()
            await ended(connection)
            return notes

    assert not asyncio.run(work()).maybe_applied
    assert server.seen == []


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_request_that_connects_may_be_applied(store: Store, transport: str) -> None:
    """Its thread would send it, if the server ended the handshake."""
    steps = says_nothing()
    settings = replace(store.connection.settings, transport=transport)
    there = replace(store.connection, endpoint_url=next(steps), settings=settings)

    async def work() -> CallNotes:
        async with connection_of(there) as connection:
            service = connection.opened.get().service(connection, kind_of(connection))
            await asyncio.to_thread(lambda: service.client)
            return await notes_of(connection, "put", Place("table", "n:c"), lambda: True)

    assert asyncio.run(work()).maybe_applied
    next(steps, None)


def test_a_call_that_waits_for_a_thread_is_not_applied(
    store: Store, server: HostileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for a thread, and none begins it."""
    monkeypatch.setattr("countledger.ledger.asynchronous.calls.CONNECTIONS", 1)
    first, second = place_in(store), place_in(store)

    async def work() -> tuple[CallNotes, CallNotes]:
        async with connection_of(impatient(store.connection)) as connection:
            server.seen.clear()
            server.plan[:] = [Behaviour.STORED_STALL]
            notes = CallNotes()
            run = partial(WRITES["put"], connection.dynamo("none"), first)
            holds = asyncio.create_task(connection.opened.get().run(run, notes))
            while not server.seen:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
            waits = await notes_of(connection, "put", second, lambda: True)
            holds.cancel()
            with pytest.raises(asyncio.CancelledError):
                await holds
            await ended(connection)
            return notes, waits

    held, waited = asyncio.run(work())

    assert (held.maybe_applied, waited.maybe_applied) == (True, False)
    assert len(server.seen) == 1
    assert not is_stored(store, "put", second)


def connections_to(server: HostileServer) -> int:
    """How many connections of this process are open."""
    port = urlsplit(server.url).port
    opened = psutil.Process().net_connections("tcp")
    return sum(one.status == "ESTABLISHED" and one.raddr.port == port for one in opened)


def test_closing_ends_the_threads_and_the_connections(store: Store, server: HostileServer) -> None:
    """Also where something still holds the client."""

    async def work() -> None:
        async with connection_of(store.connection) as connection:
            service = connection.opened.get().service(connection, kind_of(connection))
            run = partial(READS["get"], connection.dynamo("none"), place)
            await connection.opened.get().run(run, CallNotes())
            assert connections_to(server) == before + 1
        assert connections_to(server) == before
        for _ in range(1_000):
            if not any(one.name == "countledger request" for one in enumerate_threads()):
                break
            await asyncio.sleep(0.01)
        else:
            raise AssertionError(f"threads of {service} are left")

    place = place_in(store)
    before = connections_to(server)
    asyncio.run(work())
