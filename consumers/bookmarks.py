"""Bookmarks that outlive a process: what a walk is for, how far it came, what it found."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from countledger.consumers.walk import SEGMENTS_MAX, Bookmark, WalkedTable, WalkSegment
from countledger.ledger import keys
from countledger.ledger.attributes import require
from countledger.ledger.errors import BadSetting
from countledger.ledger.operations import Put

if TYPE_CHECKING:
    from collections.abc import Mapping
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
