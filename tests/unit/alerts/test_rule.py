"""Rules: values that are valid at birth."""

from decimal import Decimal
from typing import Any

import pytest

from countledger.consumers.alerts.delivery import check_place
from countledger.consumers.alerts.rule import Direction, Rule, Topic, changed_rule, rule_of
from countledger.ledger.errors import BadCounterName, BadRule

ARN = "arn:aws:sns:eu-central-1:111122223333:alarms"


def rule(**words: Any) -> Rule:  # noqa: ANN401 - of any field
    given = {"counter": "likes:1", "threshold": 100, "direction": "rising", **words}
    return Rule(**{"name": "r", "evaluate_in": "eu-central-1", **given})


_NUMBERS: list[Any] = ["100", 1.5, True, None, Decimal("NaN"), Decimal("Infinity"), 10**38]
_REFUSED: list[tuple[dict[str, Any], str]] = [
    *(
        ({"name": name}, "1 to 64 letters")
        for name in ("", "x" * 65, "-a", ".a", "a b", "a#b", "a:b", "ä", "a\n", 7)
    ),
    ({"prefix": ""}, "either a counter or a prefix"),
    ({"counter": None}, "either a counter or a prefix"),
    *(({"threshold": value}, "threshold") for value in _NUMBERS),
    ({"rearm": "x"}, "re-arm level"),
    ({"step": Decimal("NaN")}, "step"),
    ({"step": 0}, "step"),
    ({"step": -5}, "step"),
    ({"step": 10, "rearm": 50}, "step"),
    ({"direction": "up"}, "rising, falling, both"),
    ({"direction": "rising", "rearm": 100}, "not below"),
    ({"direction": "rising", "rearm": 101}, "not below"),
    ({"direction": "falling", "rearm": 100}, "not above"),
    ({"direction": "falling", "rearm": 99}, "not above"),
    ({"direction": "both", "rearm": 50}, "one rule for each direction"),
]


@pytest.mark.parametrize(("spec", "reason"), _REFUSED, ids=str)
def test_what_no_rule_can_be_is_refused(spec: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadRule, match=reason):
        rule(**spec)


@pytest.mark.parametrize("prefix", ["a#", "a\x00", ":a", "x" * 513, " a", "a\u200bb", "e\u0301"])
def test_a_prefix_that_no_counter_has_is_refused(prefix: str) -> None:
    with pytest.raises(BadCounterName, match="prefix"):
        rule(counter=None, prefix=prefix)


@pytest.mark.parametrize("counter", ["", "a#", "a\x00", ":a", "x" * 513])
def test_a_name_that_no_counter_has_is_refused(counter: str) -> None:
    with pytest.raises(BadCounterName):
        rule(counter=counter)


def test_a_number_has_one_spelling() -> None:
    assert rule(threshold=Decimal("1E+2")) == rule(threshold=100)
    assert isinstance(rule(threshold=Decimal("100.00")).threshold, int)
    assert rule(threshold=0).threshold == 0
    assert rule(direction="both").direction is Direction.BOTH


def test_a_spec_has_defaults() -> None:
    assert rule_of(
        "r", "eu", {"counter": "a", "step": 1000, "direction": Direction.RISING}
    ) == Rule(
        name="r",
        counter="a",
        threshold=1000,
        step=1000,
        direction=Direction.RISING,
        evaluate_in="eu",
    )


@pytest.mark.parametrize(
    ("spec", "lacks"),
    [
        ({"counter": "a", "direction": Direction.RISING}, "threshold or a step"),
        ({"counter": "a", "threshold": 5}, "rising, falling or both"),
        ({"threshold": 5, "direction": Direction.RISING}, "either a counter or a prefix"),
    ],
)
def test_a_spec_that_lacks_something_is_refused(spec: Any, lacks: str) -> None:  # noqa: ANN401 - a spec
    with pytest.raises(BadRule, match=lacks):
        rule_of("r", "eu", spec)


def test_a_change_names_what_changes() -> None:
    there = rule(rearm=50)

    assert changed_rule(there, {"prefix": "likes:"}) == rule(
        counter=None, prefix="likes:", rearm=50
    )
    assert changed_rule(there, {"rearm": None, "threshold": 20}) == rule(threshold=20)
    with pytest.raises(BadRule, match="not below the threshold 20"):
        changed_rule(there, {"threshold": 20})


# ---- topics ----


@pytest.mark.parametrize("allowed", [[ARN], [ARN[:-6] + "*"], ["arn:aws:sns:x:1:y", ARN]])
def test_a_topic_of_here_that_the_stack_names_is_taken(allowed: list[str]) -> None:
    check_place(Topic(ARN), "eu-central-1", "aws", allowed)


@pytest.mark.parametrize(
    ("region", "partition", "allowed", "reason"),
    [
        ("eu-west-1", "aws", [ARN], "is in eu-central-1, and the rule is evaluated in eu-west-1"),
        ("eu-central-1", "aws-cn", [ARN], "partition 'aws'"),
        ("eu-central-1", "aws", [], r"AlertTopicArns \(it names none\)"),
        ("eu-central-1", "aws", [ARN + "2"], "may not publish"),
        ("eu-central-1", "aws", [ARN.upper()], "may not publish"),
    ],
)
def test_any_other_topic_is_refused(
    region: str, partition: str, allowed: list[str], reason: str
) -> None:
    with pytest.raises(BadRule, match=reason):
        check_place(Topic(ARN), region, partition, allowed)


@pytest.mark.parametrize(
    ("words", "value", "beyond"),
    [
        ({}, 99, False),
        ({}, 100, True),
        ({"direction": "falling"}, 100, True),
        ({"direction": "falling"}, 101, False),
        ({"direction": "both"}, 100, False),
        ({"step": 100}, 250, False),
        ({"window": "hour"}, 250, False),
    ],
)
def test_a_total_is_beyond_a_threshold_that_it_has_passed(
    words: dict[str, Any], value: int, *, beyond: bool
) -> None:
    assert rule(**words).is_beyond(value) is beyond
