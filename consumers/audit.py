"""An audit: a verdict on each counter, or a repair of it, continued from a stored position.

    1  a round of the walk names counters
    2  the counters are compared, or repaired, with one proof
    3  the position is stored, after the caller has taken all results of the round

After a crash between two steps a round is done again. That does no harm: a verdict is given twice,
and a total that was repaired is exact.

The position is stored in a file, or in an item of `counters`: the purpose of the walk, how far it
came, and how often each result was found.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from countledger.consumers.walk import (
    SEGMENTS_DEFAULT,
    SEGMENTS_MAX,
    Bookmark,
    WalkedTable,
    Walker,
    WalkSegment,
    start,
)
from countledger.ledger import keys
from countledger.ledger.attributes import require
from countledger.ledger.errors import BadSetting, CorruptItem
from countledger.ledger.operations import Put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from countledger.ledger.dynamo import DynamoClient

_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class WalkPosition:
    """Where a walk stands.

    Attributes:
        bookmark: how far it has come.
        counts: how often each outcome was met so far.
    """

    bookmark: Bookmark
    counts: Mapping[str, int] = field(default_factory=dict)


class Bookmarks(Protocol):
    """Keeps the place of one walk."""

    def load(self) -> WalkPosition | None:
        """The place that was kept, or None."""

    def save(self, place: WalkPosition) -> None:
        """Keep a place instead of the last one."""

    def clear(self) -> None:
        """Keep none: the walk is over."""


class NoBookmarks:
    """Keeps nothing."""

    def load(self) -> None:
        """There is none."""

    def save(self, place: WalkPosition) -> None:
        """Forget it."""

    def clear(self) -> None:
        """There is none."""


@dataclass(frozen=True, slots=True)
class FileBookmarks:
    """Keeps the place in a file.

    Attributes:
        path: the file; it need not exist.
        purpose: what the walk is for, on which tables. A file of another purpose is refused.
    """

    path: Path
    purpose: str

    def load(self) -> WalkPosition | None:
        """The place in the file, or None where there is no file.

        Raises:
            BadSetting: the file cannot be read, or belongs to another walk.
        """
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise BadSetting(f"bookmark {self.path}: {error}") from error
        return _decode(text, self.purpose, f"bookmark {self.path}")

    def save(self, place: WalkPosition) -> None:
        """Write the file anew; whoever reads it sees the old one or the new one.

        Raises:
            BadSetting: it cannot be written.
        """
        beside = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
        try:
            beside.write_text(_encode(place, self.purpose), encoding="utf-8")
            beside.replace(self.path)
        except OSError as error:
            raise BadSetting(f"bookmark {self.path} cannot be written: {error}") from error

    def clear(self) -> None:
        """Remove the file."""
        self.path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class ItemBookmarks:
    """Keeps the place in an item of `counters`: a write unit for each KB of it.

    Attributes:
        dynamo: a DynamoDB client.
        table: the table `counters`.
        purpose: what the walk is for; one place for each.
    """

    dynamo: DynamoClient
    table: str
    purpose: str

    def load(self) -> WalkPosition | None:
        """The place in the item; None where there is none, or none that this release can read."""
        item = self.dynamo.get(self.table, keys.bookmark_key(self.purpose), consistent=True)
        if item is None or "place" not in item:
            return None
        try:
            return _decode(require(item, "place", str), self.purpose, "bookmark")
        except BadSetting:
            return None  # of another release: the walk begins anew, which does no harm

    def save(self, place: WalkPosition) -> None:
        """Write the item anew."""
        text = _encode(place, self.purpose)
        self.dynamo.put(Put(self.table, {**keys.bookmark_key(self.purpose), "place": text}))

    def clear(self) -> None:
        """Write the item anew, without a place."""
        self.dynamo.put(Put(self.table, dict(keys.bookmark_key(self.purpose))))


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


def _encode(place: WalkPosition, purpose: str) -> str:
    lanes: list[dict[str, Any]] = [
        {
            "source": str(lane.source),
            "segment": lane.segment,
            "after": None if lane.after is None else dict(lane.after),
            "done": lane.done,
        }
        for lane in place.bookmark.lanes
    ]
    saved = {"format": _FORMAT, "purpose": purpose, "lanes": lanes, "counts": dict(place.counts)}
    return json.dumps(saved, ensure_ascii=False)


def _decode(text: str, purpose: str, what: str) -> WalkPosition:
    try:
        saved = _Saved.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        raise BadSetting(f"{what} is none of ours: {first['msg']}; remove it to start") from error
    if saved.purpose != purpose:
        raise BadSetting(
            f"{what} belongs to {saved.purpose!r}, and this is {purpose!r}; name another file"
        )
    lanes = tuple(WalkSegment(one.source, one.segment, one.after, one.done) for one in saved.lanes)
    segments = len(lanes) // len(WalkedTable)
    if [(one.source, one.segment) for one in lanes] != [
        (source, segment) for source in WalkedTable for segment in range(segments)
    ]:
        raise BadSetting(f"{what} is none of ours: its segments are not complete")
    return WalkPosition(Bookmark(lanes), saved.counts)


Audited = TypeVar("Audited")

# An audit may wait for the proof of a busy stream as long as clocks differ: many share it.
CHUNK = 2_000


@dataclass(slots=True)
class Audit(Generic[Audited]):
    """A walk over all counters with an outcome for each; iterate over it once.

    Attributes:
        walker: finds the counters.
        judge: makes the outcomes of counters, in their order.
        name_of: what an outcome is counted as.
        is_wanted: whether a counter is one of a ledger; others have nothing to compare.
        segments: into how many parts each table is cut; a walk that goes on keeps its own.
        bookmarks: where its place is kept.
        unread: makes the outcome of a counter whose namespace cannot be read, so that nobody knows
            whether it is wanted; None: that ends the walk.
        has_time: asked behind each round whether another one may begin.
        counts: how often each outcome was met, earlier parts of the walk included.
        done: whether it has come to its end.
    """

    walker: Walker
    judge: Callable[[Iterable[str]], Iterator[Audited]]
    name_of: Callable[[Audited], str]
    is_wanted: Callable[[str], bool]
    segments: int = SEGMENTS_DEFAULT
    bookmarks: Bookmarks = field(default_factory=NoBookmarks)
    has_time: Callable[[], bool] = lambda: True
    unread: Callable[[str, CorruptItem], Audited] | None = None
    counts: Counter[str] = field(default_factory=Counter)
    done: bool = False

    def __iter__(self) -> Iterator[Audited]:
        """The outcomes, as they come."""
        for outcomes in self.rounds():
            yield from outcomes

    def rounds(self) -> Iterator[list[Audited]]:
        """The outcomes by round. The place is kept when the next round is asked for.

        Raises:
            BadSetting: the number of segments is none, or the bookmark is of something else.
        """
        place = self.bookmarks.load() or WalkPosition(start(self.segments))
        self.counts.update(place.counts)
        self.bookmarks.save(place)  # if that fails, then before any work
        for one in self.walker.rounds(place.bookmark):
            wanted, outcomes = self._wanted(one.counters)
            outcomes += self.judge(wanted)
            self.counts.update(map(self.name_of, outcomes))
            yield outcomes
            self.bookmarks.save(WalkPosition(one.bookmark, dict(self.counts)))
            if not self.has_time():
                return
        self.bookmarks.clear()
        self.done = True

    def _wanted(self, counters: Iterable[str]) -> tuple[list[str], list[Audited]]:
        """The counters to be judged, and the outcomes of those of which nobody can tell."""
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
