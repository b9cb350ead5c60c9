"""`make bench`: run the benchmarks and print their tables."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from countledger.infra.local_stack import LocalStack
from tests.bench import compact, emit, fold, sequences, strict


def show(title: str, ratio: str, rows: list[tuple[str, float, float]]) -> None:
    """Print one benchmark."""
    table = Table(title=title, box=None)
    table.add_column("")
    table.add_column("us each", justify="right")
    table.add_column("each second per core", justify="right")
    table.add_column(ratio, justify="right")
    for name, cost_us, factor in rows:
        table.add_row(name, f"{cost_us:,.2f}", f"{1e6 / cost_us:,.0f}", f"{factor:.2f}x")
    Console().print(table)


def show_attempts(rows: list[strict.Measured]) -> None:
    """Print how often the strict methods write."""
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
    Console().print(table)


def show_bins(rows: list[strict.SoldOut]) -> None:
    """Print what it costs to sell a stock to the last one."""
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
    Console().print(table)


def show_numbers(rows: list[sequences.Drawn]) -> None:
    """Print what a number costs."""
    table = Table(title="Drawing from a sequence", box=None)
    for heading in ("", "each second per core", "numbers a write unit"):
        table.add_column(heading, justify="right" if heading else "left")
    for row in rows:
        table.add_row(row.way, f"{row.each_second:,.0f}", f"{row.per_unit:,.0f}")
    Console().print(table)


def show_crowd(rows: list[sequences.Crowd]) -> None:
    """Print what a number costs among many."""
    table = Table(title="Drawing from one sequence, thirty-two threads", box=None)
    for heading in ("", "each second, all threads", "write units a number"):
        table.add_column(heading, justify="right" if heading else "left")
    for row in rows:
        table.add_row(row.way, f"{row.each_second:,.0f}", f"{row.write_units:.2f}")
    Console().print(table)


with LocalStack(pumping=False) as stack:
    show("Emitting an entry", "against put_item", emit.rows(stack))
    show("Merging an entry", "against bare deletes", compact.rows(stack))
    show_attempts(strict.rows(stack))
    show_bins(strict.bins_rows(stack))
    show_numbers(sequences.rows(stack))
    show_crowd(sequences.crowd_rows(stack))
show("Folding a stream record", "of the least possible", fold.rows())
