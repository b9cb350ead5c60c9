"""Progress: up to which record each stream shard has been handled, stored in `counters`.

A total says when it was last updated. Only the progress of the shards says whether more records
wait, so it distinguishes a quiet counter from a stalled stream. A record at or below the progress
is never applied again: a batch is compared with it first.

The progress item also stores two earlier positions. So one read shows how far the shard had been
handled some time ago (`passed`). By now each write of an invocation that read less than that has
landed.

The directory of stream shards: which are known, so that lost progress is never read as none.

A shard's records are compared with its progress before they are applied. If lost progress were read
as zero, records that a mapping delivers again would count twice. So a shard gets its progress (of
no record) and then its entry in this directory before its first batch is applied:

    progress    entry
    present     any        continue; while nothing was handled, write the entry
    absent      absent     a new shard: write the progress, then the entry
    absent      present    the progress was lost: stop
    unreadable  any        the same

The entry expires before the progress does, and after the last time at which a record of the shard
can be delivered.

A shard whose progress is lost is recovered on request. How far it had been handled is unknown, so
it counts as handled to its end: all its records up to there are dropped, and none counts twice.
Records that had not been handled are missing from the totals until a repair adds them from the
ledger.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from threading import Lock
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeVar

from countledger.consumers.record import CLOSED, CLOSELY, LedgerStream, StreamShard, made_at_ms
from countledger.ledger import keys
from countledger.ledger.attributes import Item, check_format, optional, require
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import (
    ConditionFailed,
    CorruptItem,
    CountledgerError,
    NewerFormat,
    ProgressLost,
    ServiceFailed,
)
from countledger.ledger.limits import (
    KNOWN_SHARD_LIFE_MS,
    KNOWN_SHARD_RENEWED_MS,
    LATE_WRITE_MS,
    MINUTE_MS,
    PROGRESS_LIFE_MS,
    SECOND_MS,
    WATERMARK_LIFE_MS,
)
from countledger.ledger.operations import (
    Absent,
    Add,
    Assign,
    Compare,
    Drop,
    Query,
    Update,
    all_unchanged,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime

    from countledger.consumers.record import ShardName
    from countledger.ledger.connection import Connection
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.operations import Clause


class Changes(Protocol):
    """Changes of one item, in the order of one shard."""

    @property
    def is_empty(self) -> bool:
        """Whether there is none."""
        ...

    def above(self, sequence: int | None) -> Self:
        """Those after a watermark; None: all."""
        ...


_Changes = TypeVar("_Changes", bound=Changes)


# Texts of one length compare like their numbers.
_DIGITS: Final = 40
_NOTHING: Final = "0"
# A position after each sequence number: nothing of the shard is left.
END: Final = 10**_DIGITS


@dataclass(frozen=True, slots=True)
class ShardProgress:
    """What has been handled of one stream shard.

    Attributes:
        shard: stream label and shard id.
        sequence: the sequence number of the last record handled, as the stream's text.
        handled_through_ms: when the stream created that record (whole seconds), ms since the epoch.
        handled_at_ms: when it was handled, ms since the epoch.
        records: how many records were handled in total.
        updates: how many updates of totals were made for them.
        write_units: the write units of these updates and of the progress itself.
        earlier: an earlier position, as a sequence number.
        earlier_at_ms: when the shard was at `earlier`, ms since the epoch.
        landed: a position long before `earlier`: each write of an invocation that began before
            this position was stored has landed.
        attempted: the first sequence number of the last batch whose attempts were counted.
        attempts: how many invocations began there and did not end.
    """

    shard: str
    sequence: str
    handled_through_ms: int
    handled_at_ms: int
    records: int
    updates: int
    write_units: float
    earlier: int | None = None
    earlier_at_ms: int | None = None
    landed: int | None = None
    attempted: int | None = None
    attempts: int = 0

    @property
    def position(self) -> int:
        """The sequence number of the last record handled; 0 where none was handled yet."""
        return int(self.sequence)

    @property
    def handled_through(self) -> datetime:
        """When the stream created the last record handled, in UTC."""
        return to_datetime(self.handled_through_ms)

    @property
    def handled_at(self) -> datetime:
        """When that record was handled, in UTC."""
        return to_datetime(self.handled_at_ms)

    def passed(self, now_ms: int, late_ms: int = LATE_WRITE_MS) -> int | None:
        """The position up to which no late write can land any more; None: unknown.

        Args:
            now_ms: the time, ms since the epoch.
            late_ms: how long after a position is stored a write that did not know it may land.
        """
        if now_ms - self.handled_at_ms >= late_ms:
            return self.position
        if self.earlier_at_ms is not None and now_ms - self.earlier_at_ms >= late_ms:
            return self.earlier
        return self.landed


def history_after(
    before: ShardProgress, now_ms: int, late_ms: int
) -> tuple[int | None, int | None, int | None]:
    """The three values of history for the progress that follows `before`.

    A position stays `earlier` until it is old enough to become `landed`; then a newer position
    becomes `earlier`. So `landed` is at most twice `late_ms` old.
    """
    if before.earlier is None or before.earlier_at_ms is None:
        return before.position, before.handled_at_ms, before.landed
    if now_ms - before.earlier_at_ms >= late_ms:
        return before.position, before.handled_at_ms, before.earlier
    return before.earlier, before.earlier_at_ms, before.landed


def opening_of(table: str, shard: str, now_ms: int) -> Update:
    """Create a shard's progress before its first batch: nothing was handled. One write unit.

    Conditional on the shard having no progress.
    """
    nothing = ShardProgress(shard, _NOTHING, 0, now_ms, 0, 0, 0)
    return Update(table, keys.progress_key(shard), _clauses(nothing), Absent("position"))


def advance_of(table: str, progress: ShardProgress) -> Update:
    """Move a shard's progress forward, and add up its numbers. One write unit.

    Conditional on a lower progress being stored. It never creates one: absent progress was lost.
    """
    condition = Compare("position", "<", _padded(progress.position))
    clauses = (*_clauses(progress), Drop("attempted"), Drop("attempts"))
    return Update(table, keys.progress_key(progress.shard), clauses, condition)


def recovery_of(table: str, progress: ShardProgress, found: Item | None) -> Update:
    """Replace progress that is lost or cannot be read. One write unit.

    Conditional on the item being as found.
    """
    same = all_unchanged(found or {}, "position", "handled_at")
    names = ("earlier", "earlier_at", "landed", "attempted", "attempts")
    numbers = ("records", "updates", "write_units")
    clauses = tuple(clause for clause in _clauses(progress) if clause.name not in numbers)
    zeros = tuple(Assign(name, 0) for name in numbers)
    drops = tuple(Drop(name) for name in names)
    key = keys.progress_key(progress.shard)
    return Update(table, key, (*clauses, *zeros, *drops), same)


def attempt_started_of(table: str, shard: str, first: int, attempts: int) -> Update:
    """Store, before a batch is applied, the number of this attempt at it. One write unit."""
    clauses = (Assign("attempted", _padded(first)), Assign("attempts", attempts))
    return Update(
        table, keys.progress_key(shard), clauses, Compare("position", "<", _padded(first))
    )


def attempt_ended_of(table: str, shard: str, first: int) -> Update:
    """Remove the stored attempt, because its invocation came to an end. One write unit."""
    condition = Compare("attempted", "=", _padded(first))
    drops = (Drop("attempted"), Drop("attempts"))
    return Update(table, keys.progress_key(shard), drops, condition)


def _clauses(progress: ShardProgress) -> tuple[Clause, ...]:
    history = (
        ("earlier", None if progress.earlier is None else _padded(progress.earlier)),
        ("earlier_at", progress.earlier_at_ms),
        ("landed", None if progress.landed is None else _padded(progress.landed)),
    )
    expires_at = (progress.handled_at_ms + PROGRESS_LIFE_MS) // SECOND_MS
    return (
        Assign("sequence", progress.sequence),
        Assign("position", _padded(progress.position)),
        Assign("handled_through", progress.handled_through_ms),
        Assign("handled_at", progress.handled_at_ms),
        Assign("expires_at", expires_at),
        *(Assign(name, value) for name, value in history if value is not None),
        Add("records", progress.records),
        Add("updates", progress.updates),
        Add("write_units", round(progress.write_units)),
    )


def _padded(sequence: int) -> str:
    return str(sequence).zfill(_DIGITS)


def decode_progress(item: Item) -> ShardProgress:
    check_format(item)
    sequence = require(item, "sequence", str)
    if _position_in(item, "position") != _number(item, "sequence", sequence):
        raise CorruptItem(f"progress {item.get('counter')!r}: `position` is not `sequence`")
    return ShardProgress(
        shard=require(item, "counter", str).removeprefix(keys.STREAM_PREFIX),
        sequence=sequence,
        handled_through_ms=require(item, "handled_through", int),
        handled_at_ms=require(item, "handled_at", int),
        records=require(item, "records", int),
        updates=require(item, "updates", int),
        write_units=require(item, "write_units", int),
        earlier=_position_in(item, "earlier"),
        earlier_at_ms=optional(item, "earlier_at", int),
        landed=_position_in(item, "landed"),
        attempted=_position_in(item, "attempted"),
        attempts=optional(item, "attempts", int) or 0,
    )


def known_progress(item: Item) -> ShardProgress:
    """As `decode_progress`, but progress that cannot be read must not pass for none: it is lost."""
    try:
        return decode_progress(item)
    except NewerFormat:
        raise
    except CorruptItem as error:
        shard = str(item["counter"]).removeprefix(keys.STREAM_PREFIX)
        raise lost(shard, str(error)) from error


def lost(shard: object, reason: str = "it is not there") -> ProgressLost:
    return ProgressLost(
        f"the progress of stream shard {shard} is lost ({reason}), so none of its records is "
        "applied: they might count twice. Run `countledger repair --lost-progress`, then "
        "`countledger repair --all` (docs/runbook.md, 'The progress of a shard is lost')"
    )


def _position_in(item: Item, name: str) -> int | None:
    text = optional(item, name, str)
    return None if text is None else _number(item, name, text)


def _number(item: Item, name: str, text: str) -> int:
    if len(text) > _DIGITS or not text.isdecimal():
        raise CorruptItem(f"progress {item.get('counter')!r}: {name!r} is {text[:60]!r}")
    return int(text)


@dataclass(frozen=True, slots=True)
class ShardDirectory:
    """Opens shards, and knows when this process renewed their entries."""

    _renewed: dict[str, int] = field(default_factory=dict, repr=False)

    def open(
        self, dynamo: DynamoClient, table: str, shard: ShardName, now_ms: int
    ) -> ShardProgress:
        """The progress of a shard: one read unit; for a new shard three, and two write units.

        If that fails, nothing may be applied. `ProgressLost`: the shard is known, and its progress
        is absent or cannot be read.
        """
        progress = _read_one(dynamo, table, shard)
        if progress is None and is_known(_entry(dynamo, table, shard), now_ms):
            # Another invocation may have written both since the first read.
            progress = _read_one(dynamo, table, shard)
            if progress is None:
                raise lost(shard)
        if progress is None:
            with suppress(ConditionFailed):
                dynamo.update(opening_of(table, str(shard), now_ms))
            progress = _read_one(dynamo, table, shard)
            if progress is None:
                raise ServiceFailed(f"the progress of {shard} was written and is gone; try again")
        if progress.position == 0:
            dynamo.update(entry_of(table, shard, now_ms))
            self._renewed[str(shard)] = now_ms
        return progress

    def renew(self, dynamo: DynamoClient, table: str, shard: ShardName, now_ms: int) -> None:
        """Extend a shard's entry after its progress moved: one write unit a day.

        If the write fails, the next batch tries again.
        """
        if now_ms - self._renewed.get(str(shard), 0) < KNOWN_SHARD_RENEWED_MS:
            return
        with suppress(CountledgerError):
            dynamo.update(entry_of(table, shard, now_ms))
            self._renewed[str(shard)] = now_ms


def _read_one(dynamo: DynamoClient, table: str, shard: ShardName) -> ShardProgress | None:
    item = dynamo.get(table, keys.progress_key(str(shard)), consistent=True)
    return None if item is None else known_progress(item)


def _entry(dynamo: DynamoClient, table: str, shard: ShardName) -> Item | None:
    return dynamo.get(table, keys.known_shard_key(shard.stream, shard.id), consistent=True)


def is_known(entry: Item | None, now_ms: int) -> bool:
    """Whether an entry is valid: an expired item may stay in the table for days."""
    expires_at = (entry or {}).get("expires_at")
    return isinstance(expires_at, int) and expires_at * SECOND_MS > now_ms


def entry_of(table: str, shard: ShardName, now_ms: int) -> Update:
    """Enter a shard into the directory, or extend its entry. One write unit."""
    expires_at = (now_ms + KNOWN_SHARD_LIFE_MS) // SECOND_MS
    key = keys.known_shard_key(shard.stream, shard.id)
    return Update(table, key, (Assign("expires_at", expires_at),))


def known_shards(dynamo: DynamoClient, table: str, stream: str) -> Iterator[str]:
    """The ids of a stream's known shards, in no order: half a read unit for about 50 of them."""
    condition = Compare("counter", "=", keys.STREAM_PREFIX + stream)
    for page in dynamo.pages(Query(table, condition)):
        for item in page:
            yield str(item["part"])


