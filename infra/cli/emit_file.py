"""`countledger emit --file`: progress, what was wrong with which line, and where it stopped."""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from countledger.infra.cli.options import BadUsage
from countledger.infra.cli.output import notice, show_facts
from countledger.infra.cli.progress import open_progress
from countledger.infra.portability.emitting import (
    CHUNK_LINES,
    COALESCED_CHUNK_LINES,
    EventLines,
    FileEmitter,
    SentChunk,
    exit_code_of,
)
from countledger.infra.portability.event_rows import parse_event_row, parse_header
from countledger.infra.portability.place_file import NoPlace, open_place
from countledger.ledger.errors import BadSetting, SetupError
from countledger.producers.assembly import recorder_of
from countledger.producers.payload import MAX_BYTES, parse_event_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from countledger import Event
    from countledger.infra.cli.emit import FileFormat
    from countledger.infra.cli.options import Options
    from countledger.infra.cli.output import Row
    from countledger.infra.portability.place_file import EmitPlace

# Of a longer line no more is read into memory; it is refused for its length.
LINE_MAX_BYTES: Final = MAX_BYTES + 1
STANDARD_INPUT: Final = "-"


class FileUnreadable(SetupError):
    """A file of events cannot be opened."""


def emit_file(
    options: Options,
    file: str,
    *,
    coalesce: bool,
    resume: bool,
    place: Path | None,
    form: FileFormat | None,
) -> int:
    """Emit a file; the exit code is 1 when a line was bad, 3 when AWS failed on one.

    Args:
        options: which stack, and how to print.
        file: its path; - is standard input.
        coalesce: whether lines of one counter become one entry.
        resume: whether to continue after the lines that an earlier emit has sent.
        place: where it is kept how far the emit has come; None: beside the file.
        form: of the lines; None: CSV, if the file's name says so.

    Raises:
        FileUnreadable: there is no such file.
        BadSetting: the place cannot be used, or is of another emit.
        SetupError: what concerns every line: no stack, no permission, nothing reachable.
    """
    if place is None and file != STANDARD_INPUT:
        place = Path(f"{file}.place")
    if resume and place is None:
        raise BadUsage("--resume needs to know where standard input has stopped: give --place FILE")
    form = form or ("csv" if file.lower().endswith(".csv") else "jsonl")
    with ExitStack() as stack:
        lines = EventLines(stack.enter_context(opened(file)), LINE_MAX_BYTES)
        parse = _parser(form, lines)
        client = options.client()
        ledger = f"{client.connection.setting('ledger_table')} in {client.connection.region}"
        purpose = f"{ledger}, {form}{', coalesced' if coalesce else ''}"
        recorder = recorder_of(client.connection, client.namespaces)
        store = NoPlace() if place is None else stack.enter_context(open_place(place))
        size = COALESCED_CHUNK_LINES if coalesce else CHUNK_LINES
        emitter = FileEmitter(recorder, store, parse, coalesce, purpose, size)
        begun = emitter.begin()
        if begun.last and not resume:
            raise BadSetting(
                f"{place} says that an emit has sent the lines up to {begun.last}: give --resume "
                "to continue after them, or remove it to send every line again (what has no key "
                "then counts twice)"
            )
        ended = _follow(emitter.chunks(lines, begun), begun, file, place)
        if not (ended.stopped or resume):
            store.remove()
    show_facts(options, _result(ended.place, coalesce=coalesce))
    return max([ended.place.worst, *(exit_code_of(error) for _, error in ended.failures)])


def _parser(form: FileFormat, lines: EventLines) -> Callable[[bytes], Event]:
    """What reads a line; the header of CSV is read here.

    Raises:
        BadPayload: the header is not valid.
    """
    if form == "jsonl":
        return parse_event_line
    header = next(iter(lines), b"")
    return partial(parse_event_row, parse_header(header))


def _follow(
    chunks: Iterator[SentChunk], begun: EmitPlace, file: str, place: Path | None
) -> SentChunk:
    """Show how far an emit comes, and what was wrong with which line; the last chunk."""
    ended = SentChunk(begun, [])
    if begun.last:
        notice(f"continuing after line {begun.through}")
    with open_progress() as progress:
        bar = progress.add("sent lines", progress.shown and _lines_in(file))
        try:
            for ended in chunks:
                for number, error in ended.failures:
                    notice(f"line {number}: {error}")
                bar.set(ended.place.through)
        except (KeyboardInterrupt, SetupError):
            _say_where(ended.place, place)
            raise
    if ended.stopped:
        _say_where(ended.place, place)
    return ended


def _say_where(reached: EmitPlace, place: Path | None) -> None:
    advice = "--resume continues, and counts nothing twice"
    if place is None:
        advice = "with --place FILE, an emit of standard input can continue"
    notice(
        f"sent through line {reached.through}; of the lines after it some may have been sent: "
        f"{advice}"
    )


def _lines_in(file: str) -> int | None:
    """How many lines a file has; None: nobody knows."""
    if file == STANDARD_INPUT:
        return None
    with opened(file) as stream:
        return sum(part.count(b"\n") for part in iter(partial(stream.read, 2**20), b""))


def _result(place: EmitPlace, *, coalesce: bool) -> Row:
    result = {"recorded": place.recorded, "duplicates": place.duplicates, "bad": place.bad}
    return result | ({"entries": place.entries} if coalesce else {})


@contextmanager
def opened(file: str) -> Iterator[IO[bytes]]:
    """A file of lines; `-` is standard input.

    Raises:
        FileUnreadable: there is no such file.
    """
    if file == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    try:
        stream = Path(file).open("rb")  # noqa: SIM115 - closed below; only the opening is guarded
    except OSError as error:
        raise FileUnreadable(f"file {file!r} cannot be read: {error.strerror}") from error
    with stream:
        yield stream
