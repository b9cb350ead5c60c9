"""An audit: a verdict on each counter, or a repair of it, continued from a stored position.

    1  a round of the walk names counters
    2  the counters are compared, or repaired, with one proof
    3  the position is stored, after the caller has taken all results of the round

After a crash between two steps a round is done again. That does no harm: a verdict is given twice,
and a repaired total is exact.

The position is stored in a file, or in an item of `counters`: its place, and its counts.

The walk over all counters: both tables in parallel segments, from a bookmark on.

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

import json
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from countledger.consumers.progress import ProgressRecovery
from countledger.consumers.proof import PATIENCE_MS
from countledger.consumers.verify import Judgement, Remedy, Repair, Repairer, Verifier, unrepaired
from countledger.ledger import keys
from countledger.ledger.attributes import require
from countledger.ledger.errors import BadSetting, CorruptItem, shown
from countledger.ledger.namespace import Kind, Namespaces
from countledger.ledger.operations import Compare, Put, Scan
from countledger.ledger.private_files import replace_private
from countledger.ledger.quarantine import RedriveAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from countledger.consumers.verify import Verdict
    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.connection import Connection
    from countledger.ledger.quarantine import QuarantinedRecord


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
    """One segment of one table; `after`: the key of the last item that named a counter, if any."""

    source: WalkedTable
    segment: int
    after: Key | None = None
    done: bool = False


@dataclass(frozen=True, slots=True)
class Bookmark:
    """How far a walk has come."""

    lanes: tuple[WalkSegment, ...]

    @property
    def done(self) -> bool:
        return all(lane.done for lane in self.lanes)

    @property
    def segments(self) -> int:
        """Into how many parts each table is cut."""
        return len(self.lanes) // len(WalkedTable)


def start(segments: int = SEGMENTS_DEFAULT) -> Bookmark:
    """The bookmark before the first page."""
    if not 1 <= segments <= SEGMENTS_MAX:
        raise BadSetting(f"{shown(segments)} segments: give 1 to {SEGMENTS_MAX}")
    return Bookmark(
        tuple(WalkSegment(source, n) for source in WalkedTable for n in range(segments))
    )


@dataclass(frozen=True, slots=True)
class ForeignItems:
    """The items of `ledger` that countledger did not write, as far as a walk has come.

    `first` is counter and sort key of the one that was found first; empty: there is none.
    """

    count: int = 0
    first: str = ""

    def and_of(self, found: Sequence[Key]) -> ForeignItems:
        named = (f"{key['counter']} {key['entry']}" for key in found)
        return ForeignItems(self.count + len(found), self.first or next(named, ""))

    def stored(self) -> dict[str, Any]:
        """As attributes of an item or of a document."""
        return {"foreign": self.count, "foreign_first": self.first}


@dataclass(frozen=True, slots=True)
class WalkRound:
    """The counters and foreign items that one round found, and where the next one begins.

    The bookmark is stored once these counters have been handled.
    """

    counters: tuple[str, ...]
    bookmark: Bookmark
    foreign: tuple[Key, ...] = ()


@dataclass(frozen=True, slots=True)
class Walker:
    """Walks over all counters; the sizes are of one segment in a round.

    A larger round shares one proof among more counters, and more of them change while it waits for
    the proof. At worst each entry names another counter without a total.
    """

    connection: Connection
    page_size: int = TOTALS_PER_PAGE
    entries_per_page: int = ENTRIES_PER_PAGE

    def rounds(self, bookmark: Bookmark) -> Iterator[WalkRound]:
        """The counters from a bookmark on: half a read unit for each 4 KB of both tables.

        And half of one for each counter of `ledger`, to see whether it has a total.
        """
        segments, dynamo = bookmark.segments, self.connection.retrying
        early: set[str] = set()
        for source in ORDER:
            pages = {
                lane.segment: dynamo.pages(self._scan(lane, segments))
                for lane in bookmark.lanes
                if lane.source is source and not lane.done
            }
            with dynamo.workers(max(1, len(pages)), "countledger-walker") as pool:
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
            self.connection.counters if at_totals else self.connection.ledger,
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
        totals = self.connection.retrying.get_many(self.connection.counters, wanted)
        there = {item["counter"] for item in totals}
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
    return next(pages, None)


def _moved(bookmark: Bookmark, source: WalkedTable, read: dict[int, list[Item] | None]) -> Bookmark:
    def lane_after(lane: WalkSegment) -> WalkSegment:
        if lane.source is not source or lane.segment not in read:
            return lane
        page: Sequence[Item] | None = read[lane.segment]
        if page is None:
            return replace(lane, done=True)
        return replace(lane, after=dict(page[-1])) if page else lane

    return Bookmark(tuple(map(lane_after, bookmark.lanes)))


# Of the scheduled audit; each has a bookmark of its own.
AUDIT_MODES: Final = ("verify", "repair")
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class WalkPosition:
    """The stored position of a walk, and how often each outcome was found so far."""

    bookmark: Bookmark
    counts: Mapping[str, int] = field(default_factory=dict)
    foreign: ForeignItems = field(default_factory=ForeignItems)


class Bookmarks(Protocol):
    """Stores the position of one walk."""

    def load(self) -> WalkPosition | None: ...

    def save(self, place: WalkPosition) -> None:
        """Store a position; it replaces the previous one."""

    def clear(self, foreign: ForeignItems) -> None:
        """Delete the position, at the end of a walk that found these foreign items."""


class NoBookmarks:
    """Stores no position: every walk starts at the beginning."""

    def load(self) -> None: ...

    def save(self, place: WalkPosition) -> None: ...

    def clear(self, foreign: ForeignItems) -> None: ...


@dataclass(frozen=True, slots=True)
class FileBookmarks:
    """Stores the position in a file, which need not exist; one with another purpose is refused."""

    path: Path
    purpose: str

    def load(self) -> WalkPosition | None:
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise BadSetting(f"bookmark {self.path}: {error}") from error
        return decode_position(text, self.purpose, f"bookmark {self.path}")

    def save(self, place: WalkPosition) -> None:
        """Replace the file at once: a reader sees the old or the new content."""
        try:
            replace_private(self.path, encode_position(place, self.purpose))
        except OSError as error:
            raise BadSetting(f"bookmark {self.path} cannot be written: {error}") from error

    def clear(self, foreign: ForeignItems) -> None:  # noqa: ARG002 - of the protocol
        self.path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class ItemBookmarks:
    """Stores the position in an item of `counters`: one write unit for each KB."""

    connection: Connection
    purpose: str

    def load(self) -> WalkPosition | None:
        """The position in the item; None if it is missing, or another release wrote it."""
        to = self.connection
        item = to.retrying.get(to.counters, keys.bookmark_key(self.purpose), consistent=True)
        if item is None or "place" not in item:
            return None
        try:
            return decode_position(require(item, "place", str), self.purpose, "bookmark")
        except BadSetting:
            return None  # of another release: the walk starts again, which does no harm

    def save(self, place: WalkPosition) -> None:
        text = encode_position(place, self.purpose)
        self._put({"place": text})

    def clear(self, foreign: ForeignItems) -> None:
        """Write the item without a position; `status` reads what it says of foreign items."""
        self._put(foreign.stored())

    def _put(self, values: Mapping[str, Any]) -> None:
        to = self.connection
        to.retrying.put(Put(to.counters, {**keys.bookmark_key(self.purpose), **values}))


class _SavedLane(BaseModel):
    model_config = ConfigDict(extra="forbid")

    source: WalkedTable
    segment: int = Field(ge=0, lt=SEGMENTS_MAX)
    after: dict[str, str] | None
    done: bool


class _Saved(BaseModel):
    model_config = ConfigDict(extra="forbid")

    format: int = Field(ge=_FORMAT, le=_FORMAT)
    purpose: str
    lanes: list[_SavedLane]
    counts: dict[str, int]
    foreign: int = Field(default=0, ge=0)
    foreign_first: str = ""


def encode_position(place: WalkPosition, purpose: str) -> str:
    lanes = [
        asdict(lane) | {"source": str(lane.source), "after": lane.after and dict(lane.after)}
        for lane in place.bookmark.lanes
    ]
    saved = {"format": _FORMAT, "purpose": purpose, "lanes": lanes, "counts": dict(place.counts)}
    return json.dumps(saved | place.foreign.stored(), ensure_ascii=False)


def decode_position(text: str, purpose: str, what: str) -> WalkPosition:
    """The position in a text, which must be of this walk; errors call the text `what`."""
    try:
        saved = _Saved.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        raise BadSetting(
            f"{what} is not valid: {first['msg']}; delete it to start again"
        ) from error
    if saved.purpose != purpose:
        raise BadSetting(
            f"{what} belongs to {saved.purpose!r}, and this walk is {purpose!r}: give another file"
        )
    lanes = tuple(WalkSegment(one.source, one.segment, one.after, one.done) for one in saved.lanes)
    segments = len(lanes) // len(WalkedTable)
    if [(one.source, one.segment) for one in lanes] != [
        (source, segment) for source in WalkedTable for segment in range(segments)
    ]:
        raise BadSetting(f"{what} is not valid: segments are missing; delete it to start again")
    return WalkPosition(
        Bookmark(lanes), saved.counts, ForeignItems(saved.foreign, saved.foreign_first)
    )


Audited = TypeVar("Audited")

# The proof for a busy stream may wait as long as clocks differ, so many counters share one proof.
CHUNK = 2_000


@dataclass(slots=True)
class Audit(Generic[Audited]):
    """A walk over all counters with an outcome for each; iterate over it once.

    Attributes:
        walker: finds the counters.
        process: verifies or repairs counters; returns their outcomes in the same order.
        name_of: the name under which an outcome is counted.
        is_wanted: whether a counter has a ledger; others are skipped.
        segments: the number of parts of each table; a resumed walk keeps its own number.
        bookmarks: store its position.
        unread: makes the outcome of a counter whose namespace is corrupt; None: it ends the walk.
        has_time: called after each round; false ends this part of the walk.
        on_foreign: called with the keys of foreign items of `ledger`.
        counts, foreign: how often each outcome, and which foreign items were found so far.
        done: whether the walk has reached its end.
    """

    walker: Walker
    process: Callable[[Iterable[str]], Iterator[Audited]]
    name_of: Callable[[Audited], str]
    is_wanted: Callable[[str], bool]
    segments: int = SEGMENTS_DEFAULT
    bookmarks: Bookmarks = field(default_factory=NoBookmarks)
    has_time: Callable[[], bool] = lambda: True
    unread: Callable[[str, CorruptItem], Audited] | None = None
    on_foreign: Callable[[Sequence[Key]], None] = lambda _: None
    counts: Counter[str] = field(default_factory=Counter)
    foreign: ForeignItems = field(default_factory=ForeignItems)
    done: bool = False

    def __iter__(self) -> Iterator[Audited]:
        for outcomes in self.rounds():
            yield from outcomes

    def rounds(self) -> Iterator[list[Audited]]:
        """The outcomes by round. The position is stored when the caller requests the next round.

        Raises:
            BadSetting: the number of segments is invalid, or the bookmark is of another walk.
        """
        place = self.bookmarks.load() or WalkPosition(start(self.segments))
        self.counts.update(place.counts)
        self.foreign = place.foreign
        self.bookmarks.save(place)  # a bookmark that cannot be written fails here, before any work
        for one in self.walker.rounds(place.bookmark):
            wanted, outcomes = self._wanted(one.counters)
            outcomes += self.process(wanted)
            self.counts.update(map(self.name_of, outcomes))
            if one.foreign:
                self.foreign = self.foreign.and_of(one.foreign)
                self.on_foreign(one.foreign)
            yield outcomes
            self.bookmarks.save(WalkPosition(one.bookmark, dict(self.counts), self.foreign))
            if not self.has_time():
                return
        self.bookmarks.clear(self.foreign)
        self.done = True

    def _wanted(self, counters: Iterable[str]) -> tuple[list[str], list[Audited]]:
        """The counters to process, and the outcomes of those whose namespace is corrupt."""
        wanted: list[str] = []
        outcomes: list[Audited] = []
        for counter in counters:
            try:
                if self.is_wanted(counter):
                    wanted.append(counter)
            except CorruptItem as error:
                if self.unread is None:
                    raise
                outcomes.append(self.unread(counter, error))
        return wanted, outcomes


# Verify and repair, for one counter, for many, or for all.


Process: TypeAlias = "Callable[[Iterable[str]], Iterator[Audited]]"


@dataclass(frozen=True, slots=True)
class Auditor:
    """Compares totals with their ledgers, and repairs totals that drifted.

    Attributes:
        connection: to the region; the stored position of a walk names it.
        patience_ms: how long to wait for a stream without progress before a verdict is `busy`.
        verifier: makes the verdicts.
        namespaces: the namespaces, which say whether a counter has a ledger.
    """

    connection: Connection
    patience_ms: int = PATIENCE_MS
    verifier: Verifier = field(init=False, repr=False)
    namespaces: Namespaces = field(init=False, repr=False)

    def __post_init__(self) -> None:
        verifier = Verifier(self.connection, patience_ms=self.patience_ms)
        object.__setattr__(self, "verifier", verifier)
        object.__setattr__(self, "namespaces", Namespaces(self.connection))

    def verify(self, counter: str) -> Verdict:
        """Compare a total with its ledger, after a proof that the stream has been handled."""
        return next(self.verify_many([counter]))

    def verify_many(self, counters: Iterable[str]) -> Iterator[Verdict]:
        """`verify` for many counters; a hundred share one proof."""
        return self.each(self.verifier.verify, self.unread, counters)

    def verify_all(
        self, *, segments: int = SEGMENTS_DEFAULT, resume: Path | None = None
    ) -> Audit[Verdict]:
        """Compare every counter; scans both tables. Iterate over the result.

        Args:
            segments: the number of parts of each table, read in parallel: 1 to 64.
            resume: a file with the position of the walk. If it exists, the walk continues after
                that position; at the end of the walk the file is deleted.

        Raises:
            BadSetting: when iterated: `segments` is invalid, or the file is of another walk.
        """
        verify = replace(self.verifier, chunk=CHUNK).verify
        return self.walk(
            "verify", verify, self.unread, lambda one: str(one.verdict), segments, resume
        )

    def repair(self, counter: str, *, dry_run: bool = False) -> Repair:
        """Set a total to its ledger's sum if it drifted, after the same proof as `verify`.

        Raises:
            WrongKind: it is not a ledger counter.
        """
        return next(self.repair_many([counter], dry_run=dry_run))

    def repair_many(self, counters: Iterable[str], *, dry_run: bool = False) -> Iterator[Repair]:
        """`repair` for many counters; a hundred share one proof."""
        return self.each(Repairer(self.verifier, dry_run).repair, self.unrepaired, counters)

    def repair_all(
        self,
        *,
        dry_run: bool = False,
        segments: int = SEGMENTS_DEFAULT,
        resume: Path | None = None,
    ) -> Audit[Repair]:
        """Repair every counter, and create missing totals; otherwise as `verify_all`."""
        repair = Repairer(replace(self.verifier, chunk=CHUNK), dry_run).repair
        task = "repair, dry run" if dry_run else "repair"
        return self.walk(
            task, repair, self.unrepaired, lambda one: str(one.remedy), segments, resume
        )

    def recover_progress(self) -> Iterator[str]:
        """Let stream shards continue whose progress is lost. Repair all totals after it.

        Returns:
            These shards.

        Raises:
            SetupError: the stream was switched off.
        """
        return ProgressRecovery(self.connection).recover()

    def each(
        self,
        process: Process[Audited],
        unread: Callable[[str, CorruptItem], Audited],
        counters: Iterable[str],
    ) -> Iterator[Audited]:
        """The outcomes of counters in their order, chunk by chunk.

        If the namespace is corrupt, it is unknown whether the counter has a ledger: it is neither
        compared nor repaired.
        """
        feed = iter(counters)
        while chunk := list(islice(feed, self.verifier.chunk)):
            outcomes: dict[int, Audited] = {}
            good: dict[int, str] = {}
            for place, counter in enumerate(chunk):
                try:
                    good[place] = of_a_ledger(self.namespaces, counter)
                except CorruptItem as error:
                    outcomes[place] = unread(counter, error)
            outcomes |= zip(good, process(good.values()), strict=True)
            yield from (outcomes[place] for place in range(len(chunk)))

    def unread(self, counter: str, error: CorruptItem) -> Verdict:
        """The verdict on a counter whose namespace cannot be read."""
        return unrepaired(self.verifier, counter, error).verdict

    def unrepaired(self, counter: str, error: CorruptItem) -> Repair:
        """The repair of a counter whose namespace cannot be read: none."""
        return unrepaired(self.verifier, counter, error)

    def walk(  # noqa: PLR0917 - handed on
        self,
        task: str,
        process: Process[Audited],
        unread: Callable[[str, CorruptItem], Audited],
        name_of: Callable[[Audited], str],
        segments: int,
        resume: Path | None,
        is_wanted: Callable[[str], bool] | None = None,
    ) -> Audit[Audited]:
        """An audit of all counters, or of those that are wanted."""
        to = self.connection
        purpose = f"{task} of {to.ledger} and {to.counters} in {to.region}"
        return Audit(
            Walker(to),
            process,
            name_of,
            is_wanted or self.namespaces.is_of_a_ledger,
            segments,
            NoBookmarks() if resume is None else FileBookmarks(resume, purpose),
            unread=unread,
        )


def of_a_ledger(namespaces: Namespaces, counter: str) -> str:
    """The counter, if it can have a ledger: its namespace is not of another kind."""
    counter = keys.check_counter(counter)
    if not namespaces.is_of_a_ledger(counter):
        namespaces.expect(counter, Kind.LEDGER)
    return counter


_ADVICE = "; it differs from its ledger: run `countledger repair` first"


def why_not_exact(verifier: Verifier, counter: str) -> str | None:
    """Why a total must not be deleted, or None: it is proven exact.

    As `Verifier.verify`. A drift may still change: a record that the stream has not delivered, or a
    running repair, would create the total again after its deletion.
    """
    (verdict,) = verifier.verify([counter])
    if verdict.verdict is Judgement.EXACT:
        return None
    advice = _ADVICE if verdict.verdict is Judgement.DRIFT else ""
    return f"{verdict.verdict}: {verdict.proof}{advice}"


@dataclass(frozen=True, slots=True)
class RepairCounter:
    """Repairs the counter of a record of the stream of `ledger`; the record is never applied.

    The watermark has passed the record. A repair reads the ledger, which has the entry, after a
    proof that all other records were applied, and raises the watermarks. So nothing counts twice.
    The record may be missing in the counter's windows alone, so they are rebuilt, too.
    """

    auditor: Auditor
    rebuild: Callable[[Iterable[str]], Iterator[Repair]]

    def __call__(self, record: QuarantinedRecord, *, even_if_counted: bool) -> RedriveAnswer:  # noqa: ARG002 - of the protocol
        if record.counter is None:
            return RedriveAnswer(
                resolved=False,
                detail="the record names no counter: run countledger verify --all, then discard it",
            )
        repair = self.auditor.repair(record.counter)
        detail = f"{record.counter}: {repair.remedy} ({repair.reason})"
        if repair.verdict.verdict is Judgement.UNREADABLE:
            detail += (
                "; correct or delete that item by hand, then resend this record: the counter is "
                "repaired then"
            )
        if not repair.healthy:
            return RedriveAnswer(resolved=False, detail=detail)
        windows = next(iter(self.rebuild([record.counter])))
        if windows.remedy is not Remedy.NONE:
            detail += f"; windows: {windows.remedy} ({windows.reason})"
        return RedriveAnswer(windows.healthy, detail)


def review_alert_log(record: QuarantinedRecord, *, even_if_counted: bool) -> RedriveAnswer:  # noqa: ARG001 - of the protocol
    """A change of a total that no rule saw: the total is right, but an alert may be missing."""
    name = "COUNTER" if record.counter is None else record.counter
    return RedriveAnswer(
        resolved=False,
        detail=f"no total is wrong, but an alert may be missing: see countledger alert log {name}, "
        "inform the people concerned, then discard this",
    )
