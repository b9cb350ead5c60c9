"""`countledger emit`: one event, or a file of them."""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from io import UnsupportedOperation
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Final, Literal

import typer

from countledger import Event
from countledger.infra.cli.app import (
    At,
    BadUsage,
    Notes,
    Options,
    PlaceFilePath,
    ResumeLines,
    parse_pairs,
    shared,
)
from countledger.infra.cli.output import FINDINGS, facts, notice, open_progress, show_facts
from countledger.infra.portability.sending import (
    BAD,
    CHUNK_LINES,
    COALESCED_CHUNK_LINES,
    DUPLICATES,
    ENTRIES,
    RECORDED,
    ChunkEmitter,
    FileLines,
    FileSender,
    NoPlace,
    SentChunk,
    StreamedLines,
    exit_code_of,
    open_place,
    parse_event_row,
    parse_header,
)
from countledger.ledger.errors import BadNote, BadSetting, SetupError, TotalBehind
from countledger.ledger.values import parse_delta_text, parse_time
from countledger.producers.payload import MAX_BYTES, keyed, parse_event_line
from countledger.producers.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from countledger.infra.cli.output import Row
    from countledger.infra.portability.sending import FilePlace, LineStream, PlaceFile


# The file of lines of an emit or an import: its lines, its place, and what is shown.


# Of a longer line no more is read into memory; it is refused for its length.
LINE_MAX_BYTES: Final = MAX_BYTES + 1
_STANDARD_INPUT: Final = "-"


class FileUnreadable(SetupError):
    """A file of lines cannot be opened."""


@dataclass(frozen=True, slots=True)
class LineFile:
    """A file of lines, as a command names it; - is standard input.

    `place` is where it is kept how far the command has come; None: nowhere.
    """

    name: str
    place: Path | None
    resume: bool

    @classmethod
    def named(cls, name: str, place: Path | None, *, resume: bool) -> LineFile:
        """A file; its place is beside it by default."""
        if place is None and name != _STANDARD_INPUT:
            place = Path(f"{name}.place")
        if resume and place is None:
            raise BadUsage(
                "--resume needs to know where standard input has stopped: give --place FILE"
            )
        return cls(name, place, resume)

    @contextmanager
    def lines(self) -> Iterator[FileLines]:
        with _opened(self.name) as stream:
            yield FileLines(
                _streamed(stream) if self._is_standard_input else stream, LINE_MAX_BYTES
            )

    @contextmanager
    def kept_place(self) -> Iterator[PlaceFile | NoPlace]:
        if self.place is None:
            yield NoPlace()
            return
        with open_place(self.place) as store:
            yield store

    def send(self, sender: FileSender, lines: FileLines, begun: FilePlace, label: str) -> SentChunk:
        """Send its lines, and show how far that comes and what was wrong with which line.

        If all was sent, the place is removed, unless `resume` keeps it.
        """
        ended = SentChunk(begun, [])
        if begun.last:
            notice(f"continuing after line {begun.through}")
        typed = self._is_standard_input and sys.stdin.isatty()
        with open_progress(hidden=typed) as progress:
            bar = progress.add(label, progress.shown and self._length())
            try:
                for ended in sender.chunks(lines, begun):
                    for number, error in ended.failures:
                        notice(f"line {number}: {error}")
                    bar.set(ended.place.through)
                    if typed and not ended.stopped:
                        notice(_so_far(ended.place))
            except (KeyboardInterrupt, SetupError):
                self._say_where(ended.place)
                raise
        if ended.stopped:
            self._say_where(ended.place)
        elif not self.resume:
            sender.store.remove()
        return ended

    @property
    def is_file(self) -> bool:
        """Whether it can be read more than once."""
        return not self._is_standard_input and Path(self.name).is_file()

    @property
    def _is_standard_input(self) -> bool:
        return self.name == _STANDARD_INPUT

    def _say_where(self, reached: FilePlace) -> None:
        advice = "--resume continues, and counts nothing twice"
        if self.place is None:
            advice = "with --place FILE, standard input can be continued"
        notice(
            f"sent through line {reached.through}; of the lines after it some may have been sent: "
            f"{advice}"
        )

    def _length(self) -> int | None:
        """How many lines it has; None: nobody knows."""
        if self._is_standard_input:
            return None
        with _opened(self.name) as stream:
            return sum(part.count(b"\n") for part in iter(partial(stream.read, 2**20), b""))


