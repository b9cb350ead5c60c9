"""`countledger namespace counters|top|rank|unrank`: all totals of a namespace, and their order."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from countledger.infra.cli.options import Options, shared
from countledger.infra.cli.output import notice, show, show_json_array, show_rows
from countledger.infra.cli.totals import total_document, total_row
from countledger.infra.cli.unread import Unread
from countledger.ledger.clock import show_duration
from countledger.ledger.limits import RANK_SETTLES_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger import Ranked
    from countledger.infra.cli.output import Row

Name = Annotated[str, typer.Argument(metavar="NAMESPACE", help="What stands before the colon.")]
Limit = Annotated[int, typer.Option(help="How many, up to 1,000.")]


@shared
def counters(
    options: Options,
    name: Name,
    *,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many.")] = None,
) -> int:
    """List the counters of a namespace that were ever changed, with their totals.

    Strict counters come by name. All others are found by guarded through the whole table, and come
    in no order; that needs the policy of those who operate. A total that cannot be read is named,
    and the exit code is 1.

    Examples:
      countledger namespace counters likes --limit 20
    """
    unread = Unread()
    found = islice(options.client().counters(name, on_corrupt=unread.note), limit)
    if options.json:
        show_json_array(unread.behind(map(total_document, found)))
    else:
        show_rows(map(total_row, found))
    return unread.tell()


@shared
def top(options: Options, name: Name, *, limit: Limit = 10) -> None:
    """Show the highest totals of a ranked namespace, equal ones by name.

    Examples:
      countledger namespace top likes --limit 3
    """
    show_top(options, options.client().rankings.top(name, limit))


@shared
def rank(
    options: Options,
    name: Name,
    *,
    wait: Annotated[
        bool, typer.Option(help="Wait until every materializer knows of it (3 minutes).")
    ] = True,
) -> None:
    """Keep the totals of a namespace in order from now on.

    Whatever moves one of them then costs two write units more; other namespaces cost what they did.
    Totals that are there are ranked by guarded through the whole table. Without waiting, a counter
    that is new in those minutes is ranked with its next entry. Doing it again is no error.

    Examples:
      countledger namespace rank score
      countledger namespace rank score --no-wait
    """
    if wait:
        notice(f"waiting up to {show_duration(RANK_SETTLES_MS)} until all materializers know of it")
    placed = options.client().rankings.switch_on(name, wait=wait)
    facts = {"namespace": name, "ranked": True, "totals": placed}
    show(options, [facts], facts)


@shared
def unrank(options: Options, name: Name) -> None:
    """Keep the totals of a namespace in order no more; they cost again what they did before."""
    removed = options.client().rankings.switch_off(name)
    facts = {"namespace": name, "ranked": False, "totals": removed}
    show(options, [facts], facts)


def show_top(options: Options, found: Sequence[Ranked], unread: Unread | None = None) -> None:
    """Print a ranking, in JSON with what of it could not be read."""
    rows: list[Row] = [
        {"rank": one.rank, "counter": one.counter, "total": one.total} for one in found
    ]
    show(options, rows, [*rows, *(unread.rows() if unread else ())])
