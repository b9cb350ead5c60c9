"""The walk over all counters: both tables in parallel segments, from a bookmark on.

    ledger    every entry and head of `ledger` names a counter; of these, those without a total
    totals    every item `total` of `counters` names one too

The ledger comes first. A counter that gets its total during the walk is found in the ledger, or has
its total when the totals are read; in the other order both could miss it. A counter found in the
ledger is not named again from the totals, unless the walk was interrupted in between.

A round reads one page of each segment that is not at its end. The bookmark after a round says how
far each segment has come, so another process can continue there. After an interruption a counter
may be named twice; a second verdict does no harm.

Items of `ledger` that countledger does not write are foreign. No number contains them, and their
counters are not named because of them; a round returns their keys.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from countledger.ledger import keys
from countledger.ledger.errors import BadSetting, shown
from countledger.ledger.operations import Compare, Scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.dynamo import DynamoClient

SEGMENTS_MAX: Final = 64
SEGMENTS_DEFAULT: Final = 4
TOTALS_PER_PAGE: Final = 200
ENTRIES_PER_PAGE: Final = 1_000

_HAS_TOTAL: Final = Compare("part", "=", keys.TOTAL)


class WalkedTable(StrEnum):
    """Where counters are found, in the order of the walk."""

    LEDGER = "ledger"
    TOTALS = "totals"


ORDER: Final = tuple(WalkedTable)


@dataclass(frozen=True, slots=True)
class WalkSegment:
    """One segment of one table.

    Attributes:
        source: which table.
        segment: its number.
        after: the key of the last item that named a counter, or None before the first.
        done: whether it is at its end.
    """

    source: WalkedTable
    segment: int
    after: Key | None = None
    done: bool = False


@dataclass(frozen=True, slots=True)
class Bookmark:
    """How far a walk has come.

    Attributes:
        lanes: all segments of both tables.
    """

    lanes: tuple[WalkSegment, ...]

    @property
    def done(self) -> bool:
        """Whether nothing is left."""
        return all(lane.done for lane in self.lanes)

    @property
    def segments(self) -> int:
        """Into how many parts each table is cut."""
        return len(self.lanes) // len(WalkedTable)


def start(segments: int = SEGMENTS_DEFAULT) -> Bookmark:
    """The bookmark before the first page.

    Raises:
        BadSetting: the number of segments is not from 1 to 64.
    """
    if not 1 <= segments <= SEGMENTS_MAX:
        raise BadSetting(f"{shown(segments)} segments: give 1 to {SEGMENTS_MAX}")
    return Bookmark(
        tuple(WalkSegment(source, n) for source in WalkedTable for n in range(segments))
    )


@dataclass(frozen=True, slots=True)
class ForeignItems:
    """The items of `ledger` that countledger did not write, as far as a walk has come.

    Attributes:
        count: how many.
        first: counter and sort key of the one that was found first; empty: there is none.
    """

    count: int = 0
    first: str = ""

    def and_of(self, found: Sequence[Key]) -> ForeignItems:
        """These, and some more."""
        named = (f"{key['counter']} {key['entry']}" for key in found)
        return ForeignItems(self.count + len(found), self.first or next(named, ""))

    def stored(self) -> dict[str, Any]:
        """As attributes of an item or of a document."""
        return {"foreign": self.count, "foreign_first": self.first}


@dataclass(frozen=True, slots=True)
class WalkRound:
    """The counters that one round found, and where the next one begins.

    Attributes:
        counters: their names, each once.
        bookmark: to store once these counters have been handled.
        foreign: the keys of the foreign items of `ledger` in this round.
    """

    counters: tuple[str, ...]
    bookmark: Bookmark
    foreign: tuple[Key, ...] = ()


@dataclass(frozen=True, slots=True)
class Walker:
    """Walks over all counters.

    Attributes:
        dynamo: a DynamoDB client; the SDK may retry its reads.
        ledger: the table `ledger`.
        totals: the table `counters`.
        page_size: how many totals of each segment are in a round. A larger round shares one proof
            among more counters, and more of them change while it waits for the proof.
        entries_per_page: the same of entries; at worst each names another counter without a total.
    """

    dynamo: DynamoClient
    ledger: str
    totals: str
    page_size: int = TOTALS_PER_PAGE
    entries_per_page: int = ENTRIES_PER_PAGE

    def rounds(self, bookmark: Bookmark) -> Iterator[WalkRound]:
        """The counters from a bookmark on: half a read unit for each 4 KB of both tables.

        And half of one for each counter of `ledger`, to see whether it has a total.
        """
        segments = bookmark.segments
        early: set[str] = set()
        for source in ORDER:
            pages = {
                lane.segment: self.dynamo.pages(self._scan(lane, segments))
                for lane in bookmark.lanes
                if lane.source is source and not lane.done
            }
            with self.dynamo.workers(max(1, len(pages)), "countledger-walker") as pool:
                while pages:
                    read = dict(zip(pages, pool.map(_next, pages.values()), strict=True))
                    pages = {n: rest for n, rest in pages.items() if read[n] is not None}
                    bookmark = _moved(bookmark, source, read)
                    named = [one for one in self._named(source, read) if one not in early]
                    if source is WalkedTable.LEDGER:
                        early.update(named)
                    yield WalkRound(tuple(named), bookmark, _foreign(source, read))

    def _scan(self, lane: WalkSegment, segments: int) -> Scan:
        at_totals = lane.source is WalkedTable.TOTALS
        return Scan(
            self.totals if at_totals else self.ledger,
            _HAS_TOTAL if at_totals else None,
            ("counter", "part" if at_totals else "entry"),
            segment=lane.segment,
            segments=segments,
            after=lane.after,
            page_size=self.page_size if at_totals else self.entries_per_page,
        )

    def _named(self, source: WalkedTable, read: dict[int, list[Item] | None]) -> tuple[str, ...]:
        found = (item for page in read.values() for item in page or ())
        if source is WalkedTable.LEDGER:
            found = (item for item in found if _names_a_counter(item["entry"]))
        unique = dict.fromkeys(item["counter"] for item in found)
        names = tuple(name for name in unique if keys.is_counter(name))
        if source is WalkedTable.TOTALS:
            return names
        wanted = [keys.total_key(name) for name in names]
        there = {item["counter"] for item in self.dynamo.get_many(self.totals, wanted)}
        return tuple(name for name in names if name not in there)


def _is_foreign(key: Key) -> bool:
    """Whether an item of `ledger` has a key that countledger does not write."""
    counter, entry = key["counter"], key["entry"]
    if counter.startswith(keys.NAMESPACE_PREFIX):
        return entry != keys.SETTINGS
    if counter == keys.REGION_HOME:
        return entry not in (keys.EPOCH, keys.LEASE)
    if counter.startswith(keys.DELETION_PREFIX):
        return not keys.is_counter(entry) or keys.deletion_key(entry)["counter"] != counter
    known = entry in (keys.HEAD, keys.ARCHIVED) or keys.id_of(entry) is not None
    return not (known and keys.is_counter(counter))


def _names_a_counter(entry: str) -> bool:
    return entry.startswith(keys.ENTRY_PREFIX) or entry == keys.HEAD


def _foreign(source: WalkedTable, read: dict[int, list[Item] | None]) -> tuple[Key, ...]:
    if source is not WalkedTable.LEDGER:
        return ()
    found = (item for page in read.values() for item in page or ())
    return tuple(item for item in found if _is_foreign(item))


def _next(pages: Iterator[list[Item]]) -> list[Item] | None:
    """The next page; None after the last."""
    return next(pages, None)


def _moved(bookmark: Bookmark, source: WalkedTable, read: dict[int, list[Item] | None]) -> Bookmark:
    """The bookmark after these pages."""

    def lane_after(lane: WalkSegment) -> WalkSegment:
        if lane.source is not source or lane.segment not in read:
            return lane
        page: Sequence[Item] | None = read[lane.segment]
        if page is None:
            return replace(lane, done=True)
        return replace(lane, after=dict(page[-1])) if page else lane

    return Bookmark(tuple(map(lane_after, bookmark.lanes)))
