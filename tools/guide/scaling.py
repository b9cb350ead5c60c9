"""The table of docs/scaling.md, made by the model that a simulation is compared with."""

from pathlib import Path
from typing import Final

from countledger.infra.scaling import Limit, Load, Setup, Way, needs, settings_for, settled
from tools.guide.marked import table_of

SCALING: Final = Path(__file__).parents[2] / "docs" / "scaling.md"
RATES: Final = (1_000, 10_000, 100_000, 1_000_000)
COUNTERS: Final = (64, None)
_HEAD: Final = (
    "events/s",
    "ledger partitions = stream shards",
    "totals partitions",
    "Kinesis shards",
    "functions at once",
    "write units an event",
    "$ a million",
    "first limit, with default settings",
    "what to set",
)


def scaling_tables() -> dict[str, str]:
    """Every table by the name of its marks."""
    return {
        f"{'hot' if counters else 'wide'} {way.value}": table_of(
            [one for one in _HEAD if way is Way.KINESIS or one != "Kinesis shards"],
            [_row(Load(rate, counters, way)) for rate in RATES],
        )
        for counters in COUNTERS
        for way in Way
        if counters or way is not Way.COALESCED
    }


def _row(load: Load) -> list[str]:
    limits = list(settings_for(load, Setup()))
    limit = limits[0] if limits else None
    found = needs(load, settled(load, Setup()))
    # A setting that a later one raises again is shown once, with its last value.
    settings = {_subject(one): one.setting for one in limits}
    return [
        f"{load.events_s:,.0f}",
        f"{found.partitions:,}",
        f"{found.counters_partitions:,}",
        *([f"{found.kinesis_shards:,}"] if load.way is Way.KINESIS else []),
        f"{found.functions:,}",
        f"{found.units_event:.3f}",
        f"{found.dollars_million:.3f}",
        f"{limit.what}, at {_round(limit.events_s)}/s" if limit else "none",
        "; ".join(settings.values()) or "nothing",
    ]


def _subject(limit: Limit) -> str:
    return "spread" if "spread" in limit.setting else limit.what.rpartition(" of the ")[2]


def _round(rate: float) -> str:
    return f"{float(f'{rate:.2g}'):,.0f}"