@dataclass(frozen=True, slots=True)
class ProgressRecovery:
    connection: Connection

    def recover(self) -> Iterator[str]:
        """Mark each known shard without readable progress as handled to its end; yield its name.

        Two read units for each shard of the stream; for each recovered shard one write unit, and
        all its records are read. Repair all totals afterwards.
        """
        to, stream = self.connection, LedgerStream(self.connection)
        stream.check_on()
        for one in stream.shards():
            key = keys.progress_key(str(one.shard))
            item = to.retrying.get(to.counters, key, consistent=True)
            if self._is_lost(one, item) and self._recover(stream, one, item):
                yield str(one.shard)

    def _is_lost(self, one: StreamShard, item: Item | None) -> bool:
        if item is None:
            key = keys.known_shard_key(one.shard.stream, one.shard.id)
            to = self.connection
            entry = to.retrying.get(to.counters, key, consistent=True)
            return is_known(entry, to.clock.now_ms())
        try:
            known_progress(item)
        except ProgressLost:
            return True
        return False

    def _recover(self, stream: LedgerStream, one: StreamShard, item: Item | None) -> bool:
        sequence, made_ms = "0", 0
        pages = CLOSED if one.closed else CLOSELY
        for record in stream.after(one.shard, None, empty_pages=pages):
            sequence, made_ms = record["dynamodb"]["SequenceNumber"], int(made_at_ms(record))
        to, now_ms = self.connection, self.connection.clock.now_ms()
        recovered = ShardProgress(str(one.shard), sequence, made_ms, now_ms, 0, 0, 0)
        try:
            to.retrying.update(recovery_of(to.counters, recovered, item))
        except ConditionFailed as refused:
            # Another process wrote it, or an attempt of this one that got no answer.
            found = refused.item or {}
            return (found.get("sequence"), found.get("handled_at")) == (sequence, now_ms)
        return True


