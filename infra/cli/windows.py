"""`countledger windows`: sums for each minute, hour, day and month."""

from __future__ import annotations

import sys
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Final

import typer

from countledger.consumers.audit import SEGMENTS_DEFAULT
from countledger.consumers.windows import no_windows
from countledger.infra.calls.windows import WINDOWS, WindowSumView
from countledger.infra.cli.app import BadUsage, CounterNames, Options, WholeNamespace, shared
from countledger.infra.cli.audit import (
    Archived,
    Everything,
    Resume,
    Segments,
    named_of_windows,
    show_rebuilt,
)
from countledger.infra.cli.calls import commands_of, in_order
from countledger.infra.cli.output import show
from countledger.ledger import keys
from countledger.ledger.calendar import Per, window_on
from countledger.ledger.clock import SystemClock, to_datetime
from countledger.ledger.errors import AccessDenied, BadSetting
from countledger.ledger.values import parse_duration_ms, parse_time

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from countledger import CountLedger
    from countledger.infra.cli.output import Row


app = commands_of(WINDOWS)


@app.command("show")
@shared
def show_one(
    options: Options,
    counter: Annotated[str, typer.Argument(help="The counter, as views:home.")],
    *,
    by: Annotated[str, typer.Option(help="minute, hour, day or month.")] = "day",
    last: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Until now, as in 90m, 24h or 30d.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="From then on: a time with offset, or a date there."),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Before then. [dim]Else until now[/dim]")
    ] = None,
) -> None:
    """Show the windows of a counter, those without events included, with a chart in a terminal.

    A window is provisional until everything that was recorded before its end is in it, then
    complete: events of it that are recorded later change it still. With a maximum lateness it is
    final some time after that, and never changes again.

    Examples:
      countledger windows show views:home --by hour --last 24h
      countledger windows show views:home --by day --since 2026-01-01 --json
      countledger windows show views:home --by month --since 2026-01-01 --until 2026-07-01
    """
    if (last is None) == (since is None):
        raise BadUsage("give --last (as in 24h), or --since with a time or a date")
    if last is not None and until is not None:
        raise BadUsage("--last is until now: give --since with --until")
    client = options.client()
    end = None if until is None else _moment(client, counter, until)
    if last is not None:
        start = to_datetime(SystemClock().now_ms() - parse_duration_ms(last))
    else:
        start = _moment(client, counter, since or "")
    try:
        found = client.windows(counter, by, since=start, until=end, prove=True)
    except AccessDenied:
        # To read the stream takes a permission of its own, and only shows more windows complete.
        found = client.windows(counter, by, since=start, until=end)
    shown = [WindowSumView.of(counter, one) for one in found]
    show(options, window_rows(shown), [one.document() for one in shown])


@app.command("rebuild")
@shared
def rebuild(
    options: Options,
    counters: CounterNames = None,
    *,
    namespace: WholeNamespace = None,
    everything: Everything = False,
    archived: Archived = None,
    segments: Segments = SEGMENTS_DEFAULT,
    resume: Resume = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done; write nothing.")
    ] = False,
) -> int:
    """Count windows again from their entries, and replace those that differ.

    Windows are rebuilt only with the proof that `countledger verify --windows` gives. A counter
    whose entries were merged needs --archived; without its archive it is skipped, because its
    windows cannot be counted again. The exit code is 1 unless all are exact at the end.

    With --namespace and --all only counters that were not exact are listed. With --resume an
    interrupted rebuild continues where it stopped; at its end the file is deleted.

    Examples:
      countledger windows rebuild views:home --dry-run
      countledger windows rebuild views:home --archived s3://my-bucket/counters
      countledger windows rebuild --namespace views --resume rebuild.json
    """
    named = named_of_windows(counters, namespace, everything=everything, resume=resume)
    return show_rebuilt(
        options, named, namespace, segments, resume, archived=archived, dry_run=dry_run
    )


def _moment(client: CountLedger, counter: str, text: str) -> datetime:
    """A time with an offset; a date is the beginning of that day in the zone of the windows."""
    try:
        day = date.fromisoformat(text.strip())
    except ValueError:
        return parse_time(text)
    counter = keys.check_counter(counter)
    namespace = keys.namespace_of(counter)
    settings = client.window_settings.of(namespace)
    if not settings:
        raise no_windows(namespace)
    try:
        return to_datetime(window_on(day, Per.DAY, settings[-1].calendar).start_ms)
    except ValueError as error:
        raise BadSetting(f"date {text}: {error}") from None


_BAR_CELLS: Final = 30
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"


def window_rows(found: Sequence[WindowSumView]) -> list[Row]:
    most = max((abs(Decimal(one.value)) for one in found), default=Decimal(0))
    charted = sys.stdout.isatty() and most
    return [
        {**one.row(), "chart": bar(float(abs(Decimal(one.value)) / most))} if charted else one.row()
        for one in found
    ]


def bar(share: float) -> str:
    """A bar of up to 30 cells, in steps of an eighth of a cell."""
    whole, eighths = divmod(round(share * _BAR_CELLS * 8), 8)
    return "█" * whole + (_EIGHTHS[eighths] if eighths else "")


in_order(app, "enable disable list show rebuild")
