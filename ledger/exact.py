"""The exact sum of a counter, also while a compaction runs, in every region.

    1  read the head            strongly consistent
    2  query the entries        strongly consistent, in key order, all pages
    3  read the head again      strongly consistent
    4  neither the same head nor the one published next: start over
    5  sum = head of 3 + the entries in the covers of neither 1 nor 3

A query is no snapshot: entries may be taken into the head and deleted while it runs. What the
head of (1) covers may be half deleted, so it is skipped. What the head of (3) covers is in its
sum, so it is skipped as well, seen or not. Between two generations every region shows none of what
the first one covered, so with one step at the most nothing falls between the two readings.

Generations begin again once a counter was deleted and its name forgotten. So a step counts as one
only within one incarnation of the head. "No head" belongs to none: from there to the first head is
one step only if no deletion fits in between. A deletion keeps an empty head in place for a day, so
a read that took half a day starts over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from heapq import merge
from itertools import islice
from struct import Struct
from typing import TYPE_CHECKING, Final

from countledger.ledger import amount, keys
from countledger.ledger.attributes import (
    Item,
    check_format,
    decoded,
    describe,
    optional,
    optional_time,
    require,
    require_amount,
)
from countledger.ledger.clock import to_datetime, to_ms
from countledger.ledger.entry import Entry, decode_entry
from countledger.ledger.errors import BadSetting, BadTime, CorruptItem, ServiceFailed, shown
from countledger.ledger.ids import first_id_of
from countledger.ledger.limits import RUN_LIFE_MS
from countledger.ledger.operations import AllOf, BeginsWith, Between, Compare, Query
from countledger.ledger.records import INCARNATION
from countledger.ledger.tombstones import present

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import OnCorrupt
    from countledger.ledger.connection import Connection
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.operations import Condition


# The head: the one summary of all entries of a counter that were compacted so far.


@dataclass(frozen=True, slots=True)
class Covered:
    """An entry that a head has taken in; `at_ms` is that of a bare key: another id has the time.

    A bare key is forgotten once its entry is compacted, and may then be used again: the same sort
    key then holds another entry, made later, which no head covers.
    """

    delta: Amount
    at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ArchiveRef:
    """The object in which the entries that a generation took in are archived; SHA-256 in hex."""

    key: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What stands for the compacted entries.

    Generations begin again at 1 once a counter was deleted and its name forgotten, so a generation
    alone identifies nothing. `run` identifies a head (with its generation, since a run publishes
    several), and `incarnation` the sequence of heads that it belongs to.

    Attributes:
        generation: how often it was replaced; 0 = there is none yet.
        run: which run of the compactor or which deletion wrote it; an id that is never used again.
        incarnation: the `run` of the first head of this sequence: of generation 1, or of the empty
            head that a deletion left.
        sum: the sum of all entries compacted so far.
        events: the events they carried.
        entries: how many there were.
        from_at_ms: when the oldest of them was made.
        to_at_ms: when the newest of them was made.
        covers: by sort key, the entries that this generation took in and that may still be
            visible.
        archive: where they are archived, or None.
    """

    generation: int = 0
    run: str = ""
    incarnation: str = ""
    sum: Amount = 0
    events: int = 0
    entries: int = 0
    from_at_ms: int | None = None
    to_at_ms: int | None = None
    covers: Mapping[str, Covered] = field(default_factory=dict)
    archive: ArchiveRef | None = None

    @property
    def from_at(self) -> datetime | None:
        """When the oldest of them was made, in UTC."""
        return None if self.from_at_ms is None else to_datetime(self.from_at_ms)

    @property
    def to_at(self) -> datetime | None:
        """When the newest of them was made, in UTC."""
        return None if self.to_at_ms is None else to_datetime(self.to_at_ms)

    def has_merged(self, key: str, at_ms: int) -> bool:
        """Whether the covers hold the entry of that sort key that was made at that time."""
        covered = self.covers.get(key)
        return covered is not None and covered.at_ms in {None, at_ms}


NO_HEAD = Head()


def encode_head(counter: str, head: Head) -> Item:
    archive = head.archive
    return {
        **keys.head_key(counter),
        "generation": head.generation,
        "run": head.run,
        "incarnation": head.incarnation,
        "sum": head.sum,
        "events": head.events,
        "entries": head.entries,
        "from_at": head.from_at_ms,
        "to_at": head.to_at_ms,
        "covers": {
            key: one.delta if one.at_ms is None else [one.delta, one.at_ms]
            for key, one in head.covers.items()
        },
        "archive": {"key": archive.key, "sha256": archive.sha256} if archive else None,
    }


