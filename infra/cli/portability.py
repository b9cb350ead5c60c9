"""`countledger export` and `import`: every balance out, opening balances in."""

from __future__ import annotations

from collections import Counter, deque
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Generic, TypeVar

import typer

from countledger.infra.cli.emit_file import LINE_MAX_BYTES, opened
from countledger.infra.cli.options import BadUsage, CounterNames, Options, WholeNamespace, shared
from countledger.infra.cli.output import FINDINGS, notice, report_unread, show_facts, show_text
from countledger.infra.cli.progress import open_progress
from countledger.infra.portability.emitting import EventLines
from countledger.infra.portability.exporting import Exporter, continued_file, new_file, place_beside
from countledger.infra.portability.importing import Importer, ImportResult, held_in, missing
from countledger.infra.portability.lines import CounterLine, UnreadLine, encode_line, parse_line
from countledger.ledger import keys
from countledger.ledger.errors import BadInput, CountledgerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from countledger.infra.cli.progress import Bar
    from countledger.infra.portability.lines import ExportLine, Line


T = TypeVar("T")


class Lines(Generic[T]):
    """The good lines of a file, and what was wrong with the others.

    Attributes:
        parse: a line as a value.
        bad: how many lines were reported.
        worst: the exit code that they come to.
    """

    def __init__(self, parse: Callable[[bytes], T]) -> None:
        self.parse = parse
        self.bad = 0
        self.worst = 0
        self._numbers: deque[int] = deque()

    def good(self, lines: EventLines) -> Iterator[T]:
        """The values; a bad line is reported and left out."""
        for line in lines:
            try:
                value = self.parse(line)
            except BadInput as error:
                self.report(lines.number, error)
            else:
                self._numbers.append(lines.number)
                yield value

    def next_number(self) -> int:
        """The line of the next outcome; outcomes come in the order of the values."""
        return self._numbers.popleft()

    def report(self, number: int, error: CountledgerError) -> None:
        """Report a line that was not recorded, and the reason."""
        self.bad += 1
        # An error of AWS is worse news than a bad line: that line is to be sent again.
        self.worst = max(self.worst, FINDINGS if isinstance(error, BadInput) else error.exit_code)
        notice(f"line {number}: {error}")


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

    Each line is consistent in itself: of a ledger the exact sum, also while entries arrive and
    compaction runs; of a strict counter its value, bins included. All lines together are no
    snapshot of one instant. Without names it reads the keys of both tables and every ledger.

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
        keys.check_namespace(namespace)
    exporter = Exporter(options.client(), namespace)
    if counters:
        names = [keys.check_counter(counter) for counter in counters]
        unread = _write(out, exporter.lines(names))
    elif out is None:
        unread = _write(None, exporter.namespaces())
        with open_progress() as progress:
            found = chain(exporter.walk(), exporter.over_regions())
            unread += _write(None, _counted(found, progress.add("counters")))
    else:
        unread = _walk_into(out, exporter)
    return report_unread([one.reason for one in unread])


def _write(out: Path | None, lines: Iterable[ExportLine]) -> list[UnreadLine]:
    """Write lines; those of what could not be read."""
    if out is not None:
        with new_file(out) as file:
            file.add(lines)
        return file.unread
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


def _walk_into(out: Path, exporter: Exporter) -> list[UnreadLine]:
    walk = exporter.walk(resume=place_beside(out))
    place = walk.bookmarks.load()
    if place is not None:
        notice(f"continuing after {sum(place.counts.values())} counters in {out}")
        opening = continued_file(out, sum(place.counts.values()))
    else:
        opening = new_file(out)
    with opening as file, open_progress() as progress:
        if place is None:
            file.add(exporter.namespaces())
        bar = progress.add("counters")
        for lines in walk.rounds():
            file.add(lines)
            bar.set(sum(walk.counts.values()))
        file.add(exporter.over_regions())
    notice(f"{sum(walk.counts.values())} counters in {out}")
    return file.unread


@shared
def import_(
    options: Options,
    file: Annotated[str, typer.Argument(metavar="FILE", help="- is standard input.")],
    *,
    name: Annotated[
        str | None,
        typer.Option(
            help="What makes another try of the same import recognisable. "
            "[dim]By default the file's name[/dim]"
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only read the file, and say what is wrong.")
    ] = False,
    drop_holds: Annotated[
        bool,
        typer.Option(
            "--drop-holds", help="Strict counters: what was held becomes available, without holds."
        ),
    ] = False,
) -> int:
    """Write opening balances, each once under the name of the import.

    A line is a JSON object as `countledger export` writes it; {"counter": "likes:a", "value": 14}
    is enough. The value of a ledger counter is added, as one entry; strict counters, sequences
    and namespaces are made. A strict counter of which some was held is refused without
    --drop-holds. Calling it again changes nothing, for the horizon of a namespace; later it is
    refused. A bad line never stops the rest; each is named with its number, and the exit code is 1.
    Where the import itself is stopped, it says how many lines were done: call it again.

    Examples:
      countledger import balances.jsonl --dry-run
      countledger import balances.jsonl --name opening-2030
    """
    name = name if name is not None else ("" if file == "-" else Path(file).name)
    if not name:
        raise BadUsage("standard input has no name: give the import one with --name")
    reading = Lines(partial(_parsed, drop_holds=drop_holds))
    with opened(file) as stream:
        lines = reading.good(EventLines(stream, LINE_MAX_BYTES))
        if dry_run:
            counts = Counter({"good": sum(1 for _ in lines)})
        else:
            counts = _import(Importer.begin(options.client(), name), reading, lines)
    result = {"import": name, **counts, "bad": reading.bad}
    show_facts(options, result)
    return reading.worst


def _parsed(text: bytes, *, drop_holds: bool = False) -> Line:
    """A line that can be imported.

    Raises:
        BadInput: it is malformed, the export could not read the item, or some of it was held.
    """
    line = parse_line(text)
    if isinstance(line, UnreadLine):
        raise missing(line)
    if isinstance(line, CounterLine) and line.held and not drop_holds:
        raise held_in(line)
    return line


def _import(importer: Importer, reading: Lines[Line], lines: Iterable[Line]) -> Counter[str]:
    counts: Counter[str] = Counter({str(done): 0 for done in ImportResult})
    with open_progress() as progress:
        bar = progress.add("imported")
        try:
            for outcome in importer.outcomes(lines):
                number = reading.next_number()
                if isinstance(outcome, CountledgerError):
                    reading.report(number, outcome)
                else:
                    counts[str(outcome)] += 1
                    bar.advance()
        except CountledgerError:
            notice(f"stopped after {counts.total()} lines; call it again, nothing counts twice")
            raise
    return counts
