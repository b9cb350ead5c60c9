"""The ingest: writes batches of the Kinesis stream to the ledger, and accounts for every message.

For each piece of a batch (`entries`), until the deadline:

    1  decode it: entries, and what is rejected
    2  write the entries: those with an id in batches, those with a key one by one
    3  after a failure that a retry may pass, its record is the point from which to retry
    4  quarantine what can never be written, up to that point
    5  within a long record: store how many of its messages are done

Of what is done: payloads = accepted + duplicates + quarantined. An entry that is delivered again is
recognised and counts once; what is quarantined again has the same item.

Late entries: those that arrived after their horizon.

An entry older than its horizon must not be written with its identity: an earlier send of it may
have been written and merged since, so that no item refuses the second one. Its item and then its
counter's head often show whether it was counted:

    item       head                                       status
    same delta                                            counted
    other delta                                           refused
    none       nothing of its time or later is merged     uncounted: a counted entry that is gone
                                                          would be in the period of the head
    none       something of its time or later is merged   unknown; an archive may have it
    none       it expired a moment ago                    unknown: on a clock that is late it has
                                                          not expired, and a write may follow

(A bare key has no time: it is uncounted only if its counter's head is empty.) An uncounted entry is
sent as a new entry, created now, with the key `override:<its id>`. A second send finds the first by
that key; after the first may have been merged, the status is unknown and nothing is sent.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import sha256
from itertools import compress
from typing import TYPE_CHECKING, Any, Final, Protocol

from countledger.ledger.attributes import require_amount
from countledger.ledger.errors import CountledgerError, KeyExpired
from countledger.ledger.exact import Head, decode_head
from countledger.ledger.ids import BARE_KEY_PREFIX, id_of_key
from countledger.ledger.keys import entry_key, head_key, is_counter, quarantine_place
from countledger.ledger.limits import (
    INGEST_PIECE,
    MESSAGE_MAX_BYTES,
    REASON_MAX_CHARACTERS,
)
from countledger.ledger.namespace import Kind
from countledger.ledger.quarantine import (
    CONTENT_MAX_BYTES,
    QuarantinedRecord,
    QuarantineSource,
    id_of,
)
from countledger.ledger.suspension import WorkerThreads
from countledger.producers.event import Receipt, Status
from countledger.producers.ingest.entries import (
    DecodedEntry,
    EntryWriter,
    RecordProgress,
    RejectedEvent,
    RejectionKind,
    is_final,
    lateness,
    pieces_of,
)
from countledger.producers.sender import Sender

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from countledger.ledger.attributes import Item
    from countledger.ledger.connection import Connection
    from countledger.ledger.departure import Deadline
    from countledger.ledger.entry import Entry
    from countledger.ledger.message_queue import MessageQueue
    from countledger.ledger.quarantine import QuarantineStore
    from countledger.producers.ingest.entries import (
        IngestPiece,
        RecordContent,
        WriteResult,
    )


_OVERRIDE: Final = "override:"


class LateStatus(StrEnum):
    """Whether a late entry was counted."""

    UNCOUNTED = "uncounted"
    """It was never counted: sending it again is safe."""
    COUNTED = "counted"
    """It is in the ledger."""
    UNKNOWN = "unknown"
    """It may have been counted and merged since, or may still be written."""
    REFUSED = "refused"
    """Its key was used by an entry with another delta."""


@dataclass(frozen=True, slots=True)
class LateEntry:
    """A late entry.

    Attributes:
        entry: as it arrived.
        status: whether it was counted.
        sent: the result of sending it again, if that was done.
    """

    entry: Entry
    status: LateStatus
    sent: Status | CountledgerError | None = None

    @property
    def resolved(self) -> bool:
        """Whether it is counted now, so that it need not be kept."""
        return self.status is LateStatus.COUNTED or isinstance(self.sent, Status)


@dataclass(frozen=True, slots=True)
class LateResender:
    """Determines whether late entries were counted, and sends them again."""

    connection: Connection
    sender: Sender = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sender", Sender(self.connection))

    @property
    def late_ms(self) -> int:
        """How long after its horizon an entry may still appear.

        Clocks differ, requests are delayed, and other regions write as well.
        """
        to = self.connection
        return to.clock_skew_ms + to.request_life_ms + to.replication_ms

    def status_of(self, entry: Entry) -> LateStatus:
        """Whether an entry was counted: two read units, and one for each 4 KB of the head."""
        namespace = self.sender.namespaces.for_use(entry.counter, Kind.LEDGER)
        reads, table = self.connection.retrying, self.sender.table
        may_appear = (
            self.connection.clock.now_ms() - entry.at_ms <= namespace.horizon_ms + self.late_ms
        )
        key = {"counter": entry.counter, "entry": entry_key(entry.id, namespace.spread)}
        item = reads.get(table, key, consistent=True)
        # Read second: an entry that is retired between the two reads is in this head.
        head = decode_head(reads.get(table, head_key(entry.counter), consistent=True))
        status = late_status(entry, item, head)
        return LateStatus.UNKNOWN if status is LateStatus.UNCOUNTED and may_appear else status

    def resolve(self, entry: Entry, *, send: bool, even_if_counted: bool = False) -> LateEntry:
        """Determine the status of an entry and, if wanted, send it: a write unit for each KB.

        `send`: if that is known to be safe. `even_if_counted`: also if the status is unknown; then
        it may count twice.
        """
        # Taken before the status: if this process pauses for longer than the horizon (another
        # replacement may be merged by then), the send is refused as too old.
        now_ms = self.connection.clock.now_ms()
        status = self.status_of(entry)
        safe = status is LateStatus.UNCOUNTED
        if not send or not (safe or (even_if_counted and status is LateStatus.UNKNOWN)):
            return LateEntry(entry, status)
        outcome = self.sender.outcome_of(replacement_of(entry, now_ms=now_ms))
        return LateEntry(entry, status, outcome.status if isinstance(outcome, Receipt) else outcome)


def late_status(entry: Entry, item: Item | None, head: Head) -> LateStatus:
    """Whether an entry was counted, by the table above; the head was read after the item."""
    if item is not None:
        same = require_amount(item, "delta") == entry.delta
        return LateStatus.COUNTED if same else LateStatus.REFUSED
    if head.generation == 0 or head.to_at_ms is None:
        return LateStatus.UNCOUNTED
    # An entry merged after its time may be the replacement that an earlier run sent.
    bare = entry.id.startswith(BARE_KEY_PREFIX)
    return LateStatus.UNKNOWN if bare or entry.at_ms <= head.to_at_ms else LateStatus.UNCOUNTED


def replacement_of(entry: Entry, *, now_ms: int) -> Entry:
    key = _OVERRIDE + entry.id
    occurred_at_ms = entry.at_ms if entry.occurred_at_ms is None else entry.occurred_at_ms
    return replace(entry, id=id_of_key(key), key=key, at_ms=now_ms, occurred_at_ms=occurred_at_ms)


# The quarantine of the ingest: two queues, one for expired entries and one for all others.
#
# An operator may decide to send an expired entry again; the others never become valid. A message
# has many payloads, each with its bytes, its place in the stream and the reason. Each is also kept
# as an item until a person has handled it (see `ledger.quarantine`).


FORMAT: Final = 1
# The rest of a larger record that is broken as a whole can be read from the stream.
_PAYLOAD_MAX_BYTES: Final = 60_000
_WRITERS: Final = 8


@dataclass(frozen=True, slots=True)
class QuarantineMessage:
    """A message for a queue of the quarantine; `records` are indexes in the batch."""

    body: str
    records: tuple[int, ...]
    rejected: tuple[RejectedEvent, ...]
    stream: str
    shard: str


class QuarantineSink(Protocol):
    """Takes payloads that will not be in the ledger."""

    def put(self, message: QuarantineMessage, *, expired: bool) -> None:
        """Keep the payloads of a message; return only when they are kept."""


@dataclass(frozen=True, slots=True)
class IngestQueues:
    """The two queues; `rejected` is that of malformed and refused payloads."""

    rejected: MessageQueue
    expired: MessageQueue

    def put(self, message: QuarantineMessage, *, expired: bool) -> None:
        (self.expired if expired else self.rejected).send(message.body)


@dataclass(frozen=True, slots=True)
class IngestQuarantine:
    """Keeps each payload once as an item, and sends messages about them."""

    store: QuarantineStore
    queues: QuarantineSink

    def put(self, message: QuarantineMessage, *, expired: bool) -> None:
        """Keep payloads: two write units for each KB of each, and one message.

        If they are delivered again: one write unit for each KB, and no message.
        """
        now_ms = self.store.connection.clock.now_ms()
        stream, shard = message.stream, message.shard
        records = [quarantined_of(one, stream, shard, now_ms) for one in message.rejected]
        with WorkerThreads(_WRITERS, "countledger-quarantine") as pool:
            owed = list(pool.map(self.store.keep, records))
            for part in messages_of(list(compress(message.rejected, owed)), stream, shard):
                self.queues.put(part, expired=expired)
            list(pool.map(self.store.mark_published, compress(records, owed)))


def quarantined_of(one: RejectedEvent, stream: str, shard: str, now_ms: int) -> QuarantinedRecord:
    """The form in which a payload is kept; it has the same id however often it is delivered."""
    content = one.payload[:CONTENT_MAX_BYTES]
    return QuarantinedRecord(
        source=QuarantineSource.KINESIS,
        place=_place_of(one, stream, shard),
        where=f"{stream}/{shard}",
        reason=one.reason,
        kind=str(one.kind),
        content=content,
        cut_from_bytes=len(one.payload) if len(content) < len(one.payload) else None,
        counter=_counter_in(one.payload),
        sequence=one.place.sequence,
        part=one.place.part,
        messages=one.messages,
        at_ms=one.place.arrived_ms,
        kept_at_ms=now_ms,
    )


def _place_of(one: RejectedEvent, stream: str, shard: str) -> str:
    where = json.dumps([stream, shard, one.place.sequence, one.place.part])
    return quarantine_place(one.place.arrived_ms, where)


def _counter_in(payload: bytes) -> str | None:
    """The counter named in a JSON payload, or None; for people only."""
    try:
        name = json.loads(payload)["counter"]
    except (ValueError, RecursionError, KeyError, TypeError, IndexError):
        return None
    return name if isinstance(name, str) and is_counter(name) else None


def messages_of(
    rejected: Sequence[RejectedEvent], stream: str, shard: str
) -> Iterator[QuarantineMessage]:
    """The messages about rejected payloads, in order, each small enough for a queue."""
    texts: list[str] = []
    first = size = 0
    for number, one in enumerate(rejected):
        quarantine_id = id_of(QuarantineSource.KINESIS, _place_of(one, stream, shard))
        text = json.dumps({**_document(one), "quarantine_id": quarantine_id})
        if texts and size + len(text) > MESSAGE_MAX_BYTES:
            yield _message(texts, rejected[first:number], stream, shard)
            texts, first, size = [], number, 0
        texts.append(text)
        size += len(text) + 1
    if texts:
        yield _message(texts, rejected[first:], stream, shard)


def _message(
    texts: list[str], rejected: Sequence[RejectedEvent], stream: str, shard: str
) -> QuarantineMessage:
    head = json.dumps({"format": FORMAT, "stream": stream, "shard": shard})[:-1]
    body = f'{head}, "rejected": [{",".join(texts)}]}}'
    records = tuple(sorted({one.place.record for one in rejected}))
    return QuarantineMessage(body, records, tuple(rejected), stream, shard)


def _document(one: RejectedEvent) -> dict[str, Any]:
    """A rejected payload for JSON: text if it is text, otherwise base64."""
    document: dict[str, Any] = {
        "kind": str(one.kind),
        "reason": one.reason[:REASON_MAX_CHARACTERS],
        "sequence": one.place.sequence,
        "part": one.place.part,
        "arrived_ms": one.place.arrived_ms,
    }
    if one.messages > 1:
        document["messages"] = one.messages
    payload = one.payload[:_PAYLOAD_MAX_BYTES]
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        text = None
    # JSON escapes some characters: each takes up to six times its size.
    if text is not None and len(json.dumps(text)) <= 2 * _PAYLOAD_MAX_BYTES:
        document["text"] = text
    else:
        document["base64"] = base64.b64encode(payload).decode()
    if len(one.payload) > len(payload):
        document["cut_from_bytes"] = len(one.payload)
        document["sha256"] = sha256(one.payload).hexdigest()
    return document


def is_expired(one: RejectedEvent) -> bool:
    return one.kind is RejectionKind.EXPIRED


@dataclass(slots=True)
class IngestOutcome:
    """The result for a batch.

    It counts the messages of the records before `retry_from` (the index of the first record to be
    delivered again, if there is one), and of that record the messages of the pieces that are done.
    `duplicates`: entries that were in the ledger before, or twice in a piece of the batch.
    """

    records: int
    payloads: int = 0
    accepted: int = 0
    duplicates: int = 0
    quarantined: dict[RejectionKind, int] = field(default_factory=dict)
    retry_from: int | None = None
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Ingest:
    """Writes batches of a stream to the ledger.

    It looks at its deadline after each `piece` payloads.
    """

    connection: Connection
    quarantine: QuarantineSink
    piece: int = INGEST_PIECE
    writer: EntryWriter = field(init=False, repr=False, compare=False)
    progress: RecordProgress = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "writer", EntryWriter(self.connection))
        object.__setattr__(self, "progress", RecordProgress(self.connection))

    def apply(
        self,
        records: Sequence[Mapping[str, Any]],
        *,
        stream: str,
        shard: str,
        deadline: Deadline | None = None,
    ) -> IngestOutcome:
        """Write a batch of one shard to the ledger: a write unit for each KB of an entry.

        A record with more than 4,000 messages costs a read unit, and a write unit for each further
        4,000. No write begins after the deadline; what is not written is delivered again.
        `BadPayload`: a record is not one of Kinesis; what is before it may be written.
        """
        outcome = IngestOutcome(records=len(records))

        def done(content: RecordContent) -> int:
            try:
                return self.progress.done(stream, shard, content)
            except CountledgerError as error:
                _note(outcome, error)
                return 0

        finished = 0
        late: CountledgerError | None = None
        pieces = pieces_of(records, self.connection.region, done, self.piece)
        while late is None and (piece := next(pieces, None)) is not None:
            self._write(piece, outcome, stream, shard, deadline)
            if outcome.retry_from is not None:
                return outcome
            finished = piece.until
            if piece.part is not None:
                try:
                    self.progress.save(stream, shard, piece.part)
                except CountledgerError as error:
                    _note(outcome, error)
            late = lateness(deadline)
        if late is not None and finished < len(records):
            _retry_from(outcome, finished, late)
        return outcome

    def _write(
        self,
        piece: IngestPiece,
        outcome: IngestOutcome,
        stream: str,
        shard: str,
        deadline: Deadline | None,
    ) -> None:
        """Steps 1 to 4 for a piece."""
        payloads = piece.payloads
        found = [one for one in payloads if isinstance(one, DecodedEntry)]
        written = self.writer.write([one.entry for one in found], deadline)
        results = dict(zip((one.place for one in found), written, strict=True))
        verdicts = [_verdict_of(one, results) for one in payloads]
        for one, result in zip(payloads, verdicts, strict=True):
            if isinstance(result, CountledgerError):
                _retry_from(outcome, one.place.record, result)
        rejected = [result for result in verdicts if isinstance(result, RejectedEvent)]
        self._quarantine(rejected, outcome, stream, shard, deadline)
        for one, result in zip(payloads, verdicts, strict=True):
            if outcome.retry_from is None or one.place.record < outcome.retry_from:
                _count(outcome, result)

    def _quarantine(
        self,
        rejected: Sequence[RejectedEvent],
        outcome: IngestOutcome,
        stream: str,
        shard: str,
        deadline: Deadline | None,
    ) -> None:
        """Step 4. If a queue fails, the records of its message are delivered again."""
        until = outcome.retry_from
        done = [one for one in rejected if until is None or one.place.record < until]
        for expired in (False, True):
            of_one_queue = [one for one in done if is_expired(one) is expired]
            for message in messages_of(of_one_queue, stream, shard):
                error: CountledgerError | None = lateness(deadline)
                try:
                    if error is None:
                        self.quarantine.put(message, expired=expired)
                except CountledgerError as failed:
                    error = failed
                if error is not None:
                    _retry_from(outcome, message.records[0], error)
                    break


def _verdict_of(
    one: DecodedEntry | RejectedEvent, results: Mapping[Any, WriteResult]
) -> Status | RejectedEvent | CountledgerError:
    """What happens to a payload: it is written, quarantined (rejected), or retried (an error)."""
    if isinstance(one, RejectedEvent):
        return one
    result = results[one.place]
    if isinstance(result, Status) or not is_final(result):
        return result
    kind = RejectionKind.EXPIRED if isinstance(result, KeyExpired) else RejectionKind.REFUSED
    return RejectedEvent(one.place, one.payload, kind, str(result))


def _retry_from(outcome: IngestOutcome, record: int, error: CountledgerError) -> None:
    if outcome.retry_from is None or record < outcome.retry_from:
        outcome.retry_from = record
    _note(outcome, error)


def _note(outcome: IngestOutcome, error: CountledgerError) -> None:
    if str(error) not in outcome.errors:
        outcome.errors.append(str(error))


def _count(outcome: IngestOutcome, result: Status | RejectedEvent | CountledgerError) -> None:
    outcome.payloads += result.messages if isinstance(result, RejectedEvent) else 1
    if isinstance(result, RejectedEvent):
        count = outcome.quarantined.get(result.kind, 0) + result.messages
        outcome.quarantined[result.kind] = count
    elif result is Status.DUPLICATE:
        outcome.duplicates += 1
    else:
        outcome.accepted += 1