# Watermarks: up to which record of a stream shard a total contains the shard's records.
#
# A watermark is an attribute of the total's own item, so effect and watermark are one write. A
# shard delivers its records in order the first time, so each record at or below the watermark has
# been applied.
#
# A counter's records come from several shards (its entries may be in several partitions, and each
# shard is replaced by a child within hours). So a total has one watermark for each shard: an
# attribute named `w` and a hash of the shard, which holds 17 bytes of sequence number and 4 bytes
# of the minute when the watermark was last moved. Compared as bytes, the sequence number decides.
#
# A watermark is removed when it can refuse nothing any more. Each delivered record is first
# compared with the shard's progress, and dropped if it is at or below it. So a watermark at or
# below the progress refuses only writes of invocations that began before the progress was stored.
# Once these writes have landed, the watermark can go. A total therefore has the watermarks of the
# open shards and a few more, of 34 bytes each, and stays below 1 KB, which is one write unit.


PREFIX: Final = "w"
# Sequence numbers have up to 40 digits; DynamoDB's numbers hold 38, and texts of different
# lengths do not compare like numbers.
_SEQUENCE_BYTES: Final = 17
_MINUTE_BYTES: Final = 4
_SHARD_HASH_BYTES: Final = 9
# Below this many stale ones the clean-up would cost more writes than it saves.
STALE_ENOUGH: Final = 4

