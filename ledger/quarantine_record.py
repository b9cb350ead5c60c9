"""A record in quarantine: what cannot be applied, kept until a person has handled it.

It is an item of `counters`. Its key follows from the record alone (source, shard, sequence number),
so a record that is delivered again has the same item.
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

# With key and reason an item stays below the 400 KB that DynamoDB allows.
CONTENT_MAX_BYTES: Final = 300_000
FOREIGN_KIND: Final = "foreign"  # the kind of records that are of no stream of the stack
_WHERE_MAX_CHARACTERS: Final = 2_000
_ID: Final = re.compile(r"(ledger|counters|kinesis)-([0-9]{13}-[0-9a-f]{16})")


class QuarantineSource(StrEnum):
    """Where a record came from. It decides what `resend` does."""

    LEDGER = "ledger"
    """A record of the stream of `ledger`. Its total lacks it; a repair of the counter adds it."""
    COUNTERS = "counters"
    """A record of the stream of `counters`: a change of a total that no alert rule saw."""
    KINESIS = "kinesis"
    """A record of the stream of the ingest. It is not in the ledger."""


class HandledHow(StrEnum):
    """How a person handled a record."""

    RESENT = "resent"
    """It is counted: it was written to the ledger, or its counter was repaired."""
    DISCARDED = "discarded"
    """It will never be counted."""


@dataclass(frozen=True, slots=True)
class QuarantineHandling:
    """That a person handled a record.

    Attributes:
        how: resent or discarded.
        by: the name that the person gave.
        at_ms: when, in milliseconds since the epoch.
    """

    how: HandledHow
    by: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedRecord:
    """A record in quarantine.

    Attributes:
        source: where it came from.
        place: its sort key.
        where: its stream and shard.
        reason: why it was quarantined.
        kind: the reason in one word.
        content: its bytes: of a DynamoDB record its JSON, of a Kinesis record the payload.
        cut_from_bytes: its whole length, if `content` is only its beginning; else None.
        counter: the counter that it names, or None.
        sequence: its sequence number, or None.
        part: the index within an aggregated Kinesis record; None means the whole record.
        messages: how many messages of a Kinesis record it is; `part` is the index of the first.
        at_ms: when the stream created or received it; 0 if the record has no such time.
        kept_at_ms: when it was quarantined.
        queued_at_ms: when a message about it was in the queue; None before that.
        handled: who handled it, or None while it waits.
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
    messages: int = 1
    at_ms: int = 0
    kept_at_ms: int = 0
    queued_at_ms: int | None = None
    handled: QuarantineHandling | None = None

    @property
    def id(self) -> str:
        """Its id, for people and commands."""
        return id_of(self.source, self.place)

    @property
    def at(self) -> datetime:
        """When the stream created or received it, in UTC; if unknown, when it was quarantined."""
        return to_datetime(self.at_ms or self.kept_at_ms)


def id_of(source: QuarantineSource, place: str) -> str:
    """The id of a record in quarantine."""
    return f"{source}-{place}"


def key_of(quarantine_id: object) -> dict[str, str]:
    """The key of the item with that id.

    Raises:
        NotQuarantined: no record can have that id.
    """
    match = _ID.fullmatch(quarantine_id) if isinstance(quarantine_id, str) else None
    if match is None:
        raise NotQuarantined(
            f"{shown(quarantine_id)} is not the id of a record in quarantine; "
            "`countledger quarantine list` shows the ids"
        )
    return keys.quarantine_key(match[1], match[2])


def encode_quarantined(record: QuarantinedRecord) -> Item:
    """The item of a record that is not handled; reason and `where` are cut to their bounds."""
    return {
        **keys.quarantine_key(record.source, record.place),
        "where": record.where[:_WHERE_MAX_CHARACTERS],
        "reason": record.reason[:REASON_MAX_CHARACTERS],
        "kind": record.kind,
        "content": record.content,
        "cut_from_bytes": record.cut_from_bytes,
        "of_counter": record.counter,
        "sequence": record.sequence,
        "record_part": record.part,
        "messages": None if record.messages == 1 else record.messages,
        "at": record.at_ms,
        "kept_at": record.kept_at_ms,
    }


def decode_quarantined(item: Item) -> QuarantinedRecord:
    """The record in an item.

    Raises:
        CorruptItem: an attribute is absent, or has a wrong type or an unknown value.
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
            messages=optional(item, "messages", int) or 1,
            at_ms=_time_in(item, "at"),
            kept_at_ms=_time_in(item, "kept_at"),
            queued_at_ms=optional_time(item, "queued_at"),
            handled=_handled_in(item),
        )
    except ValueError as error:
        raise CorruptItem(
            f"{describe(item)}: it is not a record in quarantine: {error}", item
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
