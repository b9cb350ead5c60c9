"""`countledger export`, `import` and `restore`: balances out and in, and a stack from backups."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from countledger.infra.cli.app import (
    BadUsage,
    CounterNames,
    Options,
    PlaceFilePath,
    ResumeLines,
    WholeNamespace,
    shared,
)
from countledger.infra.cli.emit import LineFile, exit_code
from countledger.infra.cli.output import (
    FINDINGS,
    notice,
    open_progress,
    report_unread,
    show_facts,
    show_text,
)
from countledger.infra.portability.export import Exporter, open_export
from countledger.infra.portability.importing import (
    ChunkImporter,
    Importer,
    ImportResult,
    check_import_name,
)
from countledger.infra.portability.lines import (
    CounterLine,
    CounterLines,
    UnreadLine,
    encode_line,
    importable,
)
from countledger.infra.portability.restore import RestoredTables, Restorer
from countledger.infra.portability.sending import BAD, FileSender, place_for
from countledger.ledger import keys
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from countledger import Audit, Repair
    from countledger.infra.cli.output import Bar
    from countledger.infra.portability.lines import ExportLine, Line


@shared
def export(
    options: Options,
    counters: CounterNames = None,
    *,
    namespace: WholeNamespace = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The file to write. An interrupted export continues if you run it again.",
        ),
    ] = None,
) -> int:
    """Write namespaces and the value of every counter, a line of JSON each.

    Each line is consistent: the value of a ledger is its exact sum, also while entries arrive and
    compaction runs; that of a strict counter includes its bins. All lines together are no snapshot
    of one instant. Without names it reads the keys of both tables and every ledger.

    An item that cannot be read has a line of its own, {"unreadable": "likes:a", "item": "e#x",
    "reason": "..."}, and stops nothing else; then the exit code is 1. An import reports such a line
    as bad.

    Examples:
      countledger export likes:post-1
      countledger export --namespace likes > likes.jsonl
      countledger export --out all.jsonl                    [dim]can be interrupted[/dim]
    """
    if counters and namespace is not None:
        raise BadUsage("give counters, or --namespace")
    if namespace is not None:
        namespace = keys.check_namespace(namespace)
    exporter = Exporter(options.client(), namespace)
    if counters:
        names = [keys.check_counter(counter) for counter in counters]
        unread = _show(exporter.lines(names)) if out is None else _write_named(out, exporter, names)
    elif out is None:
        unread = _show(exporter.namespaces())
        with open_progress() as progress:
            found = chain(exporter.walk(), exporter.over_regions())
            unread += _show(_counted(found, progress.add("counters")))
    else:
        unread = _write_all(out, exporter)
    return report_unread([one.reason for one in unread])


def _show(lines: Iterable[ExportLine]) -> list[UnreadLine]:
    """Print lines; those of what could not be read."""
    unread: list[UnreadLine] = []
    for line in lines:
        show_text(encode_line(line))
        if isinstance(line, UnreadLine):
            unread.append(line)
    return unread


def _counted(lines: Iterable[ExportLine], bar: Bar) -> Iterator[ExportLine]:
    for line in lines:
        yield line
        bar.advance()


def _write_named(out: Path, exporter: Exporter, names: list[str]) -> list[UnreadLine]:
    purpose = f"{len(names)} counters of {exporter.purpose}"
    new_id = exporter.client.connection.ids.unique_id
    with open_export(out, purpose, new_id, continues=False) as file:
        file.add(exporter.lines(names))
        file.complete()
    return file.unread


def _write_all(out: Path, exporter: Exporter) -> list[UnreadLine]:
    new_id = exporter.client.connection.ids.unique_id
    with open_export(out, exporter.purpose, new_id) as file, open_progress() as progress:
        if file.continues:
            notice(f"continuing after {file.counters} counters in {out}")
        elif file.replaced:
            notice(f"{out}.part did not belong to {out}.place: the export begins again")
        bar = progress.add("counters")
        for counters in exporter.write_all(file):
            bar.set(counters)
    notice(f"{file.counters} counters in {out}")
    return file.unread


@shared
def import_(
    options: Options,
    file: Annotated[str, typer.Argument(metavar="FILE", help="- is standard input.")],
    *,
    name: Annotated[
        str | None,
        typer.Option(
            help="The name of the import, under which each line counts once. "
            "[dim]By default the file's name, for one content[/dim]"
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only read the file, and name its errors.")
    ] = False,
    drop_holds: Annotated[
        bool,
        typer.Option("--drop-holds", help="Make the held amounts of strict counters available."),
    ] = False,
    resume: ResumeLines = False,
    place: PlaceFilePath = None,
) -> int:
    """Write opening balances, each once under the name of the import.

    A line is a JSON object as `countledger export` writes it; {"counter": "likes:a", "value": 14}
    is enough. Several lines of one counter are all refused, also equal ones. The value of a ledger
    counter is added, as one entry; strict counters, sequences and namespaces are created. A strict
    counter that exists is refused, because nothing is added to it; one that had open holds is
    refused without --drop-holds. Another call changes nothing within the horizon of a namespace;
    later it is refused. Bad lines are named with their numbers, and the exit code is 1. Only that
    of a namespace stops the import. Without --name, other content under the same file name is
    refused.

    FILE.place stores how far the import has come. If it was stopped, --resume continues after the
    lines that were done; without --resume every line is tried again. --resume also keeps the place
    at the end: the next call imports the lines that were appended since.

    Examples:
      countledger import balances.jsonl --dry-run
      countledger import balances.jsonl --name opening-2030
      countledger import balances.jsonl --resume            [dim]as often as you like[/dim]
    """
    if name is None and file == "-":
        raise BadUsage("standard input has no name: give the import one with --name")
    if dry_run:
        shown = Path(file).name if name is None else name
        return _try(options, LineFile.named(file, None, resume=False), shown, drop_holds=drop_holds)
    return _import(options, LineFile.named(file, place, resume=resume), name, drop_holds=drop_holds)


def _import(options: Options, source: LineFile, given: str | None, *, drop_holds: bool) -> int:
    name = check_import_name(Path(source.name).name if given is None else given)
    with ExitStack() as stack:
        lines = stack.enter_context(source.lines())
        client = options.client()
        table = client.connection.setting("counters_table")
        purpose = (
            f"import {name!r} to {table} in {client.connection.region}"
            f"{', holds dropped' if drop_holds else ''}"
        )
        store = stack.enter_context(source.kept_place())
        continued = place_for(store, purpose) is not None and source.resume
        of_counters, digest = _read_before(source, drop_holds=drop_holds)
        # The place proves that it is the same file, also if lines were appended.
        digest = None if given is not None or continued else digest
        importer = Importer.begin(client, name, digest=digest)
        send = ChunkImporter(importer, drop_holds, of_counters)
        sender = FileSender(store, purpose, send, client.connection)
        begun = sender.begin()
        if not source.resume:
            begun = sender.restart()  # every line once more: none counts twice
        ended = source.send(sender, lines, begun, "imported lines")
    counts = {str(done): 0 for done in ImportResult} | {BAD: 0} | ended.place.counts
    show_facts(options, {"import": name, **counts})
    return exit_code(ended)


def _read_before(source: LineFile, *, drop_holds: bool) -> tuple[CounterLines, str | None]:
    """The lines of each counter of a file, and its digest. A stream cannot be read twice."""
    found = CounterLines()
    if not source.is_file:
        return found, None
    with source.lines() as lines:
        for line in lines:
            with suppress(BadInput):  # reported when the line is sent
                _note(found, lines.number, line, drop_holds=drop_holds)
    return found, lines.digest


def _note(found: CounterLines, number: int, text: bytes, *, drop_holds: bool) -> Line | None:
    """Note the counter of a line, and return the line; None: there is nothing to import."""
    line = importable(text, drop_holds=drop_holds) if text.strip() else None
    if isinstance(line, CounterLine):
        found.note(line.counter, number)
    return line


def _try(options: Options, source: LineFile, name: str, *, drop_holds: bool) -> int:
    """Only read the lines of an import, and name their errors."""
    counts = {"good": 0, BAD: 0}
    found = CounterLines()
    with source.lines() as lines:
        for line in lines:
            try:
                parsed = _note(found, lines.number, line, drop_holds=drop_holds)
            except BadInput as error:
                notice(f"line {lines.number}: {error}")
                counts[BAD] += 1
            else:
                counts["good"] += parsed is not None
    for number, counter in found.repeated():
        notice(f"line {number}: {found.refused(counter)}")
        counts["good"] -= 1
        counts[BAD] += 1
    show_facts(options, {"import": name, **counts})
    return FINDINGS if counts[BAD] else 0


_SHOWN: Final = 10


@shared
def restore(
    options: Options,
    *,
    from_ledger: Annotated[
        str, typer.Option(metavar="TABLE", help="The restored copy of the table of the entries.")
    ],
    from_counters: Annotated[
        str, typer.Option(metavar="TABLE", help="The restored copy of the table of the totals.")
    ],
) -> int:
    """Fill a new, empty stack from two tables that DynamoDB or AWS Backup restored.

    Items are copied as they are; the totals of ledgers are set to their exact sums; rankings,
    schedules and alert rules are created again. The two tables may be of different times. Retries
    of entries that the restored ledger has are duplicates; entries that were acknowledged after the
    backup are lost until they are sent again. Stop all writers before the first call. Repeat the
    call until the exit code is 0, then start the writers; nothing counts twice.

    Exit code 1: a total could not be proven yet, a rule or schedule could not be created, or a call
    was killed less than half an hour ago, so its last write may still arrive.

    Examples:
      countledger deploy --stack-name shop-2
      countledger restore --stack-name shop-2 --from-ledger ledger-2 --from-counters counters-2
    """
    restorer = Restorer(options.client(), RestoredTables(from_ledger, from_counters))
    copied = _copy(restorer)
    rebuilt = restorer.rebuild()
    problems = _unproven(rebuilt)
    created, until_ms = 0, restorer.unsettled_until_ms()
    if until_ms is not None:
        problems.append(
            "a call of this restore was killed, or got no answer: until "
            f"{to_datetime(until_ms):%H:%M:%S} UTC its last write may arrive; call again then"
        )
    # Rules must not see a total that is still growing to its value.
    if not problems:
        outcomes = list(restorer.recreate())
        problems = [f"{what}: {error}" for what, error in outcomes if error is not None]
        created = len(outcomes) - len(problems)
    for problem in problems[:_SHOWN]:
        notice(problem)
    if problems:
        notice(f"{len(problems)} problem(s): correct them, and call it again")
    result = {"copied": copied, **rebuilt.counts, "created": created, "problems": len(problems)}
    show_facts(options, result)
    return FINDINGS if problems else 0


def _copy(restorer: Restorer) -> int:
    """How many items were copied by this call."""
    if restorer.begin():
        notice("an earlier call has copied the items")
        return 0
    copied = 0
    with open_progress() as progress:
        bar = progress.add("items")
        for done in restorer.copy():
            bar.set(done)
            copied = done
    return copied


def _unproven(rebuilt: Audit[Repair]) -> list[str]:
    """The counters whose totals are not proven to be right, with the reasons."""
    found = []
    with open_progress() as progress:
        bar = progress.add("counters")
        for one in rebuilt:
            bar.advance()
            if not one.healthy:
                found.append(f"{one.counter}: {one.remedy}, {one.reason}")
    return found
