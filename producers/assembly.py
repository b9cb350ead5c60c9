"""What writes counters, put together from a connection to a stack.

Each function imports what it needs: a process that records never loads strict counters.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.ledger.connection import Connection
    from countledger.ledger.namespace import Namespaces
    from countledger.producers.buffer.producer import BufferedProducer
    from countledger.producers.buffer.sending import BatchDelivery
    from countledger.producers.buffer.settings import Buffering, Failure
    from countledger.producers.recorder import Recorder


__all__ = [
    "Recorder",
    "recorder_of",
]


def recorder_of(connection: Connection, namespaces: Namespaces) -> Recorder:
    """What records events of a stack, each with its own request."""
    from countledger.producers.recorder import Recorder
    from countledger.producers.sender import sender_of

    sender, new_ids = sender_of(connection, namespaces), connection.ids.new_ids
    return Recorder(sender, connection.region, connection.clock, new_ids)


def buffered_producer(
    connection: Connection,
    buffering: Buffering,
    on_failure: Callable[[Failure], object] | None,
) -> BufferedProducer:
    """A buffered producer of a stack.

    Raises:
        SetupError: the stack does not exist, or the spool cannot be used.
    """
    from countledger.ledger.namespace import Namespaces
    from countledger.producers.buffer.producer import BufferedProducer
    from countledger.producers.buffer.sending import EntryMaker, ledger_name

    return BufferedProducer(
        buffering,
        # Each process has connections of its own: a fork must not use those of its parent.
        lambda: delivery_of(connection, buffering, Namespaces(connection)),
        EntryMaker(connection.region, connection.clock, connection.ids.new_ids),
        ledger=ledger_name(connection),
        on_failure=on_failure,
    )


def delivery_of(
    connection: Connection, buffering: Buffering, namespaces: Namespaces
) -> BatchDelivery:
    """What delivers the batches of a buffered producer."""
    from countledger.ledger.clock import Backoff
    from countledger.producers.buffer.sending import BatchDelivery
    from countledger.producers.sender import sender_of

    sender = sender_of(connection, namespaces)
    dynamo = replace(sender.dynamo, limits=None)  # the attempts are those of the buffering
    own = replace(sender, dynamo=dynamo, backoff=Backoff(buffering.attempts))
    return BatchDelivery(own, buffering.attempts)
