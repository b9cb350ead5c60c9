"""The message of an entry in Kinesis: JSON, version 1 (docs/kinesis.md has the schema).

A producer that got no answer sends a record again, with another sequence number. The ingest must
recognise the second message as a duplicate: by the `id` that the producer created once, or by a
`key`. A message with neither is refused, because it would count as a new change.

The identity of an entry with an `id` is the id together with the content. Entries with an id are
written in batches of 25 and without a condition, so a write replaces an item of the same identity.
Because the content is part of the identity, only the same entry can replace an entry: a sender that
knows the id of another entry cannot replace it.
"""

from __future__ import annotations

import json
import re
from json.encoder import encode_basestring
from typing import Any, Final, Literal

from pydantic import ValidationError

from countledger.ledger.amount import to_text
from countledger.ledger.clock import to_datetime
from countledger.ledger.entry import Entry, describe_entry
from countledger.ledger.errors import BadInput, BadPayload, shown
from countledger.ledger.ids import BARE_KEY_PREFIX, bound_id, new_id
from countledger.producers.event import make_entry
from countledger.producers.payload import LEAST_MS, EventPayload, first_problem, load_object

VERSION: Final = 1
_UUID7: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class KinesisMessage(EventPayload):
    """The JSON form of an entry: the fields of an event, and the id by which it is recognised."""

    v: Literal[1]
    id: str | None = None

    def entry(self, *, arrived_ms: int, origin: str) -> Entry:
        """The entry.

        Args:
            arrived_ms: when the record reached the stream: the creation time of a bare key.
            origin: the region where the entry is written.

        Raises:
            BadInput: a value breaks its rule, or the message has neither `id` nor `key`, or both.
        """
        event = self.event()
        if self.id is None:
            if event.key is None:
                raise BadPayload(
                    "the record has neither `id` nor `key`: a duplicate would count again; add one"
                )
            return make_entry(event, now_ms=arrived_ms, origin=origin, new_id=new_id)
        if event.key is not None:
            raise BadPayload("the record has both `id` and `key`: give one of them")
        entry_id = self.id.lower()
        if not _UUID7.fullmatch(entry_id):
            raise BadPayload(f"`id` {shown(self.id)} is not a UUID of version 7")
        made = make_entry(
            event, now_ms=created_ms(entry_id), origin=origin, new_id=lambda _at_ms: entry_id
        )
        return bound(made)


def bound(entry: Entry) -> Entry:
    """The entry with an identity made of its id and its content.

    The key is the identity of an entry with a key, which is returned unchanged. This rule can never
    change: an entry delivered again after an upgrade must have the same identity.
    """
    if entry.key is not None:
        return entry
    note = sorted(entry.note.items()) if entry.note else None
    content = [entry.id, entry.counter, to_text(entry.delta), entry.events, note]
    text = _encode([*content, entry.occurred_at_ms])
    # Each field by name: `dataclasses.replace` takes three times as long, for each event.
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
    """The message of an entry; the same entry always gives the same bytes.

    Raises:
        BadInput: the entry has neither a key nor a message id: it was not created for Kinesis, and
            the ingest would write it with another identity.
    """
    if entry.key is None and entry.message_id is None:
        raise BadInput(
            f"{describe_entry(entry)} was not created for Kinesis, and would count as another "
            "entry there: send it with `resend` of the ledger"
        )
    delta = entry.delta if isinstance(entry.delta, int) else f'"{to_text(entry.delta)}"'
    head = f'{{"v":1,"counter":{encode_basestring(entry.counter)},"delta":{delta}'
    if entry.key is None and entry.note is None and entry.occurred_at_ms is None:
        # The common case: an eighth of the work.
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
        BadInput: a field breaks its rule; the text has the field, its value and the rule.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise BadPayload(f"the record is not UTF-8: {error.reason} at byte {error.start}") from None
    value = load_object(text)
    version = value.get("v")
    if version != VERSION or isinstance(version, bool):
        raise BadPayload(f"the record has version {shown(version)}; this release reads {VERSION}")
    try:
        return KinesisMessage.model_validate(value).entry(arrived_ms=arrived_ms, origin=origin)
    except ValidationError as error:
        raise BadPayload(first_problem(error)) from None


def created_ms(entry_id: str) -> int:
    """The creation time of a UUID of version 7, in milliseconds."""
    return int(entry_id[:8] + entry_id[9:13], 16)


def _time(at_ms: int) -> int | str:
    """A time in milliseconds, or in ISO 8601 if the number would be read as seconds."""
    return at_ms if at_ms >= LEAST_MS else to_datetime(at_ms).isoformat()
