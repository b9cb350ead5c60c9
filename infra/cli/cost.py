"""`countledger cost`: what a month costs at list prices, and what would save most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from countledger.compaction.retire import Retire
from countledger.infra.cli.options import BadUsage, Options, shared
from countledger.infra.cli.output import notice, show_json, show_rows
from countledger.infra.cost import Workload, bill, dollars, savings
from countledger.infra.measured import measure, regions_of, retire_of
from countledger.infra.prices import AS_OF, BATCH_RECORDS, BATCH_UNITS

if TYPE_CHECKING:
    from countledger.infra.measured import Pace

_RETIRE = {"transaction": Retire.TRANSACTION, "delete": Retire.DELETE, "none": None}


@shared
def cost(
    options: Options,
    *,
    events_per_day: Annotated[
        float | None,
        typer.Option(help="Plan with so many; nothing is asked of AWS.", show_default=False),
    ] = None,
    events_per_entry: Annotated[
        float, typer.Option(help="How many events share an entry, where they are coalesced.")
    ] = 1.0,
    reads_per_day: Annotated[float, typer.Option(help="How many totals are read.")] = 0.0,
    regions: Annotated[
        int | None,
        typer.Option(help="Over how many the ledger spans. [dim]Else as it is, or 1[/dim]"),
    ] = None,
    retire: Annotated[
        str | None,
        typer.Option(
            metavar="transaction|delete|none",
            help="How merged entries are deleted. [dim]Else as most schedules say[/dim]",
        ),
    ] = None,
) -> None:
    """Estimate what a month costs, at list prices of us-east-1, and what would save most.

    Without --events-per-day the pace is measured: what the materializer handled within the last
    day, its write units, the schedules, the replicas. It counts entries: say --events-per-entry
    where events are coalesced already. Not in it: what strict counters, sequences, claims and
    alerts write, indexes, Kinesis, the archive, recovery, alarms, data transfer, free tiers.

    Examples:
      countledger cost
      countledger cost --events-per-day 10000000 --retire delete
      countledger cost --events-per-day 10000000 --events-per-entry 8 --regions 2 --json
    """
    if retire is not None and retire not in _RETIRE:
        raise BadUsage(f"--retire {retire!r} is none of {', '.join(_RETIRE)}")
    units = BATCH_UNITS / BATCH_RECORDS
    way: Retire | None = Retire.TRANSACTION
    if events_per_day is None:
        client = options.client()
        pace = _measured(measure(client))
        events_per_day, units = pace.entries_per_day * events_per_entry, pace.total_units
        regions = regions_of(client) if regions is None else regions
        way = retire_of(client) if retire is None else way
    load = Workload(
        events_per_day=events_per_day,
        events_per_entry=events_per_entry,
        total_units=units,
        reads_per_day=reads_per_day,
        regions=1 if regions is None else regions,
        retire=way if retire is None else _RETIRE[retire],
    )
    _show(options, load)


def _measured(pace: Pace | None) -> Pace:
    if pace is None:
        raise BadUsage(
            "nothing was recorded in the last day, or only in its last hour, which tells too "
            "little: give --events-per-day"
        )
    return pace


def _show(options: Options, load: Workload) -> None:
    items, sum_ = bill(load), dollars(load)
    rows = [
        {
            "position": one.what,
            "amount": _short(one.amount),
            "of": one.unit,
            "usd": _usd(one.dollars),
        }
        for one in items
    ]
    if options.json:
        document = {
            "events_per_day": _short(load.events_per_day),
            "entries_per_month": _short(load.entries_a_month),
            "regions": load.regions,
            "retire": None if load.retire is None else str(load.retire),
            "prices_as_of": AS_OF,
            "month": rows,
            "usd": _usd(sum_),
            "savings": [
                {"setting": one.setting, "usd": _usd(one.dollars)} for one in savings(load)
            ],
        }
        show_json(document)
        return
    show_rows([*rows, {"position": "a month", "amount": "", "of": "", "usd": _usd(sum_)}])
    for one in savings(load):
        notice(f"would save ${_usd(one.dollars)} a month: {one.setting}")


def _short(value: float) -> str:
    return f"{value:.6g}" if value < 1 else f"{value:.0f}"


def _usd(value: float) -> str:
    return f"{value:.2f}"
