"""The entries of a batch of Kinesis records: decoded with their reasons, and written.

Each message is decoded to an entry or rejected with a reason, so that all are counted. A record
that is broken as a whole (a wrong checksum, a cut end) hides how many messages it had: it counts as
one. The malformed messages of one record are rejected together, in as few items of the quarantine
as their bytes allow; equal messages are kept once, because they would be one entry. Entries with an
id are written in batches of 25, those with a key one by one.

The pieces in which a batch is written, so that every invocation comes further.

    records with few messages     whole records together, up to the size of a piece
    a record with more            piece by piece; how many of its messages are done is stored

An invocation finishes at least its first piece. If it ends after that, the shard is delivered again
from the first record that is not finished: a record with any number of messages is done after some
invocations. What is stored is only ever true (these messages are in the ledger or in quarantine),
so it does not matter which invocation stored it last; without it the record is begun again, and the
entries that are in the ledger count once.
"""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from countledger.ledger import keys
from countledger.ledger.attributes import optional
from countledger.ledger.errors import (
    BadInput,
    BadPayload,
    CorruptItem,
    CountledgerError,
    OutOfTime,
    RequestRejected,
    shown,
)
from countledger.ledger.keys import namespace_of
from countledger.ledger.limits import (
    BATCH_WRITE_ITEMS,
    INGEST_PROGRESS_LIFE_MS,
    SECOND_MS,
    TIME_LIMIT_MS,
)
from countledger.ledger.operations import Put
from countledger.ledger.quarantine import CONTENT_MAX_BYTES
from countledger.ledger.suspension import WorkerThreads
from countledger.producers.event import Receipt, Status
from countledger.producers.kinesis import BrokenAggregate, bundle, bundles_of, decode, unpack_record
from countledger.producers.sender import Sender, ledgers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from countledger.ledger.connection import Connection
    from countledger.ledger.departure import Deadline
    from countledger.ledger.entry import Entry
    from countledger.ledger.namespace import Namespace


# The result of writing an entry: it is in the ledger, or why not.
WriteResult: TypeAlias = Status | CountledgerError

# The time of arrival of a record that has no possible one; no record arrived at the epoch.
_NEVER_MS: Final = 0
_WRITERS: Final = 8
# A Kinesis sequence number has 56 digits.
_SEQUENCE_MAX_DIGITS: Final = 128
# So many reasons are named of the malformed messages of one record.
_REASONS: Final = 3
_OF_THE_ENTRY: Final = (BadInput, RequestRejected, CorruptItem)


class RejectionKind(StrEnum):
    """Why a payload was quarantined."""

    UNREADABLE = "unreadable"
    """Its record cannot be unpacked."""
    MALFORMED = "malformed"
    """It breaks the schema of messages."""
    REFUSED = "refused"
    """The ledger refused it: its key was used with another delta, its counter has another kind."""
    EXPIRED = "expired"
    """It is older than the horizon: the entry alone does not show whether it was counted."""


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """The place of a payload in a batch.

    `part`: the index within an aggregated record; 0 in a plain one; None means the whole record.
    """

    record: int
    sequence: str
    arrived_ms: int
    part: int | None


@dataclass(frozen=True, slots=True)
class DecodedEntry:
    """A payload that is an entry."""

    place: RecordPlace
    payload: bytes
    entry: Entry


@dataclass(frozen=True, slots=True)
class RejectedEvent:
    """A payload, or several of one record, that will not be in the ledger.

    The payload of several messages is a record of them, equal ones once.
    """

    place: RecordPlace
    payload: bytes
    kind: RejectionKind
    reason: str
    messages: int = 1


@dataclass(frozen=True, slots=True)
class RecordContent:
    """What is in one record: what is rejected of it, then its entries in order."""

    place: RecordPlace
    payloads: Sequence[DecodedEntry | RejectedEvent]
    messages: int


def read(number: int, record: Mapping[str, Any], origin: str) -> RecordContent:
    place, data = _opened(number, record)
    if place.arrived_ms == _NEVER_MS:
        reason = "the record has no possible time of arrival"
        return RecordContent(place, [_unreadable(place, data, reason)], 1)
    try:
        messages, unread = unpack_record(data)
    except BrokenAggregate as broken:
        return RecordContent(place, [_unreadable(place, data, str(broken))], 1)
    entries: list[DecodedEntry] = []
    malformed: list[tuple[int, bytes, str]] = []
    for part, message in enumerate(messages):
        try:
            entry = decode(message, arrived_ms=place.arrived_ms, origin=origin)
        except BadInput as error:
            malformed.append((part, message, str(error)))
        else:
            entries.append(DecodedEntry(replace(place, part=part), message, entry))
    rejected = list(_malformed(place, malformed, len(messages)))
    if unread is not None:
        rejected.append(_unreadable(place, data, unread))
    return RecordContent(place, [*rejected, *entries], len(messages))


