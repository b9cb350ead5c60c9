"""The Kinesis producer: it creates entries from events and sends many of them in a record.

Packs and unpacks aggregated records in the format of the Kinesis Producer Library, without I/O.

    magic (4 bytes), a protobuf message, the MD5 of that message (16 bytes)

All entries of a record share one partition key. The shard does not affect how they are counted, so
the key is the id of the first entry, whose hash spreads the records over all shards. (A consumer
that checks the key of each entry against its shard accepts them all.)

The message of an entry is JSON, version 1 (docs/kinesis.md has the schema). A producer that got no
answer sends a record again, with another sequence number. The ingest must recognise the second
message as a duplicate: by the `id` that the producer created once, or by a `key`. A message with
neither is refused, because it would count as a new change.

The identity of an entry with an `id` is the id together with the content. Entries with an id are
written in batches of 25 and without a condition, so a write replaces an item of the same identity.
Because the content is part of the identity, only the same entry can replace an entry: a sender that
knows the id of another entry cannot replace it.
"""

from __future__ import annotations

import json
import re
import sys
from codecs import BOM_UTF8
from dataclasses import dataclass, field
from hashlib import md5
from itertools import islice
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from pydantic import ValidationError

from countledger.ledger.amount import to_text
from countledger.ledger.attempts import (
    PASSING,
    Again,
    Attempts,
    Done,
    Pause,
    RetryPeriodOver,
    Send,
    attempt,
    run,
)
from countledger.ledger.clock import Backoff, to_datetime
from countledger.ledger.departure import guarded
from countledger.ledger.entry import Entry, describe_entry
from countledger.ledger.errors import (
    BadInput,
    BadPayload,
    CountledgerError,
    SetupError,
    Throttled,
    Unacknowledged,
    Unclear,
    shown,
)
from countledger.ledger.ids import BARE_KEY_PREFIX, bound_id, new_id
from countledger.ledger.limits import HORIZON_MIN_MS
from countledger.ledger.service_errors import translated
from countledger.ledger.values import LEAST_MS
from countledger.producers.event import complete, gathered, make_entry, unacknowledged
from countledger.producers.payload import EventPayload, first_problem, load_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from google.protobuf.message import Message as ProtobufMessage
    from mypy_boto3_kinesis import KinesisClient

    from countledger.ledger.attempts import Answer, Reply, Step, Verdict
    from countledger.ledger.connection import Connection
    from countledger.producers.event import Event


# The definitions of the record format in aws-kinesis-agg: its protobuf messages and constants.
#
# Nothing else of the library is used. Its aggregator sends records over the limit and counts full
# records as two thirds full. Its deaggregator returns a record with a wrong checksum as a plain
# record, and drops the rest of a record after a bad index.
#
# The import puts the folder of the library and its parent first in `sys.path`, where its modules
# would shadow those of an app. It also imports one of them as a top-level `config_pb2`. Both are
# undone here.


class KinesisMissing(SetupError):
    """The library that packs and unpacks records is not installed."""


_path: Final = list(sys.path)
_SHADOW: Final = "config_pb2"
_shadowed: Final = sys.modules.pop(_SHADOW, None)
try:
    import aws_kinesis_agg
    from aws_kinesis_agg.aggregator import messages_pb2
    from google.protobuf.message import DecodeError
except ImportError as error:
    raise KinesisMissing(
        f"Kinesis needs the extra `kinesis` ({error}): pip install 'countledger[kinesis]'"
    ) from error
finally:
    sys.path[:] = _path
    sys.modules.pop(_SHADOW, None)
    if _shadowed is not None:
        sys.modules[_SHADOW] = _shadowed

# The first bytes of a record, and the length of the checksum at its end.
MAGIC: Final[bytes] = aws_kinesis_agg.MAGIC
DIGEST_SIZE: Final[int] = aws_kinesis_agg.DIGEST_SIZE

__all__ = ["DIGEST_SIZE", "MAGIC", "DecodeError", "KinesisMissing", "new_aggregate"]


def new_aggregate() -> Any:  # noqa: ANN401 - created from a descriptor at run time
    """An empty protobuf message of an aggregated record."""
    aggregate: ProtobufMessage = messages_pb2.AggregatedRecord()
    return aggregate


