"""The store of the quarantine, and the messages about it that raise alarms.

    1  the record is written, unless its item exists     a record delivered again has the same item
    2  a message goes into a queue                       it raises the alarm of the queue
    3  the item says that the message was sent

After a crash between any two steps the record is delivered again: after 1 its message is still
owed and is sent then; after 2 it is sent a second time. A record is in a queue alone only if the
table always refuses its item: it must not block its stream.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol

from countledger.ledger import keys
from countledger.ledger.attributes import (
    check_format,
    decoded,
    describe,
    optional,
    optional_time,
    require,
    require_time,
)
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import (
    AccessDenied,
    BadSetting,
    ConditionFailed,
    CorruptItem,
    CountledgerError,
    NotQuarantined,
    RequestRejected,
    SetupError,
    StackNotFound,
    TableNotFound,
    shown,
)
from countledger.ledger.foreign_events import source_name
from countledger.ledger.limits import QUARANTINE_HANDLED_LIFE_MS, REASON_MAX_CHARACTERS, SECOND_MS
from countledger.ledger.message_queue import MessageQueue
from countledger.ledger.operations import Absent, AllOf, Assign, Compare, Put, Query, Update
from countledger.ledger.texts import has_control_characters, plain_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from countledger.ledger.attributes import Item, OnCorrupt
    from countledger.ledger.connection import Connection


# A record in quarantine: what cannot be applied, kept until a person has handled it.
#
# It is an item of `counters`. Its key follows from the record alone (source, shard, sequence
# number), so a record that is delivered again has the same item.


# With key and reason an item stays below the 400 KB that DynamoDB allows.
CONTENT_MAX_BYTES: Final = 300_000
FOREIGN_KIND: Final = "foreign"  # the kind of records that are of no stream of the stack
_WHERE_MAX_CHARACTERS: Final = 2_000
_ID: Final = re.compile(r"(ledger|counters|kinesis)-([0-9]{13}-[0-9a-f]{16})")


class QuarantineSource(StrEnum):
    """Where a record came from. It decides what `resend` does."""

    LEDGER = "ledger"
    """A record of the stream of `ledger`. Its total lacks it; a repair of the counter adds it."""
    COUNTERS = "counters"
    """A record of the stream of `counters`: a change of a total that no alert rule saw."""
    KINESIS = "kinesis"
    """A record of the stream of the ingest. It is not in the ledger."""


class HandledHow(StrEnum):
    """How a person handled a record."""

    RESENT = "resent"
    """It is counted: it was written to the ledger, or its counter was repaired."""
    DISCARDED = "discarded"
    """It will never be counted."""


@dataclass(frozen=True, slots=True)
class QuarantineHandling:
    """That a person handled a record.

    Attributes:
        how: resent or discarded.
        by: the name that the person gave.
        at_ms: when, in milliseconds since the epoch.
    """

    how: HandledHow
    by: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedRecord:
    """A record in quarantine.

    Attributes:
        source: where it came from.
        place: its sort key.
        where: its stream and shard.
        reason: why it was quarantined.
        kind: the reason in one word.
        content: its bytes: of a DynamoDB record its JSON, of a Kinesis record the payload.
        cut_from_bytes: its whole length, if `content` is only its beginning; else None.
        counter: the counter that it names, or None.
        sequence: its sequence number, or None.
        part: the index within an aggregated Kinesis record; None means the whole record.
        messages: how many messages of a Kinesis record it is; `part` is the index of the first.
        at_ms: when the stream created or received it; 0 if the record has no such time.
        kept_at_ms: when it was quarantined.
        queued_at_ms: when a message about it was in the queue; None before that.
        handled: who handled it, or None while it waits.
    """

    source: QuarantineSource
    place: str
    where: str
    reason: str
    kind: str
    content: bytes
    cut_from_bytes: int | None = None
    counter: str | None = None
    sequence: str | None = None
    part: int | None = None
    messages: int = 1
    at_ms: int = 0
    kept_at_ms: int = 0
    queued_at_ms: int | None = None
    handled: QuarantineHandling | None = None

    @property
    def id(self) -> str:
        """Its id, for people and commands."""
        return id_of(self.source, self.place)

    @property
    def at(self) -> datetime:
        """When the stream created or received it, in UTC; if unknown, when it was quarantined."""
        return to_datetime(self.at_ms or self.kept_at_ms)


def id_of(source: QuarantineSource, place: str) -> str:
    return f"{source}-{place}"


def key_of(quarantine_id: object) -> dict[str, str]:
    """The key of the item with that id, if a record can have it."""
    match = _ID.fullmatch(quarantine_id) if isinstance(quarantine_id, str) else None
    if match is None:
        raise NotQuarantined(
            f"{shown(quarantine_id)} is not the id of a record in quarantine; "
            "`countledger quarantine list` shows the ids"
        )
    return keys.quarantine_key(match[1], match[2])


def encode_quarantined(record: QuarantinedRecord) -> Item:
    """The item of a record that is not handled; reason and `where` are cut to their bounds."""
    return {
        **keys.quarantine_key(record.source, record.place),
        "where": record.where[:_WHERE_MAX_CHARACTERS],
        "reason": record.reason[:REASON_MAX_CHARACTERS],
        "kind": record.kind,
        "content": record.content,
        "cut_from_bytes": record.cut_from_bytes,
        "of_counter": record.counter,
        "sequence": record.sequence,
        "record_part": record.part,
        "messages": None if record.messages == 1 else record.messages,
        "at": record.at_ms,
        "kept_at": record.kept_at_ms,
    }


def decode_quarantined(item: Item) -> QuarantinedRecord:
    check_format(item)
    try:
        source = QuarantineSource(
            require(item, "counter", str).removeprefix(keys.QUARANTINE_PREFIX)
        )
        return QuarantinedRecord(
            source=source,
            place=require(item, "part", str),
            where=require(item, "where", str),
            reason=require(item, "reason", str),
            kind=require(item, "kind", str),
            content=require(item, "content", bytes),
            cut_from_bytes=optional(item, "cut_from_bytes", int),
            counter=optional(item, "of_counter", str),
            sequence=optional(item, "sequence", str),
            part=optional(item, "record_part", int),
            messages=optional(item, "messages", int) or 1,
            at_ms=require_time(item, "at"),
            kept_at_ms=require_time(item, "kept_at"),
            queued_at_ms=optional_time(item, "queued_at"),
            handled=_handled_in(item),
        )
    except ValueError as error:
        raise CorruptItem(
            f"{describe(item)}: it is not a record in quarantine: {error}", item
        ) from error


def _handled_in(item: Item) -> QuarantineHandling | None:
    at_ms = optional_time(item, "handled_at")
    if at_ms is None:
        return None
    return QuarantineHandling(
        HandledHow(require(item, "handled_how", str)), require(item, "handled_by", str), at_ms
    )


# A retry would get the same answer.
_FINAL_REFUSALS: Final = (RequestRejected, AccessDenied, TableNotFound)
_PAGE: Final = 25
_QUEUES: Final = (
    "quarantine_queue_url",
    "ingest_quarantine_queue_url",
    "ingest_expired_queue_url",
)


@dataclass(frozen=True, slots=True)
class QuarantineStore:
    """Keeps the records in quarantine, in the table `counters`. A second put is refused."""

    connection: Connection

    def keep(self, record: QuarantinedRecord) -> bool:
        """Write a record, unless its item exists: a write unit for each KB, either way.

        The answer is whether a message about it must be sent: not if one was sent, or a person has
        handled the record; it must if the table always refuses the item. After `ServiceFailed` the
        record is not kept, and must be delivered again.
        """
        try:
            to = self.connection
            to.retrying.put(Put(to.counters, encode_quarantined(record), Absent("part")))
        except ConditionFailed as refused:
            item = refused.item or {}
            return "queued_at" not in item and "handled_at" not in item
        except _FINAL_REFUSALS:
            return True
        return True

    def keep_with_message(self, record: QuarantinedRecord, queue: MessageQueue, body: str) -> None:
        """Keep a record and send a message about it to this queue, unless one was sent.

        Two write units for each KB, and one message; delivered again a write unit for each KB.
        After `ServiceFailed` the record must be delivered again.
        """
        if self.keep(record):
            queue.send(body)
            self.mark_published(record)

    def mark_published(self, record: QuarantinedRecord) -> None:
        """Note that the message was sent: a write unit for each KB of the item.

        If this fails, the message is sent again when the record is delivered again. The record is
        kept, so its stream goes on.
        """
        with suppress(CountledgerError):
            to = self.connection
            to.retrying.update(
                Update(
                    to.counters,
                    key_of(record.id),
                    (Assign("queued_at", to.clock.now_ms()),),
                    Compare("at", "=", record.at_ms),
                )
            )

    def find(self, quarantine_id: str) -> QuarantinedRecord | None:
        """A read unit for each 4 KB of the record."""
        to = self.connection
        item = to.retrying.get(to.counters, key_of(quarantine_id), consistent=True)
        return None if item is None else decode_quarantined(item)

    def newest(
        self, source: QuarantineSource | None = None, on_corrupt: OnCorrupt | None = None
    ) -> Iterator[QuarantinedRecord]:
        """The records of a source, or of all, newest first by the time of their stream.

        Half a read unit for each 4 KB of these records; no other item is read. `on_corrupt` is
        called with the error of each item that cannot be read, which is skipped; without it the
        error is raised.
        """
        sources = QuarantineSource if source is None else (source,)
        feeds = (self._of(one, on_corrupt) for one in sources)
        return merge(*feeds, key=lambda record: record.place, reverse=True)

    def _of(
        self, source: QuarantineSource, on_corrupt: OnCorrupt | None
    ) -> Iterator[QuarantinedRecord]:
        to = self.connection
        condition = Compare("counter", "=", keys.QUARANTINE_PREFIX + source)
        read = Query(to.counters, condition, forward=False, page_size=_PAGE)
        for page in to.retrying.pages(read):
            yield from decoded(page, decode_quarantined, on_corrupt)

    def handle(self, record: QuarantinedRecord, handling: QuarantineHandling) -> QuarantinedRecord:
        """Note that a person handled it: a write unit for each KB. TTL deletes it in 90 days.

        If another person handled it first, the returned record has their name.
        """
        expires_at = (handling.at_ms + QUARANTINE_HANDLED_LIFE_MS) // SECOND_MS
        clauses = (
            Assign("handled_at", handling.at_ms),
            Assign("handled_how", str(handling.how)),
            Assign("handled_by", handling.by),
            Assign("expires_at", expires_at),
        )
        waiting = AllOf(Compare("at", "=", record.at_ms), Absent("handled_at"))
        to = self.connection
        update = Update(to.counters, key_of(record.id), clauses, waiting, returning="ALL_NEW")
        try:
            item = to.retrying.update(update)
        except ConditionFailed as refused:
            item = refused.item
        if not item:
            raise NotQuarantined(f"{record.id} is no longer in quarantine")
        return decode_quarantined(item)


@dataclass(frozen=True, slots=True)
class QuarantineNotices:
    """The messages about quarantined records. The items are the data; a message raises an alarm."""

    queues: tuple[MessageQueue, ...]

    def delete_handled(self, is_handled: Callable[[str], bool]) -> int:
        """Delete the messages of which every record is handled; return how many.

        SQS deletes by receipt only, so this reads all messages; the others show again at the end.
        """
        deleted = 0
        for queue in self.queues:
            with queue.reader() as reader:
                for message in reader:
                    named = quarantine_ids_in(message.body)
                    if named and all(map(is_handled, named)):
                        reader.delete(message)
                        deleted += 1
        return deleted


def quarantine_ids_in(body: str) -> list[str]:
    """The ids of the records that a message is about; none if a part of it has no id."""
    try:
        document = json.loads(body)
        parts = document.get("rejected", [document])
        named = [part["quarantine_id"] for part in parts]
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return []
    return named if all(isinstance(one, str) for one in named) else []


def notices_of(connection: Connection) -> QuarantineNotices:
    """The queues of a stack; a stack without a Kinesis stream has one."""
    queues = []
    for number, setting in enumerate(_QUEUES):
        try:
            url = connection.setting(setting)
        except StackNotFound:
            if number == 0:
                raise
        else:
            queues.append(MessageQueue(connection.queues(), url, "the quarantine"))
    return QuarantineNotices(tuple(queues))


# The quarantine of records that a function got and that are not of its own stream.


@dataclass(frozen=True, slots=True)
class ForeignEvents:
    """Keeps foreign events in quarantine."""

    store: QuarantineStore
    queue: MessageQueue
    source: QuarantineSource

    def keep(self, records: Sequence[Any], reason: str) -> None:
        """Keep the records of an event: two write units for each KB, and a message per 300 KB.

        The same event delivered again has the same items, and no message. After `ServiceFailed` it
        must be delivered again.
        """
        now_ms = self.store.connection.clock.now_ms()
        for content, count in _parts(records):
            kept = QuarantinedRecord(
                source=self.source,
                place=keys.quarantine_place(0, content.decode()),
                where=source_name(records[0]),
                reason=reason,
                kind=FOREIGN_KIND,
                content=content[:CONTENT_MAX_BYTES],
                cut_from_bytes=len(content) if len(content) > CONTENT_MAX_BYTES else None,
                messages=count,
                kept_at_ms=now_ms,
            )
            message = {"reason": reason[:REASON_MAX_CHARACTERS], "quarantine_id": kept.id}
            self.store.keep_with_message(kept, self.queue, json.dumps(message))


def _parts(records: Sequence[Any]) -> Iterator[tuple[bytes, int]]:
    """The records as lists of JSON that fit into an item; one that is larger is alone."""
    held: list[str] = []
    size = 0
    for record in records:
        text = json.dumps(record, default=str)
        if held and size + len(text) + 2 > CONTENT_MAX_BYTES:
            yield f"[{', '.join(held)}]".encode(), len(held)
            held, size = [], 0
        held.append(text)
        size += len(text) + 2
    if held:
        yield f"[{', '.join(held)}]".encode(), len(held)


# The quarantine for people: list what waits, redrive it, or discard it.


_BY_MAX_CHARACTERS: Final = 256


@dataclass(frozen=True, slots=True)
class RedriveAnswer:
    """The result of a redrive; resolved: the record is counted now, and no person has to act."""

    resolved: bool
    detail: str


class Redrive(Protocol):
    """Applies a record. Done twice, it counts once."""

    def __call__(self, record: QuarantinedRecord, *, even_if_counted: bool) -> RedriveAnswer: ...


@dataclass(frozen=True, slots=True)
class QuarantineOutcome:
    """The result for one record.

    Attributes:
        record: as it is now.
        resolved: whether no person has to act any more.
        detail: what happened, or why it could not be done.
        error: why the attempt failed, or None.
    """

    record: QuarantinedRecord
    resolved: bool
    detail: str
    error: CountledgerError | None = None


@dataclass(frozen=True, slots=True)
class QuarantineService:
    """What is in quarantine, and what a person may do about it.

    Attributes:
        redrives: how a record of each source is applied; a foreign one never is.
        notices: makes the access to the queues; called after a record was handled.
    """

    connection: Connection
    redrives: Mapping[QuarantineSource, Redrive]
    notices: Callable[[Connection], QuarantineNotices] = notices_of
    store: QuarantineStore = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "store", QuarantineStore(self.connection))

    def list(
        self,
        source: QuarantineSource | str | None = None,
        *,
        handled: bool = False,
        limit: int | None = None,
        on_corrupt: OnCorrupt | None = None,
    ) -> Iterator[QuarantinedRecord]:
        """The records that wait, newest first: half a read unit for each 4 KB of all records.

        Args:
            source: the source; None means all.
            handled: whether to include the records handled in the last 90 days.
            limit: the maximum number of records.
            on_corrupt: called with the error of each item that cannot be read, which is skipped.

        Raises:
            BadSetting: the source does not exist, or the limit is below 1.
            CorruptItem: an item cannot be read, and `on_corrupt` is not given.
        """
        if limit is not None and limit < 1:
            raise BadSetting(f"limit {shown(limit)} is below 1: give 1 or more records")
        found = self.store.newest(_source(source), on_corrupt)
        return islice((record for record in found if handled or record.handled is None), limit)

    def show(self, quarantine_id: str) -> QuarantinedRecord:
        """One record with its content: a read unit for each 4 KB.

        Raises:
            NotQuarantined: no record has that id.
        """
        record = self.store.find(quarantine_id)
        if record is None:
            raise NotQuarantined(
                f"{quarantine_id} is not in quarantine, or was handled over 90 days ago"
            )
        return record

    def resend(
        self, quarantine_ids: Iterable[str], *, by: str, even_if_counted: bool = False
    ) -> Iterator[QuarantineOutcome]:
        """Apply records, and mark those that are resolved as handled.

        A record of Kinesis is written to the ledger with its own identity. For a record of the
        ledger's stream the counter is repaired. A foreign record stays. Nothing is done before the
        result is iterated. Repeating it counts nothing twice. At the end the messages about handled
        records are deleted from the queues.

        Args:
            quarantine_ids: the ids.
            by: the name of the person; the item keeps it.
            even_if_counted: whether to count also expired entries that may have been counted.

        Yields:
            The result of each record; an error is that record's own.

        Raises:
            NotQuarantined: no record has that id.
            BadSetting: `by` is not a text of 1 to 256 characters on one line.
            SetupError: the error concerns every record.
        """
        by = check_name(by)
        return self._each(quarantine_ids, lambda record: self._redrive(record, by, even_if_counted))

    def discard(self, quarantine_ids: Iterable[str], *, by: str) -> Iterator[QuarantineOutcome]:
        """Mark records as handled without counting them. They stay readable for 90 days.

        Raises:
            As `resend`.
        """
        by = check_name(by)
        return self._each(
            quarantine_ids, lambda record: self._handle(record, HandledHow.DISCARDED, by)
        )

    def _each(
        self,
        quarantine_ids: Iterable[str],
        resolve: Callable[[QuarantinedRecord], QuarantineOutcome],
    ) -> Iterator[QuarantineOutcome]:
        any_resolved = False
        for quarantine_id in quarantine_ids:
            record = self.show(quarantine_id)
            if record.handled is None:
                outcome = resolve(record)
            else:
                detail = f"{record.handled.how} by {record.handled.by}"
                outcome = QuarantineOutcome(record, resolved=True, detail=detail)
            any_resolved = any_resolved or outcome.resolved
            yield outcome
        if any_resolved:
            self.notices(self.connection).delete_handled(cache(self._is_handled))

    def _is_handled(self, quarantine_id: str) -> bool:
        try:
            record = self.store.find(quarantine_id)
        except (NotQuarantined, CorruptItem):
            return False
        return record is not None and record.handled is not None

    def _redrive(
        self,
        record: QuarantinedRecord,
        by: str,
        even_if_counted: bool,  # noqa: FBT001 - handed on
    ) -> QuarantineOutcome:
        try:
            answer = self._redrive_of(record)(record, even_if_counted=even_if_counted)
        except SetupError:
            raise
        except CountledgerError as error:
            return QuarantineOutcome(record, resolved=False, detail=str(error), error=error)
        if not answer.resolved:
            return QuarantineOutcome(record, resolved=False, detail=answer.detail)
        # After a crash before this the record is redriven again, which counts nothing twice.
        return self._handle(record, HandledHow.RESENT, by, answer.detail)

    def _redrive_of(self, record: QuarantinedRecord) -> Redrive:
        return discard_only if record.kind == FOREIGN_KIND else self.redrives[record.source]

    def _handle(
        self, record: QuarantinedRecord, how: HandledHow, by: str, detail: str | None = None
    ) -> QuarantineOutcome:
        now = self.store.handle(record, QuarantineHandling(how, by, self.connection.clock.now_ms()))
        return QuarantineOutcome(now, resolved=True, detail=detail or str(how))


def discard_only(record: QuarantinedRecord, *, even_if_counted: bool) -> RedriveAnswer:
    """The redrive of foreign records: nothing can be applied, whatever source they came to."""
    del even_if_counted
    return RedriveAnswer(
        resolved=False,
        detail=f"its records are of no stream of this stack ({record.where}): remove the pipe or "
        "mapping that sends them, have what was meant to be counted recorded, then discard it",
    )


def check_name(by: object) -> str:
    """The name of the person who handles a record: a text of one line."""
    if isinstance(by, str) and 0 < len(by) <= _BY_MAX_CHARACTERS and not has_control_characters(by):
        return plain_text(by)
    raise BadSetting(
        f"the name {shown(by)} is not a text of 1 to {_BY_MAX_CHARACTERS} characters on one line"
    )


def _source(given: QuarantineSource | str | None) -> QuarantineSource | None:
    try:
        return None if given is None else QuarantineSource(given)
    except ValueError:
        sources = ", ".join(QuarantineSource)
        raise BadSetting(f"source {shown(given)} does not exist: give one of {sources}") from None