def decode_head(item: Item | None) -> Head:
    """The head in an item of `ledger`; the empty one where there is none."""
    if item is None:
        return NO_HEAD
    check_format(item)
    covers = require(item, "covers", dict)
    archive = optional(item, "archive", dict)
    return Head(
        generation=require(item, "generation", int),
        run=require(item, "run", str),
        incarnation=require(item, "incarnation", str),
        sum=require_amount(item, "sum"),
        events=require(item, "events", int),
        entries=require(item, "entries", int),
        from_at_ms=optional_time(item, "from_at"),
        to_at_ms=optional_time(item, "to_at"),
        covers={key: _decode_covered(item, value) for key, value in covers.items()},
        archive=_decode_archive(item, archive) if archive is not None else None,
    )


def _decode_covered(item: Item, value: object) -> Covered:
    match value:
        case bool():
            pass
        case int() | Decimal():
            return Covered(value)
        case [(int() | Decimal()) as delta, int() as at_ms]:
            return Covered(delta, at_ms)
        case _:
            pass
    raise CorruptItem(f"{describe(item)}: 'covers' holds {shown(value)}, no delta", item)


def _decode_archive(item: Item, archive: Mapping[str, object]) -> ArchiveRef:
    match archive:
        case {"key": str() as key, "sha256": str() as sha256}:
            return ArchiveRef(key, sha256)
        case _:
            raise CorruptItem(
                f"{describe(item)}: 'archive' is {shown(archive)}, no key and sha256", item
            )


# Each attempt is beaten only by a compactor that publishes twice while it reads.
_ATTEMPTS: Final = 20
# Time, and the lengths of the sort key and of the text of delta and events.
_FIXED: Final = Struct(">qBH")
_SIZE: Final = _FIXED.size


@dataclass(frozen=True, slots=True)
class ExactSum:
    """The exact sum of a counter.

    Attributes:
        counter: its name.
        value: the sum of all entries ever visible here when the read began, each once.
        events: how many events they carried.
        entries: how many there were.
        entries_read: how many of them the read had to fetch; the others are in the head.
        generation: of the head.
        read_units: what the read cost: one unit for each head, one for each 4 KB of entries.
    """

    counter: str
    value: Amount
    events: int
    entries: int
    entries_read: int
    generation: int
    read_units: float


def moved_too_far(first: Head, second: Head) -> bool:
    """Whether the second head is neither the first one nor the one that was published next."""
    if second.generation == first.generation:
        return second.run != first.run
    if second.generation != first.generation + 1:
        return True
    return first.generation > 0 and second.incarnation != first.incarnation


@dataclass(frozen=True, slots=True)
class ExactReader:
    """Reads exact sums, of one region."""

    connection: Connection

    def is_emptied(self, counter: str) -> bool:
        """Whether a deletion has emptied the counter and has not ended: one or two read units."""
        dynamo, table = self.connection.retrying, self.connection.ledger
        mark = present(dynamo.get(table, keys.deletion_key(counter), consistent=True))
        if mark is None:
            return False
        head = dynamo.get(table, keys.head_key(counter), consistent=True) or {}
        return bool(head.get("incarnation") == mark[INCARNATION])

    def read(self, counter: str) -> ExactSum:
        """The exact sum: two read units and one for each 4 KB of entries not yet compacted.

        `ServiceFailed`: compactions overtook every attempt.
        """
        counter = keys.check_counter(counter)
        dynamo, clock = self.connection.retrying.metered(), self.connection.clock
        for _ in range(_ATTEMPTS):
            began_ms = clock.now_ms()
            first = self._head(dynamo, counter)
            seen = self._entries(dynamo, counter, first)
            second = self._head(dynamo, counter)
            took_ms = clock.now_ms() - began_ms
            if not moved_too_far(first, second) and took_ms <= RUN_LIFE_MS:
                seen.leave_out(second)
                return ExactSum(
                    counter,
                    amount.add(second.sum, seen.sum),
                    second.events + seen.events,
                    second.entries + seen.entries,
                    entries_read=seen.read,
                    generation=second.generation,
                    read_units=dynamo.meter.read_units,
                )
        raise ServiceFailed(
            f"counter {counter!r}: compactions overtook {_ATTEMPTS} exact reads; try again"
        )

    def _head(self, dynamo: DynamoClient, counter: str) -> Head:
        key = keys.head_key(counter)
        return decode_head(dynamo.get(self.connection.ledger, key, consistent=True))

    def _entries(self, dynamo: DynamoClient, counter: str, first: Head) -> ExactAccumulator:
        condition = AllOf(Compare("counter", "=", counter), BeginsWith("entry", keys.ENTRY_PREFIX))
        seen = ExactAccumulator(first)
        for page in dynamo.pages(Query(self.connection.ledger, condition, consistent=True)):
            for item in page:
                seen.note(item["entry"], decode_entry(item))
        return seen


