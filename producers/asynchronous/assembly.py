"""A buffered producer of a stack for an event loop: what it is built from."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from countledger.producers.asynchronous.dynamo import open_client
from countledger.producers.asynchronous.producer import AsyncBufferedProducer
from countledger.producers.asynchronous.sender import AsyncSender
from countledger.producers.buffer.assembly import ledger_name
from countledger.producers.buffer.coalesce import EntryMaker
from countledger.producers.buffer.spool import Spool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from countledger.ledger.connection import Connection
    from countledger.ledger.namespace import Namespaces
    from countledger.producers.buffer.buffering import Buffering
    from countledger.producers.buffer.errors import Failure


def async_producer(
    connection: Connection,
    buffering: Buffering,
    namespaces: Namespaces,
    on_failure: Callable[[Failure], object] | None,
) -> AsyncBufferedProducer:
    """A buffered producer of a stack for an event loop.

    Raises:
        SetupError: there is no such stack.
    """
    table = connection.setting("ledger_table")

    @asynccontextmanager
    async def open_sender() -> AsyncIterator[AsyncSender]:
        async with open_client(connection) as dynamo:
            yield AsyncSender(
                dynamo, table, namespaces, clock_skew_ms=connection.settings.clock_skew_ms
            )

    def open_spool() -> Spool | None:
        if buffering.spool is None:
            return None
        name = ledger_name(connection)
        return Spool.open(buffering.spool, ledger=name, fsync=buffering.fsync)

    return AsyncBufferedProducer(
        buffering,
        open_sender,
        EntryMaker(connection.region),
        open_spool=open_spool,
        on_failure=on_failure,
    )
