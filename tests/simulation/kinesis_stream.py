"""A stream of Kinesis: shards that split, records in the order of their arrival, partial failures.

The ingest's mapping reads it as the product's own reader does; producers put records into it.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError

from countledger.infra.memory.stream import ShardLog
from tests.simulation.faults import Fault
from tests.simulation.process import Process
from tests.simulation.stream import SimulatedStream


@dataclass(slots=True)
class KinesisRecord:
    """One record."""

    sequence: int
    made_ms: float
    visible_ms: float
    partition_key: str
    data: bytes


@dataclass
class KinesisStream(SimulatedStream):
    """The stream; it keeps its records for longer than anything here takes."""

    def put(self, partition_key: str, data: bytes) -> str:
        """Append a record to its shard; its sequence number."""
        made_of = partial(KinesisRecord, partition_key=partition_key, data=data)
        return str(self.append(partition_key, made_of))

    def kept(self, log: ShardLog) -> list[Any]:
        """All."""
        return log.records


class _Expired(ClientError):
    """The iterator is too old."""


class _Unknown(ClientError):
    """There is no such shard."""


@dataclass
class KinesisClient:
    """Kinesis, as one process reaches it."""

    stream: KinesisStream
    process: Process
    exceptions: Any = field(
        default_factory=lambda: SimpleNamespace(
            ExpiredIteratorException=_Expired, ResourceNotFoundException=_Unknown
        )
    )

    def list_shards(self, **_: object) -> dict[str, Any]:
        """All shards."""
        shards = []
        for log in self.stream.shards.values():
            parent = {} if log.parent is None else {"ParentShardId": log.parent}
            shards.append({"ShardId": log.id, **parent})
        return {"Shards": shards}

    def get_shard_iterator(
        self,
        ShardId: str,  # noqa: N803 - theirs
        StartingSequenceNumber: str = "0",  # noqa: N803 - theirs
        **_: object,
    ) -> dict[str, str]:
        """Where to begin: behind a record, or at the oldest."""
        return {"ShardIterator": f"{ShardId} {StartingSequenceNumber}"}

    def get_records(self, ShardIterator: str, Limit: int) -> dict[str, Any]:  # noqa: N803 - theirs
        """The next records; no further iterator behind the last one of a closed shard."""
        name, after = ShardIterator.split(" ")
        found, last, ends = self.stream.page(name, int(after), Limit)
        answer: dict[str, Any] = {"Records": [_given(one) for one in found]}
        if not ends:
            answer["NextShardIterator"] = f"{name} {last}"
        return answer

    def put_records(self, Records: list[dict[str, Any]], **_: object) -> dict[str, Any]:  # noqa: N803 - theirs
        """Append records, each by itself: some may be refused, some written unheard."""
        faults, acting, random = self.process.world.faults, self.process.acting, self.stream.random

        def request() -> dict[str, Any]:
            told: list[dict[str, str]] = []
            for one in Records:
                if not faults.strikes(Fault.UNPROCESSED, acting):
                    told.append(
                        {"SequenceNumber": self.stream.put(one["PartitionKey"], one["Data"])}
                    )
                elif random.random() < 0.5:
                    told.append({"ErrorCode": "ProvisionedThroughputExceededException"})
                else:
                    if random.random() < 0.5:
                        self.stream.put(one["PartitionKey"], one["Data"])
                    told.append({"ErrorCode": "InternalFailure", "ErrorMessage": "no answer"})
            return {"Records": told}

        return self.process.write("PutRecords", request)


def _given(record: KinesisRecord) -> dict[str, Any]:
    return {
        "SequenceNumber": str(record.sequence),
        "ApproximateArrivalTimestamp": datetime.fromtimestamp(int(record.made_ms) / 1_000, UTC),
        "PartitionKey": record.partition_key,
        "Data": record.data,
    }
