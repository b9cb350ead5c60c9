"""What a change set means to a person."""

from typing import Any

import pytest

from countledger.infra.deploy.deployment import Effect, ResourceChange, changes_in

QUEUE = "AWS::SQS::Queue"
POLICY = "AWS::SQS::QueuePolicy"


def described(action: str, kind: str = QUEUE, name: str = "One", **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    change = {"Action": action, "LogicalResourceId": name, "ResourceType": kind, **more}
    return {"Type": "Resource", "ResourceChange": change}


@pytest.mark.parametrize(
    ("change", "effect", "dangerous"),
    [
        (described("Add"), Effect.ADD, False),
        (described("Modify", Replacement="False"), Effect.CHANGE, False),
        (described("Modify"), Effect.CHANGE, False),
        (described("Modify", Replacement="True"), Effect.REPLACE, True),
        (described("Modify", Replacement="Conditional"), Effect.MAY_REPLACE, True),
        (described("Modify", POLICY, Replacement="Conditional"), Effect.MAY_REPLACE, False),
        (described("Remove"), Effect.DELETE, True),
        (described("Remove", POLICY), Effect.DELETE, True),
        (described("Dynamic"), Effect.REPLACE, True),
        (described("SomethingNew"), Effect.REPLACE, True),
    ],
    ids=str,
)
def test_what_loses_something_is_dangerous(
    change: dict[str, Any],
    effect: Effect,
    dangerous: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    (found,) = changes_in([change])

    assert (found.effect, found.dangerous) == (effect, dangerous)


def test_the_dangerous_ones_come_first_and_causes_once() -> None:
    details = [
        {"Target": {"Attribute": "Properties", "Name": "Environment"}},
        {"Target": {"Attribute": "Properties", "Name": "Environment"}},
        {"Target": {"Attribute": "Tags"}},
    ]

    found = changes_in(
        [
            described("Modify", name="A", Replacement="False", Details=details),
            described("Remove", name="B"),
            {"Type": "Hook"},
        ]
    )

    assert found == (
        ResourceChange(Effect.DELETE, "B", QUEUE),
        ResourceChange(Effect.CHANGE, "A", QUEUE, ("Environment", "Tags")),
    )


def test_a_conditional_alarm_may_go_and_no_table() -> None:
    """A region that leaves takes its alarm with it; a stack is never to lose what it stores."""
    alarm = ResourceChange(Effect.DELETE, "A", "AWS::CloudWatch::Alarm")
    table = ResourceChange(Effect.DELETE, "T", "AWS::DynamoDB::GlobalTable")
    function = ResourceChange(Effect.REPLACE, "F", "AWS::Lambda::Function")

    assert [one.loses_data for one in (alarm, table, function)] == [False, True, True]
