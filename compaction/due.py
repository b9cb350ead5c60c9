"""The compactor's side of the due index: which counters to look at, what a run leaves behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from countledger.ledger import keys
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.due import (
    DueRule,
    Standing,
    buckets_of,
    due_query,
    settlement_of,
    standing_in,
)
from countledger.ledger.errors import ConditionFailed
from countledger.ledger.expressions import Compare
from countledger.ledger.operations import Scan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.ledger.dynamo import DynamoClient

# Each is beaten only by an entry that comes in between; a counter so busy is settled next time.
_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class DueIndex:
    """The due index of a stack.

    Attributes:
        dynamo: a DynamoDB client; every write here carries a condition.
        table: the table `counters`.
        clock: tells the time.
    """

    dynamo: DynamoClient
    table: str
    clock: Clock = field(default_factory=SystemClock)

    def due(self, namespace: str) -> Iterator[str]:
        """The counters of a namespace that are due, in no order over all.

        Half a read unit for each 4 KB of them, and for each of the sixteen buckets at least.
        """
        now_ms = self.clock.now_ms()
        for bucket in buckets_of(namespace):
            for page in self.dynamo.pages(due_query(self.table, bucket, now_ms)):
                yield from (item["counter"] for item in page)

    def all_of(self, namespace: str) -> Iterator[str]:
        """Every counter of a namespace that has a total, due or not; reads the table whole."""
        totals = Scan(self.table, Compare("part", "=", keys.TOTAL), ("counter",))
        for page in self.dynamo.pages(totals):
            for item in page:
                if keys.namespace_of(item["counter"]) == namespace:
                    yield item["counter"]

    def standing(self, counter: str) -> Standing | None:
        """Where a counter stands; None without a total. One read unit.

        Raises:
            CorruptItem: its total cannot be read.
        """
        total = self.dynamo.get(self.table, keys.total_key(counter), consistent=True)
        return None if total is None else standing_in(total)

    def is_due(self, counter: str) -> bool:
        """Whether a counter is due still: another worker may have had it. One read unit."""
        standing = self.standing(counter)
        due_at_ms = standing.due_at_ms if standing else None
        return due_at_ms is not None and due_at_ms <= self.clock.now_ms()

    def settle(self, counter: str, compacted: int, rule: DueRule | None) -> None:
        """Note what is compacted, and when the counter is due again, if it will be.

        A read unit and two or three write units. A counter to which entries keep coming meanwhile
        stays due: the next run settles it.

        Args:
            counter: its name.
            compacted: how many entries its head stands for.
            rule: of its namespace; None: it has no schedule.
        """
        standing = self.standing(counter)
        for _ in range(_ATTEMPTS):
            if standing is None:
                return  # the total is missing: a repair makes it, and it counts all as waiting
            note = settlement_of(self.table, standing, compacted, rule, self.clock.now_ms())
            if note is None:
                return
            try:
                self.dynamo.update(note)
            except ConditionFailed as failed:
                if standing.compacted > compacted:
                    return  # a later run has noted more
                standing = standing_in(failed.item) if failed.item else None
            else:
                return
