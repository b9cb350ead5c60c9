"""A file of lines, sent a chunk at a time. An emit or an import that was stopped can continue.

    read a chunk     lines that follow each other, and the digest of all that was read so far
    save the place   the chunk's last line, the time of its entries, and the digest
    send             the same chunk with the same place has the same effect, however often
    go on            once everything in it was answered

So a process that is killed at any point sends at most its last chunk again. A file that was changed
up to that chunk has another digest and is refused.
"""

from __future__ import annotations

import csv
import os
import select
import sqlite3
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from countledger.ledger import amount
from countledger.ledger.entry import new_entry
from countledger.ledger.errors import (
    BadInput,
    BadPayload,
    BadSetting,
    CountledgerError,
    RequestRejected,
    ServiceFailed,
    SetupError,
    shown,
)
from countledger.ledger.ids import bound_id
from countledger.ledger.private_files import ensure_private
from countledger.producers.buffer.sending import may_coalesce
from countledger.producers.event import Status, make_entry
from countledger.producers.payload import MAX_BYTES, EventPayload, first_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from countledger.ledger.amount import Amount
    from countledger.ledger.connection import Connection
    from countledger.ledger.entry import Entry
    from countledger.producers.event import Event
    from countledger.producers.recorder import Recorder


# The lines of a file or of a stream: bounded in size, with the digest of all that was read.


# How long the next line may take to be sent together with those before it: longer than a pipe
# needs, shorter than a person notices.
PAUSE_S: Final = 0.05
_PART_BYTES: Final = 2**16


class LineStream(Protocol):
    """What lines are read from."""

    def readline(self, size: int, /) -> bytes:
        """The next line, at most so many bytes of it; empty at the end."""


class StreamedLines:
    """Lines of a pipe or a terminal: it knows whether the next one arrives within `pause_s`.

    Nothing else may read from the open stream.
    """

    def __init__(self, descriptor: int, pause_s: float = PAUSE_S) -> None:
        self._descriptor = descriptor
        self._pause_s = pause_s
        self._buffer = b""
        self._begin = 0
        self._ended = False

    def readline(self, size: int, /) -> bytes:
        """The next line, once it has arrived; at most so many bytes of it."""
        while (end := self._end_within(size)) is None:
            self._fetch()
        line, self._begin = self._buffer[self._begin : end], end
        return line

    def has_next(self, size: int) -> bool:
        """Whether a line, so much of it, or the end of the stream arrives without a pause."""
        while self._end_within(size) is None:
            if not select.select([self._descriptor], [], [], self._pause_s)[0]:
                return False
            self._fetch()
        return True

    def _end_within(self, size: int) -> int | None:
        """Where the next line ends in the buffer; None: more must be read."""
        most = self._begin + size
        found = self._buffer.find(b"\n", self._begin, most)
        if found >= 0:
            return found + 1
        there = len(self._buffer)
        return min(most, there) if self._ended or there >= most else None

    def _fetch(self) -> None:
        part = os.read(self._descriptor, _PART_BYTES)
        self._ended = not part
        self._buffer, self._begin = self._buffer[self._begin :] + part, 0


class FileLines:
    """The lines of a stream, blank ones as well, and the digest of all that was read."""

    def __init__(self, stream: LineStream, max_bytes: int) -> None:
        self.number = 0
        self._stream = stream
        self._max_bytes = max_bytes
        self._digest = blake2b(digest_size=16)

    def __iter__(self) -> Iterator[bytes]:
        """The lines; one that is longer than `max_bytes` comes cut."""
        while line := self._read():
            self.number += 1
            rest = line
            while len(rest) > self._max_bytes and not rest.endswith(b"\n"):
                rest = self._read()
            yield line

    def has_next(self) -> bool:
        """Whether the next line can be read without a pause: always, except from a pipe."""
        if not isinstance(self._stream, StreamedLines):
            return True
        return self._stream.has_next(self._max_bytes + 1)

    def _read(self) -> bytes:
        text = self._stream.readline(self._max_bytes + 1)
        self._digest.update(text)
        return text

    @property
    def digest(self) -> str:
        """Of everything up to the end of line `number`."""
        return self._digest.hexdigest()


# How far an emit or an import of a file has come, stored on the disk before anything is sent.
#
# It is an SQLite database of one row: a save is atomic and waits for the disk. A process locks the
# file until it closes it or dies.


