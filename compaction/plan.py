"""What to read, what to merge, what to write: decided from values, without a service.

Each rule of the protocol that is a decision stands here once; `run` only carries it out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from countledger.compaction.report import RunOutcome
from countledger.ledger import amount, keys
from countledger.ledger.entry import Entry, decode_entry
from countledger.ledger.errors import SumOverflow
from countledger.ledger.expressions import Absent, AllOf, BeginsWith, Between, Compare
from countledger.ledger.head import Covered, Head, encode_head
from countledger.ledger.ids import BARE_KEY_PREFIX
from countledger.ledger.operations import Delete, Put, Query

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.expressions import Condition
    from countledger.ledger.head import ArchiveRef

_TIME_DIGITS: Final = 8  # of the twelve that stand in front of an id, before its first hyphen
_TIME_BITS: Final = 48


@dataclass(frozen=True, slots=True)
class Candidate:
    """An entry that may be merged, as it lies in the table.

    Attributes:
        key: its sort key.
        entry: what it says.
        item: the whole item.
    """

    key: str
    entry: Entry
    item: Item

    @property
    def covered(self) -> Covered:
        """What the head keeps of it."""
        bare = self.entry.id.startswith(BARE_KEY_PREFIX)
        return Covered(self.entry.delta, self.entry.at_ms if bare else None)


def ranges(spread: int, cutoff_ms: int) -> list[Condition]:
    """Which sort keys to read: of ids that begin with a time only those before the cutoff.

    Bare keys carry no time and are all read; their entries tell their age.
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
    """The read of one page of entries: strongly consistent."""
    condition = AllOf(Compare("counter", "=", counter), range_)
    return Query(table, condition, consistent=True, page_size=page_size, after=after)


def mergeable(items: Iterable[Item], head: Head, cutoff_ms: int) -> list[Candidate]:
    """Those old enough that the head has not taken in already.

    Raises:
        CorruptItem: an entry cannot be read. It would be missing in the sum.
    """
    found = (Candidate(item["entry"], decode_entry(item), item) for item in items)
    return [
        one
        for one in found
        if one.entry.at_ms < cutoff_ms and not head.has_taken_in(one.key, one.entry.at_ms)
    ]


def shown_alike(
    candidates: Iterable[Candidate], elsewhere: Sequence[Mapping[str, Item]]
) -> list[Candidate]:
    """Those that every other region shows as well, and as the very same change.

    So every region's stream has had them, and no copy is on its way that would come up again
    behind the deletion. Two that met under one key, and of which the last writer wins, differ
    until the winner has arrived everywhere.
    """
    return [
        one
        for one in candidates
        if all(_change(region.get(one.key)) == _change(one.item) for region in elsewhere)
    ]


def _change(item: Item | None) -> tuple[object, ...] | None:
    return None if item is None else tuple(item.get(name) for name in ("delta", "at", "events"))


def next_head(
    head: Head, selected: Sequence[Candidate], run: str, archive: ArchiveRef | None
) -> Head:
    """The head that has taken in the selected entries.

    Raises:
        SumOverflow: the sum needs more digits than the service holds.
    """
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
    """The head without its covers: they are deleted everywhere."""
    return replace(head, generation=head.generation + 1, run=run, covers={}, archive=None)


def _known(at_ms: int | None) -> list[int]:
    return [] if at_ms is None else [at_ms]


def publish_of(table: str, counter: str, before: Head, after: Head) -> Put:
    """The write that replaces the head, if nobody has replaced it since it was read."""
    return Put(table, encode_head(counter, after), is_still(before))


def is_still(head: Head) -> Condition:
    """That the head is the one that was read: of that generation and of that run.

    "No head" identifies nothing: a counter can be deleted and its name forgotten after it was read.
    A write on condition of it must leave within `RUN_LIFE_MS` of the read; a deletion takes longer.
    """
    if not head.generation:
        return Absent("entry")
    return AllOf(Compare("generation", "=", head.generation), Compare("run", "=", head.run))


def archived_of(table: str, counter: str, head: Head, name: str, seen: Item | None) -> Put:
    """The record that the entries which a head covers are archived under a name: one write unit.

    It is written before the first of them is deleted, so what is missing later proves nothing.

    Args:
        table: `ledger`.
        counter: its name.
        head: what covers the entries.
        name: of the object.
        seen: the record that this one replaces, or None. A late request finds another one, and
            never replaces the record of a later head, of whichever incarnation.
    """
    item = {
        **keys.archived_key(counter),
        "generation": head.generation,
        "run": head.run,
        "incarnation": head.incarnation,
        "name": name,
    }
    if seen is None:
        return Put(table, item, Absent("entry"))
    same = (Compare(name, "=", seen.get(name)) for name in ("generation", "run"))
    return Put(table, item, AllOf(*same))


def unarchived_of(table: str, counter: str, incarnation: str) -> Delete:
    """The deletion of that record with a counter that was deleted: one write unit.

    Args:
        table: `ledger`.
        counter: its name.
        incarnation: of the head that was emptied; a record of another incarnation belongs to a
            counter that uses the name again.
    """
    same = Compare("incarnation", "=", incarnation)
    return Delete(table, keys.archived_key(counter), same)


def is_archived(head: Head, record: Item | None) -> bool:
    """Whether the record says that the entries which this very head covers are archived."""
    recorded = (record or {}).get("generation"), (record or {}).get("run")
    return recorded == (head.generation, head.run)


def same_head(one: Head, other: Head) -> bool:
    """Whether both are the one head that a run published under that number."""
    return (one.generation, one.run) == (other.generation, other.run)


def arrived(head: Head, regions: Mapping[str, Head]) -> tuple[RunOutcome, str] | None:
    """Whether every region shows this head; if not, how the run ends if that does not change."""
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
    """Whether the one was published after the other; of another incarnation nobody can tell."""
    same = not head.generation or one.incarnation == head.incarnation
    return same and one.generation > head.generation


def still_there(head: Head, items: Iterable[Item]) -> dict[str, Item]:
    """Those among the items that the head has taken in, by sort key."""
    return {
        item["entry"]: item for item in items if head.has_taken_in(item["entry"], item.get("at", 0))
    }
