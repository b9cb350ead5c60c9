"""`countledger export` and `import`: every balance out, opening balances in."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from countledger.infra.cli.emit_lines import numbered_lines, opened
from countledger.infra.cli.options import Options, shared
from countledger.infra.cli.output import notice, show, show_text
from countledger.infra.cli.progress import open_progress
from countledger.infra.cli.usage import BadUsage
from countledger.infra.moving.export_file import continued_file, new_file, place_beside
from countledger.infra.moving.exporting import Exporter
from countledger.infra.moving.importing import Done, Importer
from countledger.infra.moving.lines import encode_line, parse_line
from countledger.ledger import keys
from countledger.ledger.errors import BadInput, CountledgerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from countledger.infra.moving.lines import Line

FINDINGS = 1


@shared
def export(
    options: Options,
    counters: Annotated[
        list[str] | None,
        typer.Argument(metavar="[COUNTER]...", help="Counters by name.", show_default=False),
    ] = None,
    *,
    namespace: Annotated[
        str | None, typer.Option(help="All counters of a namespace.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write there. An export that was interrupted goes on if the same is called again.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write namespaces and the value of every counter, a line of JSON each.

    Each line is consistent in itself: of a ledger the exact sum, also while entries arrive and
    compaction runs; of a strict counter its value, bins included. All together are no snapshot of
    one instant. Without names the keys of both tables are read whole, and every ledger.

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
        _write(out, exporter.lines([keys.check_counter(counter) for counter in counters]))
    elif out is None:
        _write(None, exporter.namespaces())
        with open_progress() as progress:
            bar = progress.add("counters")
            for line in exporter.walk():
                show_text(encode_line(line))
                bar.advance()
    else:
        _walk_into(out, exporter)


def _write(out: Path | None, lines: Iterable[Line]) -> None:
    if out is None:
        for line in lines:
            show_text(encode_line(line))
        return
    with new_file(out) as file:
        file.add(lines)


def _walk_into(out: Path, exporter: Exporter) -> None:
    walk = exporter.walk(resume=place_beside(out))
    place = walk.bookmarks.load()
    if place is not None:
        notice(f"going on behind {sum(place.counts.values())} counters in {out}")
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
    notice(f"{sum(walk.counts.values())} counters in {out}")


@shared
def import_(
    options: Options,
    file: Annotated[str, typer.Argument(metavar="FILE", help="- is standard input.")],
    *,
    name: Annotated[
        str | None,
        typer.Option(
            help="What makes another try of the same import recognisable. "
            "[dim]By default the file's name[/dim]",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only read the file, and say what is wrong.")
    ] = False,
) -> int:
    """Write opening balances, each once under the name of the import.

    A line is a JSON object as `countledger export` writes it; {"counter": "likes:a", "value": 14}
    is enough. The value of a ledger counter is added, as one entry; strict counters, sequences
    and namespaces are made. Calling it again changes nothing, for the horizon of a namespace; later
    it is refused. A bad line never stops the rest; the exit code is 1 then.

    Examples:
      countledger import balances.jsonl --dry-run
      countledger import balances.jsonl --name opening-2030
    """
    name = name if name is not None else ("" if file == "-" else Path(file).name)
    if not name:
        raise BadUsage("standard input has no name: give the import one with --name")
    reading = _Reading()
    with opened(file) as stream:
        lines = reading.lines(numbered_lines(stream))
        if dry_run:
            counts = Counter({"good": sum(1 for _ in lines)})
        else:
            counts = _import(Importer.begin(options.client(), name), reading, lines)
    result = {"import": name, **counts, "bad": reading.bad}
    show(options, [result], result)
    return max(reading.worst, FINDINGS if reading.bad else 0)


class _Reading:
    """The good lines of a file, and what was wrong with the others."""

    def __init__(self) -> None:
        self.bad = 0
        self.worst = 0
        self._numbers: list[int] = []

    def lines(self, numbered: Iterable[tuple[int, bytes]]) -> Iterator[Line]:
        """The good ones; a bad line is reported and left out."""
        for number, text in numbered:
            try:
                line = parse_line(text)
            except BadInput as error:
                self.report(number, error)
            else:
                self._numbers.append(number)
                yield line

    def number(self) -> int:
        """The line of the next outcome; outcomes come in the order of the lines."""
        return self._numbers.pop(0)

    def report(self, number: int, error: CountledgerError) -> None:
        """Tell of a line that was not written, and why."""
        self.bad += 1
        self.worst = max(self.worst, FINDINGS if isinstance(error, BadInput) else error.exit_code)
        notice(f"line {number}: {error}")


def _import(importer: Importer, reading: _Reading, lines: Iterable[Line]) -> Counter[str]:
    counts: Counter[str] = Counter({str(done): 0 for done in Done})
    with open_progress() as progress:
        bar = progress.add("imported")
        for outcome in importer.outcomes(lines):
            number = reading.number()
            if isinstance(outcome, CountledgerError):
                reading.report(number, outcome)
            else:
                counts[str(outcome)] += 1
                bar.advance()
    return counts
