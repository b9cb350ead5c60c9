"""The other services in memory: those of `countledger.testing`, with what tests set up in them."""

import json
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

from countledger.infra.memory.stack import MemoryQueues, MemoryScheduler, MemoryTargets
from tests.simulation.objects import Bucket, ObjectsClient


class Queues(MemoryQueues):
    """SQS: the ARN of a queue is its URL."""

    def create_queue(self, **request: str) -> dict[str, Any]:
        """The URL of a queue."""
        return {"QueueUrl": f"memory:{request['QueueName']}"}

    def delete_queue(self, **request: str) -> dict[str, Any]:
        """Delete a queue with its messages."""
        self.queues.pop(request["QueueUrl"], None)
        return {}

    def receive_message(
        self,
        QueueUrl: str,  # noqa: N803 - of the API
        VisibilityTimeout: int = 30,  # noqa: N803 - of the API
        **of: object,
    ) -> dict[str, Any]:
        """Up to ten messages, hidden for half a minute unless the request says for how long."""
        return super().receive_message(QueueUrl, VisibilityTimeout, **of)

    def get_queue_attributes(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - of the API
        """Its ARN."""
        return {"Attributes": {"QueueArn": request["QueueUrl"]}}

    def set_queue_attributes(self, **_: Any) -> dict[str, Any]:  # noqa: ANN401 - of the API
        """Every sender is allowed."""
        return {}


@dataclass
class Targets(MemoryTargets):
    """EventBridge and SNS, which send on to queues."""

    queues: Queues = field(kw_only=True)
    _rules: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    _topics: dict[str, list[str]] = field(default_factory=dict)

    def put_rule(self, **_: Any) -> dict[str, Any]:  # noqa: ANN401 - of the API
        """All alerts pass."""
        return {}

    def put_targets(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - of the API
        """Let the bus send to queues."""
        self._rules[request["Rule"]] += [one["Arn"] for one in request["Targets"]]
        return {}

    def remove_targets(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - of the API
        """Let it send to them no more."""
        self._rules.pop(request["Rule"], None)
        return {}

    def delete_rule(self, **_: Any) -> dict[str, Any]:  # noqa: ANN401 - of the API
        """Nothing is left of it."""
        return {}

    def create_topic(self, **request: str) -> dict[str, Any]:
        """The ARN of a topic."""
        arn = f"arn:aws:sns:us-east-1:000000000000:{request['Name']}"
        self._topics.setdefault(arn, [])
        return {"TopicArn": arn}

    def subscribe(self, **request: str) -> dict[str, Any]:
        """Let a topic send to a queue."""
        self._topics[request["TopicArn"]].append(request["Endpoint"])
        return {}

    def delete_topic(self, **request: str) -> dict[str, Any]:
        """Delete a topic."""
        del self._topics[request["TopicArn"]]
        return {}

    def put_events(self, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803 - of the API
        """Send alerts to the queues of the rules."""
        for url in [one for urls in self._rules.values() for one in urls]:
            for one in Entries:
                self._send(url, {"detail": json.loads(one["Detail"])})
        return super().put_events(Entries)

    def publish_batch(
        self,
        TopicArn: str,  # noqa: N803 - of the API
        PublishBatchRequestEntries: list[dict[str, Any]],  # noqa: N803 - of the API
    ) -> dict[str, Any]:
        """Send alerts to the queues of a topic."""
        if TopicArn not in self._topics:
            raise _error("NotFound", f"topic {TopicArn} does not exist", "Publish")
        for one in PublishBatchRequestEntries:
            attributes = {
                name: {"Type": given["DataType"], "Value": given["StringValue"]}
                for name, given in one["MessageAttributes"].items()
            }
            for url in self._topics[TopicArn]:
                said = {"Message": one["Message"], "MessageAttributes": attributes}
                self._send(url, said)
        return super().publish_batch(TopicArn, PublishBatchRequestEntries)

    def _send(self, url: str, message: dict[str, Any]) -> None:
        self.queues.send_message(url, json.dumps(message))


class Scheduler(MemoryScheduler):
    """EventBridge Scheduler, whose groups need no creation."""

    def create_schedule_group(self, **_: str) -> dict[str, Any]:
        """Every group exists."""
        return {}

    def delete_schedule_group(self, **_: str) -> dict[str, Any]:
        """Its schedules stay."""
        return {}


@dataclass
class Buckets:
    """S3."""

    buckets: dict[str, Bucket] = field(default_factory=dict)

    def create_bucket(self, **request: str) -> dict[str, Any]:
        """An empty bucket."""
        self.buckets.setdefault(request["Bucket"], Bucket())
        return {}

    def put_object(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - of the API
        """Store an object; its checksum need not be given."""
        of = self._of(request)
        if "ChecksumSHA256" in request:
            return of.put_object(**request)
        of.bucket.objects[request["Key"]] = request["Body"]
        return {}

    def get_object(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - of the API
        """An object."""
        return self._of(request).get_object(**request)

    def list_objects_v2(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - of the API
        """The keys that begin so."""
        return self._of(request).list_objects_v2(**{"Prefix": "", **request})

    def _of(self, request: dict[str, Any]) -> ObjectsClient:
        if request["Bucket"] not in self.buckets:
            raise _error("NoSuchBucket", f"no bucket {request['Bucket']}", "S3")
        return ObjectsClient(self.buckets[request["Bucket"]])


@dataclass
class Streams:
    """Kinesis: a stream of one shard for each name."""

    records: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))

    def create_stream(self, **_: Any) -> dict[str, Any]:  # noqa: ANN401 - of the API
        """Every stream exists."""
        return {}

    def delete_stream(self, **request: str) -> dict[str, Any]:
        """Delete a stream."""
        self.records.pop(request["StreamName"], None)
        return {}

    def get_shard_iterator(self, **request: str) -> dict[str, Any]:
        """From here on."""
        name = request["StreamName"]
        return {"ShardIterator": f"{name} {len(self.records[name])}"}

    def get_records(self, **request: str) -> dict[str, Any]:
        """All that came since."""
        name, first = request["ShardIterator"].split()
        return {"Records": self.records[name][int(first) :]}

    def put_records(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - of the API
        """Take all of them."""
        stream = self.records[request.get("StreamName") or request["StreamARN"]]
        taken = []
        for one in request["Records"]:
            stream.append({**one, "ApproximateArrivalTimestamp": datetime.now(UTC)})
            taken.append({"SequenceNumber": f"{len(stream):056d}", "ShardId": "shard"})
        return {"FailedRecordCount": 0, "Records": taken}


def _error(code: str, message: str, operation: str) -> ClientError:
    answer: Any = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": 404},
    }
    return ClientError(answer, operation)
