"""Where alerts go: the event bus and a topic of one region, which fail, are slow and take twice."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from botocore.exceptions import ClientError

from countledger.ledger.limits import SECOND_MS
from tests.simulation.faults import Fault
from tests.simulation.process import Process
from tests.simulation.queue import as_client_error

BUS: Final = "bus"
# For how long a call to a target stands that says nothing.
_SILENCE_MS: Final = 10 * SECOND_MS


def topic_of(region: str) -> str:
    """The ARN of a region's topic."""
    return f"arn:aws:sns:{region}:111122223333:alarms"


@dataclass(eq=False)
class Targets:
    """Those of one region.

    Attributes:
        take: told of each message that one of them took.
        down: which of them, `bus` or `topic`, take nothing just now: they refuse, are silent, gone.
    """

    take: Callable[[dict[str, Any]], None]
    down: dict[str, str] = field(default_factory=dict)


@dataclass
class EventsClient:
    """EventBridge, as one process reaches it."""

    targets: Targets
    process: Process

    def put_events(self, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803 - theirs
        """Take events; some may be refused."""

        def take(entry: dict[str, Any]) -> dict[str, str]:
            if _refuses(self.targets, "bus", self.process):
                return {"ErrorCode": "ThrottlingException", "ErrorMessage": "too fast"}
            self.targets.take(json.loads(entry["Detail"]))
            return {"EventId": "event"}

        return _send(
            "bus", self.targets, self.process, lambda: {"Entries": list(map(take, Entries))}
        )

    def describe_event_bus(self, **_: object) -> dict[str, Any]:
        """That it is there."""
        return _look("bus", self.targets, self.process)


@dataclass
class TopicsClient:
    """SNS, as one process reaches it."""

    targets: Targets
    process: Process

    def publish_batch(
        self,
        PublishBatchRequestEntries: list[dict[str, Any]],  # noqa: N803 - theirs
        **_: object,
    ) -> dict[str, Any]:
        """Take messages; some may be refused."""

        def request() -> dict[str, Any]:
            answer: dict[str, Any] = {"Successful": [], "Failed": []}
            for entry in PublishBatchRequestEntries:
                refused = _refuses(self.targets, "topic", self.process)
                if not refused:
                    self.targets.take(json.loads(entry["Message"]))
                answer["Failed" if refused else "Successful"].append({"Id": entry["Id"]})
            return answer

        return _send("topic", self.targets, self.process, request)

    def get_topic_attributes(self, **_: object) -> dict[str, Any]:
        """That it is there."""
        return _look("topic", self.targets, self.process)


def _refuses(targets: Targets, name: str, process: Process) -> bool:
    return name in targets.down or process.world.faults.strikes(
        Fault.UNPROCESSED, process.operation
    )


def _send(
    name: str, targets: Targets, process: Process, request: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    _fail_if_down(name, targets, process)
    done: dict[str, Any] = as_client_error(lambda: process.write(f"to the {name}", request))
    return done


def _look(name: str, targets: Targets, process: Process) -> dict[str, Any]:
    _fail_if_down(name, targets, process)
    answer: dict[str, Any] = {}
    as_client_error(lambda: process.read(f"is there a {name}", lambda: answer, attempts=4))
    return answer


def _fail_if_down(name: str, targets: Targets, process: Process) -> None:
    """Nobody finds it, or nothing comes for long."""
    how = targets.down.get(name)
    if how == "gone":
        raise ClientError({"Error": {"Code": "ResourceNotFoundException", "Message": name}}, name)
    if how == "silent":
        process.sleep_ms(_SILENCE_MS)
        answer: Any = {
            "Error": {"Code": "InternalFailure", "Message": "nothing came"},
            "ResponseMetadata": {"HTTPStatusCode": 500},
        }
        raise ClientError(answer, name)
