"""What lies in quarantine: a copy of what can never be applied, until a person has handled it.

A copy is an item of `counters`. Its key follows from the record alone (where it came from, its
sequence number), so that a record that is delivered again meets its own copy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from countledger.ledger import keys
from countledger.ledger.attributes import check_format, describe, optional, optional_time, require
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import CorruptItem, NotQuarantined, shown
from countledger.ledger.limits import REASON_MAX_CHARACTERS

if TYPE_CHECKING:
    from datetime import datetime

    from countledger.ledger.attributes import Item

# With its key and reason an item stays far below the 400 KB of the service.
CONTENT_MAX_BYTES: Final = 300_000
_WHERE_MAX_CHARACTERS: Final = 2_000
_ID: Final = re.compile(r"(ledger|counters|kinesis)-([0-9]{13}-[0-9a-f]{16})")


class QuarantineSource(StrEnum):
    """Whose record it is, which decides what can be done about it."""

    LEDGER = "ledger"
    """A record of the stream of `ledger`: its total lacks it; a repair heals that."""
    COUNTERS = "counters"
    """A record of the stream of `counters`: a change of a total that was not judged."""
    KINESIS = "kinesis"
    """What came through the ingest's stream: it is not in the ledger."""


class HandledHow(StrEnum):
    """How a person handled it."""

    RESENT = "resent"
    """It is counted: taken in again, or its counter was repaired."""
    DISCARDED = "discarded"
    """It was given up."""


@dataclass(frozen=True, slots=True)
class QuarantineHandling:
    """That a person handled a copy.

    Attributes:
        how: in which way.
        by: who, as they said.
        at_ms: when, milliseconds since the epoch.
    """

    how: HandledHow
    by: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedRecord:
    """A copy of what can never be applied.

    Attributes:
        source: whose record it is.
        place: its sort key.
        where: stream and shard that it came from.
        reason: why it is here.
        kind: the same in one word.
        content: its bytes: of a record of DynamoDB its JSON, of one of Kinesis the payload.
        cut_from_bytes: how long it was, where this is its beginning only; None: it is whole.
        counter: the counter that it names, where it names one.
        sequence: its sequence number, where it has one.
        part: the place within an aggregated record of Kinesis; None: the record as a whole.
        at_ms: when the stream made or got the record; 0: it does not tell.
        kept_at_ms: when it was quarantined.
        queued_at_ms: when the queue had a message of it; None: nobody was told yet.
        handled: that a person handled it, or None while it waits for one.
    """

    source: QuarantineSource
    place: str
    where: str
    reason: str
    kind: str
    content: bytes
    cut_from_bytes: int | None = None
    counter: str | None = None
    sequence: str | None = None
    part: int | None = None
    at_ms: int = 0
    kept_at_ms: int = 0
    queued_at_ms: int | None = None
    handled: QuarantineHandling | None = None

    @property
    def id(self) -> str:
        """Its name, for people and commands."""
        return id_of(self.source, self.place)

    @property
    def at(self) -> datetime:
        """When the stream made or got the record, in UTC; when it was quarantined if unknown."""
        return to_datetime(self.at_ms or self.kept_at_ms)


def id_of(source: QuarantineSource, place: str) -> str:
    """The name of a copy."""
    return f"{source}-{place}"


def key_of(copy_id: object) -> dict[str, str]:
    """The key of the copy of that name.

    Raises:
        NotQuarantined: no copy can be called so.
    """
    match = _ID.fullmatch(copy_id) if isinstance(copy_id, str) else None
    if match is None:
        raise NotQuarantined(
            f"{shown(copy_id)} is no copy in quarantine: `countledger quarantine list` names them"
        )
    return keys.quarantine_key(match[1], match[2])


def encode_quarantined(copy: QuarantinedRecord) -> Item:
    """The item of a copy that nobody handled yet; its reason and place cut to their bounds."""
    return {
        **keys.quarantine_key(copy.source, copy.place),
        "where": copy.where[:_WHERE_MAX_CHARACTERS],
        "reason": copy.reason[:REASON_MAX_CHARACTERS],
        "kind": copy.kind,
        "content": copy.content,
        "cut_from_bytes": copy.cut_from_bytes,
        "of_counter": copy.counter,
        "sequence": copy.sequence,
        "record_part": copy.part,
        "at": copy.at_ms,
        "kept_at": copy.kept_at_ms,
    }


def decode_quarantined(item: Item) -> QuarantinedRecord:
    """The copy that an item is.

    Raises:
        CorruptItem: an attribute is absent, of another type, or of no known value.
        NewerFormat: a later release wrote it.
    """
    check_format(item)
    try:
        source = QuarantineSource(
            require(item, "counter", str).removeprefix(keys.QUARANTINE_PREFIX)
        )
        return QuarantinedRecord(
            source=source,
            place=require(item, "part", str),
            where=require(item, "where", str),
            reason=require(item, "reason", str),
            kind=require(item, "kind", str),
            content=require(item, "content", bytes),
            cut_from_bytes=optional(item, "cut_from_bytes", int),
            counter=optional(item, "of_counter", str),
            sequence=optional(item, "sequence", str),
            part=optional(item, "record_part", int),
            at_ms=_time_in(item, "at"),
            kept_at_ms=_time_in(item, "kept_at"),
            queued_at_ms=optional_time(item, "queued_at"),
            handled=_handled_in(item),
        )
    except ValueError as error:
        raise CorruptItem(
            f"{describe(item)}: it is no copy in quarantine: {error}", item
        ) from error


def _time_in(item: Item, name: str) -> int:
    require(item, name, int)
    return optional_time(item, name) or 0


def _handled_in(item: Item) -> QuarantineHandling | None:
    at_ms = optional_time(item, "handled_at")
    if at_ms is None:
        return None
    return QuarantineHandling(
        HandledHow(require(item, "handled_how", str)), require(item, "handled_by", str), at_ms
    )
