"""`make simulate`, and the replay of one seed."""

import logging
import os
import sys
from argparse import ArgumentParser, Namespace
from time import monotonic

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.simulation.accidents import ACCIDENTS
from tests.simulation.canaries import CANARIES
from tests.simulation.coverage import FUNCTIONS, Coverage, of_operation
from tests.simulation.faults import Fault
from tests.simulation.operations import OPERATIONS
from tests.simulation.runner import Tally, run_all
from tests.simulation.shape import ALL_FOCUSES
from tests.simulation.shrink import Failure, read_skipped, run, shrink

_LINES = 60
_TABLE_WIDTH = 140


def _arguments() -> Namespace:
    parser = ArgumentParser("python -m tests.simulation", description=__doc__)
    parser.add_argument("seed", nargs="?", type=int, help="replay this one and tell what it did")
    parser.add_argument("--seeds", type=int, default=0, help="how many to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="on how many cores")
    parser.add_argument("--without", default="", help="operations, faults, accidents to leave out")
    parser.add_argument("--clients", type=int, help="no more clients than these")
    parser.add_argument("--operations", type=int, help="no more operations of each client")
    parser.add_argument("--skip", default="", help="operations to leave out: client:numbers/...")
    parser.add_argument("--focus", choices=ALL_FOCUSES, help="do this alone")
    parser.add_argument("--canaries", action="store_true", help="tell which seed catches each rule")
    parser.add_argument("--shrink", action="store_true", help="make a failure shorter")
    return parser.parse_args()


def _asked(given: Namespace) -> Failure:
    """The focus and the limits of the arguments."""
    without = tuple(name for name in given.without.split(",") if name)
    skipped = read_skipped(given.skip)
    seed = given.seed or 0
    return Failure(seed, "", (), without, given.clients, given.operations, given.focus, skipped)


def _replay(console: Console, given: Namespace) -> int:
    failure = run(_asked(given))
    if failure is None:
        console.print(f"seed {given.seed}: all is well")
        return 0
    _show(console, shrink(failure) if given.shrink else failure, whole=not given.shrink)
    return 1


def _show(console: Console, failure: Failure, *, whole: bool = False) -> None:
    for line in failure.told if whole else failure.told[-_LINES:]:
        console.print(line, markup=False, highlight=False)
    console.print(f"seed {failure.seed}: {failure.text}", markup=False, style="red")
    console.print(f"replay: {failure.replay}", markup=False)


def _run(console: Console, given: Namespace) -> Tally:
    done = Tally()
    began_s = monotonic()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("seeds", total=given.seeds)
        for tally in run_all(given.first, given.seeds, given.jobs, _asked(given)):
            done.merge(tally)
            rate = done.steps / (monotonic() - began_s)
            failed = f", {len(done.failures)} failed" if done.failures else ""
            progress.update(task, advance=tally.seeds, description=f"{rate:,.0f} steps/s{failed}")
    console.print(
        f"{done.seeds} seeds, {done.steps:,} steps in {monotonic() - began_s:.1f} s; "
        f"{done.steps / max(done.seconds, 1e-9):,.0f} steps a second on each core"
    )
    return done


def _table(coverage: Coverage) -> Table:
    table = Table(title="faults met, by operation", box=SIMPLE_HEAD)
    table.add_column("operation", no_wrap=True)
    for number, _ in enumerate(Fault, 1):
        table.add_column(str(number), justify="right", no_wrap=True)
    for name in [*(one.name for one in OPERATIONS), *FUNCTIONS]:
        possible = of_operation(name) if coverage.met[name] else []
        cells = (
            (str(coverage.struck[name, fault]) if coverage.struck[name, fault] else "[red]0[/red]")
            if fault in possible
            else ""
            for fault in Fault
        )
        table.add_row(name, *cells)
    return table


def _simulate(console: Console, given: Namespace) -> int:
    done = _run(console, given)
    # Whatever holds it: a cell that is cut off tells nothing.
    wide = Console(width=max(console.width, _TABLE_WIDTH), soft_wrap=True)
    wide.print(_table(done.coverage))
    legend = (f"{number} {fault}" for number, fault in enumerate(Fault, 1))
    console.print(f"faults: {', '.join(legend)}", highlight=False)
    happened = ", ".join(f"{name} {done.coverage.accidents[name]}" for name in ACCIDENTS)
    console.print(f"accidents: {happened}")
    if missing := done.coverage.missing():
        console.print(f"never met: {'; '.join(missing)}", markup=False, highlight=False)
    for failure in done.failures[:3]:
        _show(console, shrink(failure))
    for failure in done.failures[3:]:
        console.print(f"seed {failure.seed}: {failure.text}", markup=False, style="red")
    return 1 if done.failures else 0


def _main() -> int:
    logging.disable(logging.WARNING)
    console, given = Console(soft_wrap=True), _arguments()
    if given.canaries:
        for canary in CANARIES:
            console.print(f"{canary.rule}: {canary.caught_by()}", markup=False, highlight=False)
        return 0
    if given.seed is not None:
        return _replay(console, given)
    return _simulate(console, given)


if __name__ == "__main__":
    sys.exit(_main())
