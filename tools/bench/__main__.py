"""`make bench`: run the benchmarks, print their tables and keep the raw numbers."""

from __future__ import annotations

import argparse
import json
import platform
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import boto3
from rich.console import Console
from rich.table import Table

from countledger.infra.local.stack import LocalStack
from tools.bench import (
    candidates,
    compact,
    evaluate,
    memory,
    page,
    sequences,
    starting,
    strict,
    through,
)
from tools.bench.goals import Result, memory_results, results, through_result
from tools.bench.rounds import rows_of, run
from tools.bench.suite import SUITES

if TYPE_CHECKING:
    from tools.bench.rounds import Row

_KEPT: Final = Path("build/bench")
_WIDTH: Final = 120


def show_rows(title: str, each: str, rows: list[Row]) -> Table:
    """A table of ways that were measured in rounds."""
    table = Table(title=title, box=None)
    table.add_column("", no_wrap=True)
    for heading in (
        f"CPU us a {each}",
        "lowest",
        "highest",
        f"{each}s/s, core",
        "cheaper",
        "wall us",
        "write units",
    ):
        table.add_column(heading, justify="right")
    for row in rows:
        costs = (f"{cost:,.2f}" for cost in (row.cpu_us, row.lowest_us, row.highest_us))
        rate, cheaper = f"{1e6 / row.cpu_us:,.0f}", f"{row.cheaper:.2f}x"
        table.add_row(
            row.way, *costs, rate, cheaper, f"{row.wall_us:,.1f}", f"{row.write_units:.3f}"
        )
    return table


def show(title: str, ratio: str, rows: list[tuple[str, float, float]]) -> Table:
    """One benchmark on the embedded engine."""
    table = Table(title=title, box=None)
    table.add_column("")
    table.add_column("us each", justify="right")
    table.add_column("each second per core", justify="right")
    table.add_column(ratio, justify="right")
    for name, cost_us, factor in rows:
        table.add_row(name, f"{cost_us:,.2f}", f"{1e6 / cost_us:,.0f}", f"{factor:.2f}x")
    return table


def show_attempts(rows: list[strict.Measured]) -> Table:
    """How often the strict methods write."""
    table = Table(title="Changing a strict counter", box=None)
    for heading in ("", "writers", "writes for each change", "gave up", "changes each second"):
        table.add_column(heading, justify="right" if heading else "left")
    for row in rows:
        table.add_row(
            row.method,
            str(row.writers),
            f"{row.attempts:.2f}",
            f"{row.contended:.1%}",
            f"{row.each_second:,.0f}",
        )
    return table


def show_bins(rows: list[strict.SoldOut]) -> Table:
    """What it costs to sell a stock to the last one."""
    table = Table(title="Selling out a strict counter, eight sellers", box=None)
    for heading in ("bins", "write units a ticket", "read units a ticket", "tickets each second"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            str(row.bins),
            f"{row.write_units:.2f}",
            f"{row.read_units:.2f}",
            f"{row.each_second:,.0f}",
        )
    return table


def show_numbers(rows: list[sequences.Drawn]) -> Table:
    """What a number costs."""
    table = Table(title="Drawing from a sequence", box=None)
    for heading in ("", "each second per core", "numbers a write unit"):
        table.add_column(heading, justify="right" if heading else "left")
    for row in rows:
        table.add_row(row.way, f"{row.each_second:,.0f}", f"{row.per_unit:,.0f}")
    return table


def show_crowd(rows: list[sequences.Crowd]) -> Table:
    """What a number costs among many."""
    table = Table(title="Drawing from one sequence, thirty-two threads", box=None)
    for heading in ("", "each second, all threads", "write units a number"):
        table.add_column(heading, justify="right" if heading else "left")
    for row in rows:
        table.add_row(row.way, f"{row.each_second:,.0f}", f"{row.write_units:.2f}")
    return table


