"""A file of events: the entries of its lines, and how a chunk of them is sent.

The id of an entry follows from the emit, its line and the time that the place has of its chunk. So
the same lines give the same entries, and nothing counts twice, also without keys.

In CSV a header row names the columns, and each row is one line:

counter, delta          always; a row of empty cells is a blank line
key, at, occurred_at    as in a line of JSON; an empty cell is none
events                  how many events the delta sums
note.NAME               a text of the note
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from countledger.infra.portability.sending import SentChunk, answered
from countledger.ledger import amount
from countledger.ledger.entry import new_entry
from countledger.ledger.errors import BadInput, BadPayload, CountledgerError, SetupError, shown
from countledger.ledger.ids import bound_id
from countledger.producers.buffer.sending import may_coalesce
from countledger.producers.event import Status, make_entry
from countledger.producers.payload import MAX_BYTES, EventPayload, first_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from countledger.infra.portability.place_file import FilePlace
    from countledger.infra.portability.sending import NumberedLine
    from countledger.ledger.amount import Amount
    from countledger.ledger.entry import Entry
    from countledger.producers.event import Event
    from countledger.producers.recorder import Recorder


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


def parse_event_row(names: Sequence[str], line: bytes) -> Event | None:
    """The event in a row; None: all of its cells are empty, as spreadsheets write blank rows.

    Raises:
        BadInput: naming the column, its value and the rule that it breaks.
    """
    cells = [cell.strip() for cell in _cells(line)]
    if not any(cells):
        return None
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


# One entry for each counter and chunk: the larger a chunk is, the fewer write units.
COALESCED_CHUNK_LINES: Final = 10_000
# What an emit counts.
RECORDED: Final = "recorded"
DUPLICATES: Final = "duplicates"
ENTRIES: Final = "entries"


def entries_of(
    emit: str, events: Sequence[tuple[int, Event]], at_ms: int, origin: str, *, coalesce: bool
) -> list[tuple[Entry, list[int]]]:
    """The entries of a chunk, each with its lines. Pure: a chunk always gives the same ones.

    Args:
        emit: the id of the emit.
        events: by line.
        at_ms: the time of the entries.
        origin: the region of this process.
        coalesce: whether events of one counter become one entry, if nothing of theirs is lost.
    """
    made: list[tuple[Entry, list[int]]] = []
    sums: dict[str, tuple[list[int], list[Amount]]] = {}
    for number, event in events:
        if coalesce and may_coalesce(event):
            numbers, deltas = sums.setdefault(event.counter, ([], []))
            numbers.append(number)
            deltas.append(event.delta)
            continue
        new_id = partial(_id_of, f"{emit}#{number}#{amount.to_text(event.delta)}")
        made.append((make_entry(event, now_ms=at_ms, origin=origin, new_id=new_id), [number]))
    for counter, (numbers, deltas) in sums.items():
        total = amount.total_of(deltas)
        entry_id = _id_of(f"{emit}#{numbers[0]}-{numbers[-1]}#{amount.to_text(total)}", at_ms)
        made.append((new_entry(counter, entry_id, total, at_ms, origin, len(numbers)), numbers))
    return made


def _id_of(what: str, at_ms: int) -> str:
    return bound_id(what.encode(), at_ms)


@dataclass(frozen=True, slots=True)
class ChunkEmitter:
    """Sends a chunk of lines as entries.

    Attributes:
        recorder: of the stack.
        parse: a line as an event, or None for a blank row; raises `BadInput`.
        coalesce: whether lines of one counter become one entry.
    """

    recorder: Recorder
    parse: Callable[[bytes], Event | None]
    coalesce: bool = False

    def __call__(self, chunk: Sequence[NumberedLine], place: FilePlace) -> SentChunk:
        """Send them: as many write units as the recorder's for each entry.

        Raises:
            SetupError: what concerns every line; what was answered is counted with the next try.
        """
        events: list[tuple[int, Event]] = []
        failures: list[tuple[int, CountledgerError]] = []
        for number, line in chunk:
            try:
                event = self.parse(line)
            except BadInput as error:
                failures.append((number, error))
            else:
                events += [] if event is None else [(number, event)]
        origin = self.recorder.region
        made = entries_of(place.id, events, place.at_ms, origin, coalesce=self.coalesce)
        outcomes = self.recorder.resend_many([entry for entry, _ in made])
        counts = {RECORDED: 0, DUPLICATES: 0}
        entries: set[tuple[str, str]] = set()
        for (_, numbers), outcome in zip(made, outcomes, strict=True):
            if isinstance(outcome, SetupError):
                raise outcome
            if isinstance(outcome, CountledgerError):
                failures += [(number, outcome) for number in numbers]
                continue
            entries.add((outcome.counter, outcome.id))
            counts[RECORDED if outcome.status is Status.RECORDED else DUPLICATES] += len(numbers)
        if self.coalesce:
            counts[ENTRIES] = len(entries)
        return answered(place, failures, counts)
