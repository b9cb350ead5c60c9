"""Bring in what a lost region had not replicated: its entries, under their own ids.

An entry that a copy of the ledger shows and another one does not show was either never replicated
to it, or was merged and deleted there. Put again, a merged entry would count twice. What decides:

| the entry is | it |
|---|---|
| shown here as well | is there (or, with another content, is listed as different) |
| covered by the head here, or by the head of the lost copy | was merged, or is here |
| of a counter whose numbers were deleted here since | is listed, and not written |
| not any of these, and nothing was merged since the loss (`Epoch.lost`), or that copy is in service
  | was never here |
| newer than the newest entry that was merged here, or too new to have been merged | likewise |
| anything else | is listed, and not written |

The fourth row holds because a head is published only when every region shows that the entries of
the head before are deleted, and an entry is deleted only when every region shows its head. So an
entry that the lost copy shows was merged by the head that this copy shows, by the next one here, or
not at all.

Whether nothing was merged, and the age below which nothing can have been, are looked up after the
head: a salvage that paused before it read the head would otherwise decide about a later head by
them.

The entries are written with a check of the head that was compared, in one transaction: an entry can
have been merged meanwhile only if that head was replaced. So salvage may be repeated, stopped and
run twice at the same time.

How far a salvage has come is one item of the home's `counters`, so that one that was interrupted
continues: a salvage writes it after each page, in place of what it read or wrote before, by its id.
So of two salvages of one region the second one stops the first.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from countledger.ledger import keys
from countledger.ledger.attributes import check_format, optional, require
from countledger.ledger.entry import decode_entry
from countledger.ledger.errors import ConditionFailed, CorruptItem, ServiceFailed
from countledger.ledger.operations import Absent, Compare, Delete, Put

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.exact import Head

_NAMED_MAX: Final = 1_000


class SalvageFate(StrEnum):
    """What becomes of an entry of the lost copy."""

    BROUGHT = "brought"
    THERE = "there"
    MERGED = "merged"
    DIFFERS = "differs"
    DELETED = "deleted"
    UNDECIDED = "undecided"
    UNREADABLE = "unreadable"


# These are listed, and not written: a person decides.
LISTED: Final = frozenset(
    {SalvageFate.DIFFERS, SalvageFate.DELETED, SalvageFate.UNDECIDED, SalvageFate.UNREADABLE}
)


class Listed(NamedTuple):
    """An entry that was not written, for a person."""

    counter: str
    entry: str
    fate: SalvageFate
    delta: object


@dataclass(frozen=True, slots=True, kw_only=True)
class SalvageEvidence:
    """By what an entry is decided.

    Attributes:
        here: the head here.
        there: the head of the lost copy.
        awaited: whether each head but the last was seen in that copy: nothing was merged since the
            loss, or the copy is in service.
        merged_before_ms: entries made at or after this time are too new to have been merged.
    """

    here: Head
    there: Head
    awaited: bool
    merged_before_ms: int


def fate_of(item: Item, found: Item | None, evidence: SalvageEvidence) -> SalvageFate:
    """What becomes of an entry of the lost copy.

    Args:
        item: as the lost copy shows it.
        found: what is here under its key, or None.
        evidence: the heads.
    """
    try:
        entry = decode_entry(item)
    except CorruptItem:
        return SalvageFate.UNREADABLE
    if found is not None:
        alike = all(item.get(name) == found.get(name) for name in ("delta", "at", "events"))
        return SalvageFate.THERE if alike else SalvageFate.DIFFERS
    here, there = evidence.here, evidence.there
    if any(head.has_merged(item["entry"], entry.at_ms) for head in (here, there)):
        return SalvageFate.MERGED
    if here.generation and not here.entries and entry.at_ms <= (here.to_at_ms or 0):
        return SalvageFate.DELETED
    newer = here.to_at_ms is not None and entry.at_ms > here.to_at_ms
    if evidence.awaited or newer or entry.at_ms >= evidence.merged_before_ms:
        return SalvageFate.BROUGHT
    return SalvageFate.UNDECIDED


@dataclass(slots=True)
class SalvageReport:
    """What was found.

    Attributes:
        counters: how many counters of the lost copy were compared.
        fates: how many entries had which fate.
        heads: how many heads were taken over from a copy that is in service.
        namespaces: those that were taken over.
        listed: entries that a person must decide about, the first thousand.
        write_units: about, here.
    """

    counters: int = 0
    fates: Counter[SalvageFate] = field(default_factory=Counter)
    heads: int = 0
    namespaces: list[str] = field(default_factory=list)
    listed: list[Listed] = field(default_factory=list)

    @property
    def undecided(self) -> int:
        """How many entries were not written that a person must decide about."""
        return sum(self.fates[one] for one in LISTED)

    def note(self, counter: str, items: Sequence[Item], fates: Sequence[SalvageFate]) -> None:
        """Add what became of entries of a counter."""
        for item, fate in zip(items, fates, strict=True):
            self.fates[fate] += 1
            if fate in LISTED and len(self.listed) < _NAMED_MAX:
                self.listed.append(Listed(counter, item["entry"], fate, item.get("delta")))


@dataclass(frozen=True, slots=True, kw_only=True)
class SalvagePlace:
    """Where a salvage continues.

    Attributes:
        work: what is compared, in its order, under which epoch: another work begins at its start.
        number: which of the comparisons.
        after: the key of its source after which to go on; None: its beginning.
        id: of this write.
        report: what was found so far; without the listed entries.
    """

    work: tuple[str, ...]
    number: int = 0
    after: Key | None = None
    id: str = ""
    report: SalvageReport = field(default_factory=SalvageReport)


@dataclass(slots=True)
class SalvagePlaces:
    """Reads and writes the place of the salvage of one region.

    Attributes:
        dynamo: a DynamoDB client in the home region.
        table: the table `counters` there.
        lost: the region that was lost.
        new_id: makes an id that no other write has.
    """

    dynamo: DynamoClient
    table: str
    lost: str
    new_id: Callable[[], str]
    _seen: str | None = None

    def begin(self, work: tuple[str, ...], *, again: bool = False) -> SalvagePlace:
        """Take up the stored place if it is of the same work, else begin. Two units.

        Args:
            work: as `SalvagePlace.work`.
            again: begin in any case.

        Raises:
            CorruptItem: the stored place cannot be read.
            ServiceFailed: another salvage was first.
        """
        item = self.dynamo.get(self.table, keys.salvage_key(self.lost), consistent=True)
        stored = None if item is None else _decode(item)
        self._seen = None if stored is None else stored.id
        place = SalvagePlace(work=work)
        if stored is not None and stored.work == work and not again:
            place = stored
        return self.write(place)

    def write(self, place: SalvagePlace) -> SalvagePlace:
        """Store a place in that of the last one. One write unit.

        Raises:
            ServiceFailed: another salvage has taken over.
        """
        place = replace(place, id=self.new_id())
        unmoved = Absent("part") if self._seen is None else Compare("id", "=", self._seen)
        try:
            self.dynamo.put(Put(self.table, _encode(self.lost, place), unmoved))
        except ConditionFailed as failed:
            # The SDK repeats a write that got no answer, and then finds its own first attempt.
            if (failed.item or {}).get("id") != place.id:
                raise ServiceFailed(
                    f"another salvage of {self.lost} has taken over: wait for its end, or run "
                    "this again, which stops that one"
                ) from failed
        self._seen = place.id
        return place

    def end(self) -> None:
        """Forget the place: the salvage is complete. One write unit.

        Raises:
            ServiceFailed: another salvage has taken over.
        """
        same = Compare("id", "=", self._seen)
        try:
            self.dynamo.delete(Delete(self.table, keys.salvage_key(self.lost), same))
        except ConditionFailed as failed:
            if failed.item is not None:
                raise ServiceFailed(f"another salvage of {self.lost} has begun") from failed


def _encode(lost: str, place: SalvagePlace) -> Item:
    report = place.report
    return {
        **keys.salvage_key(lost),
        "work": list(place.work),
        "number": place.number,
        "after": dict(place.after) if place.after else None,
        "id": place.id,
        "counters": report.counters,
        "heads": report.heads,
        "fates": {str(fate): count for fate, count in report.fates.items()},
    }


def _decode(item: Item) -> SalvagePlace:
    check_format(item)
    fates: dict[str, Any] = require(item, "fates", dict)
    return SalvagePlace(
        work=tuple(str(one) for one in require(item, "work", list)),
        number=require(item, "number", int),
        after=optional(item, "after", dict),
        id=require(item, "id", str),
        report=SalvageReport(
            counters=require(item, "counters", int),
            heads=require(item, "heads", int),
            fates=Counter({SalvageFate(fate): int(count) for fate, count in fates.items()}),
        ),
    )
