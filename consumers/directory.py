"""The directory of stream shards: which are known, so that lost progress is never taken for none.

A shard's records are compared with its progress before they are applied. If progress that was lost
were read as zero, what a mapping delivers again would count twice. So a shard gets its progress (of
nothing) and then its entry in this directory before its first batch is applied:

    progress    entry
    there       any        go on; while nothing was handled, make sure of the entry
    absent      absent     a new shard: make the progress, then the entry
    absent      there      the progress was lost: stop
    unreadable  any        the same

The entry expires, by its own time, before the progress does, and later than any record of the shard
can be delivered.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from countledger.consumers.progress import ShardProgress, decode_progress, opening_of
from countledger.ledger import keys
from countledger.ledger.errors import (
    ConditionFailed,
    CorruptItem,
    CountledgerError,
    NewerFormat,
    ProgressLost,
    ServiceFailed,
)
from countledger.ledger.expressions import Assign, Compare
from countledger.ledger.limits import KNOWN_SHARD_LIFE_MS, KNOWN_SHARD_RENEWED_MS, SECOND_MS
from countledger.ledger.operations import Query, Update

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.consumers.shard import ShardName
    from countledger.ledger.attributes import Item
    from countledger.ledger.dynamo import DynamoClient


@dataclass(frozen=True, slots=True)
class ShardDirectory:
    """Opens shards, and remembers which entries this process renewed."""

    _renewed: dict[str, int] = field(default_factory=dict, repr=False)

    def open(
        self, dynamo: DynamoClient, table: str, shard: ShardName, now_ms: int
    ) -> ShardProgress:
        """The progress of a shard: one read unit; of a new shard three, and two write units.

        Raises:
            ProgressLost: the shard is known, and its progress is not there or cannot be read.
            ServiceFailed: it could not be read or made; nothing may be applied.
        """
        progress = _read(dynamo, table, shard)
        if progress is None and is_known(_entry(dynamo, table, shard), now_ms):
            # Another invocation may have made both since.
            progress = _read(dynamo, table, shard)
            if progress is None:
                raise ProgressLost(lost_text(shard))
        if progress is None:
            with suppress(ConditionFailed):
                dynamo.update(opening_of(table, str(shard), now_ms))
            progress = _read(dynamo, table, shard)
            if progress is None:
                raise ServiceFailed(f"the progress of {shard} was made and is not there; try again")
        if progress.position == 0:
            dynamo.update(entry_of(table, shard, now_ms))
            self._renewed[str(shard)] = now_ms
        return progress

    def renew(self, dynamo: DynamoClient, table: str, shard: ShardName, now_ms: int) -> None:
        """Let a shard be known for longer, after its progress moved: a write unit a day.

        Where that fails, the next batch tries again.
        """
        if now_ms - self._renewed.get(str(shard), 0) < KNOWN_SHARD_RENEWED_MS:
            return
        with suppress(CountledgerError):
            dynamo.update(entry_of(table, shard, now_ms))
            self._renewed[str(shard)] = now_ms


def _read(dynamo: DynamoClient, table: str, shard: ShardName) -> ShardProgress | None:
    item = dynamo.get(table, keys.progress_key(str(shard)), consistent=True)
    try:
        return None if item is None else decode_progress(item)
    except NewerFormat:
        raise
    except CorruptItem as error:
        raise ProgressLost(lost_text(shard, str(error))) from error


def _entry(dynamo: DynamoClient, table: str, shard: ShardName) -> Item | None:
    return dynamo.get(table, keys.known_shard_key(shard.stream, shard.id), consistent=True)


def lost_text(shard: ShardName | str, reason: str = "it is not there") -> str:
    """What a person is told of lost progress."""
    return (
        f"the progress of stream shard {shard} is lost ({reason}), so none of its records is "
        "applied: they might count twice. Run `countledger repair --lost-progress`, then "
        "`countledger repair --all` (docs/runbook.md, 'The progress of a shard is lost')"
    )


def is_known(entry: Item | None, now_ms: int) -> bool:
    """Whether an entry holds: what has expired may still be there for days."""
    expires_at = (entry or {}).get("expires_at")
    return isinstance(expires_at, int) and expires_at * SECOND_MS > now_ms


def entry_of(table: str, shard: ShardName, now_ms: int) -> Update:
    """Enter a shard into the directory, or let it stay there for longer. One write unit."""
    expires_at = (now_ms + KNOWN_SHARD_LIFE_MS) // SECOND_MS
    key = keys.known_shard_key(shard.stream, shard.id)
    return Update(table, key, (Assign("expires_at", expires_at),))


def known_shards(dynamo: DynamoClient, table: str, stream: str) -> Iterator[str]:
    """The ids of a stream's known shards, in no order: half a read unit for some 50 of them."""
    condition = Compare("counter", "=", keys.STREAM_PREFIX + stream)
    for page in dynamo.pages(Query(table, condition)):
        for item in page:
            yield str(item["part"])
