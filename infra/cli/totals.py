"""`countledger total` and `entries`: what a counter is, and why."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from countledger.infra.cli.app import AtMost, BadUsage, Options, shared
from countledger.infra.cli.output import (
    FINDINGS,
    Unread,
    facts,
    notice,
    show_all,
    show_items,
    show_json,
    show_rows,
    shown_time,
)
from countledger.ledger.amount import add, to_text
from countledger.ledger.clock import SystemClock, show_duration
from countledger.ledger.errors import AccessDenied, CorruptItem, StackNotFound
from countledger.ledger.limits import SECOND_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from countledger import (
        Amount,
        CountLedger,
        Entry,
        ExactSum,
        Freshness,
        Head,
        RegionAnswer,
        Total,
        TotalOverRegions,
    )
    from countledger.infra.cli.output import Row


# `countledger total --regions`: each region's total, and the one that counted the most entries.


def show_over_regions(options: Options, counters: list[str]) -> int:
    found = options.client().totals(counters, regions=True)
    first = next(iter(found.values()))
    if options.json:
        show_json(
            {
                "items": [_document(one) for one in found.values()],
                "regions": [_region_document(one) for one in first.regions],
                "read_units": first.read_units,
            }
        )
        return FINDINGS if first.missing else 0
    show_rows(row for one in found.values() for row in _rows(one))
    for answer in first.regions:
        notice(_answer_text(answer))
    if any(len(set(map(_shown, one.by_region.values()))) > 1 for one in found.values()):
        notice("regions differ: entries are under way between them, or in their streams")
    return FINDINGS if first.missing else 0


def _rows(found: TotalOverRegions) -> Iterator[Row]:
    """A row for each included region, the chosen one marked."""
    for region, total in found.by_region.items():
        row = facts(total, "counter")
        row |= {"region": region, "most entries": "*" if region == found.region else ""}
        yield row | facts(total, "value events entries", updated=total.updated_at)


def _shown(total: object) -> object:
    return tuple(facts(total, "value events entries").values())


def _answer_text(answer: RegionAnswer) -> str:
    if answer.problem is not None or answer.freshness is None:
        return f"{answer.region} is not included: {answer.problem}"
    handled = answer.freshness.handled_through
    if handled is None:
        return f"{answer.region}: no stream record was handled yet"
    until = shown_time(handled)
    return f"{answer.region}: entries that its stream showed up to {until} are in its totals"


def _document(found: TotalOverRegions) -> Row:
    names = "counter value events entries version updated_at"
    return {
        **facts(found.total, names),
        "region": found.region,
        "agree": found.agree,
        "regions": [
            {"region": region, **facts(total, "value events entries version updated_at")}
            for region, total in found.by_region.items()
        ],
    }


def _region_document(answer: RegionAnswer) -> Row:
    handled = answer.freshness.handled_through if answer.freshness else None
    return {"region": answer.region, "problem": answer.problem, "handled_through": handled}


@shared
def total(
    options: Options,
    counters: Annotated[list[str], typer.Argument(metavar="COUNTER...", help="Counters to read.")],
    *,
    exact: Annotated[
        bool,
        typer.Option("--exact", help="Also add up the ledger: exact now, costs what it reads."),
    ] = False,
    regions: Annotated[
        bool, typer.Option("--regions", help="Read them in every region of the stack.")
    ] = False,
) -> int:
    """Read totals, and how fresh they are.

    A total is exact up to the lag of the stream. The line below the totals says whether they are up
    to date, or how far behind; without the permission to read the stream, up to which moment every
    entry is in them. A counter that was never recorded is 0. A strict counter has no ledger: its
    value is current.

    With --exact each row also has the sum of the ledger, the number of entries that were read for
    it (the others are summed up in the counter's head) and the read units that this cost.

    With --regions each region's total is shown, and of them the one that counted the most entries:
    it counts nothing twice, and lacks what has not arrived in that region. Totals of regions are
    never added up. A region that does not answer within five seconds is named, and not included.

    A counter with an item that cannot be read, or a region that is not included, is named, and the
    exit code is 1.

    Examples:
      countledger total likes:post-1
      countledger total likes:post-1 likes:post-2 --json
      countledger total likes:post-1 --exact                  [dim]also from the ledger itself[/dim]
      countledger total likes:post-1 --regions
    """
    if regions:
        if exact:
            raise BadUsage("--exact adds up the ledger of one region: leave out --regions")
        return show_over_regions(options, counters)
    client = options.client()
    # In this order: what is said to be in the totals must be in those that are shown.
    freshness = _freshness(client)
    unread = Unread()
    found = client.totals(counters, on_corrupt=unread.note)
    names = [name for name in counters if name in found]
    recorded = [name for name in names if found[name].method is None]
    sums = _sums(client, recorded, unread) if exact else {}
    rows = [total_row(found[name], sums.get(name), exact=exact) for name in names]
    if options.json:
        show_json(
            {
                "items": [total_document(found[n], sums.get(n)) for n in names],
                "unreadable": unread.documents(),
                "freshness": freshness and freshness_document(freshness),
            }
        )
        return unread.report()
    show_rows(rows)
    if recorded:
        notice(
            "how fresh it is, is unknown: COUNTLEDGER_LEDGER_STREAM_ARN is not set"
            if freshness is None
            else freshness_text(freshness, SystemClock().now_ms())
        )
    return unread.report()


def _sums(client: CountLedger, counters: list[str], unread: Unread) -> dict[str, ExactSum]:
    """The exact sums of those counters whose ledgers can be read."""
    sums: dict[str, ExactSum] = {}
    for name in counters:
        try:
            sums[name] = client.exact(name)
        except CorruptItem as error:
            unread.note(error)
    return sums


@shared
def entries(
    options: Options,
    counter: Annotated[str, typer.Argument(help="The counter whose change log to read.")],
    *,
    limit: AtMost = None,
    archived: Annotated[
        str | None,
        typer.Option(
            metavar="s3://BUCKET/PREFIX", help="Also read the merged entries from their archive."
        ),
    ] = None,
) -> int:
    """Read a counter's change log, newest first.

    Merged entries are one line at the end: their period, their number and their sum. If they were
    archived they can be read back, each file checked against its checksum. An entry that cannot be
    read is named, and the exit code is 1.

    Examples:
      countledger entries likes:post-1 --limit 10
      countledger entries likes:post-1 --json
      countledger entries likes:post-1 --archived s3://my-bucket/counters
    """
    client = options.client()
    head = client.head(counter)
    if archived is not None:
        _show_archived(options, head, client.archived(counter, archived), limit)
        return 0
    unread = Unread()
    found = client.entries(counter, limit=limit, on_corrupt=unread.note)
    if options.json:
        log = _log(found, head, limit, _entry_document, _head_document)
        show_items(log, lambda: {"unreadable": unread.documents()})
    else:
        show_rows(_log(found, head, limit, _entry_row, _head_row))
    return unread.report()


def _log(
    found: Iterable[Entry],
    head: Head,
    limit: int | None,
    entry_shown: Callable[[Entry], Row],
    head_shown: Callable[[Head], Row],
) -> Iterator[Row]:
    """The entries, and behind the last of them what stands for the older ones."""
    count = 0
    for entry in found:
        count += 1
        yield entry_shown(entry)
    if head.entries and count != limit:
        yield head_shown(head)


def _show_archived(options: Options, head: Head, found: Iterator[Entry], limit: int | None) -> None:
    """The archived entries, and whether they are all that the head stands for."""
    count = 0
    total: Amount = 0

    def counted() -> Iterator[Entry]:
        nonlocal count, total
        for entry in islice(found, limit):
            count, total = count + 1, add(total, entry.delta)
            yield entry

    show_all(options, counted(), _entry_row, _entry_document)
    if limit is None:
        notice(
            f"{count} archived entries with the sum {to_text(total)}; the "
            f"head stands for {head.entries} with the sum {to_text(head.sum)}"
        )


@shared
def snapshot(
    options: Options,
    counters: Annotated[list[str], typer.Argument(metavar="COUNTER...", help="Counters to read.")],
) -> None:
    """Read the totals of up to 100 counters as of one moment.

    Values of strict counters are exact for that moment. Totals of ledger counters are as
    materialized by then: "countledger total" shows the lag. A counter with bins counts as one more
    for each bin. It costs two read units for each counter.

    Examples:
      countledger snapshot account:ann account:bob
      countledger snapshot stock:hall stock:floor --json
    """
    taken = options.client().snapshot(counters)
    if options.json:
        totals = [total_document(total) for total in taken.totals.values()]
        show_json(
            {"read_at": taken.read_at, "items": totals, "as_materialized": taken.as_materialized}
        )
        return
    show_rows(total_row(total) for total in taken.totals.values())
    if taken.as_materialized:
        notice(f"as materialized, so late by the stream's lag: {len(taken.as_materialized)}")


def freshness_document(freshness: Freshness) -> dict[str, object]:
    shards = [facts(one, "shard handled_through handled_at") for one in freshness.shards]
    return facts(freshness, "up_to_date handled_through", shards=shards)


def freshness_text(freshness: Freshness, now_ms: int) -> str:
    if freshness.up_to_date:
        return "up to date: every entry is in the totals"
    if freshness.waiting_since_ms is not None:
        behind_ms = max(0, now_ms - freshness.waiting_since_ms) // SECOND_MS * SECOND_MS
        return f"{show_duration(behind_ms)} behind: later entries are not in the totals yet"
    if freshness.handled_through is None:
        return "no stream record was handled yet: every total is 0"
    return f"entries up to {shown_time(freshness.handled_through)} are in the totals"


def _freshness(client: CountLedger) -> Freshness | None:
    """How fresh totals are; None: the tables are named by variables, and the stream is not."""
    try:
        return client.freshness(prove=True)
    except AccessDenied:
        # To read the stream takes a permission of its own.
        return client.freshness()
    except StackNotFound:
        if not client.connection.settings.counters_table:
            raise
        return None


def total_row(total: Total, summed: ExactSum | None = None, *, exact: bool = False) -> Row:
    row: dict[str, object] = {"counter": total.counter, "value": total.value}
    if exact:
        row |= {
            "exact": summed.value if summed else None,
            "entries read": summed.entries_read if summed else None,
            "read units": summed.read_units if summed else None,
        }
    # A strict counter counts no events.
    events = total.events if total.method is None else None
    return row | {"events": events, "updated": total.updated_at}


def total_document(total: Total, exact: ExactSum | None = None) -> Row:
    document = facts(total, "counter value events entries version updated_at")
    if total.method is not None:
        document |= facts(total, "method bins")
    if exact is not None:
        names = "value events entries entries_read generation read_units"
        document["exact"] = facts(exact, names)
    return document


def _entry_document(entry: Entry) -> Row:
    return {"kind": "entry", **_entry_row(entry)}


def _head_document(head: Head) -> Row:
    found = facts(head, "entries events sum generation")
    return {"kind": "head", **found, "from": head.from_at, "to": head.to_at}


def _head_row(head: Head) -> Row:
    """It in the columns of an entry."""
    since = "" if head.from_at is None else f", the oldest of {head.from_at:%Y-%m-%d %H:%M:%S}Z"
    return {
        "at": head.to_at,
        "delta": head.sum,
        "events": head.events,
        "key": None,
        "note": f"{head.entries} merged entries{since}",
        "occurred_at": None,
        "origin": None,
        "id": f"head, generation {head.generation}",
    }


def _entry_row(entry: Entry) -> Row:
    return facts(entry, "at delta events key note occurred_at origin id")
