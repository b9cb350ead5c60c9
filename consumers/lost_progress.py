"""Lost progress: a shard whose progress is gone is let go on, and its totals are repaired then.

Nobody knows how far such a shard had been handled. So it counts as handled to its end: whatever is
delivered up to there is dropped, and nothing counts twice. What had not been handled is missing
from the totals until they are repaired, which takes it from the ledger.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from countledger.consumers.directory import is_known
from countledger.consumers.progress import ShardProgress, decode_progress, recovery_of
from countledger.consumers.stream import CLOSED, CLOSELY, LedgerStream, StreamShard, made_at_ms
from countledger.ledger import keys
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.errors import ConditionFailed, CorruptItem, NewerFormat

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.ledger.attributes import Item
    from countledger.ledger.dynamo import DynamoClient


@dataclass(frozen=True, slots=True)
class ProgressRecovery:
    """Finds shards whose progress is lost, and gives them progress again.

    Attributes:
        dynamo: a DynamoDB client.
        table: the table `counters`.
        stream: the stream of `ledger`.
        clock: tells the time.
    """

    dynamo: DynamoClient
    table: str
    stream: LedgerStream
    clock: Clock = field(default_factory=SystemClock)

    def recover(self) -> Iterator[str]:
        """Let every known shard without readable progress count as handled to its end; which.

        Two read units for each shard of the stream; for each that is mended one write unit, and
        all its records are read. Then every total has to be repaired.

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
            decode_progress(item)
        except NewerFormat:
            raise
        except CorruptItem:
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
            # Somebody else was here, or an attempt of ours whose answer was lost.
            there = refused.item or {}
            return (there.get("sequence"), there.get("handled_at")) == (sequence, now_ms)
        return True