def exit_code(ended: SentChunk) -> int:
    """What the lines of a file come to: 1 when one was bad, 3 when AWS failed on one."""
    return max([ended.place.worst, *(exit_code_of(error) for _, error in ended.failures)])


def _so_far(place: FilePlace) -> str:
    counts = ", ".join(f"{count} {name}" for name, count in place.counts.items() if count)
    return f"through line {place.through}: {counts}"


@contextmanager
def _opened(name: str) -> Iterator[IO[bytes]]:
    if name == _STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    try:
        stream = Path(name).open("rb")  # noqa: SIM115 - closed below; only the opening is guarded
    except OSError as error:
        raise FileUnreadable(f"file {name!r} cannot be read: {error.strerror}") from error
    with stream:
        yield stream


def _streamed(stream: IO[bytes]) -> LineStream:
    """Standard input by its descriptor; as it is, where it has none."""
    try:
        return StreamedLines(stream.fileno())
    except UnsupportedOperation:
        return stream


FileFormat = Literal["jsonl", "csv"]
OccurredAt = Annotated[
    str | None, typer.Option(metavar="TIME", help="The event's own business time, any time.")
]
Wait = Annotated[
    bool, typer.Option("--wait", help="Wait until the total includes it, and show the total.")
]
EventFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="Emit the lines of a file; - is standard input.")
]
LineFormat = Annotated[
    FileFormat | None,
    typer.Option(
        "--format", help="Of the lines. [dim]By default CSV if the file is called *.csv[/dim]"
    ),
]
Coalesce = Annotated[
    bool, typer.Option("--coalesce", help="With --file: one entry for many lines of a counter.")
]


@shared
def emit(
    options: Options,
    counter: Annotated[str | None, typer.Argument(help="namespace:rest, or a plain name.")] = None,
    delta: Annotated[
        str | None, typer.Argument(help="What to add: an exact number, not 0.")
    ] = None,
    *,
    key: Annotated[
        str | None, typer.Option(help="A retry repeats the key: same key, applied once.")
    ] = None,
    at: At = None,
    occurred_at: OccurredAt = None,
    note: Notes = None,
    wait: Wait = False,
    file: EventFile = None,
    form: LineFormat = None,
    coalesce: Coalesce = False,
    resume: ResumeLines = False,
    place: PlaceFilePath = None,
) -> int | None:
    """Record an event, or a file of them.

    The answer is "recorded", or "duplicate" where the same key was recorded before, with the times
    and the number of events that are stored. A key that comes back with another delta is refused.

    Examples:
      countledger emit likes:post-1 3
      countledger emit likes:post-1 -5                        [dim]no -- needed[/dim]
      countledger emit stock:bolts 12.50 --key delivery-4711
      countledger emit clicks 1 --key c-1 --at $(date -u +%FT%TZ)
      countledger emit clicks 1 --note source=web --note page=/
      countledger emit likes:post-1 3 --wait                  [dim]and show the new total[/dim]
      countledger emit --file events.jsonl
      zcat old.jsonl.gz | countledger emit --file -
      countledger emit --file clicks.jsonl --coalesce         [dim]fewer write units[/dim]
      countledger emit --file clicks.csv --resume             [dim]as often as you like[/dim]

    A line of a file: {"counter": "likes:post-1", "delta": 3} and, as wanted, "key", "at",
    "occurred_at", "note" and "events" (how many events the delta sums). A delta with a fraction is
    best written as text: "12.50". CSV has a header with the same names, and note.NAME. A bad line
    is reported with its number and reason, the good ones are emitted, and the exit code is 1.

    Typed lines are sent as they come. How far it has come is kept in FILE.place: after a crash
    --resume continues, and no line counts twice, also without a key. It also keeps the place at the
    end: only new lines are sent.

    With --coalesce, lines of one counter become one entry with their sum and their number; those
    with a key, a note, a time or "events" of their own stay what they are.

    With --wait the total is shown once it includes the event (an exact read of the counter). If
    that takes longer than 10 seconds, the event is recorded nevertheless, and the exit code is 1.

    TIME is ISO 8601 with an offset, or milliseconds since 1970. That of a key may lie no further
    back than the horizon of its namespace, 24 hours unless it was made with another.
    """
    if file is not None:
        if any((counter, delta, key, at, occurred_at, note, wait)):
            raise BadUsage("with --file, counter, delta and the rest are in the lines")
        return emit_file(options, file, place, resume=resume, coalesce=coalesce, form=form)
    if coalesce or resume or place or form:
        raise BadUsage("--coalesce, --resume, --place and --format are for --file: give FILE")
    if counter is None or delta is None:
        raise BadUsage("give COUNTER and DELTA, or --file FILE")
    known = keyed(key, None if at is None else parse_time(at))
    occurred = None if occurred_at is None else parse_time(occurred_at)
    event = Event(counter, parse_delta_text(delta), known, occurred, parse_notes(note))
    return _emit_one(options, event, wait=wait)


