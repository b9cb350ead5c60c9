"""`countledger watch`: totals and alerts, as they change.

It polls totals and the alert log, and never reads a stream: a stream has two readers at the most,
that of a global table one, and the stack is among them already.
"""

from __future__ import annotations

import sys
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer
from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from countledger.infra.calls.alerts import LoggedView
from countledger.infra.cli.app import BadUsage, Options, shared
from countledger.infra.cli.output import hand_over, notice, show_json_line, show_text
from countledger.ledger import amount
from countledger.ledger.amount import to_text
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.errors import BadSetting, ServiceFailed
from countledger.ledger.limits import BATCH_GET_KEYS, SECOND_MS
from countledger.ledger.values import parse_duration_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from rich.console import RenderableType

    from countledger import Amount, CountLedger, Total
    from countledger.consumers.alerts.delivery import LoggedAlert


# What a watcher of totals has seen: values, rates, what is new. Pure: callers give the time.


# A rate is that of the last seconds: shorter ones jump with every batch.
_RATE_OVER_MS: Final = 10 * SECOND_MS
_ALERTS_KEPT: Final = 10


@dataclass(frozen=True, slots=True)
class WatchedCounter:
    """One counter, as it was seen last.

    No change at the first look; `per_second` is over the last ten seconds.
    """

    total: Total
    change: Amount | None
    since_start: Amount
    per_second: float | None


@dataclass(slots=True)
class WatchState:
    """Each counter as it was seen last, in the order named, and the newest alerts, oldest first."""

    seen: dict[str, WatchedCounter] = field(default_factory=dict)
    alerts: deque[LoggedAlert] = field(default_factory=lambda: deque(maxlen=_ALERTS_KEPT))
    _first: dict[str, Amount] = field(default_factory=dict)
    _looks: dict[str, deque[tuple[int, Amount]]] = field(default_factory=dict)
    _known: set[str] | None = None

    def look(self, totals: Mapping[str, Total], now_ms: int) -> list[WatchedCounter]:
        """Add totals; return those that changed since the last call, at the first call all."""
        changed: list[WatchedCounter] = []
        for name, total in totals.items():
            before = self.seen.get(name)
            seen = self._seen(name, total, now_ms)
            self.seen[name] = seen
            if before is None or before.total.value != total.value:
                changed.append(seen)
        return changed

    def hear(self, logged: Iterable[LoggedAlert]) -> list[LoggedAlert]:
        """Add the newest alerts of the log; return the new ones, oldest first.

        Alerts that are in the log at the first call are not new.
        """
        found = list(logged)
        known = self._known
        self._known = {one.alert.id for one in found}
        if known is None:
            return []
        fresh = [one for one in reversed(found) if one.alert.id not in known]
        mine = [one for one in fresh if one.alert.counter in self.seen]
        self.alerts.extend(mine)
        return mine

    def _seen(self, name: str, total: Total, now_ms: int) -> WatchedCounter:
        value = total.value
        before = self.seen.get(name)
        first = self._first.setdefault(name, value)
        looks = self._looks.setdefault(name, deque())
        looks.append((now_ms, value))
        # One look beyond the span stays: from it the rate is taken.
        while len(looks) > 2 and looks[1][0] <= now_ms - _RATE_OVER_MS:  # noqa: PLR2004 - two ends
            looks.popleft()
        return WatchedCounter(
            total,
            None if before is None else _less(value, before.total.value),
            _less(value, first),
            rate_of(looks),
        )


def rate_of(looks: Sequence[tuple[int, Amount]]) -> float | None:
    (first_ms, first), (last_ms, last) = looks[0], looks[-1]
    if last_ms <= first_ms:
        return None
    return float(_less(last, first)) * SECOND_MS / (last_ms - first_ms)


def _less(left: Amount, right: Amount) -> Amount:
    return amount.add(left, amount.negated(right))


if TYPE_CHECKING:
    Shows: TypeAlias = Callable[[WatchState, list[WatchedCounter], list[LoggedAlert]], None]


# One batch of keys for each look.
COUNTERS_MAX: Final = BATCH_GET_KEYS
_EVERY_MIN_MS: Final = 200
# More alerts than that between two looks show only the newest of them; the log has them all.
_ALERTS_READ: Final = 200


