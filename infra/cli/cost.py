"""`countledger cost`: what a month costs at list prices, and what would save most."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from countledger.compaction.regions import survey_of
from countledger.compaction.retire import Retire
from countledger.consumers.stream import made_at_ms
from countledger.infra.cli.options import BadUsage, Options, shared
from countledger.infra.cli.output import notice, show_json, show_rows
from countledger.infra.cost import (
    AS_OF,
    BATCH_RECORDS,
    BATCH_UNITS,
    WHOLE_PROCESSOR_MB,
    Workload,
    bill,
    dollars,
    savings,
)
from countledger.infra.scaling import Load, Setup, needs, settings_for, settled
from countledger.ledger.clock import SystemClock
from countledger.ledger.limits import DAY_MS, HOUR_MS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countledger import CountLedger
    from countledger.consumers.progress import ShardProgress
    from countledger.ledger.clock import Clock
    from countledger.ledger.errors import CorruptItem


_DAY_S: Final = 86_400
_LEAST_S: Final = 1e-6
SPAN_MIN_MS: Final = HOUR_MS
# A stream shows its records for a day: of a shard that begins later it shows all.
_SHOWN_WHOLE_MS: Final = 23 * HOUR_MS


class Pace(NamedTuple):
    """How many entries come.

    Attributes:
        entries_per_day: how many.
        total_units: write units for each of them, of totals and progress.
    """

    entries_per_day: float
    total_units: float


def pace_of(
    progress: Sequence[ShardProgress],
    begun_ms: Mapping[str, int],
    now_ms: int,
    least_ms: int = SPAN_MIN_MS,
) -> Pace | None:
    """The pace of entries, from the progress of the stream's shards; None: too few data. Pure.

    Progress counts a shard from its beginning. Of those that began within the day all that they
    counted was made since the first of them began.

    Args:
        progress: of shards.
        begun_ms: when the first record was made that the stream still shows of a shard.
        now_ms: the time.
        least_ms: a shorter span is too short for a rate per day.
    """
    whole = [one for one in progress if begun_ms.get(one.shard, 0) > now_ms - _SHOWN_WHOLE_MS]
    records = sum(one.records for one in whole)
    span_ms = max((now_ms - begun_ms[one.shard] for one in whole), default=0)
    if not records or span_ms < max(least_ms, 1):
        return None
    units = sum(one.write_units for one in whole)
    return Pace(records * DAY_MS / span_ms, units / records)


def measure(
    client: CountLedger, clock: Clock | None = None, least_ms: int = SPAN_MIN_MS
) -> Pace | None:
    """How many entries come to a stack: half a read unit and two calls for each stream shard.

    Args:
        client: of the stack.
        clock: gives the time.
        least_ms: as `pace_of`.
    """
    now_ms = (clock or SystemClock()).now_ms()
    stream = client.audit.verifier.stream
    begun_ms: dict[str, int] = {}
    for one in stream.shards():
        for record in islice(stream.after(one.shard, None), 1):
            begun_ms[str(one.shard)] = int(made_at_ms(record))
    return pace_of(client.freshness().shards, begun_ms, now_ms, least_ms)


def regions_of(client: CountLedger) -> int:
    """Over how many regions the ledger spans. One DescribeTable call."""
    connection = client.connection
    described = connection.dynamo("standard").describe(connection.setting("ledger_table"))
    return 1 + len(survey_of(described, connection.region).others)


def _passed_over(_error: CorruptItem) -> None:
    """`schedule list` names it; an estimate goes without it."""


def retire_of(client: CountLedger) -> Retire | None:
    """How most schedules have merged entries deleted, of two alike the safer; None: no schedule.

    Half a read unit for each namespace.
    """
    ways = [schedule.retire for schedule in client.schedules.list(on_corrupt=_passed_over)]
    return max(Retire, key=ways.count) if ways else None


# Items that each counter of a batch touches.
_WINDOWS: Final = {"day": 1, "hour": 2, "minute": 3}
_RETIRE = {"transaction": Retire.TRANSACTION, "delete": Retire.DELETE, "none": None}


_AverageUse = Annotated[
    float | None,
    typer.Option(
        help="Plan with provisioned capacity, of which this share is used on average, as in 0.4.",
        show_default=False,
    ),
]
_Windows = Annotated[
    str | None,
    typer.Option(
        metavar="minute|hour|day",
        help="Plan with windows by these, and events on time. [dim]Measured: within totals[/dim]",
    ),
]
_Regions = Annotated[
    int | None, typer.Option(help="Over how many the ledger spans. [dim]Else as it is, or 1[/dim]")
]
_Memory = Annotated[int, typer.Option(help="The stack's MaterializerMemoryMb.")]
_Counters = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Over how many counters events are spread. [dim]Else each is of another one[/dim]",
        show_default=False,
    ),
]
_StrictChanges = Annotated[
    float, typer.Option(help="Changes of strict counters over regions, of up to 1 KB each.")
]
_StrictRegions = Annotated[int, typer.Option(help="Regions that store them: 3; 2 with a witness.")]
_Peak = Annotated[
    float, typer.Option(min=1.0, help="How many times the average rate the highest rate is.")
]


@shared
def cost(
    options: Options,
    *,
    events_per_day: Annotated[
        float | None, typer.Option(help="Plan with this number, without a call to AWS.")
    ] = None,
    events_per_entry: Annotated[
        float, typer.Option(help="How many events share an entry, where they are coalesced.")
    ] = 1.0,
    reads_per_day: Annotated[float, typer.Option(help="How many totals are read.")] = 0.0,
    regions: _Regions = None,
    retire: Annotated[
        str | None,
        typer.Option(
            metavar="transaction|delete|none",
            help="How merged entries are deleted. [dim]Else as most schedules say[/dim]",
        ),
    ] = None,
    windows: _Windows = None,
    average_use: _AverageUse = None,
    memory_mb: _Memory = WHOLE_PROCESSOR_MB,
    strict_changes_per_day: _StrictChanges = 0.0,
    strict_regions: _StrictRegions = 3,
    counters: _Counters = None,
    peak: _Peak = 1.0,
) -> None:
    """Estimate what a month costs, at list prices of us-east-1, and what would save most.

    Without --events-per-day the pace is measured: what the materializer handled within the last
    day, its write units, the schedules, the replicas. It counts entries: say --events-per-entry
    where events are coalesced already. Not in it: what strict counters of the home region,
    sequences, claims and alerts write, indexes, Kinesis, the archive, recovery, alarms, data
    transfer, free tiers. Below it: what the highest rate needs, and what limits it first
    (docs/scaling.md).

    Examples:
      countledger cost
      countledger cost --events-per-day 10000000 --retire delete
      countledger cost --events-per-day 10000000 --windows hour
      countledger cost --events-per-day 1e9 --counters 64 --peak 3
      countledger cost --events-per-day 10000000 --events-per-entry 8 --regions 2 --json
    """
    if retire is not None and retire not in _RETIRE:
        raise BadUsage(f"--retire {retire!r} is none of {', '.join(_RETIRE)}")
    if windows is not None and windows not in _WINDOWS:
        raise BadUsage(f"--windows {windows!r} is none of {', '.join(_WINDOWS)}")
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
        average_use=average_use,
        strict_changes_per_day=strict_changes_per_day,
        strict_regions=strict_regions,
        memory_mb=memory_mb,
        window_items=0 if windows is None else _WINDOWS[windows],
    )
    entries_s = load.events_per_day / load.events_per_entry * peak / _DAY_S
    _show(options, load, Load(max(entries_s, _LEAST_S), counters), Setup(retire=load.retire))


def _measured(pace: Pace | None) -> Pace:
    if pace is None:
        raise BadUsage(
            "nothing was recorded in the last day, or only in its last hour, which shows too "
            "little: plan with a number, as in --events-per-day 100000"
        )
    return pace


def _show(options: Options, load: Workload, highest: Load, setup: Setup) -> None:
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
            "savings": [{"setting": s.setting, "usd": _usd(s.dollars)} for s in savings(load)],
            "highest_rate": _scaling(highest, setup),
        }
        show_json(document)
        return
    show_rows([*rows, {"position": "a month", "amount": "", "of": "", "usd": _usd(sum_)}])
    for one in savings(load):
        notice(f"would save ${_usd(one.dollars)} a month: {one.setting}")
    found = needs(highest, settled(highest, setup))
    notice(
        f"{highest.events_s:,.1f} entries/s need: partitions of the ledger {found.partitions}, of "
        f"the totals {found.counters_partitions}, functions at once {found.functions}"
    )
    for limit in settings_for(highest, setup):
        notice(f"limited at {limit.events_s:,.0f} entries/s by {limit.what}: {limit.setting}")


def _scaling(highest: Load, setup: Setup) -> dict[str, object]:
    limits = list(settings_for(highest, setup))
    found = needs(highest, settled(highest, setup))
    return {
        "entries_per_second": _short(highest.events_s),
        "ledger_partitions": found.partitions,
        "counters_partitions": found.counters_partitions,
        "functions": found.functions,
        "limits": [
            {"limit": one.what, "entries_per_second": _short(one.events_s), "setting": one.setting}
            for one in limits
        ],
    }


def _short(value: float) -> str:
    return f"{value:.6g}" if value < 1 else f"{value:.0f}"


def _usd(value: float) -> str:
    return f"{value:.2f}"
