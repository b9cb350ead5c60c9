"""Rounds of measurements: what two ways cost is compared within a round, never across.

Every way runs in a fresh process, once in each round, in an order that is drawn again. What is told
is the median of the rounds: of the cost, and of its ratio to the first way's cost in its round.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

from tools.bench.suite import SUITES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_NOBODYS: Final = {
    "AWS_ACCESS_KEY_ID": "bench",
    "AWS_SECRET_ACCESS_KEY": "bench",
    "AWS_REGION": "us-east-1",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one way cost in one round, for each event or record.

    Attributes:
        table: which table it belongs to.
        way: its row.
        round: the round.
        cpu_us: processor time of its process, all threads.
        wall_us: time.
        write_units: as the server told them.
    """

    table: str
    way: str
    round: int
    cpu_us: float
    wall_us: float
    write_units: float


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table: medians over the rounds.

    Attributes:
        way: its name.
        cpu_us: processor time for each.
        lowest_us: in the best round.
        highest_us: in the worst.
        wall_us: time for each.
        write_units: for each.
        cheaper: how many times less processor time than the first way of its round.
    """

    way: str
    cpu_us: float
    lowest_us: float
    highest_us: float
    wall_us: float
    write_units: float
    cheaper: float


def rows_of(measurements: Iterable[Measurement]) -> list[Row]:
    """One table's measurements as its rows, in the order in which their ways first come."""
    by_way: dict[str, dict[int, Measurement]] = {}
    for one in measurements:
        by_way.setdefault(one.way, {})[one.round] = one
    first = next(iter(by_way.values()), {})
    return [_row(way, rounds, first) for way, rounds in by_way.items()]


def _row(way: str, rounds: dict[int, Measurement], first: dict[int, Measurement]) -> Row:
    costs = [one.cpu_us for one in rounds.values()]
    return Row(
        way,
        median(costs),
        min(costs),
        max(costs),
        median(one.wall_us for one in rounds.values()),
        median(one.write_units for one in rounds.values()),
        median(first[number].cpu_us / one.cpu_us for number, one in rounds.items()),
    )


def run(rounds: int, tell: Callable[[str], object]) -> list[Measurement]:
    """Measure every way in every round."""
    found: list[Measurement] = []
    delays = sorted({way.delay_ms for suite in SUITES.values() for way in suite.ways})
    with servers(delays) as urls:
        for number in range(rounds):
            tell(f"round {number + 1} of {rounds}")
            found += _round(number, urls)
    order = [(name, way.name) for name, suite in SUITES.items() for way in suite.ways]
    return sorted(found, key=lambda one: (order.index((one.table, one.way)), one.round))


def _round(number: int, urls: dict[int, str]) -> Iterator[Measurement]:
    runs = [(name, row) for name, suite in SUITES.items() for row in range(len(suite.ways))]
    random.shuffle(runs)
    for name, row in runs:
        way = SUITES[name].ways[row]
        told = _child("tools.bench.one", name, str(row), urls[way.delay_ms])
        yield Measurement(name, way.name, number, **json.loads(told))


def _child(module: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env=environment(),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout


@contextmanager
def servers(delays_ms: Sequence[int]) -> Iterator[dict[int, str]]:
    """A server for each delay, on the other processor."""
    started: list[subprocess.Popen[str]] = []
    urls: dict[int, str] = {}
    try:
        for delay_ms in delays_ms:
            server = subprocess.Popen(
                [sys.executable, "-m", "tools.bench.canned", str(delay_ms)],
                stdout=subprocess.PIPE,
                text=True,
            )
            started.append(server)
            port = server.stdout.readline().strip() if server.stdout else ""
            urls[delay_ms] = f"http://127.0.0.1:{port}"
        yield urls
    finally:
        for server in started:
            server.kill()
            server.communicate()


def environment() -> dict[str, str]:
    """Nothing of the user's AWS."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {**kept, **_NOBODYS}
