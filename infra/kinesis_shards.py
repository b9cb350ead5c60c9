"""Reads the shards of a stream of Kinesis, as an event source mapping does."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from countledger.infra.delivery import StreamRecord
from countledger.infra.shards import ListedShard, StartingPosition

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

# What one call gives at most is 10 MB; records of some 50 KB come by the hundred.
_PAGE_RECORDS: Final = 1_000


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

    def reader(self, shard_id: str, start: StartingPosition) -> "KinesisReader":
        """A reader of one of them."""
        return KinesisReader(self.client, self.arn, shard_id, start)


class KinesisReader:
    """Reads one shard.

    Attributes:
        last_sequence: of the last record read.
        ended: whether the shard is closed and all of it has been read.
    """

    def __init__(
        self, client: "KinesisClient", arn: str, shard_id: str, start: StartingPosition
    ) -> None:
        self._client = client
        self._arn = arn
        self._shard_id = shard_id
        self._start: StartingPosition = start
        self._iterator: str | None = None
        self.last_sequence: str | None = None
        self.ended = False

    def read(self) -> tuple[int, list[StreamRecord]]:
        """One GetRecords: how many records came, and they themselves."""
        if self.ended:
            return 0, []
        try:
            answer = self._client.get_records(
                ShardIterator=self._iterator or self._new_iterator(), Limit=_PAGE_RECORDS
            )
        except self._client.exceptions.ExpiredIteratorException:
            # The shard was held up by failures for longer than an iterator lives (5 minutes).
            self._iterator = None
            return self.read()
        except self._client.exceptions.ResourceNotFoundException:
            # The local engine forgets a shard, and its records, as soon as it is split or merged.
            self.ended = True
            return 0, []
        self._iterator = answer.get("NextShardIterator")
        self.ended = self._iterator is None
        records = [stream_record(one, self._arn, self._shard_id) for one in answer["Records"]]
        if records:
            self.last_sequence = records[-1].sequence
        return len(records), records

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
        return answer["ShardIterator"]


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
