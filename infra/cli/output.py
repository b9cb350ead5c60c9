"""All that the commands print: tables for people, one JSON document for programs.

A terminal gets a table with colour; anything else gets the same cells as lines of tab-separated
text under a line of headings. What is not the result (notices, progress) goes to stderr.

A document is one object of JSON, and what it lists is its `items`, as over HTTP. An amount is a
text of plain digits, which never passes through anybody's floating point. A time is ISO 8601 in
UTC. What is read as it comes (`watch`, `export`) is an object a line.

What a terminal would obey is written as an escape: a note of anybody may hold it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from countledger.ledger.amount import to_text
from countledger.ledger.texts import CONTROL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rich.progress import Progress, TaskID

    from countledger.infra.calls.shapes import View
    from countledger.infra.cli.app import Options
    from countledger.ledger.errors import CorruptItem


T = TypeVar("T")
Row: TypeAlias = Mapping[str, object]
_EXACT_IN_JSON: Final = 2**53 - 1
_EMPTY_CELL: Final = "-"
# And what turns the direction of the text after it.
_OBEYED: Final = re.compile(f"{CONTROL.pattern}|[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class OutputClosed(Exception):
    """The reader of the output has gone.

    Typer would turn a BrokenPipeError into exit code 1, which means something else here.
    """


def show(options: Options, rows: Sequence[Row], document: Row | Sequence[Row]) -> None:
    """Print a result: the rows for people, or the document for programs."""
    if options.json:
        show_json(document if isinstance(document, Mapping) else {"items": document})
    else:
        show_rows(rows)


def show_facts(options: Options, row: Row) -> None:
    """Print one thing, whose row is also its document."""
    show(options, [row], row)


def show_all(
    options: Options,
    found: Iterable[T],
    row: Callable[[T], Row],
    document: Callable[[T], Row] | None = None,
    unread: Unread | None = None,
) -> int:
    """Print things as they come, then name what could not be read; the exit code.

    Reading them may add to `unread`. Without a `document`, programs get the row.
    """
    unread = unread or Unread()
    if options.json:
        show_items(map(document or row, found), lambda: {"unreadable": unread.documents()})
    else:
        show_rows(map(row, found))
    return unread.report()


def show_views(
    options: Options,
    found: Iterable[View],
    most: int | None,
    unread: Unread,
    rest: Callable[[], Row] = dict,
) -> int:
    """Print views as they come, at most so many, then what could not be read; the exit code.

    `rest` is more of the document, known when all are shown.
    """
    left = iter(found)
    shown = left if most is None else islice(left, most)
    if options.json:
        show_items(
            (one.document() for one in shown),
            lambda: {
                "more": most is not None and next(left, None) is not None,
                "next": None,
                "unreadable": unread.documents(),
                **rest(),
            },
        )
    else:
        show_rows(one.row() for one in shown)
    return unread.report()


def show_report(
    options: Options, rows: Iterable[Row], summary: Callable[[], tuple[Row, str]]
) -> None:
    """Print rows as they come, and after the last of them what they come to.

    The summary is more of the document, and a line for people.
    """
    if options.json:
        show_items(rows, lambda: summary()[0])
    else:
        show_rows(rows)
        notice(summary()[1])


def show_or_say(options: Options, document: Row, text: str) -> None:
    """Print a document for programs, or one line on stderr for people."""
    if options.json:
        show_json(document)
    else:
        notice(text)


def facts(value: object, names: str, **more: object) -> dict[str, object]:
    """A row of the attributes of a value that `names` lists, and of more."""
    return {name: getattr(value, name) for name in names.split()} | more


def show_rows(rows: Iterable[Row]) -> None:
    """Print rows as they come, all with the columns of the first."""
    if sys.stdout.isatty():
        _show_table(list(rows))
        return
    for n, row in enumerate(rows):
        if n == 0:
            _line("\t".join(row))
        _line("\t".join(_cell(value) for value in row.values()))


def show_json(document: Row) -> None:
    _line(_json(document, indent=2))


def show_items(items: Iterable[Row], rest: Callable[[], Row]) -> None:
    """Print a document item by item, as it may be longer than memory; then its other fields."""
    _line('{"items": [', end="")
    between = "\n  "
    for item in items:
        _line(f"{between}{_json(item)}", end="")
        between = ",\n  "
    # An object without its brackets: what names a field decides how it is written.
    more = _json(rest())[1:-1]
    _line(f"], {more}}}" if more else "]}")


def show_json_line(document: Row) -> None:
    """Print one JSON document in one line: of many, each is read as it comes."""
    _line(_json(document))


def hand_over() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise OutputClosed from error


def show_text(text: str) -> None:
    _line(_visible(text, kept="\n\t"))


def notice(text: str) -> None:
    """Print a message that is not part of the result to stderr."""
    print(_visible(text, kept="\n\t"), file=sys.stderr)  # noqa: T201 - this is the terminal


def _line(text: str, end: str = "\n") -> None:
    # Counter names may hold what the terminal's encoding does not.
    encoding = sys.stdout.encoding or "utf-8"
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), end=end)  # noqa: T201
    except BrokenPipeError as error:
        raise OutputClosed from error


def _show_table(rows: list[Row]) -> None:
    if not rows:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, value in rows[0].items():
        number = isinstance(value, int | Decimal) and not isinstance(value, bool)
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(escape(_cell(value)) for value in row.values()))
    Console(highlight=False).print(table)


def _cell(value: object) -> str:
    """A value in a table: exact, in one line."""
    if value is None or value == "":
        return _EMPTY_CELL
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | Decimal):
        return to_text(value)
    if isinstance(value, datetime):
        return shown_time(value)
    if isinstance(value, Mapping):
        return " ".join(f"{name}={_cell(part)}" for name, part in value.items()) or _EMPTY_CELL
    return _visible(str(value).replace("\t", " ").replace("\n", " "))


def _visible(text: str, kept: str = "") -> str:
    """The text with an escape in place of each character that a terminal obeys."""

    def escaped(found: re.Match[str]) -> str:
        one = found[0]
        if one in kept:
            return one
        return f"\\u{ord(one):04x}"

    return _OBEYED.sub(escaped, text)


def _json(value: object, indent: int | None = None) -> str:
    """JSON in readable text; what a terminal obeys is escaped as JSON does it."""
    return _visible(json.dumps(_plain(value), ensure_ascii=False, indent=indent), kept="\n")


# Fields that are amounts in any document, as in the views of calls.
_AMOUNTS: Final = frozenset(
    {
        *("value", "values", "delta", "amount", "sum", "change", "passed"),
        *("lower", "upper", "held", "available", "threshold", "rearm", "step"),
        *("emitted", "truth"),
    }
)
# What a record in quarantine and an item of an app's own contain is shown as it is.
_FOREIGN: Final = frozenset({"record", "item"})


def _plain(value: object, name: str = "") -> object:  # noqa: PLR0911 - a table
    match value:
        case Mapping() if name in _FOREIGN:
            return value
        case Mapping():
            return {str(key): _plain(part, str(key)) for key, part in value.items()}
        case list() | tuple():
            return [_plain(part, name) for part in value]
        case bool() | None:
            return value
        case Decimal():
            return to_text(value)
        case int() if name in _AMOUNTS or abs(value) > _EXACT_IN_JSON:
            return to_text(value)
        case datetime():
            return shown_time(value)
    return value


def shown_time(value: datetime) -> str:
    """A time: ISO 8601 in UTC, in milliseconds."""
    text = value.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


FINDINGS: Final = 1
# More than that is read in JSON, or in the file of an export.
SHOWN_MAX: Final = 10


class Unread:
    """The items that one command could not read."""

    def __init__(self, errors: list[CorruptItem] | None = None) -> None:
        self.errors = [] if errors is None else errors

    def note(self, error: CorruptItem) -> None:
        self.errors.append(error)

    def documents(self) -> list[Row]:
        """Each as programs read it: its partition key, its sort key, and the reason."""
        return [
            {
                "pk": None if one.key is None else one.key[0],
                "sk": None if one.key is None else one.key[1],
                "reason": str(one),
            }
            for one in self.errors
        ]

    def report(self) -> int:
        """Name the first few on stderr; the exit code."""
        return report_unread([str(one) for one in self.errors])


def report_unread(reasons: list[str]) -> int:
    """Name the first few reasons on stderr; the exit code: 1 if there are any."""
    for reason in reasons[:SHOWN_MAX]:
        notice(f"not read: {reason}")
    if len(reasons) > SHOWN_MAX:
        notice(f"not read: {len(reasons) - SHOWN_MAX} more")
    return FINDINGS if reasons else 0


# Lines of progress on stderr, while a command works.


class Bar:
    """One line of progress."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def advance(self, by: int = 1) -> None:
        self._progress.advance(self._task, by)

    def set(self, done: int, total: int | None = None) -> None:
        """Show so much; a total replaces the one before."""
        self._progress.update(self._task, completed=done, total=total)


class Bars:
    """Lines of progress, one below the other; shown if stderr is a terminal."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.shown = not progress.disable

    def add(self, label: str, total: int | None = None) -> Bar:
        """One more line; without a total it only counts."""
        return Bar(self._progress, self._progress.add_task(label, total=total))

    def say(self, text: str) -> None:
        """One line of text above the bars."""
        self._progress.console.print(text, highlight=False, markup=False)


@contextmanager
def open_progress(*, hidden: bool = False) -> Iterator[Bars]:
    from rich.progress import (  # noqa: PLC0415 - few commands show it
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.text import Text  # noqa: PLC0415 - the same

    class SpeedColumn(ProgressColumn):
        """How many a second."""

        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:,.0f}/s")

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:<14}"),
        BarColumn(),
        MofNCompleteColumn(),
        SpeedColumn(),
        TimeElapsedColumn(),
    )
    disable = hidden or not console.is_terminal
    with Progress(*columns, console=console, disable=disable) as progress:
        yield Bars(progress)
