"""What the simulation has found in alerts, each as the shortest course of events that shows it."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, combinations
from typing import Any

import pytest

from countledger.consumers.alerts.rule_index import RuleCache, RuleIndex
from countledger.consumers.alerts.rules import Rules
from countledger.consumers.alerts.service import Alerts
from countledger.ledger.limits import SECOND_MS
from tests.simulation.calm import calm_world
from tests.simulation.connection import connection_of
from tests.simulation.evaluating import alerts_of
from tests.simulation.shape import COUNTERS
from tests.simulation.table import SimulatedTable
from tests.simulation.world import World

LANDS_MS = 150


def _change(alerts: Alerts, change: str) -> None:
    if change == "create":
        alerts.create("second", prefix="", threshold=9, direction="rising")
    elif change == "set":
        alerts.set("first", threshold=8)
    else:
        alerts.delete("first")


def _lay(table: SimulatedTable, key: Any, item: Any) -> None:  # noqa: ANN401 - of a simulated table
    """Put an item back without a write, which the auditor would judge by the time."""
    if item is None:
        table.items.pop(key, None)
    else:
        table.items[key] = item


def _half(
    table: SimulatedTable, before: dict[Any, Any], after: dict[Any, Any]
) -> Iterator[list[Any]]:
    """Every choice of items of a transaction that have landed while others have not."""
    changed = sorted(key for key in before.keys() | after if before.get(key) != after.get(key))
    sizes = range(1, len(changed))
    for landed in chain.from_iterable(combinations(changed, size) for size in sizes):
        for key in changed:
            _lay(table, key, (after if key in landed else before).get(key))
        yield [key for key in changed if key not in landed]


def _known(index: RuleIndex) -> list[tuple[str, int | None]]:
    return [(rule.revision, rule.effective_until_ms) for rule in index.rules]


def _cache(world: World) -> RuleCache:
    process = world.process("home", "evaluator")
    return RuleCache(Rules(connection_of(process)))


@pytest.mark.parametrize("change", ["create", "set", "delete"])
def test_an_evaluator_never_knows_half_a_change_of_a_rule(change: str) -> None:
    """The items of a transaction land one by one, and its reads may fall between any two."""
    world = calm_world()
    world.shape = replace(world.shape, latency_ms=2.0)
    alerts = alerts_of(world, world.process("home", "operator"))
    table = world.copies["home"][COUNTERS]
    alerts.create("first", prefix="", threshold=7, direction="rising")
    before, earlier = dict(table.items), _known(_cache(world).index())
    _change(alerts, change)
    after, later = dict(table.items), _known(_cache(world).index())

    for left in _half(table, before, after):

        def land(left: list[Any] = left) -> None:
            for key in left:
                _lay(table, key, after.get(key))

        world.schedule.at(LANDS_MS, land)
        cache = _cache(world)

        assert _known(cache.index()) in (earlier, later)
        world.schedule.pass_time(2 * SECOND_MS)
        assert _known(cache.index()) == later