VERSION: Final = 1
_UUID7: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
# The limit of the Kinesis Producer Library: two put units of 25 KB. Larger records save nothing,
# and a record that fails is sent again as a whole.
TARGET_BYTES: Final = 51_200


class KinesisMessage(EventPayload):
    """The JSON form of an entry: the fields of an event, and the id by which it is recognised."""

    v: Literal[1]
    id: str | None = None

    def entry(self, *, arrived_ms: int, origin: str) -> Entry:
        """The entry; the creation time of a bare key is when its record reached the stream.

        A message with neither `id` nor `key`, or with both, is refused.
        """
        event = self.event()
        if self.id is None:
            if event.key is None:
                raise BadPayload(
                    "the record has neither `id` nor `key`: a duplicate would count again; add one"
                )
            return make_entry(event, now_ms=arrived_ms, origin=origin, new_id=new_id)
        if event.key is not None:
            raise BadPayload("the record has both `id` and `key`: give one of them")
        entry_id = self.id.lower()
        if not _UUID7.fullmatch(entry_id):
            raise BadPayload(f"`id` {shown(self.id)} is not a UUID of version 7")
        made = make_entry(
            event, now_ms=created_ms(entry_id), origin=origin, new_id=lambda _at_ms: entry_id
        )
        return bound(made)


def bound(entry: Entry) -> Entry:
    """The entry with an identity made of its id and its content.

    The key is the identity of an entry with a key, which is returned unchanged. This rule can never
    change: an entry delivered again after an upgrade must have the same identity.
    """
    if entry.key is not None:
        return entry
    note = sorted(entry.note.items()) if entry.note else None
    content = [entry.id, entry.counter, to_text(entry.delta), entry.events, note]
    text = _encode([*content, entry.occurred_at_ms])
    # Each field by name: `dataclasses.replace` takes three times as long, for each event.
    return Entry(
        counter=entry.counter,
        id=bound_id(text.encode(), entry.at_ms),
        delta=entry.delta,
        at_ms=entry.at_ms,
        origin=entry.origin,
        events=entry.events,
        note=entry.note,
        occurred_at_ms=entry.occurred_at_ms,
        message_id=entry.id,
    )


def encode(entry: Entry) -> bytes:
    """The message of an entry; the same entry always gives the same bytes.

    An entry with neither a key nor a message id is refused: it was not created for Kinesis, and the
    ingest would write it with another identity.
    """
    if entry.key is None and entry.message_id is None:
        raise BadInput(
            f"{describe_entry(entry)} was not created for Kinesis, and would count as another "
            "entry there: send it with `resend` of the ledger"
        )
    delta = entry.delta if isinstance(entry.delta, int) else f'"{to_text(entry.delta)}"'
    head = f'{{"v":1,"counter":{encode_basestring(entry.counter)},"delta":{delta}'
    if entry.key is None and entry.note is None and entry.occurred_at_ms is None:
        # The common case: an eighth of the work.
        events = "" if entry.events == 1 else f',"events":{entry.events}'
        return f'{head},"id":"{entry.message_id}"{events}}}'.encode()
    return (head + "," + _encode(_rest(entry))[1:]).encode()


def _rest(entry: Entry) -> dict[str, Any]:
    rest: dict[str, Any] = {}
    if entry.key is None:
        rest["id"] = entry.message_id
    else:
        rest["key"] = entry.key
        if not entry.id.startswith(BARE_KEY_PREFIX):
            rest["at"] = _time(entry.at_ms)
    if entry.events != 1:
        rest["events"] = entry.events
    if entry.occurred_at_ms is not None:
        rest["occurred_at"] = _time(entry.occurred_at_ms)
    if entry.note is not None:
        rest["note"] = dict(entry.note)
    return rest


def decode(data: bytes, *, arrived_ms: int, origin: str) -> Entry:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise BadPayload(f"the record is not UTF-8: {error.reason} at byte {error.start}") from None
    value = load_object(text)
    version = value.get("v")
    if version != VERSION or isinstance(version, bool):
        raise BadPayload(f"the record has version {shown(version)}; this release reads {VERSION}")
    try:
        return KinesisMessage.model_validate(value).entry(arrived_ms=arrived_ms, origin=origin)
    except ValidationError as error:
        raise BadPayload(first_problem(error)) from None


def created_ms(entry_id: str) -> int:
    """The creation time of a UUID of version 7, in milliseconds."""
    return int(entry_id[:8] + entry_id[9:13], 16)


