"""What one stream record of `ledger` adds to a total, read from the event's plain dicts.

INSERT of an entry    adds its delta
MODIFY of an entry    adds the new delta minus the old one
REMOVE of an entry    adds nothing: compaction removed the entry; the head contains its delta
any other item        adds nothing

Sequence number, time and keys of a record of `counters` are read by the same functions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from countledger.ledger import amount, keys
from countledger.ledger.errors import SetupError
from countledger.ledger.foreign_events import described
from countledger.ledger.limits import (
    ENTRY_EVENTS_MAX,
    FORMAT,
    SECOND_MS,
    STREAM_RECORD_MAX_AGE_MS,
    TIME_LIMIT_MS,
)
from countledger.ledger.service_errors import translated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mypy_boto3_dynamodbstreams import DynamoDBStreamsClient

    from countledger.ledger.amount import Amount
    from countledger.ledger.connection import Connection


_SEQUENCE_MAX_DIGITS: Final = 40
_SOURCE: Final = "aws:dynamodb"
# In the stream's seconds. What reads many records at once leaves later times, such as infinity, to
# `created_at_ms`.
FAR_AHEAD_S: Final = 1e11


class EntryChange(NamedTuple):
    """What one record adds to its counter's total."""

    sequence: int
    counter: str
    delta: Amount
    events: int
    entries: int


class MalformedRecord(Exception):
    """A record that no attempt can ever apply; the text is the reason."""


def sequence_of(record: Mapping[str, Any]) -> int:
    try:
        text = record["dynamodb"]["SequenceNumber"]
        if text.isdecimal():
            if len(text) <= _SEQUENCE_MAX_DIGITS:
                return int(text)
            raise MalformedRecord(
                f"the record has a sequence number of {len(text)} digits; a stream of DynamoDB has "
                f"at most {_SEQUENCE_MAX_DIGITS}"
            )
    except (KeyError, TypeError, AttributeError):
        pass
    raise MalformedRecord("the record has no sequence number")


def foreign_reason(event: object, records: Sequence[Any], expected: str) -> str | None:
    """Why an event has no records of a stream of DynamoDB; None: it has.

    A single record without a sequence number is quarantined by itself; if no record has one, the
    event is of something else.
    """
    if isinstance(event, dict):
        try:
            first = records[0]
            if first.get("eventSource", _SOURCE) == _SOURCE and sequence_of(first):
                return None
        except (AttributeError, MalformedRecord):
            pass
        if any(_is_of_a_stream(record) for record in records):
            return None
    digits = max((_digits_of(record) for record in records), default=0)
    more = ""
    if digits > _SEQUENCE_MAX_DIGITS:
        more = (
            f", with sequence numbers of {digits} digits, as Kinesis and other engines have them "
            f"(DynamoDB has at most {_SEQUENCE_MAX_DIGITS})"
        )
    elif not digits:
        more = ", without sequence numbers"
    return f"the event is {described(event)}{more}; expected is {expected}"


def _is_of_a_stream(record: object) -> bool:
    try:
        return (
            isinstance(record, dict)
            and record.get("eventSource", _SOURCE) == _SOURCE
            and sequence_of(record) >= 0
        )
    except MalformedRecord:
        return False


def _digits_of(record: Any) -> int:  # noqa: ANN401 - from outside
    """How many digits the sequence number of a record of any stream has; 0: it has none."""
    try:
        part = record.get("dynamodb") or record.get("kinesis") or record
        text = part.get("SequenceNumber", part.get("sequenceNumber"))
        return len(text) if isinstance(text, str) and text.isdecimal() else 0
    except AttributeError:
        return 0


def find(records: Sequence[Mapping[str, Any]], sequence: int) -> Mapping[str, Any]:
    """The record with this sequence number, which must be among `records`."""
    return records[index_of(records, sequence)]


def index_of(records: Sequence[Mapping[str, Any]], sequence: int) -> int:
    """The index of the record with this sequence number, which must be among `records`."""
    for index, record in enumerate(records):
        try:
            if sequence_of(record) == sequence:
                return index
        except MalformedRecord:
            continue
    raise LookupError(f"no record has sequence number {sequence}")


def above(records: Sequence[Mapping[str, Any]], position: int) -> Sequence[Mapping[str, Any]]:
    """The records above a sequence number, and the records without a sequence number."""
    try:
        texts = [record["dynamodb"]["SequenceNumber"] for record in records]
        if are_sequences(texts):
            both = zip(texts, records, strict=True)
            return [record for text, record in both if int(text) > position]
    except (KeyError, TypeError, ValueError):
        pass
    return [record for record in records if _is_above(record, position)]


def _is_above(record: Mapping[str, Any], position: int) -> bool:
    try:
        return sequence_of(record) > position
    except MalformedRecord:
        return True


