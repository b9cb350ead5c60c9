"""`countledger emit --file`: the lines of a file as entries."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from countledger.infra.cli.output import show_facts
from countledger.infra.cli.sending_file import LineFile, exit_code
from countledger.infra.portability.emitting import (
    COALESCED_CHUNK_LINES,
    DUPLICATES,
    ENTRIES,
    RECORDED,
    ChunkEmitter,
)
from countledger.infra.portability.event_rows import parse_event_row, parse_header
from countledger.infra.portability.sending import BAD, CHUNK_LINES, FileSender
from countledger.ledger.errors import BadSetting
from countledger.producers.assembly import recorder_of
from countledger.producers.payload import parse_event_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from countledger import Event
    from countledger.infra.cli.emit import FileFormat
    from countledger.infra.cli.options import Options
    from countledger.infra.cli.output import Row
    from countledger.infra.portability.file_lines import FileLines
    from countledger.infra.portability.place_file import FilePlace


def emit_file(
    options: Options,
    name: str,
    place: Path | None,
    *,
    resume: bool,
    coalesce: bool,
    form: FileFormat | None,
) -> int:
    """Emit a file; the exit code is 1 when a line was bad, 3 when AWS failed on one.

    Args:
        options: which stack, and how to print.
        name: of the file; - is standard input.
        place: where it is kept how far the emit has come; None: beside the file.
        resume: whether to continue after the lines that an earlier emit has sent.
        coalesce: whether lines of one counter become one entry.
        form: of the lines; None: CSV, if the file's name says so.

    Raises:
        BadUsage: standard input is to be continued, and has no place.
        FileUnreadable: there is no such file.
        BadSetting: the place cannot be used, or is of another task.
        SetupError: what concerns every line: no stack, no permission, nothing reachable.
    """
    file = LineFile.named(name, place, resume=resume)
    form = form or ("csv" if name.lower().endswith(".csv") else "jsonl")
    with ExitStack() as stack:
        lines = stack.enter_context(file.lines())
        parse = _parser(form, lines)
        client = options.client()
        ledger = f"{client.connection.setting('ledger_table')} in {client.connection.region}"
        purpose = f"an emit to {ledger}, {form}{', coalesced' if coalesce else ''}"
        recorder = recorder_of(client.connection, client.namespaces)
        store = stack.enter_context(file.kept_place())
        size = COALESCED_CHUNK_LINES if coalesce else CHUNK_LINES
        send = ChunkEmitter(recorder, parse, coalesce)
        sender = FileSender(store, purpose, send, recorder.clock, size)
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


def _parser(form: FileFormat, lines: FileLines) -> Callable[[bytes], Event]:
    """What reads a line; the header of CSV is read here.

    Raises:
        BadPayload: the header is not valid.
    """
    if form == "jsonl":
        return parse_event_line
    header = next((line for line in lines if line.strip()), b"")
    return partial(parse_event_row, parse_header(header))


def _result(place: FilePlace, *, coalesce: bool) -> Row:
    names = (RECORDED, DUPLICATES, BAD, *((ENTRIES,) if coalesce else ()))
    return {name: place.counts.get(name, 0) for name in names}
