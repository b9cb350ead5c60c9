"""Many seeds, on every core: failures, steps, and what met what."""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from time import process_time
from typing import Final

from tests.simulation.coverage import Coverage
from tests.simulation.shrink import Failure, simulation_of

_BLOCK: Final = 10


@dataclass
class Tally:
    """What came of some seeds.

    Attributes:
        seeds: how many.
        steps: how many times somebody stood still in them.
        seconds: of a core.
        failures: those that failed.
        coverage: what met what.
    """

    seeds: int = 0
    steps: int = 0
    seconds: float = 0.0
    failures: list[Failure] = field(default_factory=list)
    coverage: Coverage = field(default_factory=Coverage)

    def merge(self, other: Tally) -> None:
        """Those of another process."""
        self.seeds += other.seeds
        self.steps += other.steps
        self.seconds += other.seconds
        self.failures += other.failures
        self.coverage.merge(other.coverage)


_EVERYTHING: Final = Failure(0, "")


def run_block(seeds: Sequence[int], like: Failure = _EVERYTHING) -> Tally:
    """Run seeds here, one after the other, with the focus and the limits of `like`."""
    tally = Tally()
    began_s = process_time()
    for seed in seeds:
        given = replace(like, seed=seed)
        simulation = simulation_of(given)
        try:
            simulation.run()
        except Exception as error:  # noqa: BLE001 - told, whatever it is
            text = f"{type(error).__name__}: {error}"
            told = tuple(simulation.world.told)
            tally.failures.append(replace(given, text=text, told=told))
        tally.seeds += 1
        tally.steps += simulation.steps
        tally.coverage.add(simulation)
    tally.seconds = process_time() - began_s
    return tally


def run_all(first: int, count: int, jobs: int, like: Failure = _EVERYTHING) -> Iterator[Tally]:
    """Run seeds on so many cores; what came of each block, as it comes."""
    blocks = [
        range(start, min(start + _BLOCK, first + count))
        for start in range(first, first + count, _BLOCK)
    ]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, initializer=quiet_core) as pool:
        yield from pool.map(partial(run_block, like=like), blocks)


def quiet_core() -> None:
    """On one core to stay on: the turn passes from thread to thread three times as fast there."""
    logging.disable(logging.WARNING)
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        number = (multiprocessing.current_process()._identity or (1,))[0]
        os.sched_setaffinity(0, {cores[number % len(cores)]})