def failures_from(
    records: Sequence[Mapping[str, Any]], sequence: int | None
) -> list[dict[str, str]]:
    """The batch item failures, so that the shard comes again from there; None: all was handled."""
    if sequence is None:
        return []
    # The text of the event, because Lambda compares texts.
    return [{"itemIdentifier": find(records, sequence)["dynamodb"]["SequenceNumber"]}]


def created_at_ms(record: Mapping[str, Any]) -> int:
    """When the stream created a record; the stream gives whole seconds."""
    try:
        at_ms = int(float(record["dynamodb"]["ApproximateCreationDateTime"]) * SECOND_MS)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise MalformedRecord("the record has no creation time") from None
    if not 0 <= at_ms < TIME_LIMIT_MS:
        raise MalformedRecord("the record has no creation time that is in range")
    return at_ms


def integer_in(attribute: Mapping[str, Any]) -> int:
    """An integer as the stream writes it, `{"N": "5"}`; else `KeyError, TypeError, ValueError`.

    DynamoDB writes each number as text; JSON numbers such as 1.5 and Infinity are refused, nothing
    is rounded.
    """
    text = attribute["N"]
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is not a number as DynamoDB writes it: not a text")
    return int(text)


def surely_young_from_s(now_ms: int) -> float:
    """The stream time, in seconds, from which on a record is certainly not too old."""
    return (now_ms - STREAM_RECORD_MAX_AGE_MS) / SECOND_MS + 1


def are_sequences(texts: Sequence[str]) -> bool:
    """Whether all of these texts are sequence numbers, checked at once; no text: an error."""
    sizes = set(map(len, texts))
    return (
        0 not in sizes and max(sizes) <= _SEQUENCE_MAX_DIGITS and "".join(texts).encode().isdigit()
    )


def change_of(record: Mapping[str, Any], sequence: int, now_ms: int) -> EntryChange | None:
    """What a record adds to a total; None: nothing.

    A record older than the stream's retention is malformed: its watermark may be gone, so it may
    have been applied before.
    """
    counter, entry, name = subject_of(record, "entry")
    if not entry.startswith(keys.ENTRY_PREFIX):
        if entry in (keys.HEAD, keys.ARCHIVED, keys.SETTINGS):
            return None
        raise MalformedRecord(f"the sort key {entry[:40]!r} has an unknown prefix")
    if name == "REMOVE":
        return None
    if name not in ("INSERT", "MODIFY"):
        raise MalformedRecord(f"the event name {name!r} is unknown")
    if keys.id_of(entry) is None:
        raise MalformedRecord(f"the sort key {entry[:60]!r} is malformed")
    if now_ms - created_at_ms(record) > STREAM_RECORD_MAX_AGE_MS:
        raise MalformedRecord("the record is older than the stream's retention of 24 hours")
    stream = record["dynamodb"]
    delta, events = worth_of(stream.get("NewImage"), "new")
    if name == "INSERT":
        return EntryChange(sequence, counter, delta, events, 1)
    old_delta, old_events = worth_of(stream.get("OldImage"), "old")
    if delta == old_delta and events == old_events:
        return None
    return EntryChange(
        sequence, counter, amount.add(delta, amount.negated(old_delta)), events - old_events, 0
    )


def replaced_entries(records: Sequence[Mapping[str, Any]]) -> list[EntryChange]:
    """What records change of entries that were stored with another delta or number of events.

    No call of this library does that. Malformed records are left out.
    """
    found: list[EntryChange] = []
    for record in records:
        if record.get("eventName") != "MODIFY":
            continue
        try:
            change = change_of(record, sequence_of(record), created_at_ms(record))
        except MalformedRecord:
            continue
        if change is not None:
            found.append(change)
    return found


def subject_of(record: Mapping[str, Any], sort_key: str) -> tuple[str, str, str]:
    """Counter, sort key and event name."""
    try:
        key = record["dynamodb"]["Keys"]
        counter, sort, name = key["counter"]["S"], key[sort_key]["S"], record["eventName"]
    except (KeyError, TypeError):
        raise MalformedRecord("the record lacks its keys or its event name") from None
    if not isinstance(counter, str) or not isinstance(sort, str):
        raise MalformedRecord("the record's keys are not texts")
    return counter, sort, name


def worth_of(image: Any, which: str) -> tuple[Amount, int]:  # noqa: ANN401 - from outside
    """Delta and number of events in an entry's image, which a message calls new or old."""
    try:
        if "v" in image and image["v"] != {"N": str(FORMAT)}:
            raise MalformedRecord(
                f"the {which} image has format {image['v']}; this release reads {FORMAT}"
            )
        delta = amount.from_number(image["delta"]["N"])
        events = integer_in(image["events"]) if "events" in image else 1
    except (KeyError, TypeError, ValueError, AttributeError):
        raise MalformedRecord(f"the {which} image has no well-formed delta and events") from None
    if not amount.fits(delta) or not 0 <= events <= ENTRY_EVENTS_MAX:
        raise MalformedRecord(f"the {which} image's delta or events are out of range")
    return delta, events


