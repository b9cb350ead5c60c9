"""The sweep: counters get into the due index whose entries came before anybody asked for it.

The materializer puts a counter into the index when its next entry comes. One that had enough
entries when its namespace got a schedule (or a lower least number), and gets no more, would wait
for ever. So a while after such a change, when every materializer knows of it, the workers read all
totals once, in segments.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from countledger.compaction.work import SweepSegment
from countledger.ledger import keys
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.due import mark_of, standing_in
from countledger.ledger.errors import ConditionFailed, CorruptItem
from countledger.ledger.expressions import Compare
from countledger.ledger.limits import DUE_RULE_LIFE_MS, MINUTE_MS
from countledger.ledger.operations import Scan

if TYPE_CHECKING:
    from countledger.ledger.attributes import Item
    from countledger.ledger.due import DueRule
    from countledger.ledger.dynamo import DynamoClient

SEGMENTS: Final = 8
# From then on no materializer works by what it knew before: its knowledge, and a batch under way.
SETTLED_MS: Final = DUE_RULE_LIFE_MS + 3 * MINUTE_MS

_HAS_TOTAL: Final = Compare("part", "=", keys.TOTAL)


def segments_of(namespace: str) -> list[SweepSegment]:
    """The work of one sweep."""
    return [SweepSegment(namespace, number, SEGMENTS) for number in range(SEGMENTS)]


@dataclass(frozen=True, slots=True)
class Sweeper:
    """Reads a segment of the totals and marks what should be in the index.

    Attributes:
        dynamo: a DynamoDB client.
        table: the table `counters`.
        clock: tells the time.
        page_size: the most items to read at once, or None for as many as fit.
    """

    dynamo: DynamoClient
    table: str
    clock: Clock = field(default_factory=SystemClock)
    page_size: int | None = None

    def sweep(
        self, work: SweepSegment, rule: DueRule, deadline_ms: int | None = None
    ) -> SweepSegment | None:
        """Mark the counters of a segment: half a read unit for each 4 KB of the table read.

        Each counter that it marks takes two write units.

        Returns:
            What is left at the deadline, or None.
        """
        while True:
            page = self.dynamo.page(
                Scan(
                    self.table,
                    _HAS_TOTAL,
                    segment=work.segment,
                    segments=work.segments,
                    after=work.after,
                    page_size=self.page_size,
                )
            )
            for total in page.items:
                if keys.namespace_of(total["counter"]) == work.namespace:
                    self._mark(total, rule)
            if page.after is None:
                return None
            work = replace(work, after=page.after)
            if deadline_ms is not None and self.clock.now_ms() >= deadline_ms:
                return work

    def _mark(self, total: Item, rule: DueRule) -> None:
        try:
            mark = mark_of(self.table, standing_in(total), rule, self.clock.now_ms())
            if mark is not None:
                self.dynamo.update(mark)
        except (ConditionFailed, CorruptItem):
            # Marked meanwhile, or corrupt by hand, which `verify` tells.
            return