def _time(at_ms: int) -> int | str:
    """A time in milliseconds, or in ISO 8601 if the number would be read as seconds."""
    return at_ms if at_ms >= LEAST_MS else to_datetime(at_ms).isoformat()


class BrokenAggregate(Exception):
    """An aggregated record cannot be unpacked; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A record of the stream."""

    partition_key: str
    data: bytes
    entries: tuple[Entry, ...]

    @property
    def size_bytes(self) -> int:
        """The size that the limits apply to: data and partition key."""
        return len(self.data) + len(self.partition_key)


def pack(entries: Iterable[Entry], limit_bytes: int = TARGET_BYTES) -> Iterator[Aggregate]:
    """Pack entries, in order, into records of at most `limit_bytes`, partition key included.

    An entry has at most 16 KB, so it fits into any larger limit.
    """
    held: list[Entry] = []
    payloads: list[bytes] = []
    size = 0
    for entry in entries:
        payload = encode(entry)
        more = _record_bytes(len(payload))
        if held and size + more > limit_bytes:
            yield _sealed(held, payloads)
            held, payloads = [], []
        if not held:
            size = _frame_bytes(len(entry.id))
        held.append(entry)
        payloads.append(payload)
        size += more
    if held:
        yield _sealed(held, payloads)


def _sealed(entries: list[Entry], payloads: list[bytes]) -> Aggregate:
    partition_key = entries[0].id  # ASCII for each kind of id
    aggregate = new_aggregate()
    aggregate.partition_key_table.append(partition_key)
    add = aggregate.records.add
    for payload in payloads:
        add(partition_key_index=0, data=payload)
    message = aggregate.SerializeToString()
    return Aggregate(partition_key, MAGIC + message + _digest(message), tuple(entries))


def _frame_bytes(key_bytes: int) -> int:
    """The size of a record without entries; its partition key is in the data too."""
    table = 1 + _varint_bytes(key_bytes) + key_bytes
    return len(MAGIC) + table + DIGEST_SIZE + key_bytes


def _record_bytes(payload_bytes: int) -> int:
    """The size of an entry in a record: tag and length, index of its key (two bytes), and data."""
    inner = 2 + 1 + _varint_bytes(payload_bytes) + payload_bytes
    return 1 + _varint_bytes(inner) + inner


def _varint_bytes(value: int) -> int:
    bits: int = value.bit_length()
    return (max(bits, 1) + 6) // 7


class UnpackedRecord(NamedTuple):
    """What is in a record of the stream; `unread`: why not all of it could be read."""

    messages: list[bytes]
    unread: str | None


def unpack_record(data: bytes) -> UnpackedRecord:
    """What is in a record of the stream: of a plain one `messages_in`, of an aggregated one all.

    No JSON text begins with the magic bytes, so the two kinds cannot be confused.
    `BrokenAggregate`: it begins with them, and its checksum or message is wrong, or it has no
    messages where they belong.
    """
    if not data.startswith(MAGIC):
        return UnpackedRecord(messages_in(data), None)
    message, digest = data[len(MAGIC) : -DIGEST_SIZE], data[-DIGEST_SIZE:]
    if len(data) < len(MAGIC) + DIGEST_SIZE:
        raise BrokenAggregate(f"an aggregated record of {len(data)} bytes: it was cut short")
    if _digest(message) != digest:
        raise BrokenAggregate("the checksum of the aggregated record is wrong")
    aggregate = new_aggregate()
    try:
        aggregate.ParseFromString(message)
    except DecodeError:
        raise BrokenAggregate("the aggregated record is no protobuf message of its kind") from None
    if not aggregate.records:
        raise BrokenAggregate(
            f"the checksum of the aggregated record is right, but its {len(message)} bytes have "
            "no messages in the field `records`: it is of another format, or empty"
        )
    # If the index of a partition key is invalid, the entry itself is still complete.
    found = [one for record in aggregate.records for one in messages_in(record.data)]
    size = aggregate.ByteSize()
    aggregate.DiscardUnknownFields()
    unknown = size - aggregate.ByteSize()
    if not unknown:
        return UnpackedRecord(found, None)
    return UnpackedRecord(
        found,
        f"{unknown} bytes of the aggregated record are in fields that its format does not have; "
        f"the other {len(found)} messages were read",
    )


