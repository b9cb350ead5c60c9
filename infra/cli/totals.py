"""`countledger total` and `entries`: what a counter is, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from countledger.infra.cli.options import Options, shared
from countledger.infra.cli.output import (
    notice,
    show_json,
    show_json_array,
    show_rows,
)

if TYPE_CHECKING:
    from countledger import Entry, ExactSum, Freshness, Total
    from countledger.infra.cli.output import Row


@shared
def total(
    options: Options,
    counters: Annotated[list[str], typer.Argument(metavar="COUNTER...", help="Counters to read.")],
    *,
    exact: Annotated[
        bool,
        typer.Option("--exact", help="Also add up the ledger: exact now, costs what it reads."),
    ] = False,
) -> None:
    """Read totals, and how fresh they are.

    A total is exact up to the lag of the stream. Below the totals stands how far that is: every
    entry up to that moment is in them. A counter that was never recorded is 0.

    With --exact stand beside it the ledger's own sum, how many entries had to be read for it (the
    others lie in the counter's head) and what that cost in read units.

    Examples:
      countledger total likes:post-1
      countledger total likes:post-1 likes:post-2 --json
      countledger total likes:post-1 --exact                  [dim]also from the ledger itself[/dim]
    """
    client = options.client()
    # In this order: what is said to be in the totals must be in those that are shown.
    freshness = client.freshness()
    found = client.totals(counters)
    sums = {name: client.exact(name) for name in counters} if exact else {}
    rows = [_total_row(found[name], sums.get(name)) for name in counters]
    if options.json:
        show_json(
            {
                "totals": [_total_document(found[n], sums.get(n)) for n in counters],
                "freshness": freshness_document(freshness),
            }
        )
        return
    show_rows(rows)
    notice(_freshness_text(freshness))


@shared
def entries(
    options: Options,
    counter: Annotated[str, typer.Argument(help="The counter whose change log to read.")],
    *,
    limit: Annotated[
        int | None, typer.Option(min=1, help="At most so many.", show_default=False)
    ] = None,
) -> None:
    """Read a counter's change log, newest first.

    Examples:
      countledger entries likes:post-1 --limit 10
      countledger entries likes:post-1 --json
    """
    found = options.client().entries(counter, limit=limit)
    if options.json:
        show_json_array(_entry_row(entry) for entry in found)
    else:
        show_rows(_entry_row(entry) for entry in found)


def freshness_document(freshness: Freshness) -> dict[str, object]:
    """How fresh totals are, for programs."""
    return {
        "handled_through": freshness.handled_through,
        "shards": [
            {
                "shard": shard.shard,
                "handled_through": shard.handled_through,
                "handled_at": shard.handled_at,
            }
            for shard in freshness.shards
        ],
    }


def _freshness_text(freshness: Freshness) -> str:
    if freshness.handled_through is None:
        return "no stream record was handled yet: every total is 0"
    moment = freshness.handled_through.isoformat(timespec="milliseconds")
    return f"entries up to {moment.replace('+00:00', 'Z')} are in the totals"


def _total_row(total: Total, exact: ExactSum | None) -> Row:
    row: dict[str, object] = {"counter": total.counter, "total": total.total}
    if exact is not None:
        row |= {
            "exact": exact.sum,
            "entries read": exact.entries_read,
            "read units": exact.read_units,
        }
    return row | {"events": total.events, "updated": total.updated_at}


def _total_document(total: Total, exact: ExactSum | None) -> Row:
    document: dict[str, object] = {
        "counter": total.counter,
        "total": total.total,
        "events": total.events,
        "entries": total.entries,
        "version": total.version,
        "updated_at": total.updated_at,
    }
    if exact is not None:
        document["exact"] = {
            "sum": exact.sum,
            "events": exact.events,
            "entries": exact.entries,
            "entries_read": exact.entries_read,
            "generation": exact.generation,
            "read_units": exact.read_units,
        }
    return document


def _entry_row(entry: Entry) -> Row:
    return {
        "at": entry.at,
        "delta": entry.delta,
        "events": entry.events,
        "key": entry.key,
        "note": entry.note,
        "occurred_at": entry.occurred_at,
        "origin": entry.origin,
        "id": entry.id,
    }
