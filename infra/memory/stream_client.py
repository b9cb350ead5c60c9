"""The streams API over a stream in memory, as the product's own readers call it."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from countledger.infra.memory.stream import Stream


class _Trimmed(ClientError):
    """The record is older than what the stream keeps."""


class _Expired(ClientError):
    """The iterator is too old."""


@dataclass
class StreamsClient:
    """The calls of the streams API that the product makes, with their parameters and answers.

    Attributes:
        stream: the only stream.
        exceptions: the modelled errors, as a client of boto3 has them.
    """

    stream: Stream
    exceptions: Any = field(
        default_factory=lambda: SimpleNamespace(
            TrimmedDataAccessException=_Trimmed, ExpiredIteratorException=_Expired
        )
    )

    def describe_stream(self, **_: object) -> dict[str, Any]:
        """All shards, in one page."""
        self._call("DescribeStream")
        shards = []
        for log in self.stream.shards.values():
            numbers = {"StartingSequenceNumber": "1"}
            if log.closed:
                numbers["EndingSequenceNumber"] = str(log.next)
            shard: dict[str, Any] = {"ShardId": log.id, "SequenceNumberRange": numbers}
            if log.parent is not None:
                shard["ParentShardId"] = log.parent
            shards.append(shard)
        status = "ENABLED" if self.stream.on else "DISABLED"
        return {"StreamDescription": {"StreamStatus": status, "Shards": shards}}

    def get_shard_iterator(
        self,
        ShardId: str,  # noqa: N803 - of the API
        ShardIteratorType: str,  # noqa: N803 - of the API
        SequenceNumber: str = "",  # noqa: N803 - of the API
        **_: object,
    ) -> dict[str, str]:
        """Where to begin: after a record, at the oldest, or at the end."""
        log = self.stream.shards[ShardId]
        after = 0
        if ShardIteratorType == "LATEST":
            after = log.next
        elif ShardIteratorType == "AFTER_SEQUENCE_NUMBER":
            after = int(SequenceNumber)
            kept = self.stream.kept(log)
            if len(kept) < len(log.records) and (not kept or after < kept[0].sequence):
                raise _Trimmed({"Error": {"Code": "TrimmedDataAccessException"}}, "")
        return {"ShardIterator": f"{ShardId} {after} {self._hesitates()}"}

    def get_records(self, ShardIterator: str, Limit: int = 1000) -> dict[str, Any]:  # noqa: N803 - of the API
        """The next records; no further iterator after the last one of a closed shard."""
        self._call("GetRecords")
        name, after, hesitates = ShardIterator.split(" ")
        if hesitates != "0":
            return {"Records": [], "NextShardIterator": f"{name} {after} {int(hesitates) - 1}"}
        found, last, ends = self.stream.page(name, int(after), Limit)
        answer: dict[str, Any] = {"Records": [one.made() for one in found]}
        if not ends:
            answer["NextShardIterator"] = f"{name} {last} 0"
        return answer

    def _hesitates(self) -> int:
        """How many empty pages come first."""
        return 0

    def _call(self, what: str) -> None:
        """Called before each request that reads."""