@dataclass(slots=True)
class ExactAccumulator:
    """The entries of one read, without those that the first head covers; `read` counts them too."""

    first: Head
    sum: Amount = 0
    events: int = 0
    entries: int = 0
    read: int = 0
    _packed: bytearray = field(default_factory=bytearray, repr=False)

    def note(self, key: str, entry: Entry) -> None:
        self.read += 1
        if self.first.has_merged(key, entry.at_ms):
            return
        self.sum = amount.add(self.sum, entry.delta)
        self.events += entry.events
        self.entries += 1
        name, text = key.encode(), f"{entry.events} {amount.to_text(entry.delta)}".encode()
        self._packed += _FIXED.pack(entry.at_ms, len(name), len(text))
        self._packed += name
        self._packed += text

    def leave_out(self, second: Head) -> None:
        """Take out what the second head covers: it is in that head's sum."""
        if not second.covers or second.generation == self.first.generation:
            return
        for key, at_ms, text in self._unpacked():
            if second.has_merged(key, at_ms):
                events, delta = text.split(" ")
                self.sum = amount.add(self.sum, amount.negated(amount.from_number(delta)))
                self.events -= int(events)
                self.entries -= 1

    def _unpacked(self) -> Iterator[tuple[str, int, str]]:
        packed, start = self._packed, 0
        while start < len(packed):
            at_ms, name_size, text_size = _FIXED.unpack_from(packed, start)
            name_end = start + _SIZE + name_size
            end = name_end + text_size
            yield packed[start + _SIZE : name_end].decode(), at_ms, packed[name_end:end].decode()
            start = end


# After every id that begins with a hex digit, and before those of bare keys.
_BEHIND_TIMES = "g"
# After those too, so that keys that another program made are read as well.
_BEHIND_ALL = "\U0010ffff"


def newest_first(
    dynamo: DynamoClient,
    table: str,
    counter: str,
    spread: int,
    limit: int | None = None,
    *,
    head: Head = NO_HEAD,
    before_ms: int | None = None,
    on_corrupt: OnCorrupt | None = None,
) -> Iterator[Entry]:
    """The newest entries of a counter: half a read unit for each 4 KB read.

    Two queries for each prefix, side by side, so at least one read unit for each: 256 for a spread
    of 256. The entries that `head` covers are left out. `before_ms`: only entries that were made
    earlier. `on_corrupt` is called with the error of each entry that cannot be read, which is left
    out; without it the error is raised.
    """
    if limit is not None and limit < 1:
        raise BadSetting(
            f"limit {shown(limit)} is not a number of entries: give 1 or more, or no limit for all"
        )
    read = partial(_entries, dynamo, table, counter, head=head, on_corrupt=on_corrupt)
    behind = _BEHIND_TIMES if before_ms is None else first_id_of(before_ms)
    streams: list[Iterator[Entry]] = []
    bare: list[Entry] = []
    for prefix in keys.entry_prefixes(spread):
        times = Between("entry", prefix, prefix + behind)
        streams.append(read(times, limit))
        hashes = Between("entry", prefix + _BEHIND_TIMES, prefix + _BEHIND_ALL)
        bare += read(hashes, None)
    if before_ms is not None:
        bare = [entry for entry in bare if entry.at_ms < before_ms]
    bare.sort(key=_newness)
    return islice(merge(*streams, bare, key=_newness), limit)


def _newness(entry: Entry) -> int:
    return -entry.at_ms


def _entries(
    dynamo: DynamoClient,
    table: str,
    counter: str,
    range_: Condition,
    page_size: int | None,
    *,
    head: Head,
    on_corrupt: OnCorrupt | None,
) -> Iterator[Entry]:
    read = Query(
        table,
        AllOf(Compare("counter", "=", counter), range_),
        forward=False,
        page_size=page_size,
    )
    for page in dynamo.pages(read):
        for key, entry in decoded(page, _keyed, on_corrupt):
            if not head.has_merged(key, entry.at_ms):
                yield entry


def _keyed(item: Item) -> tuple[str, Entry]:
    """An entry with its sort key, its times fit to be shown."""
    entry = decode_entry(item)
    try:
        _ = entry.at, entry.occurred_at
    except BadTime as error:
        raise CorruptItem(f"{describe(item)}: {error}", item) from error
    return item["entry"], entry


def head_of(connection: Connection, counter: str) -> Head:
    """The head of a counter. Half a read unit for each 4 KB of it."""
    key = keys.head_key(keys.check_counter(counter))
    return decode_head(connection.retrying.get(connection.ledger, key))


def entries_of(
    connection: Connection,
    counter: str,
    spread: int,
    limit: int | None,
    *,
    before: datetime | None,
    on_corrupt: OnCorrupt | None,
) -> Iterator[Entry]:
    """The entries of a counter that are not merged yet, newest first."""
    return newest_first(
        connection.retrying,
        connection.ledger,
        counter,
        spread,
        limit,
        head=head_of(connection, counter),
        before_ms=None if before is None else to_ms(before),
        on_corrupt=on_corrupt,
    )
