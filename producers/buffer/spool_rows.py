"""The rows of a spool: each has an entry, or an event that has no entry yet."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from countledger.ledger.amount import Amount, from_number, to_text
from countledger.ledger.entry import Entry, Note


class Spooled(NamedTuple):
    """One row.

    Attributes:
        row: the row number.
        counter: the counter's name.
        delta: the delta of the entry or event.
        entry: the entry, or None for an event that waits to be coalesced.
    """

    row: int
    counter: str
    delta: Amount
    entry: Entry | None


def encode_row(counter: str, delta: Amount, entry: Entry | None) -> str:
    """The text of an entry, or of its event if the entry is not created yet."""
    if entry is None:
        return json.dumps({"counter": counter, "delta": to_text(delta)})
    facts = {
        "counter": entry.counter,
        "delta": to_text(entry.delta),
        "id": entry.id,
        "at_ms": entry.at_ms,
        "origin": entry.origin,
        "events": entry.events,
        "key": entry.key,
        "note": dict(entry.note) if entry.note else None,
        "occurred_at_ms": entry.occurred_at_ms,
    }
    return json.dumps({name: value for name, value in facts.items() if value is not None})


def decode_row(row: int, text: str) -> Spooled:
    """Decode the text of a row.

    Raises:
        ValueError, KeyError, TypeError: the text is not one of a row.
    """
    facts: dict[str, Any] = json.loads(text)
    counter, delta = facts.pop("counter"), from_number(facts.pop("delta"))
    if "id" not in facts:
        return Spooled(row, counter, delta, None)
    if "note" in facts:
        facts["note"] = Note(facts["note"])
    return Spooled(row, counter, delta, Entry(counter=counter, delta=delta, **facts))
