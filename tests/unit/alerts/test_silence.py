"""A counter that had crossed before its rule is found, and no other."""

from typing import Any

import pytest

from countledger import Rule
from countledger.consumers.alerts.service import SilenceReader
from countledger.infra.status.gathering import silent_facts
from countledger.testing import MemoryStack


def _stack(**values: int) -> MemoryStack:
    stack = MemoryStack()
    for name, value in values.items():
        stack.ledger.record(f"a:{name}", value)
    return stack


def _rule(stack: MemoryStack, **spec: Any) -> Rule:  # noqa: ANN401 - of a rule
    rule = stack.ledger.alerts.create("rule", **{"direction": "rising", **spec})
    stack.advance(seconds=10)
    return rule


def _silent(stack: MemoryStack, rule: Rule, *names: str) -> list[tuple[str, object, object]]:
    found = SilenceReader(stack.ledger.connection).silent([(rule, f"a:{name}") for name in names])
    return [(one.counter, one.value, one.passed) for one in found]


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"threshold": 100}, [("a:high", 150, 100)]),
        ({"threshold": 151}, []),
        ({"threshold": 20, "step": 50}, [("a:high", 150, 120)]),
        ({"threshold": 5, "direction": "falling"}, [("a:low", 3, 5)]),
        ({"threshold": 5, "direction": "falling", "step": 1}, [("a:low", 3, 3)]),
        ({"threshold": 100, "direction": "both"}, []),
    ],
)
def test_what_was_past_the_threshold_before_is_silent(spec: dict[str, Any], found: object) -> None:
    stack = _stack(high=150, low=3)
    rule = _rule(stack, prefix="a:", **spec)

    assert _silent(stack, rule, "high", "low", "none") == found


def test_what_has_alerted_is_not_silent_also_long_after() -> None:
    stack = _stack(old=150, new=1)
    rule = _rule(stack, prefix="a:", threshold=100)
    stack.ledger.record("a:new", 150)
    assert [one["counter"] for one in stack.alerts] == ["a:new"]
    assert _silent(stack, rule, "old", "new") == [("a:old", 150, 100)]

    stack.advance(days=8)  # the state of an armed rule has expired, and the log has not

    assert _silent(stack, rule, "old", "new") == [("a:old", 150, 100)]
    # For another threshold there was no alert.
    moved = stack.ledger.alerts.set("rule", threshold=90)
    stack.advance(days=8)
    assert _silent(stack, moved, "new") == [("a:new", 151, 90)]


def test_what_passed_more_steps_at_once_than_have_an_alert_each_is_not_silent() -> None:
    stack = _stack(one=1)
    rule = _rule(stack, prefix="a:", threshold=10, step=1)
    stack.ledger.record("a:one", 500)

    assert [one["through"] for one in stack.alerts] == ["501"]
    assert _silent(stack, rule, "one") == []


def test_a_change_of_a_rule_after_its_alert_leaves_nothing_silent() -> None:
    """Unless its threshold changes: for that one there was no alert."""
    stack = _stack(one=1)
    _rule(stack, prefix="a:", threshold=100)
    stack.ledger.record("a:one", 150)

    other = stack.ledger.alerts.set("rule", rearm=50)
    assert _silent(stack, other, "one") == []
    moved = stack.ledger.alerts.set("rule", threshold=90)
    assert _silent(stack, moved, "one") == [("a:one", 151, 90)]


def test_status_names_rules_on_one_counter() -> None:
    stack = _stack(one=150, two=150)
    _rule(stack, counter="a:one", threshold=100)
    stack.ledger.alerts.create("prefix", prefix="a:", threshold=100, direction="rising")

    (found,) = silent_facts(stack.ledger) or ()
    stack.ledger.alerts.set("rule", now=True)

    assert (found.rule, found.counter, found.value, found.passed) == ("rule", "a:one", 150, 100)
    assert silent_facts(stack.ledger) == ()
