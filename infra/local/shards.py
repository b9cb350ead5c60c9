"""Reads the shards of a DynamoDB stream or of a Kinesis stream, parents before children.

`ShardSource` is what the pump needs of any stream.
"""

import base64
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from countledger.infra.local.delivery import StreamRecord

if TYPE_CHECKING:
    from mypy_boto3_dynamodbstreams import DynamoDBStreamsClient
    from mypy_boto3_kinesis import KinesisClient


_PAGE_RECORDS: Final = 1_000  # the most that GetRecords of either service gives
StartingPosition = Literal["TRIM_HORIZON", "LATEST"]


@dataclass(frozen=True, slots=True)
class ListedShard:
    """A shard of a stream, and the one it was split from."""

    shard_id: str
    parent_id: str | None


def list_shards(streams: "DynamoDBStreamsClient", stream_arn: str) -> Iterator[ListedShard]:
    """All shards of the stream that the service still shows. One call per hundred shards."""
    after: dict[str, Any] = {}
    while True:
        answer = streams.describe_stream(StreamArn=stream_arn, **after)["StreamDescription"]
        for shard in answer["Shards"]:
            yield ListedShard(shard["ShardId"], shard.get("ParentShardId"))
        if "LastEvaluatedShardId" not in answer:
            return
        after = {"ExclusiveStartShardId": answer["LastEvaluatedShardId"]}


def readable(shards: Collection[ListedShard], finished: Collection[str]) -> list[ListedShard]:
    """The shards whose turn it is: not finished, and their parent is finished or long gone."""
    known = {shard.shard_id for shard in shards}
    return [
        shard
        for shard in shards
        if shard.shard_id not in finished
        and (shard.parent_id not in known or shard.parent_id in finished)
    ]


class ShardReader(Protocol):
    """Reads one shard from a starting position, in order."""

    @property
    def ended(self) -> bool:
        """Whether the shard is closed and all of it has been read."""

    def read(self) -> tuple[int, list[StreamRecord]]:
        """One request: how many records came, and those of them that pass the filter."""


class ShardSource(Protocol):
    """A stream, as an event source mapping reads it."""

    @property
    def arn(self) -> str:
        """The stream's name in events."""

    def shards(self) -> list[ListedShard]:
        """All shards that the service still shows."""

    def reader(self, shard_id: str, start: StartingPosition, after: str | None) -> ShardReader:
        """A reader of one of them; after a sequence number, if that is given."""


@dataclass(frozen=True, slots=True)
class StreamSource:
    """A DynamoDB stream.

    Attributes:
        streams: the client to it.
        arn: which stream.
        passes: whether a record passes the mapping's filter.
    """

    streams: "DynamoDBStreamsClient"
    arn: str
    passes: Callable[[Mapping[str, Any]], bool]

    def shards(self) -> list[ListedShard]:
        """All shards that the service still shows. One call per hundred shards."""
        return list(list_shards(self.streams, self.arn))

    def reader(
        self, shard_id: str, start: StartingPosition, after: str | None
    ) -> "StreamShardReader":
        """A reader of one of them; after a sequence number, if that is given."""
        made = StreamShardReader(self.streams, self.arn, shard_id, start=start, passes=self.passes)
        made.last_sequence = after
        return made


class _IteratorReader(ABC):
    """Reads one shard of either service by iterators, which the services let expire.

    Attributes:
        last_sequence: of the last record read, passed by a filter or not.
        ended: whether the shard is closed and all of it has been read.
    """

    def __init__(self, client: Any, arn: str, shard_id: str, start: StartingPosition) -> None:  # noqa: ANN401 - of either service
        self._client = client
        self._arn = arn
        self._shard_id = shard_id
        self._start: StartingPosition = start
        self._iterator: str | None = None
        self.last_sequence: str | None = None
        self.ended = False

    def read(self) -> tuple[int, list[StreamRecord]]:
        """One GetRecords: how many records came, and those of them that pass the filter."""
        if self.ended:
            return 0, []
        try:
            answer = self._client.get_records(
                ShardIterator=self._iterator or self._new_iterator(), Limit=_PAGE_RECORDS
            )
        except self._client.exceptions.ExpiredIteratorException:
            # Failures held up the shard for longer than an iterator lives (5 or 15 minutes).
            self._iterator = None
            return self.read()
        self._iterator = answer.get("NextShardIterator")
        self.ended = self._iterator is None
        records = answer["Records"]
        if records:
            self.last_sequence = self._sequence(records[-1])
        return len(records), self._delivered(records)

    @abstractmethod
    def _new_iterator(self) -> str: ...

    @abstractmethod
    def _sequence(self, record: Mapping[str, Any]) -> str: ...

    @abstractmethod
    def _delivered(self, records: Sequence[Mapping[str, Any]]) -> list[StreamRecord]: ...


