"""How `countledger watch` shows what it sees: a live table on a terminal, else lines."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from countledger.infra.cli.alert_rows import logged_document
from countledger.infra.cli.output import hand_over, show_json_line, show_text
from countledger.ledger.amount import to_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from rich.console import RenderableType

    from countledger import Amount
    from countledger.consumers.alerts.alert_log import LoggedAlert
    from countledger.infra.cli.options import Options
    from countledger.infra.cli.watching import WatchedCounter, WatchState

    Shows: TypeAlias = Callable[[WatchState, list[WatchedCounter], list[LoggedAlert]], None]


@contextmanager
def open_view(options: Options) -> Iterator[Shows]:
    """Show looks while the block lasts: all that was seen, and what is new."""
    if options.json:
        yield _print_json
    elif not sys.stdout.isatty():
        yield _print_lines
    else:
        with Live(auto_refresh=False) as live:

            def redraw(watching: WatchState, _changed: object, _heard: object) -> None:
                live.update(table_of(watching), refresh=True)

            yield redraw


def table_of(watching: WatchState) -> RenderableType:
    """All that was seen, and the newest alerts below."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("counter", "total", "since start", "each second", "updated"):
        right = heading in {"total", "since start", "each second"}
        table.add_column(heading, justify="right" if right else "left", overflow="fold")
    for seen in watching.seen.values():
        rate = "-" if seen.per_second is None else f"{seen.per_second:+,.1f}"
        table.add_row(
            escape(seen.total.counter),
            to_text(seen.total.total),
            signed(seen.since_start),
            rate,
            _moment(seen.total.updated_at),
        )
    alerts = [Text(alert_line(logged), style="bold red") for logged in watching.alerts]
    return Group(table, *alerts)


def signed(change: Amount) -> str:
    """A change with its sign; 0 has none."""
    return f"+{to_text(change)}" if change > 0 else to_text(change)


def alert_line(logged: LoggedAlert) -> str:
    """An alert in one line: what crossed what, by which rule, and whether it was taken."""
    alert = logged.alert
    crossed = to_text(alert.threshold)
    if alert.through is not None:
        crossed += f" to {to_text(alert.through)}"
    text = (
        f"{_moment(alert.at)} alert {alert.rule}: {alert.counter} {alert.direction} through "
        f"{crossed}, from {to_text(alert.old)} to {to_text(alert.new)}"
    )
    return text if logged.reason is None else f"{text}; not taken: {logged.reason}"


def _print_lines(
    _watching: WatchState, changed: list[WatchedCounter], heard: list[LoggedAlert]
) -> None:
    for seen in changed:
        total = seen.total
        change = "-" if seen.change is None else signed(seen.change)
        cells = (_moment(total.updated_at), total.counter, to_text(total.total), change)
        show_text("\t".join(cells))
    for logged in heard:
        show_text(alert_line(logged))
    hand_over()


def _print_json(
    _watching: WatchState, changed: list[WatchedCounter], heard: list[LoggedAlert]
) -> None:
    for seen in changed:
        total = seen.total
        show_json_line(
            {
                "kind": "total",
                "counter": total.counter,
                "total": total.total,
                "change": seen.change,
                "version": total.version,
                "updated_at": total.updated_at,
            }
        )
    for logged in heard:
        show_json_line({"kind": "alert", **logged_document(logged)})
    hand_over()


def _moment(value: datetime | None) -> str:
    return "-" if value is None else value.strftime("%Y-%m-%dT%H:%M:%SZ")
