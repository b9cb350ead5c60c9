"""`countledger windows`: sums for each minute, hour, day and month."""

from __future__ import annotations

import sys
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Final

import typer

from countledger.consumers.audit import SEGMENTS_DEFAULT
from countledger.consumers.windows import no_windows
from countledger.infra.cli.app import (
    BadUsage,
    CounterNames,
    Options,
    WholeNamespace,
    shared,
)
from countledger.infra.cli.audit import (
    Archived,
    Everything,
    Resume,
    Segments,
    named_of_windows,
    show_rebuilt,
)
from countledger.infra.cli.output import Unread, facts, show, show_all, show_facts
from countledger.ledger import keys
from countledger.ledger.calendar import Per, window_on
from countledger.ledger.clock import SystemClock, show_duration, to_datetime
from countledger.ledger.errors import AccessDenied, BadSetting
from countledger.ledger.indexes import PARTITIONS
from countledger.ledger.limits import WINDOWS_KEPT_DEFAULT_MS
from countledger.ledger.values import parse_duration_ms, parse_time
from countledger.ledger.windows import FINEST

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from countledger import CountLedger, WindowSum
    from countledger.infra.cli.output import Row
    from countledger.ledger.windows import WindowSetting


app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
Name = Annotated[str, typer.Argument(metavar="NAMESPACE", help="Whose counters have windows.")]


@app.callback()
@shared
def windows(_options: Options) -> None:
    """Sums for each minute, hour, day and month of business time, as exact as totals.

    An event belongs to the windows of its business time (--occurred-at of `emit`), also if it comes
    late; without one, to those of its recording. What a window promises at each moment:
    docs/windows.md.
    """


@app.command()
@shared
def enable(
    options: Options,
    namespace: Name,
    *,
    by: Annotated[
        str,
        typer.Option(help="minute, hour or day, or several; coarser ones and months come along."),
    ],
    time_zone: Annotated[
        str, typer.Option(help="Whose hours, days and months: an IANA name, as Europe/Berlin.")
    ] = "UTC",
    keep_hours: Annotated[
        str, typer.Option(help="For how long minutes and hours are kept. Days are kept for ever.")
    ] = show_duration(WINDOWS_KEPT_DEFAULT_MS).replace(" ", ""),
    max_lateness: Annotated[
        str | None,
        typer.Option(
            help="What happened longer ago when it is recorded counts when it is recorded, so that "
            "windows become final. [dim]Else none ever is[/dim]"
        ),
    ] = None,
    rank: Annotated[
        bool, typer.Option("--rank", help="Keep the counters of each day in order: top --day.")
    ] = False,
    partitions: Annotated[
        int,
        typer.Option(
            min=1, max=100, help="With --rank: each takes about 500 changed days a second."
        ),
    ] = PARTITIONS,
) -> None:
    """Switch the windows of a namespace on, or change them, for what is recorded from then on.

    A change is effective about a minute later. Each event then costs more: `countledger cost`. The
    same command again changes nothing. With another time zone windows begin again: those of the
    earlier one stay stored, and are not read any more.

    Examples:
      countledger windows enable views --by day
      countledger windows enable views --by hour,day --time-zone Europe/Berlin --keep-hours 90d
      countledger windows enable usage --by hour --max-lateness 3d
      countledger windows enable views --by day --rank
    """
    made = options.client().window_settings.enable(
        namespace,
        by=_finest(by),
        time_zone=time_zone,
        keep_ms=parse_duration_ms(keep_hours),
        max_lateness_ms=None if max_lateness is None else parse_duration_ms(max_lateness),
        ranked=partitions if rank else 0,
    )
    show(options, [setting_row(namespace, made)], setting_document(namespace, made))


@app.command()
@shared
def disable(options: Options, namespace: Name) -> None:
    """Switch the windows of a namespace off, for what is recorded a minute later or after that.

    What they have counted stays, and can be read. The same command again changes nothing.

    Examples:
      countledger windows disable views
    """
    ended = options.client().window_settings.disable(namespace)
    if ended is None:
        show_facts(options, {"namespace": namespace, "windows": "off"})
        return
    show(options, [setting_row(namespace, ended)], setting_document(namespace, ended))


@app.command("list")
@shared
def list_all(options: Options) -> int:
    """List the namespaces that have windows, or had them.

    Settings that cannot be read are named, and the exit code is 1.
    """
    unread = Unread()
    found = options.client().window_settings.list(on_corrupt=unread.note)
    return show_all(
        options, found, lambda one: setting_row(*one), lambda one: setting_document(*one), unread
    )


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
    documents = [
        {"counter": counter, **facts(one, "name start end value events complete final")}
        for one in found
    ]
    show(options, window_rows(found), documents)


@app.command()
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


def _finest(text: str) -> str:
    names = [name.strip() for name in text.split(",")]
    wrong = next((name for name in names if name not in list(Per)), None)
    if wrong is not None:
        raise BadSetting(f"windows by {wrong!r} do not exist: give {', '.join(FINEST)}")
    return min((Per(name) for name in names), key=list(Per).index)


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


def window_rows(found: Sequence[WindowSum]) -> list[Row]:
    most = max((abs(Decimal(one.value)) for one in found), default=Decimal(0))
    charted = sys.stdout.isatty()
    return [
        {
            "start": one.start.isoformat(" ", "minutes"),
            "value": one.value,
            "events": one.events,
            "state": "final" if one.final else "complete" if one.complete else "provisional",
        }
        | ({"chart": bar(float(abs(Decimal(one.value)) / most))} if charted and most else {})
        for one in found
    ]


def bar(share: float) -> str:
    """A bar of up to 30 cells, in steps of an eighth of a cell."""
    whole, eighths = divmod(round(share * _BAR_CELLS * 8), 8)
    return "█" * whole + (_EIGHTHS[eighths] if eighths else "")


def setting_row(namespace: str, one: WindowSetting) -> Row:
    lateness = one.max_lateness_ms
    return {
        "namespace": namespace,
        "by": str(one.finest),
        "time_zone": one.zone,
        "keep_hours": show_duration(one.keep_ms),
        "max_lateness": None if lateness is None else show_duration(lateness),
        "ranked": one.ranked > 0,
        "from": to_datetime(one.from_ms),
        "until": None if one.ended_ms is None else to_datetime(one.ended_ms),
        "tzdata": one.rules_version,
    }


def setting_document(namespace: str, one: WindowSetting) -> Row:
    times = {name: setting_row(namespace, one)[name] for name in ("from", "until")}
    shown = {"by": str(one.finest), "time_zone": one.zone, "tzdata": one.rules_version}
    more = facts(one, "keep_ms max_lateness_ms horizon_ms ranked")
    return {"namespace": namespace, "id": one.id, **shown, **more, **times}
