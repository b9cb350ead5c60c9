"""Builds the buffered producer of a stack; each process makes connections of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from countledger.ledger.assembly import namespaces_of
from countledger.producers.buffer.delivery import BatchDelivery, EntryMaker
from countledger.producers.buffer.producer import BufferedProducer
from countledger.producers.sender import sender_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.ledger.connection import Connection
    from countledger.producers.buffer.buffering import Buffering
    from countledger.producers.buffer.errors import Failure


def ledger_name(connection: Connection) -> str:
    """The name of the ledger that a spool belongs to."""
    return f"table {connection.setting('ledger_table')} in {connection.region}"


def buffered_producer(
    connection: Connection,
    buffering: Buffering,
    on_failure: Callable[[Failure], object] | None,
) -> BufferedProducer:
    """A buffered producer of a stack.

    Raises:
        SetupError: the stack does not exist, or the spool cannot be used.
    """

    def make_delivery() -> BatchDelivery:
        # Each process has connections of its own: a fork must not use those of its parent.
        sender = sender_of(connection, namespaces_of(connection))
        return BatchDelivery(sender, buffering.attempts)

    return BufferedProducer(
        buffering,
        make_delivery,
        EntryMaker(connection.region),
        ledger=ledger_name(connection),
        on_failure=on_failure,
    )