if 1 << 8 * _SEQUENCE_BYTES <= END:
    raise AssertionError("a sequence number of 40 digits must fit")


@lru_cache(maxsize=1_000)
def attribute(shard: str) -> str:
    """The attribute that holds the watermark of a stream shard."""
    digest = blake2b(shard.encode(), digest_size=_SHARD_HASH_BYTES).digest()
    return PREFIX + urlsafe_b64encode(digest).decode()


def encode(sequence: int, moved_at_ms: int) -> bytes:
    """A watermark's value."""
    minute = moved_at_ms // MINUTE_MS
    return sequence.to_bytes(_SEQUENCE_BYTES) + minute.to_bytes(_MINUTE_BYTES)


def floor(sequence: int) -> bytes:
    """The least value of a watermark at this sequence number; earlier watermarks are lower."""
    return sequence.to_bytes(_SEQUENCE_BYTES) + bytes(_MINUTE_BYTES)


def sequence_in(total: Item | None, shard: str) -> int | None:
    """The sequence number of a shard's watermark in a total's item, if there is one."""
    value = (total or {}).get(attribute(shard))
    return sequence_of(value) if isinstance(value, bytes) else None


# Another write moves the watermark only if a late write of an earlier invocation lands at the same
# time; each attempt leaves fewer changes.
_MOVED_MOST: Final = 10


