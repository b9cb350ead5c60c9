"""Which topics the evaluator of a region may publish to."""

from __future__ import annotations

import pytest

from countledger.consumers.alerts.rule import Topic
from countledger.consumers.alerts.services import check_place
from countledger.ledger.errors import BadRule

ARN = "arn:aws:sns:eu-central-1:111122223333:alarms"


@pytest.mark.parametrize("allowed", [[ARN], [ARN[:-6] + "*"], ["arn:aws:sns:x:1:y", ARN]])
def test_a_topic_of_here_that_the_stack_names_is_taken(allowed: list[str]) -> None:
    """By its ARN, or by a star for part of it, as in a policy."""
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
    """When the rule is made, and not when it fires."""
    with pytest.raises(BadRule, match=reason):
        check_place(Topic(ARN), region, partition, allowed)
