"""docs/performance.md: its tables are written from the raw numbers beside it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from countledger.infra.cost import AS_OF, BY_DELETES, BY_TRANSACTIONS, prices
from tools.bench.candidates import CANDIDATES
from tools.bench.goals import Result, results
from tools.bench.memory import Peak
from tools.bench.rounds import Measurement, rows_of
from tools.bench.suite import SUITES
from tools.bench.transports import KINDS
from tools.bench.way import TRANSPORTS, named
from tools.guide.marked import table_of, with_tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tools.bench.rounds import Row

PAGE: Final = Path(__file__).parents[2] / "docs" / "performance.md"
RAW: Final = PAGE.with_suffix(".json")
BY: Final = "make bench"
_table: Final = partial(table_of, numbers="---:")


def measurements_in(raw: Mapping[str, Any]) -> list[Measurement]:
    """The measurements of a run that was kept."""
    return [Measurement(**one) for one in raw["measurements"]]


def tables(raw: Mapping[str, Any]) -> dict[str, str]:
    """Every table by the name of its marks."""
    measured = measurements_in(raw)
    rows = {name: rows_of(one for one in measured if one.table == name) for name in SUITES}
    units = {row.way: row.write_units for row in rows["emit"]}
    uniform, zipf = (
        units[named(f"buffered, coalescing, {how}", "fast")] for how in ("uniform", "Zipf")
    )
    return {
        "machine": _machine(raw),
        "goals": _goals(results(rows)),
        "emit": _emitting(rows["emit"]),
        "fold": _applying(rows["fold"], "record"),
        "windows": _applying(rows["windows"], "record"),
        "apply": _applying(rows["apply"], "record"),
        "near": _applying(rows["near"], "record"),
        "distinct": _applying(rows["distinct"], "record"),
        "evaluate": _applying(rows["evaluate"], "record"),
        "total": _calls(rows["total"], "read"),
        "strict": _calls(rows["strict"], "change"),
        "transports": _transports({kind: rows[f"call-{kind}"] for kind in KINDS}),
        "candidates": _candidates(raw["candidates"]),
        "memory": _memory([Peak(**one) for one in raw["memory"]]),
        "through": _through(raw["through"]),
        "prices": _prices(uniform, zipf),
    }


def write(raw: Mapping[str, Any]) -> None:
    """Keep a run as the one that the page tells of."""
    RAW.write_text(json.dumps(raw, indent=1) + "\n")
    PAGE.write_text(with_tables(PAGE.read_text(), tables(raw), BY))


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


def _applying(rows: Iterable[Row], each: str) -> str:
    head = (
        "",
        f"CPU µs a {each}",
        "lowest to highest",
        f"{each}s/s and core",
        "cheaper by",
        "ms a batch",
    )
    return _table(
        head,
        ((row.way, *_costs(row), f"{row.cheaper:.2f}x", f"{row.wall_us:,.1f}") for row in rows),
    )


def _calls(rows: Iterable[Row], each: str) -> str:
    head = ("", f"CPU µs a {each}", "lowest to highest", f"{each}s/s and core", "cheaper by")
    return _table(head, ((row.way, *_costs(row), f"{row.cheaper:.2f}x") for row in rows))


def _goals(found: Iterable[Result]) -> str:
    head = ("", "goal", *TRANSPORTS, "reached", "further goal")
    yes = {True: "yes", False: "no", None: ""}
    return _table(
        head,
        ((one.goal, one.target, *one.measured, yes[one.reached], yes[one.beyond]) for one in found),
    )


def _transports(rows: Mapping[str, Sequence[Row]]) -> str:
    head = ("CPU µs a call", *KINDS.values())
    names = [row.way for row in rows["put"]]
    by_way = {kind: {row.way: row for row in found} for kind, found in rows.items()}
    return _table(
        head,
        (
            (
                name,
                *(f"{of[name].cpu_us:,.0f} ({of[name].cheaper:.1f}x)" for of in by_way.values()),
            )
            for name in names
        ),
    )


def _candidates(measured: Iterable[Mapping[str, Any]]) -> str:
    head = ("", "first call, CPU ms", "MB installed", "lacks")
    lacks = {one.name: one.lacks for one in CANDIDATES}
    rows = (
        (one["name"], f"{one['start_ms']:,.0f}", f"{one['size_mb']:.1f}", lacks[one["name"]])
        for one in measured
    )
    return _table(head, rows)


def _memory(peaks: Iterable[Peak]) -> str:
    head = ("", "MB above the interpreter", "at most")
    return _table(
        head,
        (
            (one.name, f"{one.peak_mb:.1f}", "" if one.limit_mb is None else f"{one.limit_mb:.0f}")
            for one in peaks
        ),
    )


def _through(found: Mapping[str, float]) -> str:
    head = ("", "a second")
    share = found["applied_rate"] / found["bare_rate"]
    return _table(
        head,
        (
            ("bare UpdateItem calls by a plain client of HTTP", f"{found['bare_rate']:,.0f}"),
            ("events emitted by `record_many`", f"{found['emit_rate']:,.0f}"),
            (f"updates of totals applied ({share:.0%})", f"{found['applied_rate']:,.0f}"),
        ),
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
