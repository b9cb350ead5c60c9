"""Rules as users handle them: what a rule rests on is checked before it is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from countledger.consumers.alerts.message import Alert, FailedAlert
from countledger.consumers.alerts.rule import Target
from countledger.consumers.alerts.service import Alerts
from countledger.ledger import keys
from countledger.ledger.errors import (
    BadRule,
    CorruptItem,
    NoSuchRule,
    TargetRefused,
    WrongKind,
    WrongRegion,
)
from countledger.ledger.settings import SettingChange
from tests.unit.connections import connection_on
from tests.unit.ledger.memory import MemoryClient

TABLE = "counters"
HOME = "eu-central-1"
ARN = f"arn:aws:sns:{HOME}:111122223333:alarms"
SPEC: Any = {"counter": "likes:1", "threshold": 100, "direction": "rising"}


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
        return self

    @property
    def publisher(self) -> Reachable:
        return self


def _alerts(
    dynamo: MemoryClient, *, region: str = HOME, targets: Reachable | None = None
) -> Alerts:
    services: Any = targets or Reachable()
    return Alerts(connection_on(dynamo, region=region, home_region=HOME), services)


def _strict(dynamo: MemoryClient, counter: str, **attributes: object) -> None:
    key = keys.total_key(counter)
    item = {**key, "method": "atomic", "total": 5, "version": 1, "incarnation": "m", **attributes}
    dynamo.tables.setdefault(TABLE, {})[key["counter"], key["part"]] = item


def test_a_rule_on_a_strict_counter_with_bins_is_refused_with_the_reason(
    dynamo: MemoryClient,
) -> None:
    """It has no single total; one without bins has."""
    _strict(dynamo, "seats:spread", bins=4)
    _strict(dynamo, "seats:plain")
    alerts = _alerts(dynamo)

    with pytest.raises(WrongKind, match="4 bins: no update contains all"):
        alerts.create("r", counter="seats:spread", threshold=1, direction="falling")
    alerts.create("r", counter="seats:plain", threshold=1, direction="falling")
    with pytest.raises(WrongKind, match="4 bins"):
        alerts.set("r", counter="seats:spread")
    with pytest.raises(WrongKind, match="4 bins"):
        list(alerts.apply({"r": SPEC | {"counter": "seats:spread"}}))
    assert alerts.get("r").counter == "seats:plain"


def test_an_unreachable_target_is_refused_when_a_rule_is_made_and_changed(
    dynamo: MemoryClient,
) -> None:
    alerts = _alerts(dynamo, targets=Reachable({ARN}))

    with pytest.raises(TargetRefused):
        alerts.create("r", **SPEC, to=ARN)
    alerts.create("r", **SPEC)
    with pytest.raises(TargetRefused):
        alerts.set("r", to=ARN)
    assert str(alerts.get("r").target) == "bus"


def test_rules_are_kept_where_they_are_evaluated(dynamo: MemoryClient) -> None:
    """At home, unless said otherwise; elsewhere it has to be said."""
    away = _alerts(dynamo, region="eu-west-1")

    with pytest.raises(WrongRegion, match="use a client of eu-central-1"):
        away.create("r", **SPEC)
    with pytest.raises(WrongRegion, match="works in eu-central-1"):
        _alerts(dynamo).create("r", evaluate_in="eu-west-1", **SPEC)
    assert away.create("r", evaluate_in="eu-west-1", **SPEC).evaluate_in == "eu-west-1"
    assert _alerts(dynamo).create("s", **SPEC).evaluate_in == HOME


def test_a_rule_can_be_waited_for(dynamo: MemoryClient) -> None:
    """What is written after `create` has returned is evaluated by the rule."""
    alerts = _alerts(dynamo)
    clock = alerts.connection.clock

    at_once = alerts.create("at-once", **SPEC)
    assert not at_once.is_effective_at(clock.now_ms())
    created = alerts.create("waited-for", wait=True, **SPEC)
    assert created.is_effective_at(clock.now_ms() - 1_000)
    changed = alerts.set("waited-for", wait=True, threshold=7)
    assert changed.is_effective_at(clock.now_ms() - 1_000)


def test_a_file_creates_and_changes_rules_and_leaves_the_others(dynamo: MemoryClient) -> None:
    """What it leaves out of a rule has its default, unlike `set`, where it stays."""
    alerts = _alerts(dynamo)
    alerts.create("other", **SPEC)
    alerts.create("b", **SPEC, rearm=5)
    assert alerts.set("b", to=ARN).rearm == 5
    specs: dict[str, Any] = {"a": SPEC, "b": SPEC}

    with pytest.raises(BadRule):
        list(alerts.apply({"a": SPEC, "c": SPEC | {"rearm": 500}}))
    first = [(rule.name, change) for rule, change in alerts.apply(specs)]
    second = [(rule.name, change) for rule, change in alerts.apply(specs)]

    assert first == [("a", SettingChange.CREATED), ("b", SettingChange.CHANGED)]
    assert second == [("a", SettingChange.UNCHANGED), ("b", SettingChange.UNCHANGED)]
    assert [rule.name for rule in alerts.list()] == ["a", "b", "other"]
    assert (alerts.get("b").rearm, str(alerts.get("b").target)) == (None, "bus")


def test_a_trial_is_sent_as_an_alert_is_and_one_that_would_prove_nothing_is_refused(
    dynamo: MemoryClient,
) -> None:
    """No such rule, a counter that it does not watch, a target that takes nothing."""
    services = Reachable()
    alerts = _alerts(dynamo, targets=services)
    rule = alerts.create("r", **SPEC, to=ARN)

    alert = alerts.test("r", "likes:1")

    assert services.published == [(alert, rule.target)]
    assert (alert.test, alert.id[:5]) == (True, "test/")
    services.away.add(ARN)
    with pytest.raises(NoSuchRule):
        alerts.test("other", "likes:1")
    with pytest.raises(BadRule, match="does not watch 'likes:2'"):
        alerts.test("r", "likes:2")
    with pytest.raises(TargetRefused, match="did not accept the message: it is away"):
        alerts.test("r", "likes:1")


def test_a_corrupt_rule_is_named_and_can_be_deleted(dynamo: MemoryClient) -> None:
    alerts = _alerts(dynamo)
    alerts.create("corrupt", **SPEC)
    key = keys.rule_key("corrupt")
    del dynamo.tables[TABLE][key["counter"], key["part"]]["revisions"][0]["threshold"]

    assert [*alerts.unreadable()] == ["corrupt"]
    with pytest.raises(CorruptItem, match="alert delete corrupt"):
        list(alerts.apply({"corrupt": SPEC}))
    assert alerts.delete("corrupt")
