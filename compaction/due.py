"""The compactor's side of the due index: the counters worth a run, and what a run leaves.

The materializer puts a counter into the index when its next entry arrives. That is too late for a
counter that had enough entries when its namespace got a schedule (or a lower minimum number) and
gets no more. So some time after such a change, when every materializer knows it, the workers sweep:
they read all totals once, in segments, and put such counters into the index.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from countledger.ledger import keys
from countledger.ledger.attempts import Again, Done, DynamoPerformer, Send, attempt, run
from countledger.ledger.clock import Backoff
from countledger.ledger.errors import ConditionFailed, CorruptItem, CountledgerError
from countledger.ledger.indexes import (
    DueRule,
    DueState,
    buckets_of,
    due_query,
    due_state_of,
    mark_of,
    reschedule_of,
)
from countledger.ledger.limits import DUE_RULE_LIFE_MS, MINUTE_MS
from countledger.ledger.operations import Compare, Scan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.ledger.attempts import Reply, Verdict
    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.connection import Connection
    from countledger.ledger.operations import Update

# Only a new entry makes an attempt fail, and the refusal shows what changed, so no wait is needed.
# If all attempts fail, the next run reschedules the counter.
_BACKOFF: Final = Backoff(attempts=5, base_ms=0)
SEGMENTS: Final = 8
# After that every materializer knows the schedule: what it has cached, and a batch under way.
SWEEP_AFTER_MS: Final = DUE_RULE_LIFE_MS + 3 * MINUTE_MS
_HAS_TOTAL: Final = Compare("part", "=", keys.TOTAL)


class _Reschedule(NamedTuple):
    due_state: DueState
    note: Update


class DueIndex:
    """The due index of a stack; every write here carries a condition."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.dynamo, self.table = connection.retrying, connection.counters

    def due(self, namespace: str) -> Iterator[str]:
        """The counters of a namespace that are due, in no particular order.

        Half a read unit for each 4 KB of them, and for each of the sixteen buckets at least.
        """
        now_ms = self.connection.clock.now_ms()
        for bucket in buckets_of(namespace):
            for page in self.dynamo.pages(due_query(self.table, bucket, now_ms)):
                yield from (item["counter"] for item in page)

    def all_of(self, namespace: str) -> Iterator[str]:
        """Every counter of a namespace that has a total, due or not; reads the whole table."""
        for page in self.dynamo.pages(Scan(self.table, _HAS_TOTAL, ("counter",))):
            for item in page:
                if keys.namespace_of(item["counter"]) == namespace:
                    yield item["counter"]

    def due_state(self, counter: str) -> DueState | None:
        """What a counter's total says of its entries; None without a total. One read unit."""
        total = self.dynamo.get(self.table, keys.total_key(counter), consistent=True)
        return None if total is None else due_state_of(total)

    def is_due(self, counter: str) -> bool:
        """Whether a counter is still due: another worker may have compacted it. One read unit."""
        due_state = self.due_state(counter)
        due_at_ms = due_state.due_at_ms if due_state else None
        return due_at_ms is not None and due_at_ms <= self.connection.clock.now_ms()

    def reschedule(self, counter: str, compacted: int, rule: DueRule | None) -> None:
        """Note how many entries are compacted, and when the counter is due again, if ever.

        A read unit and two or three write units. A counter that gets entries all the time stays
        due: the next run reschedules it. Without `rule` the namespace has no schedule.
        """

        def noting(due_state: DueState | None) -> _Reschedule | None:
            if due_state is None:
                return None  # the total is missing: a repair makes it, with all entries waiting
            note = reschedule_of(
                self.table, due_state, compacted, rule, self.connection.clock.now_ms()
            )
            return None if note is None else _Reschedule(due_state, note)

        def interpret(reply: Reply[_Reschedule]) -> Verdict[_Reschedule, None]:
            if not isinstance(reply.answer, CountledgerError):
                return Done(None)
            if not isinstance(reply.answer, ConditionFailed):
                raise reply.answer
            if reply.state.due_state.compacted > compacted:
                return Done(None)  # a later run has noted more
            found = reply.answer.item
            following = noting(due_state_of(found) if found else None)
            return Again(following) if following else Done(None)

        first = noting(self.due_state(counter))
        if first is not None:
            attempts = self.connection.attempts(policy=_BACKOFF)
            steps = attempt(first, lambda one: Send(one.note), interpret, lambda _: None, attempts)
            run(steps, DynamoPerformer(self.dynamo, self.dynamo, self.connection.clock))


@dataclass(frozen=True, slots=True)
class SweepSegment:
    """A part of a sweep: put missing counters into the due index, from a key of the table on."""

    namespace: str
    segment: int
    segments: int
    after: Key | None = None


def segments_of(namespace: str) -> list[SweepSegment]:
    return [SweepSegment(namespace, number, SEGMENTS) for number in range(SEGMENTS)]


class Sweeper:
    """Reads a segment of the totals and puts the missing counters into the due index."""

    def __init__(self, connection: Connection, page_size: int | None = None) -> None:
        self.connection, self.page_size = connection, page_size
        self.dynamo, self.table = connection.retrying, connection.counters

    def sweep(
        self, work: SweepSegment, rule: DueRule, deadline_ms: int | None = None
    ) -> SweepSegment | None:
        """Sweep a segment; what is left of it at the deadline, or None.

        Half a read unit for each 4 KB of the table. Each counter that is put into the index takes
        two write units.
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
            if deadline_ms is not None and self.connection.clock.now_ms() >= deadline_ms:
                return work

    def _mark(self, total: Item, rule: DueRule) -> None:
        try:
            mark = mark_of(self.table, due_state_of(total), rule, self.connection.clock.now_ms())
            if mark is not None:
                self.dynamo.update(mark)
        except (ConditionFailed, CorruptItem):
            # In the index by now, or corrupt, which `verify` reports.
            return
