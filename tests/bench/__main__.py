"""`make bench`: run the benchmarks and print their tables."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from countledger.infra.local_stack import LocalStack
from tests.bench import compact, emit, fold


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


with LocalStack(pumping=False) as stack:
    show("Emitting an entry", "against put_item", emit.rows(stack))
    show("Merging an entry", "against bare deletes", compact.rows(stack))
show("Folding a stream record", "of the least possible", fold.rows())