# "ctlp": distinguishes it from databases of other programs.
_APPLICATION: Final = 0x63746C70


class FilePlace(BaseModel):
    """How far an emit or an import has come.

    Attributes:
        id: a random id; the ids of the entries of an emit follow from it.
        purpose: the ledger, and how lines are read. A task for another purpose cannot continue.
        through: the last line of which everything was answered.
        last: the last line that may have been sent; `through`, if there is none after it.
        at_ms: the time of the entries of the lines after `through`, ms since the epoch.
        digest: of everything in the file up to line `last`.
        counts: what became of the lines up to `through`: how many, by outcome.
        worst: the exit code that they come to.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1] = 1
    id: str
    purpose: str
    through: int = Field(default=0, ge=0)
    last: int = Field(default=0, ge=0)
    at_ms: int = 0
    digest: str = ""
    counts: dict[str, int] = Field(default_factory=dict)
    worst: int = 0


@dataclass(frozen=True, eq=False)
class PlaceFile:
    """An open place file, locked by this process."""

    path: Path
    connection: sqlite3.Connection

    def load(self) -> FilePlace | None:
        """The place; None: nothing was saved yet."""
        with _refusing(self.path):
            row = self.connection.execute("SELECT body FROM place").fetchone()
        if row is None:
            return None
        try:
            return FilePlace.model_validate_json(row[0])
        except ValidationError as error:
            raise BadSetting(
                f"{self.path} is not valid ({error.errors()[0]['msg']}): look in the change log "
                "for what was sent, and remove the file to send every line again"
            ) from error

    def save(self, place: FilePlace) -> None:
        """Replace the place; it survives the end of the machine."""
        with _refusing(self.path), self.connection:
            self.connection.execute(
                "INSERT OR REPLACE INTO place (id, body) VALUES (1, ?)", (place.model_dump_json(),)
            )

    def remove(self) -> None:
        self.connection.close()
        self.path.unlink(missing_ok=True)


class NoPlace:
    """No place is stored: that of standard input without `--place`."""

    def load(self) -> None:
        pass

    def save(self, place: FilePlace) -> None:
        pass

    def remove(self) -> None:
        pass


@contextmanager
def open_place(path: Path) -> Iterator[PlaceFile]:
    """Open or create a place file, and lock it."""
    with _refusing(path):
        ensure_private(path)
        connection = sqlite3.connect(path, timeout=0)
    try:
        with _refusing(path):
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if (tables or application) and application != _APPLICATION:
                raise BadSetting(f"{path} belongs to another program: name another file by --place")
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA synchronous = FULL")
            # The first write takes the lock; the connection keeps it.
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS place (id INTEGER PRIMARY KEY, body TEXT NOT NULL)"
            )
        yield PlaceFile(path, connection)
    finally:
        connection.close()


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Raise `BadSetting` for each error of SQLite, and of the file itself."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        if getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise BadSetting(
                f"{path} is in use: another emit or import of this file is running"
            ) from error
        raise BadSetting(
            f"{path} cannot be used ({error}): name a file that can be written by --place"
        ) from error


NumberedLine: TypeAlias = tuple[int, bytes]
Failure: TypeAlias = tuple[int, CountledgerError]

CHUNK_LINES: Final = 1_000
# The count of the lines that were not recorded.
BAD: Final = "bad"
# What the command line ends with, if it refused a line.
_REFUSED: Final = 1


def is_to_be_sent_again(error: CountledgerError) -> bool:
    """Whether a line failed for a reason that may pass."""
    return isinstance(error, ServiceFailed) and not isinstance(error, RequestRejected)


def exit_code_of(error: CountledgerError) -> int:
    """What a line that was not recorded comes to; AWS's failures are worse than a bad line."""
    return _REFUSED if isinstance(error, BadInput) else error.exit_code


class SentChunk(NamedTuple):
    """What became of a chunk; `stopped`: the task ends here and can continue, as if AWS failed."""

    place: FilePlace
    failures: list[Failure]
    stopped: bool = False


