"""The head: the one summary of all entries of a counter that were compacted so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

from countledger.ledger import keys
from countledger.ledger.attributes import (
    Item,
    check_format,
    describe,
    optional,
    optional_time,
    require,
    require_amount,
)
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import CorruptItem, shown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from countledger.ledger.amount import Amount


@dataclass(frozen=True, slots=True)
class Covered:
    """An entry that a head has taken in.

    Attributes:
        delta: what it added.
        at_ms: when it was made, of an entry under a bare key; None if the id has the time.

    A bare key is forgotten once its entry is compacted, and may then be used again: the same
    sort key then holds another entry, made later, which no head covers.
    """

    delta: Amount
    at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ArchiveRef:
    """Where the entries that a generation took in are archived.

    Attributes:
        key: the object's name.
        sha256: of its content, in hex.
    """

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
    """The head's item in `ledger`."""
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
    """The head in an item of `ledger`; the empty one where there is none.

    Raises:
        CorruptItem: an attribute is absent or of another type.
        NewerFormat: a later release wrote it.
    """
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
