"""Alert rules on every engine: changes one after the other, at the stated cost."""

from dataclasses import replace

import pytest

from countledger.consumers.alerts.rule import Direction, Rule
from countledger.consumers.alerts.rule_index import RuleCache
from countledger.consumers.alerts.rules import Rules
from countledger.ledger import keys
from countledger.ledger.errors import RuleExists
from countledger.ledger.limits import ALERT_RULES_AGE_MS
from countledger.ledger.operations import Compare, Delete, Query
from tests.engines.store import Store

HERE = "here"
RULE = Rule(
    name="r", counter="likes:1", threshold=100, direction=Direction.RISING, evaluate_in=HERE
)


@pytest.fixture
def rules(store: Store) -> Rules:
    """None yet: they lie in one partition, which the tests of a table share."""
    dynamo = store.dynamo()
    everything = Query(store.counters, Compare("counter", "=", keys.ALERT_RULES))
    for item in [item for page in dynamo.pages(everything) for item in page]:
        dynamo.delete(Delete(store.counters, {name: item[name] for name in ("counter", "part")}))
    return Rules(store.process(region=HERE))


def test_rules_are_made_followed_and_deleted(rules: Rules) -> None:
    """What was is kept beside what is, and a name can be taken once."""
    first = rules.create(replace(RULE, prefix="", counter=None, rearm=-5))
    with pytest.raises(RuleExists):
        rules.create(RULE)
    second = rules.set("r", lambda rule: replace(rule, threshold=200))
    assert rules.list() == [second]
    assert rules.delete("r")

    snapshot = rules.read()
    assert (snapshot.number, snapshot.current) == (3, {})
    known = snapshot.revisions["r"]
    assert [rule.revision for rule in known] == [first.revision, second.revision]
    assert known[0].effective_until_ms == second.effective_from_ms
    assert snapshot.is_whole


def test_of_two_changes_at_once_neither_is_lost(rules: Rules) -> None:
    """The second meets another revision, and is decided again."""
    rules.create(RULE)
    other = Rules(rules.connection)
    raced: list[Rule] = []

    def change(rule: Rule) -> Rule:
        if not raced:
            raced.append(other.set("r", lambda rule: replace(rule, rearm=50)))
        return replace(rule, threshold=200)

    changed = rules.set("r", change)

    assert (changed.threshold, changed.rearm) == (200, 50)
    assert rules.get("r") == changed


def test_p9_rules_cost_what_they_say(rules: Rules) -> None:
    """A look for changes is one small read; what changes cost is in the table of operations."""
    meter = rules.connection.retrying.meter
    cache = RuleCache(rules)
    cache.index()
    rules.create(RULE)
    rules.delete("r")

    before = meter.read_units
    cache.index()
    within = meter.read_units
    rules.connection.clock.sleep_ms(ALERT_RULES_AGE_MS)
    cache.index()
    changed = meter.read_units
    rules.connection.clock.sleep_ms(ALERT_RULES_AGE_MS)
    cache.index()

    assert within == before
    assert (changed - within, meter.read_units - changed) == (2, 1)
