"""Rules: values that are valid at birth."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from countledger.consumers.alerts.rule import (
    Bus,
    Direction,
    Rule,
    Topic,
    changed_rule,
    rule_of,
    target_of,
)
from countledger.ledger.errors import BadCounterName, BadRule

ARN = "arn:aws:sns:eu-central-1:111122223333:alarms"


def rule(**words: Any) -> Rule:  # noqa: ANN401 - of any field
    """A rule with what it must have."""
    given = {"counter": "likes:1", "threshold": 100, "direction": "rising", **words}
    return Rule(**{"name": "r", "evaluate_in": "eu-central-1", **given})


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 64])
def test_names_are_plain_and_short(name: str) -> None:
    """They stand in every alert's id."""
    assert rule(name=name).name == name


@pytest.mark.parametrize("name", ["", "x" * 65, "-a", ".a", "a b", "a#b", "a:b", "ä", "a\n", 7])
def test_other_names_are_refused(name: object) -> None:
    """With the grammar."""
    with pytest.raises(BadRule, match="1 to 64 letters"):
        rule(name=name)


@pytest.mark.parametrize("words", [{"prefix": ""}, {"counter": None}])
def test_a_rule_watches_a_counter_or_a_prefix(words: dict[str, Any]) -> None:
    """Not both, not neither."""
    with pytest.raises(BadRule, match="either a counter or a prefix"):
        rule(**words)


@pytest.mark.parametrize("prefix", ["a#", "a\x00", ":a", "x" * 513])
def test_a_prefix_that_no_counter_has_is_refused(prefix: str) -> None:
    """It would never alert."""
    with pytest.raises(BadCounterName, match="prefix"):
        rule(counter=None, prefix=prefix)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("threshold", {"threshold": value})
        for value in ("100", 1.5, True, None, Decimal("NaN"), Decimal("Infinity"), 10**38)
    ]
    + [("re-arm level", {"rearm": "x"}), ("step", {"step": Decimal("NaN")})],
)
def test_numbers_are_exact_and_fit_a_total(what: str, words: dict[str, Any]) -> None:
    """No floats, no texts, no more digits than a total has."""
    with pytest.raises(BadRule, match=what):
        rule(**words)


def test_a_number_has_one_spelling() -> None:
    """So that rules that mean the same are equal; zero is a threshold."""
    assert rule(threshold=Decimal("1E+2")) == rule(threshold=100)
    assert isinstance(rule(threshold=Decimal("100.00")).threshold, int)
    assert rule(threshold=0).threshold == 0


@pytest.mark.parametrize(
    ("direction", "rearm", "reason"),
    [
        ("rising", 100, "not below"),
        ("rising", 101, "not below"),
        ("falling", 100, "not above"),
        ("falling", 99, "not above"),
        ("both", 50, "one rule for each direction"),
    ],
)
def test_a_rearm_level_lies_behind_the_threshold(direction: str, rearm: int, reason: str) -> None:
    """Behind, seen in the direction of the rule."""
    with pytest.raises(BadRule, match=reason):
        rule(direction=direction, rearm=rearm)


@pytest.mark.parametrize("words", [{"step": 0}, {"step": -5}, {"step": 10, "rearm": 50}])
def test_a_step_is_above_zero_and_takes_no_rearm_level(words: dict[str, Any]) -> None:
    """Each multiple is a threshold of its own."""
    with pytest.raises(BadRule, match="step"):
        rule(**words)


def test_a_direction_is_one_of_three() -> None:
    """As text or as value."""
    assert rule(direction="both").direction is Direction.BOTH
    with pytest.raises(BadRule, match="rising, falling, both"):
        rule(direction="up")


@pytest.mark.parametrize(
    "arn",
    ["", "topic", "arn:aws:sqs:eu-central-1:111122223333:q", ARN + ":sub", "arn:aws:sns:::x", 5],
)
def test_a_topic_is_the_arn_of_one(arn: Any) -> None:  # noqa: ANN401 - what is no ARN
    """Queues, subscriptions and other texts are not."""
    with pytest.raises(BadRule, match="is not the ARN"):
        Topic(arn)


def test_a_target_is_written_as_one_text() -> None:
    """And read back."""
    assert target_of("bus") == Bus()
    assert target_of(ARN) == Topic(ARN)
    assert [str(Bus()), str(Topic(ARN))] == ["bus", ARN]
    assert (Topic(ARN).partition, Topic(ARN).region) == ("aws", "eu-central-1")


def test_a_revision_evaluates_from_its_beginning_to_its_end() -> None:
    """The end is the next one's beginning: every record has one revision, or none."""
    first = rule(effective_from_ms=1_000, effective_until_ms=3_000)
    second = rule(effective_from_ms=3_000)

    evaluated_by = {
        at_ms: [one.is_effective_at(at_ms) for one in (first, second)]
        for at_ms in (0, 1_000, 2_000, 3_000, 10**15)
    }

    assert evaluated_by == {
        0: [False, False],
        1_000: [True, False],
        2_000: [True, False],
        3_000: [False, True],
        10**15: [False, True],
    }


def test_a_wish_has_defaults() -> None:
    """The threshold is the step's, the target the bus."""
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
def test_a_wish_that_lacks_something_is_refused(spec: Any, lacks: str) -> None:  # noqa: ANN401 - a spec
    """Saying what."""
    with pytest.raises(BadRule, match=lacks):
        rule_of("r", "eu", spec)


def test_a_change_names_what_changes() -> None:
    """A prefix instead of a counter, a number taken back; the result is checked as a whole."""
    there = rule(rearm=50)

    assert changed_rule(there, {"prefix": "likes:"}) == rule(
        counter=None, prefix="likes:", rearm=50
    )
    assert changed_rule(there, {"rearm": None, "threshold": 20}) == rule(threshold=20)
    with pytest.raises(BadRule, match="not below the threshold 20"):
        changed_rule(there, {"threshold": 20})
