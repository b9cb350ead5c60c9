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
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from countledger.compaction.archive import is_archived
from countledger.compaction.plan import is_still, limits_by
from countledger.ledger import keys
from countledger.ledger.attempts import wrote
from countledger.ledger.attributes import check_format, optional, require
from countledger.ledger.departure import guarded
from countledger.ledger.entry import decode_entry
from countledger.ledger.errors import (
    ConditionFailed,
    CorruptItem,
    NamespaceUnknown,
    ServiceFailed,
    TransactionCancelled,
)
from countledger.ledger.exact import decode_head
from countledger.ledger.limits import MINUTE_MS
from countledger.ledger.namespace import Namespaces
from countledger.ledger.operations import Absent, AllOf, Check, Compare, Delete, Put, Scan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.connection import Connection
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.exact import Head
    from countledger.ledger.operations import Condition


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

    `awaited`: each head but the last was seen in that copy: nothing was merged since the loss, or
    the copy is in service. Entries made at `merged_before_ms` or later are too new to have been
    merged.
    """

    here: Head
    there: Head
    awaited: bool
    merged_before_ms: int


def fate_of(item: Item, found: Item | None, evidence: SalvageEvidence) -> SalvageFate:
    """What becomes of an entry of the lost copy, where `found` is here under its key, or None."""
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
        heads: how many heads were taken over from a copy that is in service.
        listed: entries that a person must decide about, the first thousand.
    """

    counters: int = 0
    fates: Counter[SalvageFate] = field(default_factory=Counter)
    heads: int = 0
    namespaces: list[str] = field(default_factory=list)
    listed: list[Listed] = field(default_factory=list)

    @property
    def undecided(self) -> int:
        return sum(self.fates[one] for one in LISTED)

    def note(self, counter: str, items: Sequence[Item], fates: Sequence[SalvageFate]) -> None:
        for item, fate in zip(items, fates, strict=True):
            self.fates[fate] += 1
            if fate in LISTED and len(self.listed) < _NAMED_MAX:
                self.listed.append(Listed(counter, item["entry"], fate, item.get("delta")))


@dataclass(frozen=True, slots=True, kw_only=True)
class SalvagePlace:
    """Where a salvage continues.

    Attributes:
        work: what is compared, in its order, under which epoch: another work begins at its start.
        after: the key of its source after which to go on; None: its beginning.
        report: what was found so far; without the listed entries.
    """

    work: tuple[str, ...]
    number: int = 0
    after: Key | None = None
    id: str = ""
    report: SalvageReport = field(default_factory=SalvageReport)


class SalvagePlaces:
    """The place of a lost region's salvage, in the home; ServiceFailed: another has taken over."""

    def __init__(self, connection: Connection, lost: str) -> None:
        self.connection, self.lost = connection, lost
        self.dynamo, self.table = connection.retrying, connection.counters
        self._seen: str | None = None

    def begin(self, work: tuple[str, ...], *, again: bool = False) -> SalvagePlace:
        """Take up the stored place if it is of the same work, else begin. Two units."""
        item = self.dynamo.get(self.table, keys.salvage_key(self.lost), consistent=True)
        stored = None if item is None else _decode(item)
        self._seen = None if stored is None else stored.id
        place = SalvagePlace(work=work)
        if stored is not None and stored.work == work and not again:
            place = stored
        return self.write(place)

    def write(self, place: SalvagePlace) -> SalvagePlace:
        """Store a place in that of the last one. One write unit."""
        place = replace(place, id=self.connection.ids.unique_id())
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
        """Forget the place: the salvage is complete. One write unit."""
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


# Carries out a salvage: reads two copies of the ledger, and writes what one of them lacks.


