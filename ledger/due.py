"""The due index: which ledger counters are worth compacting, and from when on.

Entries grow old while nothing is written, so no write can start a compaction at the right moment.
Therefore its total carries the moment when the oldest entry will be old enough (`due_at`) and a
bucket of its namespace (`due_bucket`); a sparse index over both lists the counters by that moment.

    materializer   sets due_at where enough entries wait and it is absent, also on redelivery
    compactor      writes how many are compacted, and removes due_at or sets it again, in one write

Both decide on what one write shows, so an entry that comes in between is not forgotten: its update
either still sees due_at, and then the removal fails for the entries it did not know of, or it sees
none, and sets it.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from countledger.ledger import keys
from countledger.ledger.attributes import Item, check_format, optional, require
from countledger.ledger.operations import (
    Absent,
    AllOf,
    AnyOf,
    Assign,
    Clause,
    Compare,
    Drop,
    Query,
    Update,
)

if TYPE_CHECKING:
    from countledger.ledger.operations import Condition

INDEX: Final = "due"
# A partition of an index takes a thousand writes a second: sixteen take a busy namespace.
BUCKETS: Final = 16


@dataclass(frozen=True, slots=True)
class DueRule:
    """When the counters of a namespace are worth compacting.

    Attributes:
        min_entries: from how many entries not yet compacted on.
        age_ms: how old an entry has to be.
    """

    min_entries: int
    age_ms: int


@dataclass(frozen=True, slots=True)
class DueState:
    """How many entries of a counter are compacted, as its total's item says.

    Attributes:
        counter: its name.
        entries: how many entries its total has taken in.
        compacted: how many of them the compactor has noted as compacted.
        due_at_ms: from when on it is worth a run, or None.
    """

    counter: str
    entries: int
    compacted: int = 0
    due_at_ms: int | None = None

    @property
    def waiting(self) -> int:
        """How many entries are not compacted yet."""
        return self.entries - self.compacted


def rule_in(schedule: Item | None) -> DueRule | None:
    """The rule in the item of a namespace's schedule; None without one.

    Raises:
        CorruptItem: an attribute is absent or of another type.
        NewerFormat: a later release wrote it.
    """
    if schedule is None:
        return None
    check_format(schedule)
    return DueRule(require(schedule, "min_entries", int), require(schedule, "age_ms", int))


def due_state_of(total: Item) -> DueState:
    """How many entries of this total's counter are compacted.

    Raises:
        CorruptItem: an attribute is absent or of another type.
    """
    return DueState(
        require(total, "counter", str),
        require(total, "entries", int),
        optional(total, "compacted", int) or 0,
        optional(total, "due_at", int),
    )


def buckets_of(namespace: str) -> list[str]:
    """The partitions of the index that hold the counters of a namespace."""
    return [f"{namespace}#{number}" for number in range(BUCKETS)]


def bucket_of(counter: str) -> str:
    """The one of them that holds this counter."""
    number = blake2b(counter.encode(), digest_size=1).digest()[0] % BUCKETS
    return buckets_of(keys.namespace_of(counter))[number]


def due_query(table: str, bucket: str, now_ms: int) -> Query:
    """The counters of a bucket that are due, those that waited longest first."""
    due = AllOf(Compare("due_bucket", "=", bucket), Compare("due_at", "<=", now_ms))
    return Query(table, due, index=INDEX)


def mark_of(table: str, seen: DueState, rule: DueRule, now_ms: int) -> Update | None:
    """Put a counter into the index, if enough entries wait and it is not there; else None.

    All of them were made by now, so the oldest is old enough once the age has passed. One write
    unit for the total, one for the index.
    """
    if seen.due_at_ms is not None or seen.waiting < rule.min_entries:
        return None
    # The second condition: a total deleted by hand must not come back with these attributes alone.
    unmarked = AllOf(Absent("due_at"), Compare("version", ">", 0))
    return Update(
        table, keys.total_key(seen.counter), _due(seen.counter, now_ms + rule.age_ms), unmarked
    )


def reschedule_of(
    table: str, seen: DueState, compacted: int, rule: DueRule | None, now_ms: int
) -> Update | None:
    """Note how many entries are compacted, and when the counter is due again, if it will be.

    One write unit for the total, and one or two for the index. It holds only for the entries and
    the due time that were seen: a compactor whose write is refused reads again.

    Args:
        table: `counters`.
        seen: the counter's state as it was read.
        compacted: what its head says now.
        rule: of its namespace; None: it has no schedule any more.
        now_ms: the time.

    Returns:
        None where all of that is noted already, or where less was counted than is compacted: then
        the total is of a counter that uses the name of a removed one, or lacks entries and has to
        be repaired.
    """
    if compacted > seen.entries:
        return None
    clauses: list[Clause] = []
    if compacted != seen.compacted:
        clauses.append(Assign("compacted", compacted))
    if rule is not None and seen.entries - compacted >= rule.min_entries:
        again_ms = now_ms + _until_enough_ms(seen.entries - compacted, rule)
        clauses += _due(seen.counter, again_ms)
    elif seen.due_at_ms is not None:
        clauses += [Drop("due_at"), Drop("due_bucket")]
    if not clauses:
        return None
    due: Condition = Absent("due_at")
    if seen.due_at_ms is not None:
        due = Compare("due_at", "=", seen.due_at_ms)
    # A slower run does not take back what a later one has noted.
    forward = AnyOf(Absent("compacted"), Compare("compacted", "<=", compacted))
    unmoved = AllOf(due, Compare("entries", "=", seen.entries), forward)
    return Update(table, keys.total_key(seen.counter), tuple(clauses), unmoved)


def _until_enough_ms(waiting: int, rule: DueRule) -> int:
    """How long until the least number of them is old enough, if they came evenly.

    After a run all that wait are younger than the age, so a counter with many is due again soon,
    and one that has just enough in a whole age. A guess is good enough: it only says when to look.
    """
    return -(-rule.age_ms * rule.min_entries // waiting)


def _due(counter: str, at_ms: int) -> tuple[Clause, ...]:
    return Assign("due_bucket", bucket_of(counter)), Assign("due_at", at_ms)
