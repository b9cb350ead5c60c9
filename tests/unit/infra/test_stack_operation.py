"""The end of an operation on a stack is read from its own events."""

import pytest

from countledger.infra.deploy.stack_operation import StackEvent, ending_in

_STACK = "AWS::CloudFormation::Stack"


def event(status: str, by: str = "mine", *, kind: str = _STACK, name: str = "s") -> StackEvent:
    return StackEvent(name, status, f"why {name}", kind, "", by)


BEFORE = [event("UPDATE_COMPLETE", "before")]
FAILED = event("UPDATE_FAILED", kind="AWS::SQS::Queue", name="Queue")


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ([*BEFORE], None),
        ([*BEFORE, event("UPDATE_IN_PROGRESS")], None),
        ([*BEFORE, event("UPDATE_COMPLETE_CLEANUP_IN_PROGRESS")], None),
        ([*BEFORE, event("CREATE_COMPLETE", kind="AWS::SQS::Queue")], None),
        ([*BEFORE, event("UPDATE_IN_PROGRESS"), event("UPDATE_COMPLETE")], "UPDATE_COMPLETE"),
        # A rollback that follows by itself, should its events carry no token.
        (
            [event("UPDATE_IN_PROGRESS"), FAILED, event("UPDATE_ROLLBACK_COMPLETE", "")],
            "UPDATE_ROLLBACK_COMPLETE",
        ),
    ],
)
def test_an_operation_ends_by_its_own_event_of_the_stack(
    events: list[StackEvent], status: str | None
) -> None:
    ending = ending_in(events, "mine")

    assert (ending and ending.status) == status
    if FAILED in events:
        assert ending is not None
        assert ending.reason() == "Queue: why Queue"