# Entries of one transaction, beside the check of their head.
_TOGETHER: Final = 25
_ATTEMPTS: Final = 5
_WAIT_MS: Final = 200
# A request leaves within so long of its reads: "no head" identifies nothing for half a day.
_LEAVES_MS: Final = 10 * MINUTE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerCopy:
    """A copy of the ledger."""

    dynamo: DynamoClient
    table: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvage:
    """Brings in what one copy of the ledger has and another one lacks.

    Attributes:
        source: the copy of the lost region; or another one that is in service, which may have got
            what this one has not.
        held: asks whether nothing was merged since the loss; asked again after each read of a head,
            since another salvage may have ended the wait.
        in_service: whether the source is a replica of the target's table: then a head that arrived
            there alone is taken over as well.
    """

    connection: Connection
    source: LedgerCopy
    target: LedgerCopy
    held: Callable[[], bool]
    in_service: bool = False

    def run(
        self,
        report: SalvageReport,
        *,
        after: Key | None = None,
        page_size: int | None = None,
        on_page: Callable[[SalvageReport, Key | None], None] = lambda *_: None,
    ) -> SalvageReport:
        """Compare all entries, and write what is missing; after an error what was brought in stays.

        Costs half a read unit for each 4 KB of the source; here one read unit for each entry, and
        one and two write units for each that is brought in.

        `on_page` is called after each page with the report, to which the findings are added, and
        with the key from which to go on (`after`).
        """
        while True:
            scan = Scan(self.source.table, after=after, page_size=page_size)
            page = self.source.dynamo.page(scan)
            for counter, items in groupby(page.items, key=lambda item: str(item["counter"])):
                self._take(counter, list(items), report)
            after = page.after
            on_page(report, after)
            if after is None:
                return report

    def _take(self, counter: str, items: list[Item], report: SalvageReport) -> None:
        if counter.startswith(keys.NAMESPACE_PREFIX):
            for item in items:
                self._take_namespace(item, report)
            return
        entries = [item for item in items if item["entry"].startswith(keys.ENTRY_PREFIX)]
        kinds = {item["entry"] for item in items}
        if self.in_service and keys.HEAD in kinds:
            self._take_head(counter, report)
        if keys.ARCHIVED in kinds:
            self._take_record(counter)
        if entries:
            report.counters += 1
        for batch in _batches(entries):
            self._bring(counter, batch, report)

    def _bring(self, counter: str, items: list[Item], report: SalvageReport) -> None:
        """Write those of a batch that are missing; decide again whenever the head moved."""
        for attempt in range(1, _ATTEMPTS + 1):
            began_ms = self.connection.clock.now_ms()
            there = decode_head(self._get(self.source, keys.head_key(counter)))
            head = self._get(self.target, keys.head_key(counter))
            asked = [{"counter": counter, "entry": item["entry"]} for item in items]
            found = self.target.dynamo.get_many(self.target.table, asked, consistent=True)
            evidence = SalvageEvidence(
                here=decode_head(head),
                there=there,
                awaited=self.in_service or self.held(),
                merged_before_ms=self._merged_before_ms(counter),
            )
            shown = {item["entry"]: item for item in found}
            fates = [fate_of(item, shown.get(item["entry"]), evidence) for item in items]
            missing = self._still_there(
                [
                    item
                    for item, fate in zip(items, fates, strict=True)
                    if fate is SalvageFate.BROUGHT
                ]
            )
            fates = [
                SalvageFate.MERGED if fate is SalvageFate.BROUGHT and item not in missing else fate
                for item, fate in zip(items, fates, strict=True)
            ]
            if not missing or self._written(counter, evidence.here, missing, began_ms):
                report.note(counter, items, fates)
                return
            self.connection.clock.sleep_ms(_WAIT_MS * attempt)
        raise ServiceFailed(f"counter {counter!r} is being merged all the time: call again")

    def _still_there(self, items: list[Item]) -> list[Item]:
        """Those that the source shows now, after the heads were read.

        A copy in service may have deleted one since its page was read: it was merged.
        """
        asked = [{"counter": item["counter"], "entry": item["entry"]} for item in items]
        found = self.source.dynamo.get_many(self.source.table, asked, consistent=True)
        shown = {item["entry"]: item for item in found}
        return [item for item in items if shown.get(item["entry"]) == item]

    def _written(self, counter: str, head: Head, items: list[Item], began_ms: int) -> bool:
        """Whether all were written; False: the head, or one of the entries, has changed."""
        check = Check(self.target.table, keys.head_key(counter), is_still(head))
        puts = [Put(self.target.table, item, Absent("entry")) for item in items]
        try:
            with guarded(partial(self._refuse_late, began_ms)):
                self.target.dynamo.transact([check, *puts], self.connection.ids.unique_id()[:36])
        except TransactionCancelled:
            return False
        return True

    def _refuse_late(self, began_ms: int) -> None:
        if self.connection.clock.now_ms() - began_ms > _LEAVES_MS:
            raise ServiceFailed("this process was suspended before it sent what it had compared")

    def _merged_before_ms(self, counter: str) -> int:
        """The time from which on no entry can have been merged, by the clock of any run.

        By the time after the head was read: what that head has merged was old enough before.
        """
        now_ms = self.connection.clock.now_ms()
        try:
            namespace = Namespaces(self.connection).get(keys.namespace_of(counter))
        except NamespaceUnknown:
            return now_ms
        limit = limits_by(self.connection)(namespace)
        return limit.cutoff_ms(now_ms) + limit.clock_skew_ms

    def _take_head(self, counter: str, report: SalvageReport) -> None:
        """Take over a head that arrived there and never here: the one after this one's.

        The home that published it was lost; nothing of it is deleted before every region shows it.
        """
        began_ms = self.connection.clock.now_ms()
        item = self._get(self.source, keys.head_key(counter))
        theirs = decode_head(item)
        ours = decode_head(self._get(self.target, keys.head_key(counter)))
        follows = theirs.generation == ours.generation + 1
        # The empty head of a deletion begins an incarnation of its own.
        begins = theirs.run == theirs.incarnation and not theirs.entries
        continues = ours.incarnation in {"", theirs.incarnation}
        if item is not None and follows and (continues or begins):
            # That there is no head proves little: the counter may have been deleted since.
            with guarded(partial(self._refuse_late, began_ms)):
                put = Put(self.target.table, item, is_still(ours))
                report.heads += wrote(self.target.dynamo, put)

    def _take_record(self, counter: str) -> None:
        """Take over the record that the entries of this head are archived.

        Without it, entries that were deleted after it look as if a person had deleted them. Written
        with a check of the head: where that is shown nobody has recorded a later one.
        """
        key = keys.archived_key(counter)
        theirs, ours = self._get(self.source, key), self._get(self.target, key)
        head = decode_head(self._get(self.target, keys.head_key(counter)))
        if not is_archived(head, theirs) or is_archived(head, ours) or theirs is None:
            return
        check = Check(self.target.table, keys.head_key(counter), is_still(head))
        put = Put(self.target.table, theirs, _is_still_recorded(ours))
        try:
            self.target.dynamo.transact([check, put], self.connection.ids.unique_id()[:36])
        except TransactionCancelled:
            return

    def _take_namespace(self, item: Item, report: SalvageReport) -> None:
        try:
            self.target.dynamo.put(Put(self.target.table, item, Absent("entry")))
        except ConditionFailed as failed:
            found = failed.item or {}
            if any(item.get(name) != found.get(name) for name in ("kind", "spread")):
                raise ServiceFailed(
                    f"{item['counter']!r} was created again here with another kind or spread: its "
                    "entries cannot be brought in under their own ids"
                ) from failed
        else:
            report.namespaces.append(str(item["counter"]).removeprefix(keys.NAMESPACE_PREFIX))

    @staticmethod
    def _get(copy: LedgerCopy, key: Key) -> Item | None:
        return copy.dynamo.get(copy.table, key, consistent=True)


def _is_still_recorded(seen: Item | None) -> Condition:
    if seen is None:
        return Absent("entry")
    return AllOf(*(Compare(name, "=", seen.get(name)) for name in ("generation", "run")))


def _batches(items: list[Item]) -> Iterator[list[Item]]:
    for start in range(0, len(items), _TOGETHER):
        yield items[start : start + _TOGETHER]