def machine() -> str:
    """What it ran on."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        named = (line for line in info.read_text().splitlines() if line.startswith("model name"))
        model = next(named, model).rpartition(": ")[2]
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{model}, {platform.system()}, {python}, boto3 {boto3.__version__}"


def show_results(rows: list[Result]) -> Table:
    """Each goal, what was measured, and whether it is reached."""
    table = Table(title="Goals (the last figure counts)", box=None)
    for heading in ("", "goal", "measured", "reached", "further goal"):
        table.add_column(heading)
    words = {True: "yes", False: "NO", None: ""}
    for one in rows:
        measured = " | ".join(one.measured)
        table.add_row(one.goal, one.target, measured, words[one.reached], words[one.beyond])
    return table


def in_rounds(rounds: int, console: Console) -> dict[str, Any]:
    """Run what is measured in rounds; print it, and return it as it is kept."""
    now = datetime.now(UTC)
    found = run(rounds, lambda text: console.print(f"[dim]{text}[/dim]"))
    tables = {name: rows_of(one for one in found if one.table == name) for name in SUITES}
    for name, suite in SUITES.items():
        console.print(show_rows(suite.title, suite.each, tables[name]))
    console.print(show_results(results(tables)))
    return {
        "date": f"{now:%Y-%m-%d}",
        "machine": machine(),
        "rounds": rounds,
        "measurements": [asdict(one) for one in found],
    }


def keep(raw: dict[str, Any], console: Console) -> None:
    """Keep the raw numbers of this run."""
    _KEPT.mkdir(parents=True, exist_ok=True)
    kept = _KEPT / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    kept.write_text(json.dumps(raw, indent=1) + "\n")
    console.print(f"raw numbers: {kept}")


def in_memory(scale: float, console: Console) -> list[dict[str, Any]]:
    """What clients keep in memory."""
    peaks = memory.rows(scale, lambda text: console.print(f"[dim]{text}[/dim]"))
    console.print(show_results(memory_results(peaks)))
    return [asdict(one) for one in peaks]


def end_to_end(scale: float, console: Console) -> dict[str, Any]:
    """From the events to the totals, on the engine."""
    found = through.measure(scale, lambda text: console.print(f"[dim]{text}[/dim]"))
    console.print(show_results([through_result(found)]))
    return asdict(found)


def show_starts(rows: list[tuple[str, float, float]]) -> Table:
    """What processes cost that start, do one thing and end."""
    table = Table(title="Starting a process", box=None)
    for heading in ("", "CPU ms", "against its peer"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, cost_ms, factor in rows:
        table.add_row(name, f"{cost_ms:,.0f}", f"{factor:.2f}x")
    return table


def on_the_engine(console: Console) -> None:
    """Run what needs an engine behind it."""
    with LocalStack(pumping=False) as stack:
        console.print(show("Merging an entry", "against bare deletes", compact.rows(stack)))
        console.print(show_attempts(strict.rows(stack)))
        console.print(show_bins(strict.bins_rows(stack)))
        console.print(show_numbers(sequences.rows(stack)))
        console.print(show_crowd(sequences.crowd_rows(stack)))
    console.print(show("Evaluating a stream record of a total", "of no rules", evaluate.rows()))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often each way is measured")
    parser.add_argument("--page", action="store_true", help="write docs/performance.md again")
    parser.add_argument("--only-start", action="store_true", help="only what a start costs")
    parser.add_argument("--no-engine", action="store_true", help="only what is measured in rounds")
    parser.add_argument(
        "--memory", type=float, metavar="SCALE", help="also memory, at this part of a million"
    )
    parser.add_argument(
        "--through", type=float, metavar="SCALE", help="also end to end, of 60,000 events"
    )
    chosen = parser.parse_args()
    console = Console()
    console.width = max(console.width, _WIDTH)
    console.print(show_starts(starting.rows(chosen.rounds)))
    started_ms, read_ms = starting.stack_ms(chosen.rounds)
    console.print(
        f"A stack in memory starts in {started_ms:.2f} ms (goal: {starting.STACK_GOAL_MS:.0f} ms); "
        f"its first total is read after {read_ms:.1f} ms"
    )
    if chosen.only_start:
        return
    # What is not measured now is as the page has it.
    raw = json.loads(page.RAW.read_text())
    raw["candidates"] = candidates.measured(chosen.rounds, console.print)
    raw |= in_rounds(chosen.rounds, console)
    if chosen.memory:
        raw["memory"] = in_memory(chosen.memory, console)
    if chosen.through:
        raw["through"] = end_to_end(chosen.through, console)
    keep(raw, console)
    if chosen.page:
        page.write(raw)
    if not chosen.no_engine:
        on_the_engine(console)


main()
