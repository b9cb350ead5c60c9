"""`countledger watch`: totals and alerts, as they change.

It polls totals and the alert log, and never reads a stream: a stream has two readers at the most,
that of a global table one, and the stack is among them already.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final

import typer

from countledger.infra.cli.durations import parse_duration_ms
from countledger.infra.cli.options import Options, shared
from countledger.infra.cli.output import notice
from countledger.infra.cli.usage import BadUsage
from countledger.infra.cli.watch_view import open_view
from countledger.infra.cli.watching import WatchState
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.errors import BadSetting, ServiceFailed
from countledger.ledger.limits import BATCH_GET_KEYS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger import CountLedger
    from countledger.consumers.alerts.alert_log import LoggedAlert
    from countledger.infra.cli.watch_view import Shows

# One batch of keys for each look.
COUNTERS_MAX: Final = BATCH_GET_KEYS
_EVERY_MIN_MS: Final = 200
# More alerts than that between two looks show only the newest of them; the log has them all.
_ALERTS_READ: Final = 200


@shared
def watch(
    options: Options,
    counters: Annotated[
        list[str] | None,
        typer.Argument(metavar="COUNTER...", help="Counters to watch.", show_default=False),
    ] = None,
    *,
    prefix: Annotated[
        str | None,
        typer.Option(metavar="P", help="Watch counters that begin so.", show_default=False),
    ] = None,
    every: Annotated[str, typer.Option(help="How often to look, as in 500ms or 5s.")] = "1s",
    lasting: Annotated[
        str | None,
        typer.Option("--for", help="End after so long, as in 30s. [dim]Else by Ctrl-C[/dim]"),
    ] = None,
) -> None:
    """Follow totals and alerts in the terminal, as they change.

    A terminal shows a table with each total, its change since the start and its rate over the last
    ten seconds, and below it the alerts that were told meanwhile. Anything else gets a line for
    each change (with --json one JSON object), and one for each alert.

    Each look costs half a read unit for each counter, and half a one or a few for the alert log. A
    prefix is looked up once, at the start, and reads the whole table of totals for it: half a read
    unit for each 4 KB. At most 100 counters are watched; Ctrl-C ends it.

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
    """Look, show, wait; a look that fails is told, and the next one is due.

    Raises:
        CountledgerError: what concerns every look: no table, no permission, a name that is none.
    """
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
