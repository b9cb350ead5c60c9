"""`make endurance`: long runs on the local engine and in virtual time, each checked to its end."""

import json
import os
import signal
import sys
import traceback
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from time import monotonic
from typing import Final

from rich.console import Console
from rich.table import Table

from countledger.infra.local import background
from tools.endurance import reserving
from tools.endurance.scenarios import SCENARIOS, Row, Scenario
from tools.endurance.world import World

_WIDTH: Final = 120


def _arguments() -> Namespace:
    parser = ArgumentParser("python -m tools.endurance", description=__doc__)
    names = [*(one.name for one in SCENARIOS), reserving.NAME]
    parser.add_argument("--only", choices=names, metavar="SCENARIO", help=", ".join(names))
    parser.add_argument("--scale", type=float, default=1.0, help="so many times the events")
    parser.add_argument("--seed", type=int, default=1, help="of what is simulated")
    parser.add_argument("--json", action="store_true", help="the results as JSON, on stdout")
    return parser.parse_args()


def _run(scenario: Scenario, scale: float, console: Console) -> Row:
    """One scenario on a stack of its own: what the engine holds is gone at its end."""
    name, began_s = f"countledger-endurance-{os.getpid()}", monotonic()

    def say(line: str) -> None:
        console.print(f"{monotonic() - began_s:6.1f} s  {line}", highlight=False, markup=False)

    try:
        running = background.up(name)
        world = World(running.environment, running.log.parent, running.outputs, say)
        return scenario.run(world, scale)
    except Exception as error:  # noqa: BLE001 - the other scenarios are still worth their run
        say(traceback.format_exc())
        return Row(scenario.name, 0, 0, 0.0, 0.0, 0, (f"{type(error).__name__}: {error}",))
    finally:
        background.down(name)


def table_of(rows: list[Row]) -> Table:
    """The results, one line for each scenario."""
    table = Table(box=None)
    table.add_column("scenario", no_wrap=True)
    for heading in ("events", "counters", "seconds", "events/s", "lag s", "kills"):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    for row in rows:
        numbers = (f"{row.events:,}", f"{row.counters:,}", f"{row.seconds:,.1f}")
        others = (f"{row.rate:,.0f}", f"{row.lag_s:,.1f}", str(row.kills))
        verdict = "; ".join(row.problems[:3]) or "exact"
        table.add_row(row.scenario, *numbers, *others, verdict)
    return table


def _say(line: str) -> None:
    Console(stderr=True, soft_wrap=True).print(line, highlight=False, markup=False)


def _end(number: int, _frame: object) -> None:
    """End with a stack that is taken down, also when started in the background of a shell."""
    raise SystemExit(128 + number)


def _main() -> int:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    given, console = _arguments(), Console(stderr=True, soft_wrap=True)
    chosen = [one for one in SCENARIOS if given.only in (None, one.name)]
    rows = [_run(one, given.scale, console) for one in chosen]
    if given.only in {None, reserving.NAME}:
        rows.append(reserving.run(round(reserving.OPERATIONS * given.scale), given.seed, _say))
    if given.json:
        sys.stdout.write(json.dumps([{**asdict(row), "rate": row.rate} for row in rows]) + "\n")
    else:
        Console(width=max(console.width, _WIDTH)).print(table_of(rows))
    return 1 if any(row.problems for row in rows) else 0


if __name__ == "__main__":
    sys.exit(_main())
