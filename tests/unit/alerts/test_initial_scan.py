"""Totals that are beyond a threshold already when a rule takes effect."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import pytest

from countledger.consumers.alerts.delivery import AlertLog
from countledger.consumers.alerts.rule import Rule, Watch
from countledger.consumers.alerts.rules import Rules
from countledger.consumers.alerts.service import InitialScan
from countledger.ledger import keys
from countledger.ledger.errors import ServiceFailed, Throttled
from countledger.ledger.limits import HOUR_MS, MINUTE_MS, SECOND_MS
from tests.unit.alerts import evaluating
from tests.unit.alerts.evaluating import START_MS, TABLE, record, rule
from tests.unit.ledger.memory import meanwhile, refuses


@dataclass(slots=True)
class World(evaluating.World):
    """An evaluator, and what scans totals for it."""

    @property
    def stored(self) -> Rules:
        """The rules as they are stored."""
        return Rules(self.connection)

    def scan(self, one: Rule) -> int:
        """How many alerts a scan publishes."""
        scan = InitialScan(self.connection, self.targets, self.letters)
        return scan.run(one, self.stored)

    def total(self, counter: str, value: int, version: int = 3, **attributes: object) -> None:
        """A total, as it is stored."""
        key = keys.total_key(counter)
        item = {**key, "total": value, "events": 1, "entries": 1, "version": version, **attributes}
        self.dynamo.tables.setdefault(TABLE, {})[key["counter"], key["part"]] = item

    def create(self, counter: str | None = "a:1", **spec: Any) -> Rule:  # noqa: ANN401
        """A rule, just created."""
        plain: dict[str, Any] = {"threshold": 100, "prefix": None, "counter": counter, **spec}
        return self.stored.create(rule(**plain))

    def evaluate(self, one: Rule, old: int, new: int, version: int) -> None:
        """The evaluator meets a record of this update, made now."""
        self.rules = [one]
        at_s = (self.clock.at_ms - START_MS) // SECOND_MS
        update = record(version, old, new, counter=one.counter or "a:1", at_s=at_s)
        assert self.deliver([update]).retry_from is None


@pytest.fixture
def world() -> World:
    """Empty."""
    return World()


def test_a_total_beyond_the_threshold_alerts_once_the_rule_is_effective(world: World) -> None:
    """Not before: what changes until then nobody would evaluate."""
    world.total("a:1", 150)
    one = world.create()

    assert [world.scan(one), world.scan(one)] == [1, 0]

    ((_, alert),) = world.targets.taken
    assert world.clock.at_ms > one.effective_from_ms
    assert (alert.old, alert.new, alert.threshold, alert.version) == (150, 150, 100, 3)
    assert one.is_effective_at(alert.at_ms)
    assert [each.alert for each in AlertLog(world.connection).newest("a:1")] == [alert]
    assert world.scan(world.stored.set("rule", lambda old: replace(old, threshold=120))) == 1


@pytest.mark.parametrize("value", [99, 0, -100])
def test_a_total_that_is_not_beyond_sets_nothing_off(world: World, value: int) -> None:
    world.total("a:1", value)

    assert world.scan(world.create()) == 0
    assert world.scan(world.create("a:none", name="s", threshold=0)) == 0


@pytest.mark.parametrize("evaluated_first", [True, False], ids=["evaluator first", "scan first"])
def test_a_crossing_alerts_once_whoever_comes_first(world: World, *, evaluated_first: bool) -> None:
    one = world.create()
    world.clock.at_ms = one.effective_from_ms
    world.total("a:1", 150, version=4)
    if evaluated_first:
        world.evaluate(one, 50, 150, version=4)

    assert world.scan(one) == (0 if evaluated_first else 1)
    world.evaluate(one, 50, 150, version=4)

    assert world.alerts == [(100, 4)]


def test_what_an_older_revision_publishes_arms_no_newer_one(world: World) -> None:
    """A scan is late; the revision of now has alerted, and its total is not back yet."""
    first = world.create(threshold=90)
    world.clock.at_ms += MINUTE_MS
    second = world.stored.set("rule", lambda old: replace(old, threshold=100, rearm=50))
    world.total("a:1", 95, version=5)

    def second_alerts() -> None:
        world.clock.at_ms = second.effective_from_ms
        world.evaluate(second, 40, 150, version=4)
        world.evaluate(second, 150, 95, version=5)

    # The scan has read the rules and the total, and is suspended before it writes the state.
    world.clock.at_ms = second.effective_from_ms - 1
    world.dynamo.plans.append(meanwhile(second_alerts, "put"))
    assert world.scan(first) == 1

    world.evaluate(second, 95, 120, version=6)

    assert world.alerts == [(100, 4), (90, 5)]


def test_what_the_last_revision_has_still_to_evaluate_is_not_lost(world: World) -> None:
    """The stream lags; meanwhile the rule was changed, and its new revision was scanned for."""
    first = world.create()
    world.clock.at_ms = made_ms = first.effective_from_ms
    world.evaluate(first, 50, 150, version=4)
    world.evaluate(first, 150, 50, version=5)
    second = world.stored.set("rule", lambda old: replace(old, threshold=120))
    world.total("a:1", 160, version=6)
    assert world.scan(second) == 1

    world.clock.at_ms = made_ms
    world.evaluate(first, 50, 150, version=4)
    world.evaluate(first, 50, 160, version=6)

    assert world.alerts == [(100, 4), (120, 6), (100, 6)]


def test_a_prefix_finds_its_counters(world: World) -> None:
    """Those that begin so, of every kind, and no strict counter with bins."""
    for n in range(250):
        world.total(f"a:{n}", 150 if n % 2 else 50)
    world.total("b:1", 150)
    world.total("a:strict", 150, method="atomic")
    world.total("a:bins", 150, method="atomic", bins=4)

    assert world.scan(world.create(None, prefix="a:")) == 126
    assert world.scan(world.create(None, name="all", prefix="")) == 127


def test_a_rule_that_is_far_from_being_effective_is_not_waited_for(world: World) -> None:
    """A clock must be wrong."""
    one = world.create()
    world.clock.at_ms -= HOUR_MS

    with pytest.raises(ServiceFailed, match="is effective in"):
        world.scan(one)
    assert world.clock.slept_ms == []


def test_counters_that_fail_leave_the_others_and_are_left_for_the_next_scan(world: World) -> None:
    for n in range(3):
        world.total(f"a:{n}", 150)
    one = world.create(None, prefix="a:")
    fails = refuses(Throttled("not now"), times=inf, where=_of_the_state("a:1"))
    world.dynamo.plans.append(fails)

    with pytest.raises(ServiceFailed, match=r"1 of its counters failed .* such as 'a:1' .*--now"):
        world.scan(one)
    assert [alert.counter for _, alert in world.targets.taken] == ["a:0", "a:2"]

    world.dynamo.plans.clear()
    assert world.scan(one) == 1
    assert [alert.counter for _, alert in world.targets.taken] == ["a:0", "a:2", "a:1"]


def _of_the_state(counter: str) -> Callable[[Any], bool]:
    """Writes of a counter, alone or in a transaction."""

    def fits(write: Any) -> bool:  # noqa: ANN401 - of any kind
        writes = write if isinstance(write, Sequence) else [write]
        return any(counter in (getattr(one, "key", None) or one.item).values() for one in writes)

    return fits


def test_what_is_available_is_the_total_without_what_holds_reserve(world: World) -> None:
    low: dict[str, Any] = {"threshold": 10, "direction": "falling"}
    for counter, held in (("a:1", 145), ("a:2", 100)):
        world.total(counter, 150, method="atomic", held=held)

    assert world.scan(world.create(None, prefix="a:", of=Watch.AVAILABLE, **low)) == 1
    assert [alert.counter for _, alert in world.targets.taken] == ["a:1"]
    assert world.scan(world.create(None, name="value", prefix="a:", **low)) == 0


@pytest.mark.parametrize(
    "flaw",
    [{"version": 10**30}, {"total": "nonsense"}, {"held": "nonsense"}, {"incarnation": 5}],
    ids=str,
)
def test_a_total_that_was_edited_into_nonsense_is_left_to_the_evaluator(
    world: World, flaw: dict[str, Any]
) -> None:
    """Its next record goes to the quarantine; the others are scanned."""
    world.total("a:1", 150)
    world.dynamo.tables[TABLE]["a:1", "total"].update(flaw)
    world.total("a:2", 150)

    assert world.scan(world.create(None, prefix="a:")) == 1


@pytest.mark.parametrize(("late_ms", "slept"), [(0, True), (SECOND_MS, False)])
def test_a_scan_waits_until_the_rule_evaluates_what_is_written(
    world: World, late_ms: int, *, slept: bool
) -> None:
    """And a second more, for the clock by which the stream stamps its records."""
    world.total("a:1", 150)
    one = world.create()
    world.clock.at_ms = one.effective_from_ms + late_ms

    assert world.scan(one) == 1
    assert bool(world.clock.slept_ms) is slept
    assert world.clock.at_ms == one.effective_from_ms + SECOND_MS
