"""Rankings: totals in order, by a sparse index over the totals themselves.

A total that carries a board's place (an attribute that only ranked totals have) is in that board's
index, in the order of `total`. So every update of a total also updates its rank, without another
write; the service charges two units for the index if the total has changed. A total without a place
is in no index and costs nothing more.

    board of a namespace    attribute `ranked`, index `ranks`; the materializer gives new totals
                            their place and takes it away, in the very update of the total
    board of a day          the same attribute, on the items of the counters' windows of that day
    board of a group        attribute `ranked_group`, index `group_ranks`; given with membership;
                            `place` is the id of its last placement or removal, which the next names

A partition of an index takes a thousand writes a second, and a moved total is two of them, so a
board has several partitions; its top is read from all of them.

The due index: which ledger counters are worth compacting, and from when on.

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

from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, Literal

from countledger.ledger import keys
from countledger.ledger.attributes import Item, check_format, optional, require
from countledger.ledger.calendar import Per
from countledger.ledger.errors import CorruptItem, shown
from countledger.ledger.limits import FORMAT, RANK_PARTITIONS_MAX
from countledger.ledger.operations import (
    Absent,
    Add,
    AllOf,
    AnyOf,
    Assign,
    BeginsWith,
    Clause,
    Compare,
    Condition,
    Drop,
    Query,
    Update,
    all_unchanged,
    unchanged,
)

if TYPE_CHECKING:
    from countledger.ledger.windows import WindowSetting


INDEX: Final = "due"
# A partition of an index takes a thousand writes a second: sixteen take a busy namespace.
BUCKETS: Final = 16


@dataclass(frozen=True, slots=True)
class DueRule:
    """When the counters of a namespace are worth compacting: with so many entries of that age."""

    min_entries: int
    age_ms: int


@dataclass(frozen=True, slots=True)
class DueState:
    """The entries that a total has taken in, those noted as compacted, and when a run is due."""

    counter: str
    entries: int
    compacted: int = 0
    due_at_ms: int | None = None

    @property
    def waiting(self) -> int:
        return self.entries - self.compacted


def rule_in(schedule: Item | None) -> DueRule | None:
    """The rule in the item of a namespace's schedule; None without one."""
    if schedule is None:
        return None
    check_format(schedule)
    return DueRule(require(schedule, "min_entries", int), require(schedule, "age_ms", int))


def due_state_of(total: Item) -> DueState:
    return DueState(
        require(total, "counter", str),
        require(total, "entries", int),
        optional(total, "compacted", int) or 0,
        optional(total, "due_at", int),
    )


def buckets_of(namespace: str) -> list[str]:
    return [f"{namespace}#{number}" for number in range(BUCKETS)]


def bucket_of(counter: str) -> str:
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

    None where all of that is noted already, or where less was counted than is compacted: then the
    total is of a counter that uses the name of a removed one, or lacks entries and has to be
    repaired. `rule` is None where the namespace has no schedule any more.
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


# Each partition costs a query of half a read unit and takes 500 changed totals a second.
PARTITIONS: Final = 4
PARTITIONS_MAX: Final = RANK_PARTITIONS_MAX
# Of a total: the id of its last placement on the board of a group, or removal from it.
PLACE: Final = "place"
# Of a total: the id of the last write of a sweep of its namespace's ranking.
SWEPT: Final = "swept"
_BYTES: Final = 256
_ZEROS: Final = tuple(Add(name, 0) for name in ("total", "events", "entries", "version"))
_READABLE: Final = AnyOf(Absent("v"), Compare("v", "=", FORMAT))


@dataclass(frozen=True, slots=True)
class Board:
    """A list of totals in order; `attribute` puts a total into its index.

    Its name is `namespace#<ns>`, `day#<ns>#<id of the setting>#<day>` or `group#<group>`.
    """

    name: str
    index: Literal["ranks", "group_ranks"]
    attribute: Literal["ranked", "ranked_group"]
    partitions: int = PARTITIONS

    @property
    def buckets(self) -> list[str]:
        return [f"{self.name}#{number}" for number in range(self.partitions)]

    def bucket_of(self, counter: str) -> str:
        # One byte spreads counters evenly only over a power of two: of 100 partitions, 56 would get
        # half as many counters more than the others. Four partitions keep the places they had.
        size = 1 if _BYTES % self.partitions == 0 else 8
        digest = blake2b(counter.encode(), digest_size=size, person=b"rank").digest()
        return f"{self.name}#{int.from_bytes(digest) % self.partitions}"


def namespace_board(namespace: str, partitions: int) -> Board:
    return Board(keys.NAMESPACE_PREFIX + namespace, "ranks", "ranked", partitions)


def day_board(namespace: str, setting: WindowSetting, day: str) -> Board:
    """The board of a day of a namespace: of what one setting counted in it."""
    name = f"{Per.DAY}#{namespace}#{setting.id}#{day}"
    return Board(name, "ranks", "ranked", setting.ranked)


def day_clauses(
    setting: WindowSetting, counter: str, item: str, total: Add | Assign
) -> tuple[Clause, ...]:
    """What a write of an item of windows adds for the ranking of its day; none: it is not ranked.

    The index is sorted by `total`: here the change of the sum of the item (`Cell.item`).
    """
    kind, _, day = item.partition("#")
    if not setting.ranked or kind != Per.DAY:
        return ()
    board = day_board(keys.namespace_of(counter), setting, day)
    return (total, Assign(board.attribute, board.bucket_of(counter)))