def _unreadable(place: RecordPlace, data: bytes, reason: str) -> RejectedEvent:
    return RejectedEvent(place, data, RejectionKind.UNREADABLE, reason)


def _malformed(
    place: RecordPlace, found: Sequence[tuple[int, bytes, str]], messages: int
) -> Iterator[RejectedEvent]:
    """The malformed messages of one record, each item at the place of its first message."""
    first = {message: (part, reason) for part, message, reason in reversed(found)}
    count = Counter(message for _, message, _ in found)
    for kept in bundles_of(count, CONTENT_MAX_BYTES):
        total = sum(count[message] for message in kept)
        part, reason = first[kept[0]]
        payload = kept[0]
        if total > 1:
            named = (first[message] for message in kept[:_REASONS])
            reasons = "; ".join(f"message {number}: {why}" for number, why in named)
            more = "; ..." if len(kept) > _REASONS else ""
            reason = f"{total} of the {messages} messages of the record: {reasons}{more}"
            payload = bundle(kept)
        yield RejectedEvent(
            replace(place, part=part), payload, RejectionKind.MALFORMED, reason, total
        )


def _opened(number: int, record: Mapping[str, Any]) -> tuple[RecordPlace, bytes]:
    """The place of a record, and its data. An error here is one of the event, not of a payload."""
    try:
        inner = record["kinesis"]
        arrived_ms = _arrival_in(inner["approximateArrivalTimestamp"])
        place = RecordPlace(number, _sequence_in(inner["sequenceNumber"]), arrived_ms, None)
        return place, base64.b64decode(inner["data"], validate=True)
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise BadPayload(f"record {shown(record)} is not one of Kinesis: {error!r}") from None


def _sequence_in(value: object) -> str:
    """A sequence number of Kinesis: a text of digits."""
    if not isinstance(value, str):
        raise TypeError(f"the sequence number {shown(value)} is not a text")
    if not (value.isascii() and value.isdigit() and len(value) <= _SEQUENCE_MAX_DIGITS):
        raise ValueError(f"the sequence number {shown(value)} is not one of Kinesis")
    return value


def _arrival_in(timestamp: float) -> int:
    """When a record arrived, in milliseconds; `_NEVER_MS` for a number that is no possible time.

    JSON has Infinity and 1e300. If such a record were an error of the event, it would block its
    shard until the stream drops it.
    """
    arrived_s = float(timestamp)
    if not 0 <= arrived_s * SECOND_MS < TIME_LIMIT_MS:
        return _NEVER_MS
    return round(arrived_s * SECOND_MS)


@dataclass(frozen=True, slots=True)
class EntryWriter:
    """Writes the entries of a batch; its sender checks the horizon before every attempt."""

    connection: Connection
    sender: Sender = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sender", Sender(self.connection))

    def write(
        self, entries: Sequence[Entry], deadline: Deadline | None = None
    ) -> list[WriteResult]:
        """Write entries: a write unit for each KB of each; no write begins after the deadline.

        The answer has for each entry, in order, its status or its own error.
        """
        results = self._refusals(entries)
        taken = [entry.counter for number, entry in enumerate(entries) if number not in results]
        namespaces, _ = ledgers_of(taken, self.sender.namespaces, ())
        keyed: dict[tuple[str, str], list[int]] = {}
        plain: dict[tuple[str, str], list[int]] = {}
        for number, entry in enumerate(entries):
            if number not in results:
                groups = plain if entry.key is None else keyed
                groups.setdefault((entry.counter, entry.id), []).append(number)
        firsts = [numbers[0] for numbers in plain.values()]
        batches = [
            firsts[start : start + BATCH_WRITE_ITEMS]
            for start in range(0, len(firsts), BATCH_WRITE_ITEMS)
        ]
        with WorkerThreads(_WRITERS, "countledger-ingest") as pool:
            # Of several entries with one key the first is recorded.
            for sent in pool.map(
                lambda group: self._write_keyed(entries, group, deadline), keyed.values()
            ):
                results |= sent
            for sent in pool.map(
                lambda batch: self._write_batch(entries, batch, namespaces, deadline), batches
            ):
                results |= sent
        for first, *others in plain.values():
            # A batch cannot contain an item twice; entries of one id have the same content.
            result = results[first]
            again = Status.DUPLICATE if isinstance(result, Status) else result
            results |= dict.fromkeys(others, again)
        return [results[number] for number in range(len(entries))]

    def _refusals(self, entries: Sequence[Entry]) -> dict[int, WriteResult]:
        """The errors of entries whose namespace takes none; each namespace is looked up once."""
        firsts = {namespace_of(entry.counter): entry.counter for entry in reversed(entries)}
        _, errors = ledgers_of([*firsts.values()], self.sender.namespaces, (CountledgerError,))
        refusals = {name: errors.get(n) for n, name in enumerate(firsts)}
        return {
            number: _result_of(refusal)
            for number, entry in enumerate(entries)
            if (refusal := refusals[namespace_of(entry.counter)]) is not None
        }

    def _write_keyed(
        self, entries: Sequence[Entry], numbers: list[int], deadline: Deadline | None
    ) -> dict[int, WriteResult]:
        results: dict[int, WriteResult] = {}
        for number in numbers:
            late = lateness(deadline)
            results[number] = late or _result_of(self.sender.outcome_of(entries[number]))
        return results

    def _write_batch(
        self,
        entries: Sequence[Entry],
        numbers: list[int],
        namespaces: Mapping[str, Namespace],
        deadline: Deadline | None,
    ) -> dict[int, WriteResult]:
        late = lateness(deadline)
        if late is not None:
            return dict.fromkeys(numbers, late)
        others = self.sender.send_batch([entries[number] for number in numbers], namespaces)
        results: dict[int, WriteResult] = dict.fromkeys(numbers, Status.RECORDED)
        return results | {numbers[n]: _result_of(one) for n, one in others.items()}


