"""Rules as users handle them: what a rule rests on is checked before it is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from countledger.consumers.alerts.alert import FailedAlert
from countledger.consumers.alerts.alert_log import AlertLog
from countledger.consumers.alerts.alerts import Alerts, RuleChange
from countledger.consumers.alerts.rules import Rules
from countledger.consumers.totals import TotalsReader
from countledger.ledger import keys
from countledger.ledger.errors import (
    BadRule,
    CorruptItem,
    NoSuchRule,
    RuleExists,
    TargetRefused,
    WrongKind,
    WrongRegion,
)
from tests.unit.ledger.clocks import ManualClock
from tests.unit.ledger.memory import MemoryClient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.consumers.alerts.alert import Alert
    from countledger.consumers.alerts.dead_letters import Resender
    from countledger.consumers.alerts.initial_scan import InitialScan
    from countledger.consumers.alerts.rule import Target

TABLE = "counters"
HOME = "eu-central-1"
ARN = f"arn:aws:sns:{HOME}:111122223333:alarms"
WISH: Any = {"counter": "likes:1", "threshold": 100, "direction": "rising"}


@dataclass
class Reachable:
    """Targets and the services to them, all of which are open but those that are named."""

    away: set[str] = field(default_factory=set)
    published: list[tuple[Alert, Target]] = field(default_factory=list)

    def check(self, target: Target) -> None:
        """Whether it is one of them."""
        if str(target) in self.away:
            raise TargetRefused(f"{target} is away")

    def publish(self, alerts: Sequence[Alert], target: Target) -> list[FailedAlert]:
        """Take alerts to a target."""
        if str(target) in self.away:
            return [FailedAlert(alert, "it is away") for alert in alerts]
        self.published += [(alert, target) for alert in alerts]
        return []

    @property
    def targets(self) -> Reachable:
        """These."""
        return self

    @property
    def publisher(self) -> Reachable:
        """To these."""
        return self

    @property
    def resender(self) -> Resender:
        """Of no use here."""
        raise AssertionError("there are no dead letters here")

    @property
    def initial_scan(self) -> InitialScan:
        """Of no use here."""
        raise AssertionError("nobody asked for it")


def _alerts(
    dynamo: MemoryClient, *, region: str = HOME, targets: Reachable | None = None
) -> Alerts:
    rules = Rules(dynamo, TABLE, region, ManualClock())
    services = targets or Reachable()
    return Alerts(rules, services, TotalsReader(dynamo, TABLE), AlertLog(dynamo, TABLE), HOME)


@pytest.fixture
def dynamo() -> MemoryClient:
    """Empty tables."""
    return MemoryClient()


def _strict(dynamo: MemoryClient, counter: str, **attributes: object) -> None:
    key = keys.total_key(counter)
    item = {**key, "method": "atomic", "total": 5, "version": 1, "incarnation": "m", **attributes}
    dynamo.tables.setdefault(TABLE, {})[key["counter"], key["part"]] = item


def test_a_rule_is_made_changed_read_and_deleted(dynamo: MemoryClient) -> None:
    """By name."""
    alerts = _alerts(dynamo)

    made = alerts.create("r", **WISH)
    changed = alerts.set("r", threshold=200, to=ARN)

    assert (made.threshold, str(made.target), made.evaluate_in) == (100, "bus", HOME)
    assert (changed.threshold, str(changed.target), changed.counter) == (200, ARN, "likes:1")
    assert alerts.list() == [alerts.get("r")] == [changed]
    assert alerts.delete("r")
    assert not alerts.delete("r")
    with pytest.raises(NoSuchRule):
        alerts.set("r", threshold=5)


def test_a_name_is_taken_once(dynamo: MemoryClient) -> None:
    """With the way to change it."""
    _alerts(dynamo).create("r", **WISH)

    with pytest.raises(RuleExists, match="alert set r"):
        _alerts(dynamo).create("r", **WISH)


def test_a_rule_on_a_strict_counter_with_bins_is_refused_with_the_reason(
    dynamo: MemoryClient,
) -> None:
    """It has no single total; one without bins has."""
    _strict(dynamo, "seats:spread", bins=4)
    _strict(dynamo, "seats:plain")
    alerts = _alerts(dynamo)

    with pytest.raises(WrongKind, match="4 bins: its value is spread over many items"):
        alerts.create("r", counter="seats:spread", threshold=1, direction="falling")
    alerts.create("r", counter="seats:plain", threshold=1, direction="falling")
    with pytest.raises(WrongKind, match="4 bins"):
        alerts.set("r", counter="seats:spread")
    with pytest.raises(WrongKind, match="4 bins"):
        list(alerts.apply({"r": WISH | {"counter": "seats:spread"}}))
    assert alerts.get("r").counter == "seats:plain"


def test_a_rule_on_a_prefix_reads_no_total(dynamo: MemoryClient) -> None:
    """It names no counter that could have bins."""
    alerts = _alerts(dynamo)

    alerts.create("one", **WISH)
    of_counter, before = dynamo.calls.count("get"), len(dynamo.calls)
    alerts.create("many", prefix="likes:", threshold=100, direction="rising")

    assert dynamo.calls[before:].count("get") == of_counter - 1


def test_an_unreachable_target_is_refused_when_the_rule_is_made(dynamo: MemoryClient) -> None:
    """And when it is changed."""
    alerts = _alerts(dynamo, targets=Reachable({ARN}))

    with pytest.raises(TargetRefused):
        alerts.create("r", **WISH, to=ARN)
    alerts.create("r", **WISH)
    with pytest.raises(TargetRefused):
        alerts.set("r", to=ARN)
    assert str(alerts.get("r").target) == "bus"


def test_rules_are_kept_where_they_are_evaluated(dynamo: MemoryClient) -> None:
    """At home, unless said otherwise; elsewhere it has to be said."""
    away = _alerts(dynamo, region="eu-west-1")

    with pytest.raises(WrongRegion, match="use a client of eu-central-1"):
        away.create("r", **WISH)
    with pytest.raises(WrongRegion, match="works in eu-central-1"):
        _alerts(dynamo).create("r", evaluate_in="eu-west-1", **WISH)
    assert away.create("r", evaluate_in="eu-west-1", **WISH).evaluate_in == "eu-west-1"


def test_a_file_makes_changes_and_leaves_what_is_so(dynamo: MemoryClient) -> None:
    """Doing it again changes nothing; what the file does not name stays."""
    alerts = _alerts(dynamo)
    alerts.create("other", **WISH)
    alerts.create("b", **WISH)
    specs: dict[str, Any] = {"a": WISH, "b": {**WISH, "rearm": 5}}

    first = [(rule.name, change) for rule, change in alerts.apply(specs)]
    second = [(rule.name, change) for rule, change in alerts.apply(specs)]

    assert first == [("a", RuleChange.CREATED), ("b", RuleChange.CHANGED)]
    assert second == [("a", RuleChange.UNCHANGED), ("b", RuleChange.UNCHANGED)]
    assert [rule.name for rule in alerts.list()] == ["a", "b", "other"]


def test_what_a_file_leaves_out_has_its_default(dynamo: MemoryClient) -> None:
    """Unlike `set`, where it stays."""
    alerts = _alerts(dynamo)
    alerts.create("r", **WISH, rearm=5)

    ((rule, change),) = alerts.apply({"r": WISH})

    assert (change, rule.rearm) == (RuleChange.CHANGED, None)


def test_a_file_is_checked_before_the_first_rule_is_written(dynamo: MemoryClient) -> None:
    """All of it."""
    alerts = _alerts(dynamo)

    with pytest.raises(BadRule):
        list(alerts.apply({"a": WISH, "b": WISH | {"rearm": 500}}))
    assert alerts.list() == []


def test_a_rule_that_cannot_be_read_is_told_of_and_can_be_deleted(
    dynamo: MemoryClient,
) -> None:
    """It hides no other."""
    alerts = _alerts(dynamo)
    alerts.create("r", **WISH)
    alerts.create("corrupt", **WISH)
    key = keys.rule_key("corrupt")
    del dynamo.tables[TABLE][key["counter"], key["part"]]["threshold"]

    assert [rule.name for rule in alerts.list()] == ["r"]
    assert list(alerts.unreadable()) == ["corrupt"]
    with pytest.raises(CorruptItem, match="alert delete corrupt"):
        list(alerts.apply({"corrupt": WISH}))
    assert alerts.delete("corrupt")
    assert alerts.unreadable() == {}


def test_a_trial_goes_the_way_of_alerts_and_says_that_it_is_one(dynamo: MemoryClient) -> None:
    """Through the same publisher, to the rule's own target."""
    services = Reachable()
    alerts = _alerts(dynamo, targets=services)
    rule = alerts.create("r", **WISH, to=ARN)

    alert = alerts.test("r", "likes:1")

    assert services.published == [(alert, rule.target)]
    assert alert.test
    assert alert.id.startswith("test/")


def test_a_trial_that_would_prove_nothing_is_refused(dynamo: MemoryClient) -> None:
    """No such rule, a counter that it does not watch, a target that takes nothing."""
    services = Reachable()
    alerts = _alerts(dynamo, targets=services)
    alerts.create("r", **WISH, to=ARN)
    services.away.add(ARN)

    with pytest.raises(NoSuchRule):
        alerts.test("other", "likes:1")
    with pytest.raises(BadRule, match="does not watch 'likes:2'"):
        alerts.test("r", "likes:2")
    with pytest.raises(TargetRefused, match="did not accept the message: it is away"):
        alerts.test("r", "likes:1")
