"""The table of docs/costs.md of what a month costs at usual rates, by `countledger cost`."""

from dataclasses import replace
from pathlib import Path
from typing import Final

from countledger.infra.cost import DAYS, Workload, dollars
from tools.guide.marked import table_of

COSTS: Final = Path(__file__).parents[2] / "docs" / "costs.md"
_RATES: Final = (0.01, 1, 10, 100, 1_000)
_COUNTERS: Final = (64, None)
_WINDOWS_S: Final = (1, 10, 60)
_HEAD: Final = (
    "entries/s",
    "over counters",
    "updates an entry",
    "batches an entry",
    *(f"$ a month, window {one} s" for one in _WINDOWS_S),
    "$ a million, window 1 s",
)


def cost_tables() -> dict[str, str]:
    """The table by the name of its marks."""
    rows = [_row(rate, counters) for rate in _RATES for counters in _COUNTERS]
    return {"a month": table_of(_HEAD, rows)}


def _row(rate: float, counters: int | None) -> list[str]:
    load = Workload(events_per_day=rate * 86_400, counters=counters)
    updates, batches = load.batches
    month = [dollars(replace(load, batching_s=one)) for one in _WINDOWS_S]
    return [
        f"{rate:,g}",
        "each another" if counters is None else str(counters),
        f"{updates:.3f}",
        f"{batches:.3f}",
        *(f"{one:,.2f}" for one in month),
        f"{month[0] / (rate * 86_400 * DAYS) * 1e6:,.2f}",
    ]
