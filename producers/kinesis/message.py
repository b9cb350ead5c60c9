"""An entry as it travels through Kinesis: JSON, version 1 (docs/kinesis.md has the schema).

Whatever sends it, and sends it again, it has to be known again: by an `id` that its producer made
once, or by a `key`. What has neither is refused, because a producer that got no answer sends a
record again, under another sequence number, and nobody could tell the second from a new change.

The identity of an entry with an `id` is the id together with the content. Entries with an id are
written 25 at a time and without a condition, so one that is there is replaced by one of the same
identity: by itself, and by nothing else. A sender that knows the id of another's entry cannot
replace that entry.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from json.encoder import encode_basestring
from typing import Any, Final, Literal

from pydantic import Field, ValidationError

from countledger.ledger.amount import to_text
from countledger.ledger.clock import to_datetime
from countledger.ledger.entry import Entry, describe_entry
from countledger.ledger.errors import BadInput, BadPayload, shown
from countledger.ledger.ids import BARE_KEY_PREFIX, bound_id, new_id
from countledger.producers.event import make_entry
from countledger.producers.payload import LEAST_MS, EventPayload, first_problem, load_object

VERSION: Final = 1
# More than a flush can coalesce, and so few that their sums stay numbers.
EVENTS_MAX: Final = 1_000_000_000
_UUID7: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class KinesisMessage(EventPayload):
    """The JSON form of an entry: the fields of an event, and what makes it known again."""

    v: Literal[1]
    id: str | None = None
    events: int = Field(default=1, ge=1, le=EVENTS_MAX)

    def entry(self, *, arrived_ms: int, origin: str) -> Entry:
        """The entry.

        Args:
            arrived_ms: when it reached the stream, from which on a bare key counts as made.
            origin: the region where it is written.

        Raises:
            BadInput: a value breaks its rule, or nothing would make it known again.
        """
        event = self.event()
        if self.id is None:
            if event.key is None:
                raise BadPayload(
                    "there is neither `id` nor `key`: sent again, it would be another change"
                )
            if self.events != 1:
                raise BadPayload("`events` goes with an `id`: entries of a key are never coalesced")
            return make_entry(event, now_ms=arrived_ms, origin=origin, new_id=new_id)
        if event.key is not None:
            raise BadPayload("there are both `id` and `key`: one of them makes it known again")
        entry_id = self.id.lower()
        if not _UUID7.fullmatch(entry_id):
            raise BadPayload(f"`id` {shown(self.id)} is no UUID of version 7")
        made = make_entry(
            event, now_ms=created_ms(entry_id), origin=origin, new_id=lambda _at_ms: entry_id
        )
        return bound(replace(made, events=self.events))


def bound(entry: Entry) -> Entry:
    """The entry under the identity that its id and its content have together.

    One with a key has its identity by that, and stays as it is. This can never change: an entry
    that is delivered again across an upgrade would be another one.
    """
    if entry.key is not None:
        return entry
    note = sorted(entry.note.items()) if entry.note else None
    content = [entry.id, entry.counter, to_text(entry.delta), entry.events, note]
    text = _encode([*content, entry.occurred_at_ms])
    # Each part by name: `dataclasses.replace` takes three times as long, for each event.
    return Entry(
        counter=entry.counter,
        id=bound_id(text.encode(), entry.at_ms),
        delta=entry.delta,
        at_ms=entry.at_ms,
        origin=entry.origin,
        events=entry.events,
        note=entry.note,
        occurred_at_ms=entry.occurred_at_ms,
        message_id=entry.id,
    )


def encode(entry: Entry) -> bytes:
    """The message of an entry: the same entry gives the same bytes, always.

    Raises:
        BadInput: the entry has neither a key nor an id of a message: it was not made for Kinesis,
            and would be another one behind it.
    """
    if entry.key is None and entry.message_id is None:
        raise BadInput(
            f"{describe_entry(entry)} was not made for Kinesis, and would count as another one "
            "there: send it again by `resend` of the ledger"
        )
    delta = entry.delta if isinstance(entry.delta, int) else f'"{to_text(entry.delta)}"'
    head = f'{{"v":1,"counter":{encode_basestring(entry.counter)},"delta":{delta}'
    if entry.key is None and entry.note is None and entry.occurred_at_ms is None:
        # The common one, an eighth of the work.
        events = "" if entry.events == 1 else f',"events":{entry.events}'
        return f'{head},"id":"{entry.message_id}"{events}}}'.encode()
    return (head + "," + _encode(_rest(entry))[1:]).encode()


def _rest(entry: Entry) -> dict[str, Any]:
    rest: dict[str, Any] = {}
    if entry.key is None:
        rest["id"] = entry.message_id
    else:
        rest["key"] = entry.key
        if not entry.id.startswith(BARE_KEY_PREFIX):
            rest["at"] = _time(entry.at_ms)
    if entry.events != 1:
        rest["events"] = entry.events
    if entry.occurred_at_ms is not None:
        rest["occurred_at"] = _time(entry.occurred_at_ms)
    if entry.note is not None:
        rest["note"] = dict(entry.note)
    return rest


def decode(data: bytes, *, arrived_ms: int, origin: str) -> Entry:
    """The entry of a message.

    Raises:
        BadInput: naming the field, its value and the rule that it breaks.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise BadPayload(f"the record is no UTF-8: {error.reason} at byte {error.start}") from None
    value = load_object(text)
    version = value.get("v")
    if version != VERSION or isinstance(version, bool):
        raise BadPayload(f"the record has version {shown(version)}; this release reads {VERSION}")
    try:
        return KinesisMessage.model_validate(value).entry(arrived_ms=arrived_ms, origin=origin)
    except ValidationError as error:
        raise BadPayload(first_problem(error)) from None


def created_ms(entry_id: str) -> int:
    """The millisecond that a UUID of version 7 was made in."""
    return int(entry_id[:8] + entry_id[9:13], 16)


def _time(at_ms: int) -> int | str:
    """A moment in milliseconds; in ISO 8601 where that number would pass for seconds."""
    return at_ms if at_ms >= LEAST_MS else to_datetime(at_ms).isoformat()
