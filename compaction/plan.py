"""What to read, what to merge, what to write: decisions over values, without a service.

`compactor.Run` carries the decisions out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from countledger.compaction.report import RunOutcome
from countledger.ledger import amount, keys
from countledger.ledger.clock import show_duration
from countledger.ledger.entry import Entry, decode_entry
from countledger.ledger.errors import BadSetting, SumOverflow
from countledger.ledger.exact import Covered, Head, encode_head
from countledger.ledger.ids import BARE_KEY_PREFIX
from countledger.ledger.limits import SIGNED_REQUEST_LIFE_MS
from countledger.ledger.operations import Absent, AllOf, BeginsWith, Between, Compare, Put, Query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.connection import Connection
    from countledger.ledger.exact import ArchiveRef
    from countledger.ledger.namespace import Namespace
    from countledger.ledger.operations import Condition

_TIME_DIGITS: Final = 8  # of the twelve at the beginning of an id, before its first hyphen
_TIME_BITS: Final = 48


@dataclass(frozen=True, slots=True)
class AgeLimit:
    """How old an entry must be before it is merged: older than any producer may still send it.

    A merged entry is deleted, and with it the proof that a retry is a retry. Producers check an
    entry's age before each attempt; the limit is later than the last attempt that can arrive. It is
    the sum of the times for which the namespace lets producers send an entry, replication takes,
    two clocks differ, and the service accepts a signed request.

    BadSetting: `min_age_ms`, a larger age set by a schedule, is below the limit.
    """

    horizon_ms: int
    replication_bound_ms: int
    clock_skew_ms: int
    request_life_ms: int = SIGNED_REQUEST_LIFE_MS
    min_age_ms: int | None = None

    def __post_init__(self) -> None:
        if self.min_age_ms is not None and self.min_age_ms < self._sum_ms:
            raise BadSetting(
                f"a minimum age of {show_duration(self.min_age_ms)} is less than "
                f"{show_duration(self._sum_ms)} = horizon {show_duration(self.horizon_ms)} + "
                f"replication bound {show_duration(self.replication_bound_ms)} + "
                f"clock skew {show_duration(self.clock_skew_ms)} + "
                f"life of a signed request {show_duration(self.request_life_ms)}: "
                "a late retry of a merged entry would count twice"
            )

    @property
    def age_ms(self) -> int:
        """The limit: an entry older than this may be merged."""
        return self._sum_ms if self.min_age_ms is None else self.min_age_ms

    def cutoff_ms(self, now_ms: int) -> int:
        """The time before which an entry must have been made."""
        return now_ms - self.age_ms

    def with_min_age(self, min_age_ms: int | None) -> AgeLimit:
        return replace(self, min_age_ms=min_age_ms)

    @property
    def _sum_ms(self) -> int:
        waits_ms = self.replication_bound_ms + self.clock_skew_ms + self.request_life_ms
        return self.horizon_ms + waits_ms


def limits_by(
    connection: Connection, min_age_ms: int | None = None
) -> Callable[[Namespace], AgeLimit]:
    def limit_of(namespace: Namespace) -> AgeLimit:
        return AgeLimit(
            namespace.horizon_ms,
            connection.replication_ms,
            connection.clock_skew_ms,
            connection.request_life_ms,
            min_age_ms,
        )

    return limit_of


@dataclass(frozen=True, slots=True)
class Candidate:
    """An entry that may be merged, as it is in the table."""

    key: str
    entry: Entry
    item: Item

    @property
    def covered(self) -> Covered:
        bare = self.entry.id.startswith(BARE_KEY_PREFIX)
        return Covered(self.entry.delta, self.entry.at_ms if bare else None)


def ranges(spread: int, cutoff_ms: int) -> list[Condition]:
    """Which sort keys to read: of ids that begin with a time only those before the cutoff.

    Bare keys carry no time, so all of them are read; their entries carry their age.
    """
    found: list[Condition] = []
    if not 0 < cutoff_ms < 1 << _TIME_BITS:
        return found
    digits = f"{cutoff_ms:012x}"
    bound = f"{digits[:_TIME_DIGITS]}-{digits[_TIME_DIGITS:]}"
    for prefix in keys.entry_prefixes(spread):
        found.append(Between("entry", prefix, prefix + bound))
        found.append(BeginsWith("entry", prefix + BARE_KEY_PREFIX))
    return found


def page_of(
    table: str, counter: str, range_: Condition, page_size: int | None, after: Key | None
) -> Query:
    """The strongly consistent read of one page of entries."""
    condition = AllOf(Compare("counter", "=", counter), range_)
    return Query(table, condition, consistent=True, page_size=page_size, after=after)


def mergeable(items: Iterable[Item], head: Head, cutoff_ms: int) -> list[Candidate]:
    """The entries that are old enough and that the head does not cover yet.

    CorruptItem: an entry cannot be read. Without it the sum would be wrong.
    """
    found = (Candidate(item["entry"], decode_entry(item), item) for item in items)
    return [
        one
        for one in found
        if one.entry.at_ms < cutoff_ms and not head.has_merged(one.key, one.entry.at_ms)
    ]


def shown_alike(
    candidates: Iterable[Candidate], elsewhere: Sequence[Mapping[str, Item]]
) -> list[Candidate]:
    """The candidates that every other region shows as well, with the same content.

    Then the stream of every region has had them, and no copy is still being replicated that would
    appear again after the deletion. If two entries were written under one key, the last writer
    wins; the regions differ until the winner has arrived in all of them.
    """
    return [
        one
        for one in candidates
        if all(_content(region.get(one.key)) == _content(one.item) for region in elsewhere)
    ]


def _content(item: Item | None) -> tuple[object, ...] | None:
    return None if item is None else tuple(item.get(name) for name in ("delta", "at", "events"))


def next_head(
    head: Head, selected: Sequence[Candidate], run: str, archive: ArchiveRef | None
) -> Head:
    """The head with the selected entries merged into it; SumOverflow: too many digits."""
    entries = [one.entry for one in selected]
    total = amount.add(head.sum, amount.total_of(entry.delta for entry in entries))
    if not amount.fits(total):
        raise SumOverflow("the sum of the merged entries needs more than 38 digits")
    times = [entry.at_ms for entry in entries]
    return Head(
        generation=head.generation + 1,
        run=run,
        incarnation=head.incarnation or run,
        sum=total,
        events=head.events + sum(entry.events for entry in entries),
        entries=head.entries + len(entries),
        from_at_ms=min([*times, *_known(head.from_at_ms)]),
        to_at_ms=max([*times, *_known(head.to_at_ms)]),
        covers={one.key: one.covered for one in selected},
        archive=archive,
    )


def closing_head(head: Head, run: str) -> Head:
    """The head without its covers, once those entries are deleted in every region."""
    return replace(head, generation=head.generation + 1, run=run, covers={}, archive=None)


def _known(at_ms: int | None) -> list[int]:
    return [] if at_ms is None else [at_ms]


def publish_of(table: str, counter: str, before: Head, after: Head) -> Put:
    """The write that replaces the head, if it was not replaced since it was read."""
    return Put(table, encode_head(counter, after), is_still(before))


def is_still(head: Head) -> Condition:
    """The head is the one that was read: of that generation and of that run.

    "No head" identifies nothing: a counter can be deleted and its name forgotten after it was read.
    A write on condition of it must leave within `RUN_LIFE_MS` of the read; a deletion takes longer.
    """
    if not head.generation:
        return Absent("entry")
    return AllOf(Compare("generation", "=", head.generation), Compare("run", "=", head.run))


def same_head(one: Head, other: Head) -> bool:
    """Whether both are the head that one run published under one generation."""
    return (one.generation, one.run) == (other.generation, other.run)


def arrived(head: Head, regions: Mapping[str, Head]) -> tuple[RunOutcome, str] | None:
    """None if every region shows this head; else how the run ends if that does not change."""
    newer = [name for name, one in regions.items() if _follows(one, head)]
    if newer:
        return (
            RunOutcome.OVERTAKEN,
            f"another run has published generation {head.generation + 1}",
        )
    older = [name for name, one in regions.items() if not same_head(one, head)]
    if older:
        names = ", ".join(sorted(older))
        return RunOutcome.WAITING, f"generation {head.generation} has not arrived in {names}"
    return None


def _follows(one: Head, head: Head) -> bool:
    """Whether `one` was published after `head`; unknown, so False, in another incarnation."""
    same = not head.generation or one.incarnation == head.incarnation
    return same and one.generation > head.generation


def still_there(head: Head, items: Iterable[Item]) -> dict[str, Item]:
    """The items that the head covers, by sort key."""
    return {
        item["entry"]: item for item in items if head.has_merged(item["entry"], item.get("at", 0))
    }