def _result_of(outcome: Receipt | CountledgerError) -> WriteResult:
    return outcome.status if isinstance(outcome, Receipt) else outcome


def lateness(deadline: Deadline | None) -> OutOfTime | None:
    """The error of a passed deadline, or None. Entries that are not begun are delivered again."""
    try:
        if deadline is not None:
            deadline.check()
    except OutOfTime as late:
        return late
    return None


def is_final(error: CountledgerError) -> bool:
    """Whether a retry would fail the same way: the error is of the entry, not of the service."""
    return isinstance(error, _OF_THE_ENTRY)


class PartOfRecord(NamedTuple):
    """Where a piece ends within a record: after so many of its messages (`through`)."""

    sequence: str
    messages: int
    through: int


class IngestPiece(NamedTuple):
    """What is written between two looks at the deadline.

    `until`: the index of the first record that is not finished after it. `part`: where it ends
    within a record; None: at the end of one.
    """

    payloads: Sequence[DecodedEntry | RejectedEvent]
    until: int
    part: PartOfRecord | None


def pieces_of(
    records: Sequence[Mapping[str, Any]],
    origin: str,
    done: Callable[[RecordContent], int],
    size: int,
) -> Iterator[IngestPiece]:
    """The pieces of a batch in order; a record is decoded when its piece is wanted.

    `done` says how many messages of a long record are done. A piece has at most `size` payloads.
    """
    held: list[DecodedEntry | RejectedEvent] = []
    for number, record in enumerate(records):
        content = read(number, record, origin)
        if held and len(held) + len(content.payloads) > size:
            yield IngestPiece(held, number, None)
            held = []
        if len(content.payloads) <= size:
            held += content.payloads
        else:
            yield from _pieces_of_one(content, done(content), size)
    if held:
        yield IngestPiece(held, len(records), None)


def _pieces_of_one(content: RecordContent, done: int, size: int) -> Iterator[IngestPiece]:
    # What is rejected of the record comes first, so it is done as soon as anything is.
    left = [one for one in content.payloads if not done or _index_of(one) >= done]
    number = content.place.record
    for begin in range(0, len(left), size):
        some = left[begin : begin + size]
        if begin + size >= len(left):
            yield IngestPiece(some, number + 1, None)
            return
        through = _index_of(some[-1]) + 1
        yield IngestPiece(
            some, number, PartOfRecord(content.place.sequence, content.messages, through)
        )


def _index_of(one: DecodedEntry | RejectedEvent) -> int:
    """The index of an entry within its record; what is rejected has none after the first piece."""
    return one.place.part or 0 if isinstance(one, DecodedEntry) else -1


@dataclass(frozen=True, slots=True)
class RecordProgress:
    """How far the ingest has come within long records."""

    connection: Connection

    def done(self, stream: str, shard: str, content: RecordContent) -> int:
        """How many messages of a record, if it has this content, are done: one read unit."""
        key = keys.ingest_key(stream, shard, content.place.sequence)
        to = self.connection
        item = to.retrying.get(to.counters, key, consistent=True) or {}
        if optional(item, "messages", int) != content.messages:
            return 0  # another release took its lines for other messages
        return optional(item, "through", int) or 0

    def save(self, stream: str, shard: str, part: PartOfRecord) -> None:
        """Store how many messages of a record are done: one write unit. TTL deletes it in a day."""
        to = self.connection
        expires_at = (to.clock.now_ms() + INGEST_PROGRESS_LIFE_MS) // SECOND_MS
        item = {
            **keys.ingest_key(stream, shard, part.sequence),
            "messages": part.messages,
            "through": part.through,
            "expires_at": expires_at,
        }
        to.retrying.put(Put(to.counters, item))
