"""Queues of the embedded engine: one that hears of alerts, and the quarantine as it is deployed."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from countledger.consumers.alerts.delivery import DETAIL_TYPE, SOURCE
from countledger.consumers.quarantine import StoredQuarantine
from countledger.ledger.message_queue import MessageQueue
from countledger.ledger.quarantine import QuarantineSource, QuarantineStore
from tests.engines.store import Record, Store


def taken_out(client: Any, url: str) -> list[Any]:  # noqa: ANN401 - a boto3 client
    """The messages of a queue as JSON; they are deleted."""
    found: list[Any] = []
    while messages := client.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
        for message in messages:
            found.append(json.loads(message["Body"]))
            client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return found


@contextmanager
def listening(sqs: Any, events: Any, topics: Any, **detail: object) -> Iterator[tuple[str, str]]:  # noqa: ANN401
    """A queue that gets the alerts of the bus, and those of a topic: its URL, and the topic's ARN.

    Args:
        sqs: a client of SQS, as those of EventBridge and SNS.
        events: of EventBridge.
        topics: of SNS.
        detail: the pattern of the alerts of the bus; none: all.
    """
    name = f"t{uuid4().hex[:12]}"
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    asked = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    arn = asked["Attributes"]["QueueArn"]
    senders = {"Service": ["events.amazonaws.com", "sns.amazonaws.com"]}
    allowed = {
        "Effect": "Allow",
        "Principal": senders,
        "Action": "sqs:SendMessage",
        "Resource": arn,
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
    pattern = {
        "source": [SOURCE],
        "detail-type": [DETAIL_TYPE],
        **({"detail": detail} if detail else {}),
    }
    events.put_rule(Name=name, EventPattern=json.dumps(pattern))
    events.put_targets(Rule=name, Targets=[{"Id": "queue", "Arn": arn}])
    topic = topics.create_topic(Name=name)["TopicArn"]
    topics.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    try:
        yield url, topic
    finally:
        events.remove_targets(Rule=name, Ids=["queue"])
        events.delete_rule(Name=name)
        topics.delete_topic(TopicArn=topic)
        sqs.delete_queue(QueueUrl=url)


@dataclass(frozen=True)
class Queue:
    """A queue, and the quarantine that it is.

    Attributes:
        client: of SQS, the quarantine's own.
        quarantine: what the materializer puts records into.
    """

    client: Any
    quarantine: StoredQuarantine

    def messages(self) -> list[dict[str, Any]]:
        """Everything in it, taken out."""
        return taken_out(self.client, self.quarantine.queue.url)

    def records(self) -> list[Record]:
        """The records in it, taken out."""
        return [message["record"] for message in self.messages()]


@contextmanager
def new_queue(store: Store) -> Iterator[Queue]:
    """Make a queue; delete it at the end."""
    client: Any = store.connection.queues()
    url = client.create_queue(QueueName=f"quarantine-{uuid4().hex[:12]}")["QueueUrl"]
    try:
        records = QuarantineStore(store.connection)
        queue = MessageQueue(client, url, "the quarantine")
        yield Queue(client, StoredQuarantine(records, queue, QuarantineSource.LEDGER))
    finally:
        client.delete_queue(QueueUrl=url)
