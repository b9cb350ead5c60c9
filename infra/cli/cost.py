"""`countledger cost`: what a month costs at list prices, and what would save most."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from countledger.compaction.report import Retire
from countledger.infra.cli.app import BadUsage, Options, shared
from countledger.infra.cli.output import notice, show_json, show_rows
from countledger.infra.cost import (
    AS_OF,
    PRICES_OF,
    WHOLE_PROCESSOR_MB,
    Workload,
    as_measured,
    bill,
    dollars,
    measure,
    parameters_of,
    regions_of,
    retire_of,
    savings,
)
from countledger.infra.scaling import Load, Setup, needs, settings_for, settled

if TYPE_CHECKING:
    from collections.abc import Collection

    from countledger import CountLedger
    from countledger.infra.cost import Pace

_DAY_S: Final = 86_400
_LEAST_S: Final = 1e-6
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
_Memory = Annotated[
    int | None,
    typer.Option(help="The stack's MaterializerMemoryMb. [dim]Else as it is, or 1769[/dim]"),
]
_Batching = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="The stack's BatchingWindowSeconds. [dim]Else as it is, or 1[/dim]",
    ),
]
_Probe = Annotated[
    bool | None,
    typer.Option(
        "--probe/--no-probe",
        help="Whether the stack has its probe. [dim]Else as it is, or not[/dim]",
    ),
]
_EventsPerDay = Annotated[
    float | None, typer.Option(help="Plan with this number, without a call to AWS.")
]
_EventsPerSecond = Annotated[
    float | None, typer.Option(help="The same, as the average of a second.")
]
_Retire = Annotated[
    str | None,
    typer.Option(
        metavar="transaction|delete|none",
        help="How merged entries are deleted. [dim]Else as most schedules say, or none[/dim]",
    ),
]
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
_HttpRequests = Annotated[
    float, typer.Option(help="Requests to the HTTP API; their units are those of events and reads.")
]
_Peak = Annotated[
    float, typer.Option(min=1.0, help="How many times the average rate the highest rate is.")
]


@shared
def cost(
    options: Options,
    *,
    events_per_day: _EventsPerDay = None,
    events_per_second: _EventsPerSecond = None,
    events_per_entry: Annotated[
        float, typer.Option(help="How many events share an entry, where they are coalesced.")
    ] = 1.0,
    reads_per_day: Annotated[float, typer.Option(help="How many totals are read.")] = 0.0,
    regions: _Regions = None,
    retire: _Retire = None,
    windows: _Windows = None,
    average_use: _AverageUse = None,
    batching_window: _Batching = None,
    memory_mb: _Memory = None,
    probe: _Probe = None,
    strict_changes_per_day: _StrictChanges = 0.0,
    strict_regions: _StrictRegions = 3,
    http_requests_per_day: _HttpRequests = 0.0,
    counters: _Counters = None,
    peak: _Peak = 1.0,
) -> None:
    """Estimate what a month costs, at list prices of us-east-1, and what would save most.

    Without a number of events the pace is measured: what the materializer handled within the last
    day, its updates and write units, the schedules, the replicas, the stack's parameters. It counts
    entries: say --events-per-entry where events are coalesced already. A plan has no compaction,
    unless --retire says so, and each event is of another counter, unless --counters says so.

    Not in it: what strict counters of the home region, sequences, claims and alerts write, indexes,
    Kinesis, the archive, recovery, data transfer, free tiers. Below it: what the highest rate
    needs, and what limits it first (docs/scaling.md).

    Examples:
      countledger cost
      countledger cost --events-per-second 100 --counters 500
      countledger cost --events-per-day 10000000 --retire delete
      countledger cost --events-per-day 10000000 --windows hour
      countledger cost --events-per-day 1000000 --http-requests-per-day 1000000
      countledger cost --events-per-day 1e9 --counters 64 --peak 3
      countledger cost --events-per-day 10000000 --events-per-entry 8 --regions 2 --json
    """
    _check("--retire", retire, _RETIRE)
    _check("--windows", windows, _WINDOWS)
    if events_per_day is not None and events_per_second is not None:
        raise BadUsage("--events-per-day and --events-per-second: give one of them")
    planned = events_per_day if events_per_second is None else events_per_second * _DAY_S
    stack = _Stack.by_default() if planned is not None else _Stack.measured(options.client())
    load = Workload(
        events_per_day=stack.entries_per_day * events_per_entry if planned is None else planned,
        events_per_entry=events_per_entry,
        counters=counters,
        batching_s=stack.batching_s,
        reads_per_day=reads_per_day,
        regions=stack.regions if regions is None else regions,
        retire=stack.retire if retire is None else _RETIRE[retire],
        average_use=average_use,
        strict_changes_per_day=strict_changes_per_day,
        strict_regions=strict_regions,
        http_requests_per_day=http_requests_per_day,
        memory_mb=stack.memory_mb if memory_mb is None else memory_mb,
        window_items=0 if windows is None else _WINDOWS[windows],
        probe=stack.probe if probe is None else probe,
    )
    load = load if stack.pace is None else as_measured(load, stack.pace)
    if batching_window is not None:
        load = replace(load, batching_s=batching_window)
    highest = Load(max(load.entries_s * peak, _LEAST_S), counters)
    _show(options, load, highest, Setup(retire=load.retire))


@dataclass(frozen=True, slots=True)
class _Stack:
    """What a plan takes where no option says it: as a stack is, or by default."""

    pace: Pace | None
    regions: int
    retire: Retire | None
    batching_s: float
    memory_mb: int
    probe: bool

    @classmethod
    def by_default(cls) -> _Stack:
        return cls(None, 1, None, 1.0, WHOLE_PROCESSOR_MB, probe=False)

    @classmethod
    def measured(cls, client: CountLedger) -> _Stack:
        pace, given = _measured(measure(client)), parameters_of(client)
        return cls(
            pace,
            regions_of(client),
            retire_of(client),
            float(given.get("BatchingWindowSeconds", 1)),
            int(given.get("MaterializerMemoryMb", WHOLE_PROCESSOR_MB)),
            probe=given.get("Probe") == "on",
        )

    @property
    def entries_per_day(self) -> float:
        return 0.0 if self.pace is None else self.pace.entries_per_day


def _check(option: str, given: str | None, known: Collection[str]) -> None:
    if given is not None and given not in known:
        raise BadUsage(f"{option} {given!r} is none of {', '.join(known)}")


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
            "batching_window": _short(load.batching_s),
            "prices_as_of": AS_OF,
            "prices_of": PRICES_OF,
            "month": rows,
            "usd": _usd(sum_),
            "savings": [{"setting": s.setting, "usd": _usd(s.dollars)} for s in savings(load)],
            "highest_rate": _scaling(highest, setup),
        }
        show_json(document)
        return
    show_rows([*rows, {"position": "a month", "amount": "", "of": "", "usd": _usd(sum_)}])
    notice(f"prices are those of {PRICES_OF}, of {AS_OF}: those of another region differ")
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