# The stream of `ledger`: the names of its shards, and the records after a given one.
#
# A global table's stream has capacity for one steady reader, the materializer. The reader in this
# module reads a few pages when a proof is requested.


class ShardName(NamedTuple):
    """A stream shard's full name. A recreated stream has a new label and new sequence numbers."""

    stream: str
    id: str

    def __str__(self) -> str:
        """The name under which watermarks and progress are kept."""
        return f"{self.stream}/{self.id}"


def label_of(stream_arn: str) -> str:
    """A stream's label, which differs from that of an earlier stream of the same table."""
    return stream_arn.rpartition("/")[2]


# A page may be empty although records follow, and AWS does not limit how many empty pages come in a
# row. So many empty pages count as the end of an open shard, which has no other mark: five for a
# report, more when something is done because of the answer. Each costs a round trip. A closed shard
# has an end of its own; the number only limits the wait.
QUICKLY: Final = 5
CLOSELY: Final = 10
CLOSED: Final = 100
_OFF: Final = ("DISABLING", "DISABLED")


class StreamShard(NamedTuple):
    """A shard as the service describes it: `closed` if no more record will be added.

    `parent` is the id of the shard that it continues, if any.
    """

    shard: ShardName
    parent: str | None
    closed: bool


@dataclass(frozen=True, slots=True)
class LedgerStream:
    """The stream of `ledger`; that of `counters` is read by the demonstration alone."""

    connection: Connection
    named: Literal["ledger_stream_arn", "counters_stream_arn"] = "ledger_stream_arn"
    client: DynamoDBStreamsClient = field(init=False, repr=False)
    arn: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "client", self.connection.streams())
        object.__setattr__(self, "arn", self.connection.setting(self.named))

    def shards(self) -> list[StreamShard]:
        """Its shards of the last 24 hours."""
        found: list[StreamShard] = []
        arguments: dict[str, Any] = {"StreamArn": self.arn}
        label = label_of(self.arn)
        while True:
            with translated("DescribeStream"):
                stream = self.client.describe_stream(**arguments)["StreamDescription"]
            for one in stream.get("Shards", []):
                closed = "EndingSequenceNumber" in one.get("SequenceNumberRange", {})
                found.append(
                    StreamShard(ShardName(label, one["ShardId"]), one.get("ParentShardId"), closed)
                )
            if "LastEvaluatedShardId" not in stream:
                return found
            arguments["ExclusiveStartShardId"] = stream["LastEvaluatedShardId"]

    def check_on(self) -> None:
        """Refuse a stream that was switched off: later writes are in another or none. One call."""
        with translated("DescribeStream"):
            stream = self.client.describe_stream(StreamArn=self.arn, Limit=1)["StreamDescription"]
        if stream.get("StreamStatus") in _OFF:
            raise SetupError(
                f"stream {self.arn!r} was switched off: later writes are in another stream or in "
                "none, so this one proves nothing (docs/runbook.md, 'A mapping or a stream is "
                "gone')"
            )

    def after(
        self, shard: ShardName, sequence: str | None, *, empty_pages: int = QUICKLY
    ) -> Iterator[dict[str, Any]]:
        """The records of a shard after a sequence number (None: from its start) to its end.

        So many empty pages in a row count as its end.
        """
        iterator = self._iterator(shard, sequence)
        empty = 0
        while iterator and empty < empty_pages:
            with translated("GetRecords"):
                page: Any = self.client.get_records(ShardIterator=iterator)
            yield from page["Records"]
            empty = 0 if page["Records"] else empty + 1
            iterator = page.get("NextShardIterator")

    def _iterator(self, shard: ShardName, sequence: str | None) -> str:
        arguments: dict[str, Any] = {"StreamArn": self.arn, "ShardId": shard.id}
        with translated("GetShardIterator"):
            if sequence is not None:
                try:
                    return self.client.get_shard_iterator(
                        ShardIteratorType="AFTER_SEQUENCE_NUMBER",
                        SequenceNumber=sequence,
                        **arguments,
                    )["ShardIterator"]
                except self.client.exceptions.TrimmedDataAccessException:
                    pass  # that record has expired: all records that are left come after it
            return self.client.get_shard_iterator(ShardIteratorType="TRIM_HORIZON", **arguments)[
                "ShardIterator"
            ]


def made_at_ms(record: dict[str, Any]) -> float:
    """When the stream created a record (whole seconds), ms since the epoch."""
    made_s: float = record["dynamodb"]["ApproximateCreationDateTime"].timestamp()
    return made_s * SECOND_MS


def counts(record: dict[str, Any]) -> bool:
    """Whether the event source mapping's filter passes a record to the materializer."""
    entry = record["dynamodb"]["Keys"]["entry"]["S"]
    return record["eventName"] in ("INSERT", "MODIFY") and entry.startswith(keys.ENTRY_PREFIX)