def answered(place: FilePlace, failures: Sequence[Failure], counts: Mapping[str, int]) -> SentChunk:
    """The chunk after which a place is, once everything in it was answered.

    The `last` line of the place is the chunk's; `counts` are of the lines that did not fail.
    """
    failures = sorted(failures, key=lambda failure: failure[0])
    if any(is_to_be_sent_again(error) for _, error in failures):
        return SentChunk(place, failures, stopped=True)
    sums = Counter(place.counts)
    sums.update({**counts, BAD: len(failures)})
    worst = max([place.worst, *(exit_code_of(error) for _, error in failures)])
    after = {"through": place.last, "counts": dict(sums), "worst": worst}
    return SentChunk(place.model_copy(update=after), failures)


def place_for(store: PlaceFile | NoPlace, purpose: str) -> FilePlace | None:
    """The place that a task can continue from; None: nothing was saved yet."""
    place = store.load()
    if place is not None and place.purpose != purpose:
        raise BadSetting(
            f"the place of this file is of {place.purpose}, and this is {purpose}: "
            "give the same options, or another --place"
        )
    return place


@dataclass(frozen=True)
class FileSender:
    """Sends the lines of a file, a chunk at a time.

    The same chunk, sent again from the place before it, has no further effect.
    """

    store: PlaceFile | NoPlace
    purpose: str
    send: Callable[[Sequence[NumberedLine], FilePlace], SentChunk]
    connection: Connection
    chunk_lines: int = CHUNK_LINES

    def begin(self) -> FilePlace:
        """The place to continue from, or a new one."""
        return place_for(self.store, self.purpose) or self.restart()

    def restart(self) -> FilePlace:
        return FilePlace(id=self.connection.ids.unique_id(), purpose=self.purpose)

    def chunks(self, lines: FileLines, place: FilePlace) -> Iterator[SentChunk]:
        """Send the lines after a place; what was answered before an error counts next time."""
        feed = iter(lines)
        pending = self._sent_before(lines, feed, place)
        while pending or (pending := self._next_chunk(lines, feed)):
            if lines.number > place.last:
                place = place.model_copy(
                    update={
                        "last": lines.number,
                        "at_ms": self.connection.clock.now_ms(),
                        "digest": lines.digest,
                    }
                )
                self.store.save(place)
            sent = self.send(pending, place)
            yield sent
            if sent.stopped:
                return
            place, pending = sent.place, []
        self.store.save(place)

    def _sent_before(
        self, lines: FileLines, feed: Iterator[bytes], place: FilePlace
    ) -> list[NumberedLine]:
        """The lines that may have been sent and were not all answered."""
        pending: list[NumberedLine] = []
        while lines.number < place.last and (line := next(feed, b"")):
            if lines.number > place.through and line.strip():
                pending.append((lines.number, line))
        if place.last and (lines.number, lines.digest) != (place.last, place.digest):
            raise BadSetting(
                f"the file was changed up to line {place.last}, which was sent earlier: "
                "give the same file, or remove its place to send every line again"
            )
        return pending

    def _next_chunk(self, lines: FileLines, feed: Iterator[bytes]) -> list[NumberedLine]:
        """The next lines that are not blank: those that arrive without a pause."""
        chunk: list[NumberedLine] = []
        while len(chunk) < self.chunk_lines and (not chunk or lines.has_next()):
            line = next(feed, b"")
            if not line:
                break
            if line.strip():
                chunk.append((lines.number, line))
        return chunk


# A file of events: the entries of its lines, and how a chunk of them is sent.
#
# The id of an entry follows from the emit, its line and the time that the place has of its chunk.
# So the same lines give the same entries, and nothing counts twice, also without keys.
#
# In CSV a header row names the columns, and each row is one line:
#
#     counter, delta          always; a row of empty cells is a blank line
#     key, at, occurred_at    as in a line of JSON; an empty cell is none
#     events                  how many events the delta sums
#     note.NAME               a text of the note


_NOTE: Final = "note."
_COLUMNS: Final = ("counter", "delta", "key", "at", "occurred_at", "events")


def parse_header(line: bytes) -> list[str]:
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
    """The event in a row; None: all of its cells are empty, as spreadsheets write blank rows."""
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

    With `coalesce`, events of one counter become one entry, if nothing of theirs is lost.
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
    """Sends a chunk of lines as entries; `parse` gives None for a blank row."""

    recorder: Recorder
    parse: Callable[[bytes], Event | None]
    coalesce: bool = False

    def __call__(self, chunk: Sequence[NumberedLine], place: FilePlace) -> SentChunk:
        """As many write units as the recorder's for each entry."""
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