@shared
def watch(
    options: Options,
    counters: Annotated[
        list[str] | None, typer.Argument(metavar="COUNTER...", help="Counters to watch.")
    ] = None,
    *,
    prefix: Annotated[
        str | None, typer.Option(metavar="P", help="Watch the counters whose names begin with P.")
    ] = None,
    every: Annotated[str, typer.Option(help="How often to refresh, as in 500ms or 5s.")] = "1s",
    lasting: Annotated[
        str | None,
        typer.Option(
            "--for", help="Stop after this time, as in 30s. [dim]Default: until Ctrl-C[/dim]"
        ),
    ] = None,
) -> None:
    """Follow totals and alerts in the terminal, as they change.

    A terminal shows a table with each total, its change since the start and its rate over the last
    ten seconds, and below it the alerts published meanwhile. A pipe or file gets a line for each
    change (with --json one JSON object), and one for each alert.

    Each refresh costs half a read unit for each counter, and half a unit or a few for the alert
    log. A prefix is resolved once, at the start, by reading the whole table of totals: half a read
    unit for each 4 KB. At most 100 counters are watched.

    Examples:
      countledger watch likes:post-1 likes:post-2
      countledger watch --prefix likes: --every 5s
      countledger watch likes:post-1 --for 1m --json > changes.jsonl
    """
    every_ms = parse_duration_ms(every)
    if every_ms < _EVERY_MIN_MS:
        raise BadSetting(f"a look every {every} would cost more than it shows: take 200ms or more")
    lasting_ms = None if lasting is None else parse_duration_ms(lasting)
    if bool(counters) == (prefix is not None):
        raise BadUsage("name counters to watch, or a --prefix")
    client = options.client()
    names = list(dict.fromkeys(counters or _found(client, prefix or "")))
    if len(names) > COUNTERS_MAX:
        raise BadUsage(f"{len(names)} counters are too many: at most {COUNTERS_MAX} are watched")
    try:
        with open_view(options) as shows:
            follow(client, names, shows, every_ms, lasting_ms, SystemClock())
    except KeyboardInterrupt:
        # How a user ends it: nothing was interrupted.
        return


def _found(client: CountLedger, prefix: str) -> list[str]:
    """The counters that begin so, by name; not all where they are too many."""
    found = sorted(islice(client.names(prefix), COUNTERS_MAX + 1))
    if not found:
        raise BadSetting(f"no counter with a total begins with {prefix!r}")
    if len(found) > COUNTERS_MAX:
        notice(f"more than {COUNTERS_MAX} counters begin with {prefix!r}: some are not watched")
    return found[:COUNTERS_MAX]


def follow(  # noqa: PLR0917 - what to watch, how, and for how long
    client: CountLedger,
    names: list[str],
    shows: Shows,
    every_ms: int,
    lasting_ms: int | None,
    clock: Clock,
) -> None:
    """Read, show, wait; go on after a read that fails, unless every read would fail."""
    watching = WatchState()
    begun_ms = clock.now_ms()
    while True:
        now_ms = clock.now_ms()
        try:
            # Both are read before either is taken in: what a look does not show, the next one does.
            totals, newest = client.totals(names), list(_newest(client))
            changed = watching.look(totals, now_ms)
            shows(watching, changed, watching.hear(newest))
        except ServiceFailed as error:
            notice(f"this look failed, the next one is due: {error}")
        left_ms = every_ms if lasting_ms is None else begun_ms + lasting_ms - clock.now_ms()
        if left_ms <= 0:
            return
        clock.sleep_ms(min(every_ms, left_ms))


def _newest(client: CountLedger) -> Iterator[LoggedAlert]:
    return client.alerts.log(limit=_ALERTS_READ)


@contextmanager
def open_view(options: Options) -> Iterator[Shows]:
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
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("counter", "value", "since start", "each second", "updated"):
        right = heading in {"value", "since start", "each second"}
        table.add_column(heading, justify="right" if right else "left", overflow="fold")
    for seen in watching.seen.values():
        rate = "-" if seen.per_second is None else f"{seen.per_second:+,.1f}"
        table.add_row(
            escape(seen.total.counter),
            to_text(seen.total.value),
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
        cells = (_moment(total.updated_at), total.counter, to_text(total.value), change)
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
                "value": total.value,
                "change": seen.change,
                "version": total.version,
                "updated_at": total.updated_at,
            }
        )
    for logged in heard:
        document = LoggedView.of_logged(logged).document()
        show_json_line({"kind": "alert", **document.pop("alert"), **document})
    hand_over()


def _moment(value: datetime | None) -> str:
    return "-" if value is None else value.strftime("%Y-%m-%dT%H:%M:%SZ")