def _emit_one(options: Options, event: Event, *, wait: bool) -> int:
    """Emit an event and show its receipt; with `wait` also the total that includes it."""
    client = options.client()
    receipt = client.record(
        event.counter, event.delta, key=event.key, occurred_at=event.occurred_at, note=event.note
    )
    answer = facts(receipt, "status counter", delta=event.delta, id=receipt.id)
    if receipt.stored_at is not None:
        answer |= facts(receipt, "stored_at occurred_at events")
    late: TotalBehind | None = None
    if wait:
        try:
            answer["value"] = client.total(receipt.counter, after=receipt).value
        except TotalBehind as error:
            late = error
    show_facts(options, answer)
    if late is None:
        return 0
    notice(str(late))
    return FINDINGS


def parse_notes(notes: Sequence[str] | None) -> dict[str, str] | None:
    return parse_pairs("note", "NAME=VALUE", notes, BadNote) or None


def emit_file(
    options: Options,
    name: str,
    place: Path | None,
    *,
    resume: bool,
    coalesce: bool,
    form: FileFormat | None,
) -> int:
    """Emit a file; the exit code is 1 when a line was bad, 3 when AWS failed on one."""
    file = LineFile.named(name, place, resume=resume)
    form = form or ("csv" if name.lower().endswith(".csv") else "jsonl")
    with ExitStack() as stack:
        lines = stack.enter_context(file.lines())
        parse = _parser(form, lines)
        client = options.client()
        ledger = f"{client.connection.setting('ledger_table')} in {client.connection.region}"
        purpose = f"an emit to {ledger}, {form}{', coalesced' if coalesce else ''}"
        recorder = Recorder(client.connection)
        store = stack.enter_context(file.kept_place())
        size = COALESCED_CHUNK_LINES if coalesce else CHUNK_LINES
        send = ChunkEmitter(recorder, parse, coalesce)
        sender = FileSender(store, purpose, send, client.connection, size)
        begun = sender.begin()
        if begun.last and not file.resume:
            raise BadSetting(
                f"{file.place} says that an emit has sent the lines up to {begun.last}: give "
                "--resume to continue after them, or remove it to send every line again (what has "
                "no key then counts twice)"
            )
        ended = file.send(sender, lines, begun, "sent lines")
    show_facts(options, _result(ended.place, coalesce=coalesce))
    return exit_code(ended)


def _parser(form: FileFormat, lines: FileLines) -> Callable[[bytes], Event | None]:
    """What reads a line; the header of CSV is read here."""
    if form == "jsonl":
        return parse_event_line
    header = next((line for line in lines if line.strip(b", \t\r\n")), b"")
    return partial(parse_event_row, parse_header(header))


def _result(place: FilePlace, *, coalesce: bool) -> Row:
    names = (RECORDED, DUPLICATES, BAD, *((ENTRIES,) if coalesce else ()))
    return {name: place.counts.get(name, 0) for name in names}