def messages_in(payload: bytes) -> list[bytes]:
    """The messages in a payload: one object of JSON, however it is laid out, or one on each line.

    Byte order marks, line breaks and blank lines are no messages. What is no text is one message,
    and so is an empty payload: a reader refuses it.
    """
    if b"\n" not in payload and not payload.startswith(BOM_UTF8):
        return [payload]
    text = payload.removeprefix(BOM_UTF8)
    if b"\n" not in text.strip() or not _is_lines(text):
        return [text]
    lines = [line.strip().removeprefix(BOM_UTF8) for line in text.splitlines()]
    return [line for line in lines if line]


def _is_lines(payload: bytes) -> bool:
    """Whether it is a text, and not one document of JSON."""
    try:
        json.loads(payload.decode())
    except UnicodeDecodeError:
        return False
    except (ValueError, RecursionError):
        return True
    return False


def bundle(payloads: Sequence[bytes]) -> bytes:
    """A record of several payloads that `unpack_record` gives back: lines that a person can read.

    An aggregated record, if one of them is not a line of text.
    """
    lines = b"\n".join(payloads)
    if not lines.startswith(MAGIC) and messages_in(lines) == list(payloads):
        return lines
    aggregate = new_aggregate()
    for payload in payloads:
        aggregate.records.add(partition_key_index=0, data=payload)
    message = aggregate.SerializeToString()
    return MAGIC + bytes(message) + _digest(message)


def bundles_of(payloads: Iterable[bytes], limit_bytes: int) -> Iterator[list[bytes]]:
    """The payloads, in order, in lists of which each `bundle` has at most so many bytes.

    A payload that is too large alone is a list of its own.
    """
    frame = len(MAGIC) + DIGEST_SIZE
    held: list[bytes] = []
    size = frame
    for payload in payloads:
        more = _record_bytes(len(payload))
        if held and size + more > limit_bytes:
            yield held
            held, size = [], frame
        held.append(payload)
        size += more
    if held:
        yield held


def _digest(message: bytes) -> bytes:
    return md5(message, usedforsecurity=False).digest()


# Sends packed entries into the stream with PutRecords; only records that failed are repeated.


# The limits of one call: the number of records, and their bytes with partition keys.
CALL_RECORDS: Final = 500
CALL_BYTES: Final = 5 * 1024 * 1024
# The sequence number of a record, or its error.
_Answer: TypeAlias = str | CountledgerError


class Sent(NamedTuple):
    """The acknowledgement of the stream: it has the entry, and the ingest will write it.

    If the ledger refuses the entry (a key used with another delta, a strict counter), that is not
    known here: the ingest quarantines the entry.
    """

    counter: str
    """The counter's name."""
    id: str
    """The entry's identity."""
    sequence: str
    """The sequence number of the record that carries it."""


KinesisOutcome: TypeAlias = Sent | CountledgerError


@dataclass(frozen=True, slots=True)
class RecordsProgress:
    """Where a call is, by the numbers of its records.

    `maybe_stored`: an attempt for these got no answer.
    """

    pending: tuple[int, ...]
    answers: Mapping[int, _Answer] = field(default_factory=dict)
    maybe_stored: frozenset[int] = frozenset()

    def after(self, answers: Mapping[int, _Answer]) -> RecordsProgress:
        maybe_stored = {number for number, answer in answers.items() if isinstance(answer, Unclear)}
        pending = (number for number, answer in answers.items() if isinstance(answer, PASSING))
        return RecordsProgress(
            tuple(pending), {**self.answers, **answers}, self.maybe_stored | maybe_stored
        )


