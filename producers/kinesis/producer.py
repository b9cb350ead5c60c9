"""The Kinesis producer: events become entries, and many entries go to the stream in one record."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from countledger.ledger.attempts import Backoff
from countledger.ledger.before_send import guarded
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.errors import (
    CountledgerError,
    SetupError,
    Throttled,
    Unacknowledged,
    Unclear,
    Unreachable,
)
from countledger.ledger.ids import new_id
from countledger.ledger.limits import HORIZON_MIN_MS
from countledger.ledger.service_errors import translated
from countledger.producers.event import make_entry
from countledger.producers.kinesis.aggregate import Aggregate, pack
from countledger.producers.kinesis.message import bound
from countledger.producers.receipt import complete, unacknowledged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from mypy_boto3_kinesis import KinesisClient

    from countledger.ledger.connection import Connection
    from countledger.ledger.entry import Entry
    from countledger.producers.event import Event

# About ten records of the stream: enough to hide the cost of a call, and few enough for an early
# answer.
_CHUNK: Final = 4_096
# What one call of the service takes: so many records, and so many bytes with their keys.
CALL_RECORDS: Final = 500
CALL_BYTES: Final = 5 * 1024 * 1024
_AGAIN: Final = (Throttled, Unclear, Unreachable)
# The sequence number of a record, or why it has none.
_Answer: TypeAlias = str | CountledgerError


class Sent(NamedTuple):
    """The acknowledgement of the stream: it holds the entry, which will be in the ledger.

    A refusal by the ledger (a key used with another delta, a strict counter) cannot be known here:
    such an entry goes to the ingest's quarantine.
    """

    counter: str
    """The counter's name."""
    id: str
    """The entry's identity."""
    sequence: str
    """The sequence number of the record that carries it."""


KinesisOutcome: TypeAlias = Sent | CountledgerError


@dataclass(frozen=True, slots=True)
class KinesisSender:
    """Sends entries into a stream.

    Attributes:
        client: of Kinesis; its SDK does not retry.
        stream: the stream's ARN or name.
        clock: waits between the attempts.
        random: what the jitter is drawn from.
        backoff: how often a record is sent, and how long between.
        again_ms: for how long behind its first attempt a record is sent again. A bare key counts as
            made when its record arrives: by a process that stood still in between it would be
            another one, of a time when the first may be merged.
    """

    client: KinesisClient
    stream: str
    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=Random)
    backoff: Backoff = field(default_factory=Backoff)
    again_ms: int = HORIZON_MIN_MS // 2

    def send_batch(self, entries: Sequence[Entry]) -> list[KinesisOutcome]:
        """Send entries; one call for up to 5 MB of them, and one for each retry.

        Sent again, an entry is known again by the ingest: it cannot count twice.

        Returns:
            One outcome for each entry, in their order; an error is this entry's own.
        """
        outcomes: list[KinesisOutcome] = []
        for call in calls(pack(entries)):
            for record, answer in zip(call, self._put(call), strict=True):
                outcomes += _outcomes(record, answer)
        return outcomes

    def _put(self, records: Sequence[Aggregate]) -> list[_Answer]:
        """Each record's sequence number, or why it has none."""
        answers: dict[int, _Answer] = {}
        lost: set[int] = set()  # with an attempt that was never answered and may have got through
        pending = list(range(len(records)))
        waits_ms = self.backoff.waits_ms(self.random)
        until_ms = self.clock.now_ms() + self.again_ms
        while pending:
            told = self._attempt([records[number] for number in pending], until_ms)
            answers |= dict(zip(pending, told, strict=True))
            lost |= {number for number in pending if isinstance(answers[number], Unclear)}
            pending = [number for number in pending if isinstance(answers[number], _AGAIN)]
            wait_ms = next(waits_ms, None)
            if wait_ms is None or self.clock.now_ms() > until_ms:
                break
            if pending:
                self.clock.sleep_ms(wait_ms)
        for number in lost:
            answer = answers[number]
            if not isinstance(answer, str):
                answers[number] = Unclear(str(answer))
        return [answers[number] for number in range(len(records))]

    def _attempt(self, records: Sequence[Aggregate], until_ms: float) -> list[_Answer]:
        def refuse_late() -> None:
            if self.clock.now_ms() > until_ms:
                raise Throttled(f"{what}: not sent, the process stood still for too long")

        what = f"PutRecords on {self.stream}"
        place: Any = {"StreamARN" if self.stream.startswith("arn:") else "StreamName": self.stream}
        try:
            with translated(what), guarded(refuse_late):
                answer = self.client.put_records(
                    Records=[{"Data": r.data, "PartitionKey": r.partition_key} for r in records],
                    **place,
                )
        except CountledgerError as error:
            return [error] * len(records)
        told: Any = answer.get("Records", [])
        if len(told) != len(records):
            # botocore takes whatever comes with status 200 for a success.
            return [Unclear(f"{what}: no clear answer (it tells of {len(told)} records)")] * len(
                records
            )
        return [_told(one, what) for one in told]


def calls(records: Iterator[Aggregate]) -> Iterator[list[Aggregate]]:
    """The records, as many to a call as it takes."""
    held: list[Aggregate] = []
    size = 0
    for record in records:
        if held and (len(held) == CALL_RECORDS or size + record.size_bytes > CALL_BYTES):
            yield held
            held, size = [], 0
        held.append(record)
        size += record.size_bytes
    if held:
        yield held


def _told(answer: dict[str, str], what: str) -> _Answer:
    """What the service says of one record of a call."""
    code = answer.get("ErrorCode")
    if code == "ProvisionedThroughputExceededException":
        return Throttled(f"{what}: the shard is busy")
    sequence = answer.get("SequenceNumber")
    if code or not sequence:
        return Unclear(f"{what}: {code or 'no clear answer'}: {answer.get('ErrorMessage', '')}")
    return sequence


def _outcomes(record: Aggregate, answer: _Answer) -> list[KinesisOutcome]:
    if isinstance(answer, str):
        return [Sent(entry.counter, entry.id, answer) for entry in record.entries]
    if not isinstance(answer, Throttled | Unclear):
        return [answer] * len(record.entries)
    return [unacknowledged(entry, answer, "stream") for entry in record.entries]


_MAY_BE_IN: Final = (Sent, Unacknowledged)


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
        return complete(self.send_stream(every), len(every), _MAY_BE_IN)

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
            if fatal is None or any(isinstance(one, _MAY_BE_IN) for one in outcomes):
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
