"""The stream of `ledger`: the names of its shards, and the records after a given one.

A global table's stream has capacity for one steady reader, the materializer. The reader in this
module reads a few pages when a proof is requested.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from countledger.ledger import keys
from countledger.ledger.errors import SetupError
from countledger.ledger.limits import SECOND_MS
from countledger.ledger.service_errors import translated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_dynamodbstreams import DynamoDBStreamsClient


class ShardName(NamedTuple):
    """A stream shard's full name. A recreated stream has a new label and new sequence numbers.

    Attributes:
        stream: the stream's label, the last part of its ARN.
        id: the shard's id within the stream.
    """

    stream: str
    id: str

    def __str__(self) -> str:
        """The name under which watermarks and progress are kept."""
        return f"{self.stream}/{self.id}"


def label_of(stream_arn: str) -> str:
    """A stream's label, which differs from that of an earlier stream of the same table."""
    return stream_arn.rpartition("/")[2]


# A page may be empty although records follow, and AWS does not limit how many empty pages come in a
# row. So many empty pages count as the end of an open shard, which has no other mark: five for a
# report, more when something is done because of the answer. Each costs a round trip. A closed shard
# has an end of its own; the number only limits the wait.
QUICKLY: Final = 5
CLOSELY: Final = 10
CLOSED: Final = 100
_OFF: Final = ("DISABLING", "DISABLED")


class StreamShard(NamedTuple):
    """A shard as the service describes it.

    Attributes:
        shard: its name.
        parent: the id of the shard that it continues; None if it continues none.
        closed: whether no more record will be added.
    """

    shard: ShardName
    parent: str | None
    closed: bool


@dataclass(frozen=True, slots=True)
class LedgerStream:
    """The stream of `ledger`.

    Attributes:
        client: of DynamoDB Streams.
        arn: of the stream.
    """

    client: DynamoDBStreamsClient
    arn: str

    def shards(self) -> list[StreamShard]:
        """Its shards of the last 24 hours."""
        found: list[StreamShard] = []
        arguments: dict[str, Any] = {"StreamArn": self.arn}
        label = label_of(self.arn)
        while True:
            with translated("DescribeStream"):
                stream = self.client.describe_stream(**arguments)["StreamDescription"]
            for one in stream.get("Shards", []):
                closed = "EndingSequenceNumber" in one.get("SequenceNumberRange", {})
                found.append(
                    StreamShard(ShardName(label, one["ShardId"]), one.get("ParentShardId"), closed)
                )
            if "LastEvaluatedShardId" not in stream:
                return found
            arguments["ExclusiveStartShardId"] = stream["LastEvaluatedShardId"]

    def check_on(self) -> None:
        """Check that the stream is on. One call.

        Raises:
            SetupError: the stream was switched off: new writes are in another stream of the table,
                or in none.
        """
        with translated("DescribeStream"):
            stream = self.client.describe_stream(StreamArn=self.arn, Limit=1)["StreamDescription"]
        if stream.get("StreamStatus") in _OFF:
            raise SetupError(
                f"stream {self.arn!r} was switched off: later writes are in another stream or in "
                "none, so this one proves nothing (docs/runbook.md, 'A mapping or a stream is "
                "gone')"
            )

    def after(
        self, shard: ShardName, sequence: str | None, *, empty_pages: int = QUICKLY
    ) -> Iterator[dict[str, Any]]:
        """The records of a shard after a sequence number (None: from its start) to its end.

        Args:
            shard: the shard to read.
            sequence: begin after this record.
            empty_pages: so many pages without records in a row count as the shard's end.
        """
        iterator = self._iterator(shard, sequence)
        empty = 0
        while iterator and empty < empty_pages:
            with translated("GetRecords"):
                page: Any = self.client.get_records(ShardIterator=iterator)
            yield from page["Records"]
            empty = 0 if page["Records"] else empty + 1
            iterator = page.get("NextShardIterator")

    def _iterator(self, shard: ShardName, sequence: str | None) -> str:
        arguments: dict[str, Any] = {"StreamArn": self.arn, "ShardId": shard.id}
        with translated("GetShardIterator"):
            if sequence is not None:
                try:
                    return self.client.get_shard_iterator(
                        ShardIteratorType="AFTER_SEQUENCE_NUMBER",
                        SequenceNumber=sequence,
                        **arguments,
                    )["ShardIterator"]
                except self.client.exceptions.TrimmedDataAccessException:
                    pass  # that record has expired: all records that are left come after it
            return self.client.get_shard_iterator(ShardIteratorType="TRIM_HORIZON", **arguments)[
                "ShardIterator"
            ]


def made_at_ms(record: dict[str, Any]) -> float:
    """When the stream created a record (whole seconds), ms since the epoch."""
    made_s: float = record["dynamodb"]["ApproximateCreationDateTime"].timestamp()
    return made_s * SECOND_MS


def counts(record: dict[str, Any]) -> bool:
    """Whether the event source mapping's filter passes a record to the materializer."""
    entry = record["dynamodb"]["Keys"]["entry"]["S"]
    return record["eventName"] in ("INSERT", "MODIFY") and entry.startswith(keys.ENTRY_PREFIX)