class StreamShardReader(_IteratorReader):
    """Reads one shard of a DynamoDB stream."""

    def __init__(
        self,
        streams: "DynamoDBStreamsClient",
        stream_arn: str,
        shard_id: str,
        *,
        start: StartingPosition,
        passes: Callable[[Mapping[str, Any]], bool],
    ) -> None:
        super().__init__(streams, stream_arn, shard_id, start)
        self._passes = passes

    def _new_iterator(self) -> str:
        position: dict[str, Any] = {"ShardIteratorType": self._start}
        if self.last_sequence is not None:
            position = {
                "ShardIteratorType": "AFTER_SEQUENCE_NUMBER",
                "SequenceNumber": self.last_sequence,
            }
        shard = {"StreamArn": self._arn, "ShardId": self._shard_id}
        try:
            answer = self._client.get_shard_iterator(**shard, **position)
        except self._client.exceptions.TrimmedDataAccessException:
            answer = self._client.get_shard_iterator(**shard, ShardIteratorType="TRIM_HORIZON")
        return str(answer["ShardIterator"])

    def _sequence(self, record: Mapping[str, Any]) -> str:
        return str(record["dynamodb"]["SequenceNumber"])

    def _delivered(self, records: Sequence[Mapping[str, Any]]) -> list[StreamRecord]:
        return [_stream_record(one, self._arn) for one in records if self._passes(one)]


def _stream_record(record: Mapping[str, Any], stream_arn: str) -> StreamRecord:
    """The record as Lambda delivers it: JSON, times as numbers, binary as base64."""
    inner = record["dynamodb"]
    delivered = {**record, "eventSourceARN": stream_arn}
    if "userIdentity" in record:  # the stream's API and Lambda spell it differently
        delivered["userIdentity"] = {
            "type": record["userIdentity"].get("Type"),
            "principalId": record["userIdentity"].get("PrincipalId"),
        }
    return StreamRecord(
        sequence=inner["SequenceNumber"],
        created_s=inner["ApproximateCreationDateTime"].timestamp(),
        encoded=json.dumps(delivered, default=_plain, separators=(",", ":")),
    )


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        seconds = value.timestamp()
        return int(seconds) if seconds.is_integer() else seconds
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"a stream record holds {value!r}, which has no JSON form")


@dataclass(frozen=True, slots=True)
class KinesisSource:
    """A stream of Kinesis.

    Attributes:
        client: the client to it.
        arn: which stream.
    """

    client: "KinesisClient"
    arn: str

    def shards(self) -> list[ListedShard]:
        """All shards that the service still shows. One call per thousand shards."""
        found: list[ListedShard] = []
        which: dict[str, Any] = {"StreamARN": self.arn}
        while True:
            answer = self.client.list_shards(**which)
            # The child of two merged shards waits for one of them: no order rests on the other.
            found += [
                ListedShard(one["ShardId"], one.get("ParentShardId")) for one in answer["Shards"]
            ]
            if "NextToken" not in answer:
                return found
            which = {"NextToken": answer["NextToken"]}

    def reader(self, shard_id: str, start: StartingPosition, after: str | None) -> "KinesisReader":
        """A reader of one of them; after a sequence number, if that is given."""
        made = KinesisReader(self.client, self.arn, shard_id, start)
        made.last_sequence = after
        return made


class KinesisReader(_IteratorReader):
    """Reads one shard of a Kinesis stream."""

    def read(self) -> tuple[int, list[StreamRecord]]:
        """One GetRecords: how many records came, and they themselves."""
        try:
            return super().read()
        except self._client.exceptions.ResourceNotFoundException:
            # The local engine forgets a shard, and its records, as soon as it is split or merged.
            self.ended = True
            return 0, []

    def _new_iterator(self) -> str:
        position: dict[str, Any] = {"ShardIteratorType": self._start}
        if self.last_sequence is not None:
            position = {
                "ShardIteratorType": "AFTER_SEQUENCE_NUMBER",
                "StartingSequenceNumber": self.last_sequence,
            }
        answer = self._client.get_shard_iterator(
            StreamARN=self._arn, ShardId=self._shard_id, **position
        )
        return str(answer["ShardIterator"])

    def _sequence(self, record: Mapping[str, Any]) -> str:
        return str(record["SequenceNumber"])

    def _delivered(self, records: Sequence[Mapping[str, Any]]) -> list[StreamRecord]:
        return [stream_record(one, self._arn, self._shard_id) for one in records]


def stream_record(record: Mapping[str, Any], arn: str, shard_id: str) -> StreamRecord:
    """The record as Lambda delivers it: JSON, times as numbers, data as base64."""
    sequence = record["SequenceNumber"]
    created_s = record["ApproximateArrivalTimestamp"].timestamp()
    delivered = {
        "kinesis": {
            "kinesisSchemaVersion": "1.0",
            "partitionKey": record["PartitionKey"],
            "sequenceNumber": sequence,
            "data": base64.b64encode(record["Data"]).decode(),
            "approximateArrivalTimestamp": created_s,
        },
        "eventSource": "aws:kinesis",
        "eventVersion": "1.0",
        "eventID": f"{shard_id}:{sequence}",
        "eventName": "aws:kinesis:record",
        "awsRegion": arn.split(":")[3],
        "eventSourceARN": arn,
    }
    return StreamRecord(sequence, created_s, json.dumps(delivered, separators=(",", ":")))
