"""The producer: events become entries, and go into the stream many to a record."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.errors import CountledgerError, SetupError, Unacknowledged
from countledger.ledger.ids import new_id
from countledger.producers.event import complete, make_entry
from countledger.producers.kinesis.message import bound
from countledger.producers.kinesis.sender import KinesisOutcome, KinesisSender, Sent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from countledger.ledger.connection import Connection
    from countledger.ledger.entry import Entry
    from countledger.producers.event import Event

# About ten records of the stream: enough to hide what a call costs, few enough to answer soon.
_CHUNK: Final = 4_096
_MAYBE_SENT: Final = (Sent, Unacknowledged)


@dataclass(frozen=True, slots=True)
class KinesisProducer:
    """Sends events through Kinesis; the ingest function writes them into the ledger.

    Safe to share between threads.

    Attributes:
        sender: brings entries into the stream.
        region: where this process works.
        clock: tells the time at which an entry is made.
        new_id: makes an id for a millisecond.
    """

    sender: KinesisSender
    region: str
    clock: Clock = field(default_factory=SystemClock)
    new_id: Callable[[int], str] = new_id

    def send_many(self, events: Iterable[Event]) -> list[KinesisOutcome]:
        """Send events, some thousands to a call; no units of DynamoDB until they are ingested.

        All of them are sent before this returns. Several events of one key may be ingested in any
        order.

        Args:
            events: any number of them; they are gathered first. If gathering them fails, nothing
                was sent. For events that do not fit into memory use `send_stream`.

        Returns:
            One outcome for each event, in their order: `Sent`, or the error of this event as a
            value. An `Unacknowledged` carries the entry: `resend` it, it cannot count twice. Where
            something that concerns every event struck on the way (a `SetupError`), it is the
            outcome of each event that it stopped.

        Raises:
            SetupError: no stream, no permission, nothing reachable; no event was sent.
        """
        every = list(events)
        return complete(self.send_stream(every), len(every), _MAYBE_SENT)

    def send_stream(self, events: Iterable[Event]) -> Iterator[KinesisOutcome]:
        """As `send_many` for events of any number, some thousands at a time.

        It sends only while it is iterated. Events are gathered until some thousands are there or
        they end: of a source that is slow, hand over what there is.

        Yields:
            One outcome for each event, in their order: `Sent`, or the error of this event as a
            value.

        Raises:
            SetupError: what concerns every event: no stream, no permission, nothing reachable;
                after the outcomes of all events that may have been sent.
        """
        feed = iter(events)
        while chunk := list(islice(feed, _CHUNK)):
            now_ms = self.clock.now_ms()
            outcomes = self.sender.send_batch(
                [
                    bound(make_entry(event, now_ms=now_ms, origin=self.region, new_id=self.new_id))
                    for event in chunk
                ]
            )
            fatal = next((one for one in outcomes if isinstance(one, SetupError)), None)
            # Without its outcome, an event without key could never be sent again safely.
            if fatal is None or any(isinstance(one, _MAYBE_SENT) for one in outcomes):
                yield from outcomes
            if fatal is not None:
                raise fatal

    def resend(self, entry: Entry) -> Sent:
        """Send an entry again as it is; the ledger's own `resend` takes it as well.

        Raises:
            BadInput: it was not made by this producer, but by one that writes into the ledger, and
                has no key: send it again by the ledger's `resend`.
            CountledgerError: its outcome, where it is none of success.
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
    sender = KinesisSender(connection.kinesis(), connection.setting("ingest_stream_arn"))
    return KinesisProducer(sender, connection.region)
