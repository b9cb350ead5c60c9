"""What starts the compaction of a namespace: its schedule at EventBridge Scheduler."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from countledger.ledger.errors import ServiceFailed
from countledger.ledger.service_errors import translated

if TYPE_CHECKING:
    from mypy_boto3_scheduler import EventBridgeSchedulerClient

# A schedule's name at the service: 64 characters, of these alone.
_FOREIGN: Final = re.compile(r"[^0-9A-Za-z_.-]")
_LEGIBLE: Final = 40
_DIGEST_BYTES: Final = 10
# A run that could not be started is given up before the next one is due to be of use: the
# counters stay in the index.
_RETRY: Final[dict[str, int]] = {"MaximumRetryAttempts": 3, "MaximumEventAgeInSeconds": 600}


def trigger_name(namespace: str) -> str:
    """The name of a namespace's schedule at the service: legible, and no other namespace's."""
    digest = blake2b(namespace.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{_FOREIGN.sub('_', namespace)[:_LEGIBLE]}-{digest}"


@dataclass(frozen=True, slots=True)
class Triggers:
    """The stack's schedules at EventBridge Scheduler.

    Attributes:
        client: of EventBridge Scheduler.
        group: the stack's group of schedules.
        target_arn: the function that they invoke.
        role_arn: the role under which they do.
    """

    client: EventBridgeSchedulerClient
    group: str
    target_arn: str
    role_arn: str

    def put(self, namespace: str, expression: str) -> None:
        """Make or change the schedule of a namespace: one or two calls.

        Raises:
            ServiceFailed: the service did not take it; for a bad expression with its reason.
        """
        request = {
            "Name": trigger_name(namespace),
            "GroupName": self.group,
            "ScheduleExpression": expression,
            "FlexibleTimeWindow": {"Mode": "OFF"},
            "State": "ENABLED",
            "Description": f"countledger: compact namespace {namespace!r}"[:512],
            "Target": {
                "Arn": self.target_arn,
                "RoleArn": self.role_arn,
                "Input": json.dumps({"namespace": namespace}),
                "RetryPolicy": _RETRY,
            },
        }
        update: Any = self.client.update_schedule
        create: Any = self.client.create_schedule
        # The third is for one that another process made between the first two.
        for call, refusal in (
            (update, "ResourceNotFoundException"),
            (create, "ConflictException"),
            (update, "ResourceNotFoundException"),
        ):
            if self._answered(call, refusal, request):
                return
        raise ServiceFailed(f"the schedule of namespace {namespace!r} comes and goes; try again")

    def delete(self, namespace: str) -> None:
        """Delete the schedule of a namespace; that there is none is no error. One call."""
        request = {"Name": trigger_name(namespace), "GroupName": self.group}
        self._answered(self.client.delete_schedule, "ResourceNotFoundException", request)

    def state(self, namespace: str) -> str:
        """`enabled` or `disabled`, or `missing` where the service has none. One call."""
        request = {"Name": trigger_name(namespace), "GroupName": self.group}
        answer = self._answered(self.client.get_schedule, "ResourceNotFoundException", request)
        return str(answer["State"]).lower() if answer else "missing"

    def _answered(self, call: Any, refusal: str, request: dict[str, Any]) -> Any:  # noqa: ANN401 - any call
        """The answer, or None where the service refused for this reason."""
        with translated(f"{call.__name__} of {request['Name']}"):
            try:
                return call(**request)
            except ClientError as error:
                if error.response["Error"]["Code"] != refusal:
                    raise
                return None
