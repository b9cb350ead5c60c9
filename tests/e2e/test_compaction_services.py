"""The queue and the schedules against the services' answers that are rare: refusals and races."""

import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from countledger import CountLedger
from countledger.compaction.dispatcher import CompactCounter, WorkQueue, parse_work
from countledger.compaction.schedule import Triggers
from countledger.infra.local.stack import LocalStack
from countledger.ledger.clock import Backoff
from countledger.ledger.errors import CountledgerError, ServiceFailed
from tests.faults.injection import before_call, calls
from tests.unit.connections import connection_on
from tests.unit.ledger.clocks import ManualClock
from tests.unit.ledger.memory import MemoryClient

WORK = [CompactCounter(f"likes:{number}") for number in range(10)]


def _queue(client: Any, url: str) -> WorkQueue:  # noqa: ANN401 - a boto3 client
    clients = {"sqs": client}
    return WorkQueue(connection_on(MemoryClient(), clients=clients, compaction_queue_url=url))


@pytest.fixture
def queue(stack: LocalStack) -> Iterator[WorkQueue]:
    """A queue that nobody reads."""
    client = stack.client("sqs")
    url = client.create_queue(QueueName=f"q-{uuid.uuid4().hex}")["QueueUrl"]
    yield _queue(client, url)
    client.delete_queue(QueueUrl=url)


def _received(queue: WorkQueue) -> list[Any]:
    found: list[Any] = []
    while messages := queue.client.receive_message(
        QueueUrl=queue.url, MaxNumberOfMessages=10, WaitTimeSeconds=0
    ).get("Messages"):
        found += [parse_work(one["Body"]) for one in messages]
    return found


class Refusing:
    """Lets the queue refuse messages of a batch, so many in each call."""

    def __init__(self, client: Any, counts: list[int]) -> None:  # noqa: ANN401 - a boto3 client
        self.counts = iter(counts)
        self.refused: list[str] = []
        client.meta.events.register("provide-client-params.sqs.SendMessageBatch", self.take_out)
        client.meta.events.register("after-call.sqs.SendMessageBatch", self.put_back)

    def take_out(self, params: dict[str, Any], **_: object) -> dict[str, Any]:
        """What is refused does not reach the queue."""
        count = next(self.counts, 0)
        self.refused = [one["Id"] for one in params["Entries"][:count]]
        return {**params, "Entries": params["Entries"][count:]}

    def put_back(self, parsed: dict[str, Any], **_: object) -> None:
        """The answer tells."""
        if self.refused:
            parsed["Failed"] = [{"Id": one, "Code": "InternalError"} for one in self.refused]


def test_a_batch_is_sent_in_one_call(queue: WorkQueue) -> None:
    with calls(queue.client) as made:
        assert queue.send(WORK) == 10

    assert made == ["SendMessageBatch"]
    assert queue.backlog() == 10
    assert sorted(map(str, _received(queue))) == sorted(map(str, WORK))


def test_what_the_queue_refuses_is_sent_again_alone(queue: WorkQueue) -> None:
    Refusing(queue.client, [4, 2])
    with calls(queue.client) as made:
        assert queue.send(WORK) == 10

    assert len(made) == 3
    assert sorted(map(str, _received(queue))) == sorted(map(str, WORK))


def test_what_the_queue_keeps_refusing_is_withdrawn_and_counted(queue: WorkQueue) -> None:
    clock = ManualClock()
    Refusing(queue.client, [5, 3, 1])

    connection = replace(queue.connection, clock=clock)
    assert WorkQueue(connection, Backoff(attempts=3)).send(WORK) == 9

    assert len(clock.slept_ms) == 2


def test_a_queue_that_is_gone_is_told(stack: LocalStack) -> None:
    queue = _queue(stack.client("sqs"), f"{stack.url}/000000000000/none")

    with pytest.raises(ServiceFailed, match="SendMessageBatch to the compaction queue"):
        queue.send(WORK)


@pytest.fixture
def triggers(stack: LocalStack) -> Triggers:
    """The stack's, through a client of its own."""
    return CountLedger(session=stack.session(), endpoint_url=stack.url).schedules.triggers


def test_a_trigger_that_somebody_creates_first_is_the_same(
    stack: LocalStack, triggers: Triggers
) -> None:
    other = CountLedger(session=stack.session(), endpoint_url=stack.url).schedules.triggers
    name = f"c{uuid.uuid4().hex[:8]}"

    def first() -> None:
        other.put(name, "r1", "rate(1 hour)")

    with before_call(triggers.client, "CreateSchedule", first):
        triggers.put(name, "r1", "rate(1 hour)")
    triggers.put(name, "r2", "rate(1 day)")

    listed = stack.client("scheduler").list_schedules(GroupName=triggers.group)["Schedules"]
    ours = [one["Name"] for one in listed if one["Name"].startswith(name)]
    found = [
        stack.client("scheduler").get_schedule(GroupName=triggers.group, Name=one) for one in ours
    ]
    inputs = {one["ScheduleExpression"]: json.loads(one["Target"]["Input"]) for one in found}
    assert inputs == {
        "rate(1 hour)": {"namespace": name, "revision": "r1"},
        "rate(1 day)": {"namespace": name, "revision": "r2"},
    }
    triggers.delete(name, "r1")
    triggers.delete(name, "r1")
    assert (triggers.state(name, "r1"), triggers.state(name, "r2")) == ("missing", "enabled")
    triggers.delete(name, "r2")


def test_a_group_that_is_gone_is_told(stack: LocalStack, triggers: Triggers) -> None:
    assert stack.outputs["ScheduleGroupName"] == triggers.group
    triggers.group = "no-such-group"

    with pytest.raises(CountledgerError, match="no-such-group"):
        triggers.put("likes", "r1", "rate(1 hour)")
