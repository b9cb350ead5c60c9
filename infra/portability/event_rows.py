"""Events in CSV: a header row names the columns, and each row is one line.

counter, delta          always
key, at, occurred_at    as in a line of JSON; an empty cell is none
events                  how many events the delta sums
note.NAME               a text of the note
"""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from countledger.ledger.errors import BadPayload, shown
from countledger.producers.payload import MAX_BYTES, EventPayload, first_problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.producers.event import Event

_NOTE: Final = "note."
_COLUMNS: Final = ("counter", "delta", "key", "at", "occurred_at", "events")


def parse_header(line: bytes) -> list[str]:
    """The columns of a file.

    Raises:
        BadPayload: a name is unknown or comes twice, or counter and delta are not among them.
    """
    names = [name.strip() for name in _cells(line.removeprefix(b"\xef\xbb\xbf"))]
    for name in names:
        is_note = name.startswith(_NOTE) and len(name) > len(_NOTE)
        if name not in _COLUMNS and not is_note:
            raise BadPayload(
                f"column {shown(name)} is unknown: a header has {', '.join(_COLUMNS)} and note.NAME"
            )
        if names.count(name) > 1:
            raise BadPayload(f"column {shown(name)} is named twice")
    if missing := {"counter", "delta"} - set(names):
        raise BadPayload(f"the header has no column {min(missing)!r}")
    return names


def parse_event_row(names: Sequence[str], line: bytes) -> Event:
    """The event in a row.

    Raises:
        BadInput: naming the column, its value and the rule that it breaks.
    """
    cells = _cells(line)
    if len(cells) != len(names):
        raise BadPayload(f"the row has {len(cells)} cells, and the header {len(names)} columns")
    given = {name: cell for name, cell in zip(names, cells, strict=True) if cell}
    note = {name.removeprefix(_NOTE): cell for name, cell in given.items() if _is_note(name)}
    facts: dict[str, object] = {name: cell for name, cell in given.items() if not _is_note(name)}
    events = str(facts.get("events", "1"))
    if not events.isdecimal() or not events.isascii():
        raise BadPayload(f"events: {shown(events)} is no whole number")
    try:
        return EventPayload.model_validate(
            {**facts, "events": int(events[:20]), "note": note or None}
        ).event()
    except ValidationError as error:
        raise BadPayload(first_problem(error)) from None


def _is_note(name: str) -> bool:
    return name.startswith(_NOTE)


def _cells(line: bytes) -> list[str]:
    if len(line) > MAX_BYTES:
        raise BadPayload(f"the line is longer than {MAX_BYTES} bytes")
    try:
        return next(csv.reader([line.decode()], strict=True))
    except UnicodeDecodeError:
        raise BadPayload("the line is not UTF-8") from None
    except csv.Error as error:
        raise BadPayload(
            f"the line is not valid CSV ({error}); a row is one line, also within quotes"
        ) from None