@dataclass(frozen=True, slots=True)
class KinesisSender:
    """Sends entries into a stream, by a client whose SDK does not retry.

    A record is sent again only within `retry_period_ms` of its first attempt: the time of a bare
    key is the arrival of its record, so after a long pause of this process the second record would
    be another entry, at a time when the first may be merged already.
    """

    connection: Connection
    backoff: Backoff = field(default_factory=Backoff)
    retry_period_ms: int = HORIZON_MIN_MS // 2
    client: KinesisClient = field(init=False, repr=False, compare=False)
    stream: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "stream", self.connection.setting("ingest_stream_arn"))
        object.__setattr__(self, "client", self.connection.kinesis())

    def send_batch(self, entries: Sequence[Entry]) -> list[KinesisOutcome]:
        """Send entries; one call for up to 5 MB of them, and one for each retry.

        The ingest recognises an entry that is sent again: it cannot count twice. An error is the
        outcome of its entry only.
        """
        outcomes: list[KinesisOutcome] = []
        for call in calls(pack(entries)):
            for record, answer in zip(call, self._put(call), strict=True):
                outcomes += _outcomes(record, answer)
        return outcomes

    def _put(self, records: Sequence[Aggregate]) -> list[_Answer]:
        """The sequence number of each record, or its error."""
        to = self.connection
        until_ms = to.clock.now_ms() + self.retry_period_ms
        steps = attempt(
            RecordsProgress(tuple(range(len(records)))),
            lambda progress: Send([records[number] for number in progress.pending]),
            self._interpret,
            lambda exhausted: exhausted.state,
            Attempts(to.clock, to.random, self.backoff, until_ms),
        )
        progress = run(steps, self._perform)
        answers = dict(progress.answers)
        for number in progress.maybe_stored:
            answer = answers[number]
            if not isinstance(answer, str):
                answers[number] = Unclear(str(answer))
        return [answers[number] for number in range(len(records))]

    def _interpret(
        self, reply: Reply[RecordsProgress]
    ) -> Verdict[RecordsProgress, RecordsProgress]:
        """Read the answers, one for each record.

        sequence number             done
        throttle, error, no answer  again
        too late, anything else     its error is the record's outcome
        """
        answer, progress = reply.answer, reply.state
        if isinstance(answer, RetryPeriodOver):
            late = Throttled(f"PutRecords on {self.stream}: not sent, {answer}")
            kept = {number: progress.answers.get(number, late) for number in progress.pending}
            return Done(progress.after(kept))
        if isinstance(answer, CountledgerError):
            answer = [answer] * len(progress.pending)
        progress = progress.after(dict(zip(progress.pending, answer, strict=True)))
        if not progress.pending:
            return Done(progress)
        error = progress.answers[progress.pending[0]]
        return Again(progress, error if isinstance(error, CountledgerError) else None)

    def _perform(self, step: Step) -> Answer:
        if isinstance(step, Pause):
            return self.connection.clock.sleep_ms(step.wait_ms)
        what = f"PutRecords on {self.stream}"
        place: Any = {"StreamARN" if self.stream.startswith("arn:") else "StreamName": self.stream}
        records: Sequence[Aggregate] = step.operation
        with translated(what), guarded(step.before_send):
            answer = self.client.put_records(
                Records=[{"Data": r.data, "PartitionKey": r.partition_key} for r in records],
                **place,
            )
        results: Any = answer.get("Records", [])
        if len(results) != len(records):
            # botocore accepts any body with status 200 as a success.
            raise Unclear(
                f"{what}: no clear answer (it has {len(results)} of {len(records)} records)"
            )
        return [_record_answer(one, what) for one in results]


def calls(records: Iterator[Aggregate]) -> Iterator[list[Aggregate]]:
    """The records, grouped into calls within the limits."""
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


def _record_answer(answer: dict[str, str], what: str) -> _Answer:
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


# About ten records: enough to hide the latency of a call, and few enough to answer soon.
_CHUNK: Final = 4_096
_MAYBE_SENT: Final = (Sent, Unacknowledged)


@dataclass(frozen=True, slots=True)
class KinesisProducer:
    """Sends events through Kinesis; the ingest function writes them into the ledger.

    Safe to share between threads.

    Attributes:
        backoff: how often entries are sent, and how long between.
        retry_period_ms: how long after its first attempt an entry is sent again.
        sender: sends entries into the stream.

    Raises:
        StackNotFound: the stack has no stream; deploy it with the parameter IngestStream.
    """

    connection: Connection
    backoff: Backoff = field(default_factory=Backoff)
    retry_period_ms: int = HORIZON_MIN_MS // 2
    sender: KinesisSender = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        sender = KinesisSender(self.connection, self.backoff, self.retry_period_ms)
        object.__setattr__(self, "sender", sender)

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
        feed, to = iter(events), self.connection
        origin, new_id = to.region, to.ids.new_id
        while chunk := gathered(islice(feed, _CHUNK)):
            now_ms = to.clock.now_ms()
            outcomes = self.sender.send_batch(
                [
                    bound(make_entry(event, now_ms=now_ms, origin=origin, new_id=new_id))
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
