"""The events of a repository, and what they and git come to."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from countledger.infra.demo import open_repository, read_events, read_truth

if TYPE_CHECKING:
    from pathlib import Path

    from countledger import Event

ANN = "commits:Ann Author"


def steps_of(path: Path) -> list[Event]:
    """All events of the repository."""
    with open_repository(path) as history:
        return [step for steps in read_events(history) for step in steps]


def sums_of(steps: list[Event]) -> dict[str, int]:
    """What the counters come to, without those at zero."""
    sums: Counter[str] = Counter()
    for step in steps:
        sums[step.counter] += int(step.delta)
    return {counter: total for counter, total in sums.items() if total}


def truth_of(path: Path) -> dict[str, int]:
    """What git says itself."""
    with open_repository(path) as history:
        return read_truth(history)


def lines_of(path: Path) -> dict[str, int]:
    """The checked sums of the files, by path."""
    sums = sums_of(steps_of(path))

    assert truth_of(path) == sums
    return {name[6:]: total for name, total in sums.items() if name.startswith("lines:")}
