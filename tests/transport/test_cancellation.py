"""A cancelled call of an event loop: whether it may have been applied, operation by operation.

Not applied is said only where no byte of a request can have left: before the request, and while its
connection is made. An answer that was on its way does not make it certain.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
import uvloop

from countledger.ledger.asynchronous.connection import LoopConnection, OpenClients
from countledger.ledger.suspension import CallNotes
from tests.transport.server import Behaviour
from tests.transport.test_contract import is_stored, place_in, says_nothing
from tests.transport.transports import READS, WRITES, Place

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from countledger.ledger.connection import Connection
    from tests.engines.store import Store
    from tests.transport.server import HostileServer

OPERATIONS: Final = {**READS, **WRITES}
LOOPS: Final = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@asynccontextmanager
async def connection_of(plain: Connection) -> AsyncIterator[LoopConnection]:
    """The same, whose clients are open for this loop."""
    opened = OpenClients()
    opened.open()
    yield LoopConnection(plain.settings, plain.session, plain.endpoint_url, opened=opened)
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


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_has_not_left_is_not_applied(store: Store, operation: str, loop: str) -> None:
    """The server takes the connection and does not answer its handshake."""
    steps = says_nothing()
    there = replace(store.connection, endpoint_url=next(steps))

    async def work() -> CallNotes:
        async with connection_of(there) as connection:
            kind: Any = ("dynamodb", "none", connection.region)
            await connection.opened.get().client(connection, kind)
            return await notes_of(connection, operation, Place("table", "n:c"), lambda: True)

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        notes = runner.run(work())
    next(steps, None)

    assert not notes.maybe_applied


def test_a_call_that_waits_for_a_connection_is_not_applied(
    store: Store, server: HostileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not even signed: a request leaves as soon as it is."""
    monkeypatch.setattr("countledger.ledger.asynchronous.connection.CONNECTIONS", 1)
    first, second = place_in(store), place_in(store)

    async def work() -> tuple[CallNotes, CallNotes]:
        async with connection_of(store.connection) as connection:
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
            return notes, waits

    held, waited = asyncio.run(work())

    assert (held.maybe_applied, waited.maybe_applied) == (True, False)
    assert not is_stored(store, "put", second)
