"""docs/performance.md: its tables are written from the raw numbers beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from countledger.infra.cost import AS_OF, BY_DELETES, BY_TRANSACTIONS, prices
from tests.bench.rounds import Measurement, rows_of
from tests.bench.suite import SUITES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tests.bench.rounds import Row

PAGE: Final = Path(__file__).parents[2] / "docs" / "performance.md"
RAW: Final = PAGE.with_suffix(".json")


def measurements_in(raw: Mapping[str, Any]) -> list[Measurement]:
    """The measurements of a run that was kept."""
    return [Measurement(**one) for one in raw["measurements"]]


def tables(raw: Mapping[str, Any]) -> dict[str, str]:
    """Every table by the name of its marks."""
    measured = measurements_in(raw)
    rows = {name: rows_of(one for one in measured if one.table == name) for name in SUITES}
    units = {row.way: row.write_units for row in rows["emit"]}
    return {
        "machine": _machine(raw),
        "emit": _emitting(rows["emit"]),
        "fold": _applying(rows["fold"]),
        "apply": _applying(rows["apply"]),
        "near": _applying(rows["near"]),
        "prices": _prices(
            units["buffered, coalescing, uniform"], units["buffered, coalescing, Zipf"]
        ),
    }


def with_tables(text: str, raw: Mapping[str, Any]) -> str:
    """The page with its tables as they should be.

    Raises:
        ValueError: it has no place for one of them.
    """
    for name, table in tables(raw).items():
        begin, end = f"<!-- {name}: written by `make bench` -->\n", f"<!-- end of {name} -->\n"
        if (text.count(begin), text.count(end)) != (1, 1):
            raise ValueError(f"the page has no one place for {name!r}")
        head, _, rest = text.partition(begin)
        text = f"{head}{begin}\n{table}\n{end}{rest.partition(end)[2]}"
    return text


def write(raw: Mapping[str, Any]) -> None:
    """Keep a run as the one that the page tells of."""
    RAW.write_text(json.dumps(raw, indent=1) + "\n")
    PAGE.write_text(with_tables(PAGE.read_text(), raw))


def _machine(raw: Mapping[str, Any]) -> str:
    return f"{raw['date']}, {raw['rounds']} rounds: {raw['machine']}.\n"


def _emitting(rows: Iterable[Row]) -> str:
    head = (
        "",
        "CPU µs an event",
        "lowest to highest",
        "events/s and core",
        "cheaper by",
        "write units",
    )
    return _table(
        head,
        ((row.way, *_costs(row), f"{row.cheaper:.2f}x", f"{row.write_units:.3f}") for row in rows),
    )


def _applying(rows: Iterable[Row]) -> str:
    head = (
        "",
        "CPU µs a record",
        "lowest to highest",
        "records/s and core",
        "cheaper by",
        "ms a batch",
    )
    return _table(
        head,
        ((row.way, *_costs(row), f"{row.cheaper:.2f}x", f"{row.wall_us:,.1f}") for row in rows),
    )


def _costs(row: Row) -> tuple[str, str, str]:
    span = f"{row.lowest_us:,.2f} to {row.highest_us:,.2f}"
    return f"{row.cpu_us:,.2f}", span, f"{1e6 / row.cpu_us:,.0f}"


def _prices(uniform: float, zipf: float) -> str:
    head = ("", "units: entry", "total", "$ a million", "compacted by deletes", "by transactions")
    rows = (
        (
            price.way,
            f"{price.entries:.3f}",
            f"{price.totals:.3f}",
            f"{price.dollars:.3f}",
            _dollars(price.compacted(BY_DELETES)),
            _dollars(price.compacted(BY_TRANSACTIONS)),
        )
        for price in prices(uniform, zipf)
    )
    return f"List prices of us-east-1, {AS_OF}.\n\n{_table(head, rows)}"


def _dollars(amount: float | None) -> str:
    return "" if amount is None else f"{amount:.3f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *rows))
