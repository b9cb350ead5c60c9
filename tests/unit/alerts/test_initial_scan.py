"""Totals that are beyond a threshold already when a rule takes effect."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from countledger.consumers.alerts.alert_log import AlertLog
from countledger.consumers.alerts.crossing import TotalChange
from countledger.consumers.alerts.delivery import Notifier
from countledger.consumers.alerts.evaluator import ChainEvaluator, Link
from countledger.consumers.alerts.initial_scan import InitialScan
from countledger.consumers.alerts.rule import Direction, Rule
from countledger.consumers.alerts.rules import Rules
from countledger.ledger import keys
from countledger.ledger.errors import ServiceFailed, Throttled
from countledger.ledger.limits import HOUR_MS, SECOND_MS
from tests.unit.ledger.clocks import NOW_MS, ManualClock
from tests.unit.ledger.memory import Fault, MemoryClient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.consumers.alerts.alert import Alert, FailedAlert
    from countledger.consumers.alerts.dead_letters import DeadLetter
    from countledger.consumers.alerts.rule import Target

TABLE = "counters"
REGION = "eu-central-1"


@dataclass
class Told:
    """Takes every alert; keeps no dead letter."""

    alerts: list[Alert] = field(default_factory=list)

    def publish(self, alerts: Sequence[Alert], target: Target) -> list[FailedAlert]:
        """Take them."""
        assert str(target) == "bus"
        self.alerts += alerts
        return []

    def put(self, letter: DeadLetter) -> None:
        """Nothing is refused here."""
        raise AssertionError(letter)


@dataclass
class World:
    """A stack in memory."""

    dynamo: MemoryClient = field(default_factory=MemoryClient)
    clock: ManualClock = field(default_factory=ManualClock)
    told: Told = field(default_factory=Told)

    @property
    def initial_scan(self) -> InitialScan:
        """What is tested."""
        return InitialScan(self.dynamo, TABLE, self.told, self.told, self.clock)

    def total(self, counter: str, value: int, version: int = 3, **attributes: object) -> None:
        """A total as it scanned."""
        key = keys.total_key(counter)
        item = {**key, "total": value, "events": 1, "entries": 1, "version": version, **attributes}
        self.dynamo.tables.setdefault(TABLE, {})[key["counter"], key["part"]] = item

    def rule(self, **words: object) -> Rule:
        """A rule, just made."""
        plain = {
            "name": "r",
            "threshold": 100,
            "direction": Direction.RISING,
            "evaluate_in": REGION,
        }
        rule = Rule(**{**plain, **words})  # type: ignore[arg-type]  # any of its fields
        return Rules(self.dynamo, TABLE, REGION, self.clock).create(rule)

    @property
    def passed(self) -> list[tuple[int, object]]:
        """Version and threshold of what was told, in order."""
        return [(alert.version, alert.threshold) for alert in self.told.alerts]

    def evaluate(self, rule: Rule, old: int, new: int, version: int) -> None:
        """The evaluator meets a record of this update."""

        def refuse(sequence: int, reason: str) -> None:
            raise AssertionError((sequence, reason))

        notifier = Notifier(self.told, self.told, self.dynamo, TABLE, self.clock)
        counter = rule.counter or "a:1"
        change = TotalChange(version, counter, old, new, version, self.clock.at_ms)
        evaluated = ChainEvaluator(self.dynamo, TABLE, notifier, refuse).evaluate(
            [Link(change, rule)]
        )
        assert evaluated.error is None


@pytest.fixture
def world() -> World:
    """Empty."""
    return World()


def test_a_total_beyond_the_threshold_is_told_once_the_rule_is_in_force(world: World) -> None:
    """Not before: what changes until then nobody would evaluate."""
    world.total("a:1", 150)
    rule = world.rule(counter="a:1")

    assert world.initial_scan.run(rule) == 1

    (alert,) = world.told.alerts
    assert world.clock.at_ms > rule.effective_from_ms
    assert (alert.old, alert.new, alert.threshold, alert.version) == (150, 150, 100, 3)
    assert rule.is_effective_at(alert.at_ms)
    assert [one.alert for one in AlertLog(world.dynamo, TABLE).newest("a:1")] == [alert]


def test_again_it_tells_nothing_more(world: World) -> None:
    """The state of this revision says that it was told; another revision is another question."""
    world.total("a:1", 150)
    rule = world.rule(counter="a:1")

    assert [world.initial_scan.run(rule) for _ in range(2)] == [1, 0]
    rules = Rules(world.dynamo, TABLE, REGION, world.clock)
    assert world.initial_scan.run(rules.set("r", lambda _: world_rule(rule, 120))) == 1


def world_rule(rule: Rule, threshold: int) -> Rule:
    """The rule with another threshold."""
    return Rule(
        name=rule.name,
        counter=rule.counter,
        threshold=threshold,
        direction=rule.direction,
        evaluate_in=rule.evaluate_in,
    )


@pytest.mark.parametrize("value", [99, 0, -100])
def test_a_total_that_is_not_beyond_tells_nothing(world: World, value: int) -> None:
    """Nor does a counter that was never recorded."""
    world.total("a:1", value)

    assert world.initial_scan.run(world.rule(counter="a:1")) == 0
    assert world.initial_scan.run(world.rule(name="s", counter="a:none", threshold=0)) == 0


def test_a_crossing_that_the_evaluator_saw_is_not_told_again(world: World) -> None:
    """Whoever comes first: the state tells."""
    rule = world.rule(counter="a:1")
    world.clock.at_ms = rule.effective_from_ms
    world.total("a:1", 150, version=4)
    world.evaluate(rule, 50, 150, version=4)

    assert world.initial_scan.run(rule) == 0

    other = world.rule(name="s", counter="a:2")
    world.total("a:2", 150, version=4)
    assert world.initial_scan.run(other) == 1
    world.evaluate(other, 50, 150, version=4)
    assert len(world.told.alerts) == 2


def test_what_an_older_revision_tells_arms_no_newer_one(world: World) -> None:
    """Somebody is late with the question; the revision of now has alerted, and is not back yet."""
    first = world.rule(counter="a:1", threshold=90)
    rules = Rules(world.dynamo, TABLE, REGION, world.clock)
    second = rules.set("r", lambda _: replace(first, threshold=100, rearm=50))
    world.clock.at_ms = second.effective_from_ms
    world.evaluate(second, 40, 150, version=4)
    world.evaluate(second, 150, 95, version=5)
    world.total("a:1", 95, version=5)
    assert world.initial_scan.run(first) == 1

    world.evaluate(second, 95, 120, version=6)

    assert world.passed == [(4, 100), (5, 90)]


def test_what_the_last_revision_has_still_to_evaluate_is_not_lost(world: World) -> None:
    """The stream lags; meanwhile the rule was changed, and the total told by the new revision."""
    first = world.rule(counter="a:1")
    world.clock.at_ms = first.effective_from_ms
    world.evaluate(first, 50, 150, version=4)
    world.evaluate(first, 150, 50, version=5)
    made_ms = world.clock.at_ms
    rules = Rules(world.dynamo, TABLE, REGION, world.clock)
    second = rules.set("r", lambda _: world_rule(first, 120))
    world.total("a:1", 160, version=6)
    assert world.initial_scan.run(second) == 1

    world.clock.at_ms = made_ms
    world.evaluate(first, 50, 150, version=4)
    world.evaluate(first, 50, 160, version=6)

    assert world.passed == [(4, 100), (6, 120), (6, 100)]


def test_a_prefix_finds_its_counters(world: World) -> None:
    """Those that begin so, of every kind, and no strict counter with bins."""
    for n in range(250):
        world.total(f"a:{n}", 150 if n % 2 else 50)
    world.total("b:1", 150)
    world.total("a:strict", 150, method="atomic")
    world.total("a:bins", 0, method="atomic", bins=4)

    assert world.initial_scan.run(world.rule(prefix="a:")) == 126
    assert world.initial_scan.run(world.rule(name="all", prefix="")) == 127


def test_one_counter_that_fails_hides_no_other_and_the_next_call_goes_on(world: World) -> None:
    """What was told is not told again."""
    for n in range(3):
        world.total(f"a:{n}", 150)
    rule = world.rule(prefix="a:")
    world.dynamo.faults[:] = [Fault(Throttled("slow down"))]

    with pytest.raises(ServiceFailed, match=r"1 of its counters .*alert set r --now"):
        world.initial_scan.run(rule)
    assert len(world.told.alerts) == 2
    assert world.initial_scan.run(rule) == 1


def test_a_rule_that_is_far_from_being_in_force_is_not_waited_for(world: World) -> None:
    """A clock must be wrong."""
    rule = world.rule(counter="a:1")
    world.clock.at_ms -= HOUR_MS

    with pytest.raises(ServiceFailed, match="is effective in"):
        world.initial_scan.run(rule)
    assert world.clock.slept_ms == []
    assert NOW_MS % SECOND_MS == 0