def group_board(group: str) -> Board:
    return Board(keys.GROUP_PREFIX + group, "group_ranks", "ranked_group")


def is_on(item: Item | None) -> bool | None:
    """Whether a namespace or a group is ranked, by its item; None: it was never set."""
    if item is None:
        return None
    check_format(item)
    on = item.get("on")
    if not isinstance(on, bool):
        raise CorruptItem(
            f"ranking is {shown(on)} in {item.get('counter')!r}, neither on nor off", item
        )
    return on


def partitions_of(item: Item | None) -> int | None:
    """Over how many partitions a namespace is ranked, by its item; 0: none; None: never set."""
    on = is_on(item)
    if not on:
        return None if on is None else 0
    return kept_partitions(item)


def partitions_to_write(item: Item | None) -> int | None:
    """As `partitions_of`, for a write of a total: None also if the item is corrupt.

    `top` of that namespace reports it; no write waits for its repair, which then finds each total.
    """
    try:
        return partitions_of(item)
    except CorruptItem:
        return None


def kept_partitions(item: Item | None) -> int:
    """The number of partitions in a namespace's item, also while it is not ranked; else 4."""
    if item is None:
        return PARTITIONS
    found = item.get("partitions")
    if type(found) is not int or not 1 <= found <= PARTITIONS_MAX:
        raise CorruptItem(
            f"the ranking of {item.get('counter')!r} has {shown(found)} partitions, not 1 to "
            f"{PARTITIONS_MAX}: switch it on again with a number (`namespace rank --partitions`)",
            item,
        )
    return found


def clauses_for(counter: str, partitions: int | None) -> tuple[Clause, ...]:
    """The changes that an update of a total adds for the ranking of its namespace; none if unset.

    A total that has its place already, or has none to lose, is not touched in the index by this.
    """
    if partitions is None:
        return ()
    board = namespace_board(keys.namespace_of(counter), max(partitions, 1))
    if partitions:
        return (Assign(board.attribute, board.bucket_of(counter)),)
    return (Drop(board.attribute),)


def place_of(table: str, board: Board, counter: str, *, may_be_made: bool) -> Update:
    """Give a total its place on a board, if it has none on another one. One unit, one the index.

    A total with bins has no single number to rank by, and is refused. One that is not there yet may
    be made of zeros (`may_be_made`): it reads like one never recorded, and its first entry finds it
    on the board.
    """
    bucket = board.bucket_of(counter)
    free = AnyOf(Absent(board.attribute), Compare(board.attribute, "=", bucket))
    clauses: tuple[Clause, ...] = (Assign(board.attribute, bucket),)
    conditions: list[Condition] = [free, Absent("bins"), _READABLE]
    if may_be_made:
        clauses += _ZEROS
    else:
        conditions.append(Compare("part", "=", keys.TOTAL))
    return Update(table, keys.total_key(counter), clauses, AllOf(*conditions))


def move_of(table: str, board: Board, counter: str) -> Update:
    """Move a total to its partition, from another one of its board. One unit, and two the index."""
    bucket = board.bucket_of(counter)
    other = AllOf(
        BeginsWith(board.attribute, board.name + "#"), Compare(board.attribute, "<>", bucket)
    )
    moved = (Assign(board.attribute, bucket),)
    return Update(table, keys.total_key(counter), moved, AllOf(other, _READABLE))


def unrank_of(table: str, board: Board, counter: str) -> Update:
    """Take a total off a board, if it is on it. One unit, and one for the index."""
    there = BeginsWith(board.attribute, board.name + "#")
    return Update(table, keys.total_key(counter), (Drop(board.attribute),), there)


def no_place_of(table: str, board: Board, counter: str, *, may_be_made: bool) -> Update:
    """Mark that a total has no place on any board of this kind.

    One unit. With `after_place`, a placement that is under way is refused when it arrives.
    """
    free: Condition = Absent(board.attribute)
    if may_be_made:
        return Update(table, keys.total_key(counter), _ZEROS, free)
    there = Compare("part", "=", keys.TOTAL)
    return Update(table, keys.total_key(counter), (), AllOf(there, free))


def after_place(update: Update, seen: Item | None, place: str) -> Update:
    """A placement or removal (its id: `place`), conditional on being the next after the one seen.

    So one that is applied late undoes no later one. A total without a place was never on a board.
    """
    return _marked(update, Assign(PLACE, place), place_condition(seen))


def after_sweep(update: Update, seen: Item, sweep: str) -> Update:
    """A write of a sweep of a namespace, conditional on none since the total was seen."""
    return _marked(update, Assign(SWEPT, sweep), unchanged(SWEPT, seen.get(SWEPT)))


def _marked(update: Update, mark: Assign, same: Condition) -> Update:
    condition = same if update.condition is None else AllOf(update.condition, same)
    return replace(update, clauses=(*update.clauses, mark), condition=condition)


def place_condition(seen: Item | None) -> Condition:
    """No placement or removal since, and the same counter, as far as that was seen."""
    total = seen or {}
    same = unchanged(PLACE, total.get(PLACE))
    return AllOf(same, all_unchanged(total, "incarnation")) if "incarnation" in total else same


def is_on_board(board: Board, total: Item | None) -> bool:
    return str((total or {}).get(board.attribute, "")).startswith(board.name + "#")


def top_query(table: str, board: Board, bucket: str, page_size: int) -> Query:
    """The totals of one partition of a board, the highest first."""
    condition = Compare(board.attribute, "=", bucket)
    return Query(table, condition, index=board.index, forward=False, page_size=page_size)
