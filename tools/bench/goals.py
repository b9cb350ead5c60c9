"""The goals: what each way is to cost at most, against its peer in the same run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tools.bench.way import TRANSPORTS, named

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tools.bench.memory import Peak
    from tools.bench.rounds import Row
    from tools.bench.through import Through


# Of the bare rate of the engine.
_SHARE: Final = 0.5


@dataclass(frozen=True, slots=True)
class Goal:
    """A ratio of processor time to the first way of a table.

    Attributes:
        text: what is to be reached.
        table: where it is measured.
        way: the row, without its transport; of some there is none.
        times: how many times cheaper than the first row.
        beyond: a further goal, if there is one.
    """

    text: str
    table: str
    way: str
    times: float
    beyond: float | None = None


GOALS: Final = (
    Goal("`record` against a `put_item` loop", "emit", "record", 5),
    Goal("`record` with a key", "emit", "record, with a key", 5),
    Goal("`record_many`", "emit", "record_many", 80, 120),
    Goal("`buffered`", "emit", "buffered", 80, 120),
    Goal("`buffered`, coalescing, uniform", "emit", "buffered, coalescing, uniform", 200),
    Goal("`buffered`, coalescing, Zipf", "emit", "buffered, coalescing, Zipf", 200),
    Goal("strict change, method `atomic`", "strict", "strict.change, method atomic", 4),
    Goal("fold with windows, against the fold", "windows", "fold, windows by minute", 1 / 2),
    Goal("a record of a batch of 64 counters", "apply", "materializer", 60),
    Goal("an update of a batch of 1,000 counters", "distinct", "materializer", 4),
    Goal("evaluator, against the least fold", "evaluate", "evaluator, 10 rules", 1 / 14),
    Goal("`total` against `get_item`", "total", "total", 4),
)


@dataclass(frozen=True, slots=True)
class Result:
    """A goal and what was measured.

    Attributes:
        goal: its text.
        target: what is to be reached.
        measured: with each transport; of a goal without a transport, the same.
        reached: whether the last of them is enough.
        beyond: whether it reaches the further goal; None: there is none.
    """

    goal: str
    target: str
    measured: tuple[str, ...]
    reached: bool
    beyond: bool | None = None


def results(tables: Mapping[str, Sequence[Row]]) -> list[Result]:
    """Every goal that is a ratio."""
    return [_result(goal, {row.way: row.cheaper for row in tables[goal.table]}) for goal in GOALS]


def _result(goal: Goal, cheaper: Mapping[str, float]) -> Result:
    found = [
        cheaper.get(named(goal.way, transport), cheaper.get(goal.way, 0.0))
        for transport in TRANSPORTS
    ]
    beyond = None if goal.beyond is None else found[-1] >= goal.beyond
    target = f"{goal.times:g}x" if goal.beyond is None else f"{goal.times:g}x ({goal.beyond:g}x)"
    if goal.times < 1:
        return Result(
            goal.text,
            f"at most {1 / goal.times:g}x as much",
            tuple(f"{1 / one:.1f}x as much" for one in found),
            reached=found[-1] >= goal.times,
        )
    texts = tuple(f"{one:.1f}x" for one in found)
    return Result(goal.text, target, texts, found[-1] >= goal.times, beyond)


def memory_results(peaks: Sequence[Peak]) -> list[Result]:
    """Every goal of memory."""
    return [
        Result(
            f"memory: {one.name}",
            f"at most {one.limit_mb:.0f} MB",
            (f"{one.peak_mb:.0f} MB",),
            reached=one.peak_mb <= one.limit_mb,
        )
        for one in peaks
        if one.limit_mb is not None
    ]


def through_result(found: Through) -> Result:
    """The goal of the way from the event to the total."""
    return Result(
        f"end to end, {found.events:,} events of {found.counters:,} counters",
        f"{_SHARE:.0%} of the engine's bare rate",
        (f"{found.share:.0%}: {found.applied_rate:,.0f}/s of {found.bare_rate:,.0f}/s",),
        reached=found.share >= _SHARE,
    )
