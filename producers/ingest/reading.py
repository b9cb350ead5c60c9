"""What a batch of records of the stream holds, purely: entries, and what can be none, with reasons.

Every payload comes out as one or the other, so that each is counted in or out. What is broken as a
whole (a checksum, a record cut short) hides how many entries it had: it is one.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from countledger.ledger.errors import BadInput, BadPayload, shown
from countledger.ledger.limits import SECOND_MS, TIME_LIMIT_MS
from countledger.producers.kinesis.aggregate import BrokenAggregate, unpack
from countledger.producers.kinesis.message import decode

# Stands for a time of arrival that cannot be; no record has arrived at the epoch.
_NEVER_MS: Final = 0

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from countledger.ledger.entry import Entry


class RejectionKind(StrEnum):
    """Why something went to the quarantine."""

    UNREADABLE = "unreadable"
    """Its record cannot be unpacked."""
    MALFORMED = "malformed"
    """It breaks the schema of messages."""
    REFUSED = "refused"
    """The ledger does not take it: a key used with another delta, a counter of another kind."""
    EXPIRED = "expired"
    """It was made longer ago than the horizon: whether it counted is not known from itself."""


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """Where something stood.

    Attributes:
        record: the place of its record in the batch.
        sequence: that record's sequence number.
        arrived_ms: when that record reached the stream.
        part: the place within an aggregated record; 0 in a plain one; None: the record as a whole.
    """

    record: int
    sequence: str
    arrived_ms: int
    part: int | None


@dataclass(frozen=True, slots=True)
class DecodedEntry:
    """An entry, as it came.

    Attributes:
        place: where it stood.
        payload: its bytes.
        entry: what they say.
    """

    place: RecordPlace
    payload: bytes
    entry: Entry


@dataclass(frozen=True, slots=True)
class RejectedEvent:
    """Something that will not be in the ledger.

    Attributes:
        place: where it stood.
        payload: its bytes.
        kind: why, in one word.
        reason: why, for a person.
    """

    place: RecordPlace
    payload: bytes
    kind: RejectionKind
    reason: str


def read(
    records: Sequence[Mapping[str, Any]], origin: str
) -> Iterator[DecodedEntry | RejectedEvent]:
    """All that a batch holds, in its order.

    Args:
        records: of an event, as Lambda delivers them.
        origin: the region where entries are written.

    Raises:
        BadPayload: a record is none of Kinesis.
    """
    for number, record in enumerate(records):
        place, data = _opened(number, record)
        if place.arrived_ms == _NEVER_MS:
            reason = "the record has no time of arrival that can be"
            yield RejectedEvent(place, data, RejectionKind.UNREADABLE, reason)
            continue
        try:
            payloads = unpack(data)
        except BrokenAggregate as broken:
            yield RejectedEvent(place, data, RejectionKind.UNREADABLE, str(broken))
            continue
        for part, payload in enumerate(payloads):
            within = RecordPlace(number, place.sequence, place.arrived_ms, part)
            try:
                entry = decode(payload, arrived_ms=place.arrived_ms, origin=origin)
            except BadInput as error:
                yield RejectedEvent(within, payload, RejectionKind.MALFORMED, str(error))
            else:
                yield DecodedEntry(within, payload, entry)


def _opened(number: int, record: Mapping[str, Any]) -> tuple[RecordPlace, bytes]:
    """The place of a record and its data; what is wrong here is wrong with the event itself."""
    try:
        inner = record["kinesis"]
        arrived_ms = _arrival_in(inner["approximateArrivalTimestamp"])
        place = RecordPlace(number, str(inner["sequenceNumber"]), arrived_ms, None)
        return place, base64.b64decode(inner["data"], validate=True)
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise BadPayload(f"record {shown(record)} is none of Kinesis: {error!r}") from None


def _arrival_in(timestamp: float) -> int:
    """When a record arrived, or `_NEVER_MS` for a number that is no time of ours.

    JSON knows Infinity and 1e300: refused as an error of the event, such a record would block its
    shard until the stream drops it.

    Raises:
        TypeError, ValueError: it is no number.
    """
    arrived_s = float(timestamp)
    if not 0 <= arrived_s * SECOND_MS < TIME_LIMIT_MS:
        return _NEVER_MS
    return round(arrived_s * SECOND_MS)
