"""An audit: a verdict on each counter, or a repair of it, continued from a stored position.

    1  a round of the walk names counters
    2  the counters are compared, or repaired, with one proof
    3  the position is stored, after the caller has taken all results of the round

After a crash between two steps a round is done again. That does no harm: a verdict is given twice,
and a repaired total is exact.

The position is stored in a file, or in an item of `counters`: its place, and its counts.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from countledger.consumers.walk import (
    SEGMENTS_DEFAULT,
    SEGMENTS_MAX,
    Bookmark,
    ForeignItems,
    WalkedTable,
    Walker,
    WalkSegment,
    start,
)
from countledger.ledger import keys
from countledger.ledger.attributes import require
from countledger.ledger.errors import BadSetting, CorruptItem
from countledger.ledger.operations import Put
from countledger.ledger.private_files import replace_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from countledger.ledger.attributes import Key
    from countledger.ledger.dynamo import DynamoClient

# Of the scheduled audit; each has a bookmark of its own.
AUDIT_MODES: Final = ("verify", "repair")
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class WalkPosition:
    """The stored position of a walk.

    Attributes:
        bookmark: how far the walk has come.
        counts: how often each outcome was found so far.
        foreign: the foreign items found so far.
    """

    bookmark: Bookmark
    counts: Mapping[str, int] = field(default_factory=dict)
    foreign: ForeignItems = field(default_factory=ForeignItems)


class Bookmarks(Protocol):
    """Stores the position of one walk."""

    def load(self) -> WalkPosition | None:
        """The stored position."""

    def save(self, place: WalkPosition) -> None:
        """Store a position; it replaces the previous one."""

    def clear(self, foreign: ForeignItems) -> None:
        """Delete the position, at the end of a walk that found these foreign items."""


class NoBookmarks:
    """Stores no position: every walk starts at the beginning."""

    def load(self) -> None:
        """Always None."""

    def save(self, place: WalkPosition) -> None:
        """Do nothing."""

    def clear(self, foreign: ForeignItems) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class FileBookmarks:
    """Stores the position in a file.

    Attributes:
        path: the file; it need not exist.
        purpose: task and tables of the walk. A file with another purpose is refused.
    """

    path: Path
    purpose: str

    def load(self) -> WalkPosition | None:
        """The position in the file, or None if the file does not exist.

        Raises:
            BadSetting: the file cannot be read, or belongs to another walk.
        """
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise BadSetting(f"bookmark {self.path}: {error}") from error
        return decode_position(text, self.purpose, f"bookmark {self.path}")

    def save(self, place: WalkPosition) -> None:
        """Replace the file at once: a reader sees the old or the new content.

        Raises:
            BadSetting: the file cannot be written.
        """
        try:
            replace_private(self.path, encode_position(place, self.purpose))
        except OSError as error:
            raise BadSetting(f"bookmark {self.path} cannot be written: {error}") from error

    def clear(self, foreign: ForeignItems) -> None:  # noqa: ARG002 - of the protocol
        """Delete the file."""
        self.path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class ItemBookmarks:
    """Stores the position in an item of `counters`: one write unit for each KB.

    Attributes:
        dynamo: a DynamoDB client.
        table: the table `counters`.
        purpose: task of the walk; each purpose has one position.
    """

    dynamo: DynamoClient
    table: str
    purpose: str

    def load(self) -> WalkPosition | None:
        """The position in the item; None if it is missing, or another release wrote it."""
        item = self.dynamo.get(self.table, keys.bookmark_key(self.purpose), consistent=True)
        if item is None or "place" not in item:
            return None
        try:
            return decode_position(require(item, "place", str), self.purpose, "bookmark")
        except BadSetting:
            return None  # of another release: the walk starts again, which does no harm

    def save(self, place: WalkPosition) -> None:
        """Write the item."""
        text = encode_position(place, self.purpose)
        self.dynamo.put(Put(self.table, {**keys.bookmark_key(self.purpose), "place": text}))

    def clear(self, foreign: ForeignItems) -> None:
        """Write the item without a position; `status` reads what it says of foreign items."""
        self.dynamo.put(Put(self.table, keys.bookmark_key(self.purpose) | foreign.stored()))


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
    """The text of a position."""
    lanes = [
        asdict(lane) | {"source": str(lane.source), "after": lane.after and dict(lane.after)}
        for lane in place.bookmark.lanes
    ]
    saved = {"format": _FORMAT, "purpose": purpose, "lanes": lanes, "counts": dict(place.counts)}
    return json.dumps(saved | place.foreign.stored(), ensure_ascii=False)


def decode_position(text: str, purpose: str, what: str) -> WalkPosition:
    """The position in a text.

    Raises:
        BadSetting: the text is of another walk, or names no position; `what` names the text.
    """
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
        """The outcomes, as they come."""
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
