"""The Kinesis producer: it creates entries from events and sends many of them in a record."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.errors import CountledgerError, SetupError, Unacknowledged
from countledger.ledger.ids import new_id
from countledger.producers.event import complete, gathered, make_entry
from countledger.producers.kinesis.aggregate import bound
from countledger.producers.kinesis.sender import KinesisOutcome, KinesisSender, Sent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from countledger.ledger.connection import Connection
    from countledger.ledger.entry import Entry
    from countledger.producers.event import Event

# About ten records: enough to hide the latency of a call, and few enough to answer soon.
_CHUNK: Final = 4_096
_MAYBE_SENT: Final = (Sent, Unacknowledged)


@dataclass(frozen=True, slots=True)
class KinesisProducer:
    """Sends events through Kinesis; the ingest function writes them into the ledger.

    Safe to share between threads.

    Attributes:
        sender: sends entries into the stream.
        region: the region of this process.
        clock: gives the creation time of an entry.
        new_id: creates an id for a time in milliseconds.
    """

    sender: KinesisSender
    region: str
    clock: Clock = field(default_factory=SystemClock)
    new_id: Callable[[int], str] = new_id

    def send_many(self, events: Iterable[Event]) -> list[KinesisOutcome]:
        """Send events, some thousands in a call; they use no write units until they are ingested.

        All events are sent before this returns. Events with the same key may be ingested in any
        order.

        Args:
            events: the events, which are gathered first. If gathering fails, nothing was sent. For
                events that do not fit into memory use `send_stream`.

        Returns:
            One outcome for each event, in their order: `Sent`, or the error of this event as a
            value. An `Unacknowledged` has the entry: `resend` it, it cannot count twice. If an
            error of all events (a `SetupError`) occurs after the first call, it is the outcome of
            each event that was not sent.

        Raises:
            BadInput: one of them is no `Event`; no event was sent.
            SetupError: the stream does not exist, permission is missing, or the service cannot be
                reached; no event was sent.
        """
        every = gathered(events)
        return complete(self.send_stream(every), len(every), _MAYBE_SENT)

    def send_stream(self, events: Iterable[Event]) -> Iterator[KinesisOutcome]:
        """As `send_many` for any number of events, some thousands at a time.

        Events are sent only while the result is iterated, after some thousands are gathered or
        the events end. From a slow source, pass the events that you have.

        Yields:
            One outcome for each event, in their order: `Sent`, or the error of this event as a
            value.

        Raises:
            BadInput: one of them is no `Event`; raised after the outcomes of all that were sent.
            SetupError: the stream does not exist, permission is missing, or the service cannot be
                reached; raised after the outcomes of all events that may have been sent.
        """
        feed = iter(events)
        while chunk := gathered(islice(feed, _CHUNK)):
            now_ms = self.clock.now_ms()
            outcomes = self.sender.send_batch(
                [
                    bound(make_entry(event, now_ms=now_ms, origin=self.region, new_id=self.new_id))
                    for event in chunk
                ]
            )
            fatal = next((one for one in outcomes if isinstance(one, SetupError)), None)
            # Without its outcome, an event without a key could never be sent again safely.
            if fatal is None or any(isinstance(one, _MAYBE_SENT) for one in outcomes):
                yield from outcomes
            if fatal is not None:
                raise fatal

    def resend(self, entry: Entry) -> Sent:
        """Send an entry again, unchanged; `resend` of the ledger accepts it too.

        Raises:
            BadInput: the entry has no key and comes from a producer that writes to the ledger: use
                `resend` of the ledger.
            CountledgerError: the entry was not acknowledged.
        """
        (outcome,) = self.sender.send_batch([entry])
        if isinstance(outcome, CountledgerError):
            raise outcome
        return outcome


def producer_of(connection: Connection) -> KinesisProducer:
    """A producer on the stack's stream.

    Raises:
        StackNotFound: the stack has no stream; deploy it with the parameter IngestStream.
    """
    clock, stream = connection.clock, connection.setting("ingest_stream_arn")
    sender = KinesisSender(connection.kinesis(), stream, clock, connection.random)
    return KinesisProducer(sender, connection.region, clock, connection.ids.new_id)