def write_above(
    dynamo: DynamoClient,
    shard: str,
    changes: _Changes,
    update_of: Callable[[_Changes], Update],
    *,
    what: str,
    check: Callable[[Item], object] = check_format,
) -> tuple[_Changes | None, Item]:
    """Write the changes (at least one) that an item does not contain yet; a write unit for each KB.

    `update_of` makes the update for those that are left: conditional on the shard's watermark,
    which it moves; if others move it each time, that is a `ServiceFailed`. An item that refused one
    is checked. The answer: the changes that it wrote (None: the item contained all of them), and
    the item now. `what` is for messages.
    """
    for _ in range(_MOVED_MOST):
        try:
            return changes, dynamo.update(update_of(changes)) or {}
        except ConditionFailed as failed:
            found = failed.item or {}
            check(found)
            changes = changes.above(sequence_in(found, shard))
            if changes.is_empty:
                return None, found
    raise ServiceFailed(f"{what}: other writes moved the watermark during {_MOVED_MOST} updates")


def sequence_of(value: bytes) -> int:
    """The sequence number in a watermark's value."""
    return int.from_bytes(value[:_SEQUENCE_BYTES])


def marks_in(total: Item) -> dict[str, bytes]:
    """All watermarks of a total, by attribute name."""
    return {
        name: value
        for name, value in total.items()
        if name.startswith(PREFIX) and isinstance(value, bytes)
    }


def stale(total: Item, now_ms: int) -> dict[str, bytes]:
    """The watermarks not moved for so long that no record they refuse can be delivered."""
    limit = (now_ms - WATERMARK_LIFE_MS) // MINUTE_MS
    return {
        name: value
        for name, value in marks_in(total).items()
        if int.from_bytes(value[_SEQUENCE_BYTES:]) < limit
    }


# How long a read is reused. Later progress only allows more watermarks to be removed.
PASSED_AGE_MS: Final = 5 * MINUTE_MS


@dataclass(slots=True)
class PassedShards:
    """Finds watermarks that can be removed, by how far shards had been handled some time ago.

    A write that did not know a shard's progress may still land for `late_ms`. A total is cleaned up
    from `enough` watermarks on. A read of progress is reused for `age_ms`.
    """

    late_ms: int = LATE_WRITE_MS
    enough: int = STALE_ENOUGH
    age_ms: int = PASSED_AGE_MS
    _names: dict[str, str] = field(default_factory=dict, repr=False)
    _listed_at_ms: dict[str, int] = field(default_factory=dict, repr=False)
    _known: dict[str, tuple[int, ShardProgress | None]] = field(default_factory=dict, repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def removable(
        self, dynamo: DynamoClient, table: str, total: Item, stream: str, now_ms: int
    ) -> dict[str, bytes]:
        """The watermarks of a total that can be removed; none if they are few.

        At most once in `age_ms`: half a read unit for about 50 known shards of the stream with this
        label, and half a read unit for each shard that has a watermark in a total.
        """
        marks = marks_in(total)
        if len(marks) < self.enough:
            return {}
        found = stale(total, now_ms)
        # The writers of a batch call this at once: one of them reads, the others do not wait.
        if self._lock.acquire(blocking=False):
            try:
                self._learn(dynamo, table, marks, stream, now_ms)
            finally:
                self._lock.release()
        for name, value in marks.items():
            _, progress = self._known.get(name, (0, None))
            passed = None if progress is None else progress.passed(now_ms, self.late_ms)
            if passed is not None and sequence_of(value) <= passed:
                found[name] = value
        return found if len(found) >= self.enough else {}

    def _learn(
        self, dynamo: DynamoClient, table: str, names: Iterable[str], stream: str, now_ms: int
    ) -> None:
        old = [name for name in names if not self._is_fresh(name, now_ms)]
        if not old:
            return
        listed_at_ms = self._listed_at_ms.get(stream)
        unknown = any(name not in self._names for name in old)
        if unknown and (listed_at_ms is None or now_ms - listed_at_ms >= self.age_ms):
            for shard_id in known_shards(dynamo, table, stream):
                shard = f"{stream}/{shard_id}"
                self._names[attribute(shard)] = shard
            self._listed_at_ms[stream] = now_ms
        wanted = {name: self._names[name] for name in old if name in self._names}
        progress = _read_all(dynamo, table, wanted.values())
        for name, shard in wanted.items():
            self._known[name] = now_ms, progress.get(shard)

    def _is_fresh(self, name: str, now_ms: int) -> bool:
        known = self._known.get(name)
        return known is not None and now_ms - known[0] < self.age_ms


def _read_all(dynamo: DynamoClient, table: str, shards: Iterable[str]) -> dict[str, ShardProgress]:
    found: dict[str, ShardProgress] = {}
    for item in dynamo.get_many(table, [keys.progress_key(shard) for shard in shards]):
        try:
            progress = decode_progress(item)
        except CorruptItem:
            continue  # that shard's own batches stop, with an error
        found[progress.shard] = progress
    return found
