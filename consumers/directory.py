"""The directory of stream shards: which are known, so that lost progress is never read as none.

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

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from countledger.consumers.progress import (
    ShardProgress,
    known_progress,
    lost,
    opening_of,
    recovery_of,
)
from countledger.consumers.record import CLOSED, CLOSELY, LedgerStream, StreamShard, made_at_ms
from countledger.ledger import keys
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.errors import (
    ConditionFailed,
    CountledgerError,
    ProgressLost,
    ServiceFailed,
)
from countledger.ledger.limits import KNOWN_SHARD_LIFE_MS, KNOWN_SHARD_RENEWED_MS, SECOND_MS
from countledger.ledger.operations import Assign, Compare, Query, Update

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.consumers.record import ShardName
    from countledger.ledger.attributes import Item
    from countledger.ledger.dynamo import DynamoClient


@dataclass(frozen=True, slots=True)
class ShardDirectory:
    """Opens shards, and stores when this process renewed their entries."""

    _renewed: dict[str, int] = field(default_factory=dict, repr=False)

    def open(
        self, dynamo: DynamoClient, table: str, shard: ShardName, now_ms: int
    ) -> ShardProgress:
        """The progress of a shard: one read unit; for a new shard three, and two write units.

        Raises:
            ProgressLost: the shard is known, and its progress is absent or cannot be read.
            ServiceFailed: the progress could not be read or created; nothing may be applied.
        """
        progress = _read(dynamo, table, shard)
        if progress is None and is_known(_entry(dynamo, table, shard), now_ms):
            # Another invocation may have written both since the first read.
            progress = _read(dynamo, table, shard)
            if progress is None:
                raise lost(shard)
        if progress is None:
            with suppress(ConditionFailed):
                dynamo.update(opening_of(table, str(shard), now_ms))
            progress = _read(dynamo, table, shard)
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


def _read(dynamo: DynamoClient, table: str, shard: ShardName) -> ShardProgress | None:
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
    """Finds shards whose progress is lost, and writes new progress for them.

    Attributes:
        dynamo: a DynamoDB client.
        table: the table `counters`.
        stream: the stream of `ledger`.
        clock: the time.
    """

    dynamo: DynamoClient
    table: str
    stream: LedgerStream
    clock: Clock = field(default_factory=SystemClock)

    def recover(self) -> Iterator[str]:
        """Mark each known shard without readable progress as handled to its end.

        Two read units for each shard of the stream; for each recovered shard one write unit, and
        all its records are read. Repair all totals afterwards.

        Returns:
            The names of the recovered shards, as they are recovered.

        Raises:
            SetupError: the stream was switched off.
        """
        self.stream.check_on()
        for one in self.stream.shards():
            item = self.dynamo.get(self.table, keys.progress_key(str(one.shard)), consistent=True)
            if self._is_lost(one, item) and self._recover(one, item):
                yield str(one.shard)

    def _is_lost(self, one: StreamShard, item: Item | None) -> bool:
        if item is None:
            key = keys.known_shard_key(one.shard.stream, one.shard.id)
            entry = self.dynamo.get(self.table, key, consistent=True)
            return is_known(entry, self.clock.now_ms())
        try:
            known_progress(item)
        except ProgressLost:
            return True
        return False

    def _recover(self, one: StreamShard, item: Item | None) -> bool:
        sequence, made_ms = "0", 0
        pages = CLOSED if one.closed else CLOSELY
        for record in self.stream.after(one.shard, None, empty_pages=pages):
            sequence, made_ms = record["dynamodb"]["SequenceNumber"], int(made_at_ms(record))
        now_ms = self.clock.now_ms()
        recovered = ShardProgress(str(one.shard), sequence, made_ms, now_ms, 0, 0, 0)
        try:
            self.dynamo.update(recovery_of(self.table, recovered, item))
        except ConditionFailed as refused:
            # Another process wrote it, or an attempt of this one that got no answer.
            found = refused.item or {}
            return (found.get("sequence"), found.get("handled_at")) == (sequence, now_ms)
        return True
