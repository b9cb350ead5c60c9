"""The stream of a table in memory: shards, with the records of a day, in order for each item.

`StreamsClient` is the streams API over it, as the product's own readers call it.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from countledger.ledger.attributes import encode
from countledger.ledger.limits import DAY_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.infra.memory.tables import Change, Key
    from countledger.ledger.attributes import Item


_HASHES: Final = 256
_FIRST_NUMBER: Final = 10**20


@dataclass(slots=True)
class Record:
    """One record; its form in the service's API is made when it is first read."""

    sequence: int
    made_ms: float
    visible_ms: float
    key: Key
    before: Item | None
    after: Item | None
    sort: str
    _made: dict[str, Any] | None = None

    def made(self) -> dict[str, Any]:
        """The record as the streams API returns it."""
        if self._made is None:
            name = "INSERT" if self.before is None else "MODIFY" if self.after else "REMOVE"
            stream: dict[str, Any] = {
                "SequenceNumber": str(self.sequence),
                "ApproximateCreationDateTime": datetime.fromtimestamp(self.made_ms // 1000, UTC),
                "Keys": encode({"counter": self.key[0], self.sort: self.key[1]}),
            }
            if self.after is not None:
                stream["NewImage"] = encode(self.after)
            if self.before is not None:
                stream["OldImage"] = encode(self.before)
            self._made = {"eventID": str(self.sequence), "eventName": name, "dynamodb": stream}
        return self._made


@dataclass(slots=True)
class ShardLog:
    """One shard: the records of the items whose hash is in its range.

    Attributes:
        next: the last sequence number that was used.
        seen_ms: from when the last record is visible.
    """

    id: str
    parent: str | None
    low: int
    high: int
    next: int
    records: list[Any] = field(default_factory=list)
    closed: bool = False
    seen_ms: float = 0.0


@dataclass
class Stream:
    """The stream of one table. With `by_item`, the entries of one counter are in several shards."""

    arn: str
    now_ms: Callable[[], float]
    by_item: bool = True
    news: Callable[[], None] = lambda: None
    shards: dict[str, ShardLog] = field(default_factory=dict)
    on: bool = True

    def open(self, count: int) -> None:
        step = _HASHES // count
        for number in range(count):
            high = _HASHES if number == count - 1 else (number + 1) * step
            self.add_shard(None, number * step, high)

    def add_shard(self, parent: str | None, low: int, high: int) -> None:
        name, first = self._new_shard()
        self.shards[name] = ShardLog(name, parent, low, high, first)

    def note(self, change: Change) -> None:
        if not self.on:
            return
        name = "\n".join(change.key) if self.by_item else change.key[0]
        self.append(
            name,
            partial(
                Record,
                key=change.key,
                before=change.before,
                after=change.after,
                sort=change.table.sort,
            ),
        )

    def append(self, name: str, made_of: Callable[[int, float, float], Any]) -> int:
        """The sequence number of the record, which is in the shard of the name."""
        place = blake2b(name.encode(), digest_size=1).digest()[0]
        log = next(one for one in self.leaves() if one.low <= place < one.high)
        now_ms = self.now_ms()
        log.seen_ms = max(log.seen_ms, now_ms + self._delay_ms())
        log.next += self._step()
        log.records.append(made_of(log.next, now_ms, log.seen_ms))
        self.news()
        return log.next

    def page(self, name: str, after: int, limit: int) -> tuple[list[Any], int, bool]:
        """The next records of a shard, the last sequence number, and whether the shard ends."""
        log, now_ms = self.shards[name], self.now_ms()
        kept = self.kept(log)
        first = bisect_right(kept, after, key=lambda one: one.sequence)
        found = [one for one in kept[first : first + limit] if one.visible_ms <= now_ms]
        last = found[-1].sequence if found else after
        ends = log.closed and (not log.records or last >= log.records[-1].sequence)
        return found, last, ends

    def leaves(self) -> list[ShardLog]:
        """The open shards."""
        return [one for one in self.shards.values() if not one.closed]

    def kept(self, log: ShardLog) -> list[Any]:
        """The records of a shard of the last day."""
        oldest_ms = self.now_ms() - DAY_MS
        first = bisect_right(log.records, oldest_ms, key=lambda one: one.made_ms)
        return log.records[first:] if first else log.records

    def _new_shard(self) -> tuple[str, int]:
        """The id of a new shard, and the number before its first one."""
        number = len(self.shards)
        return f"shardId-{number:020d}-00000000", _FIRST_NUMBER * (number + 1)

    def _delay_ms(self) -> float:
        """How long after its write the next record is visible."""
        return 0.0

    def _step(self) -> int:
        """The distance to the next sequence number."""
        return 1


class _Trimmed(ClientError):
    """The record is older than what the stream keeps."""


class _Expired(ClientError):
    """The iterator is too old."""


@dataclass
class StreamsClient:
    """The calls of the streams API that the product makes, with their parameters and answers."""

    stream: Stream
    exceptions: Any = field(
        default_factory=lambda: SimpleNamespace(
            TrimmedDataAccessException=_Trimmed, ExpiredIteratorException=_Expired
        )
    )

    def describe_stream(self, **_: object) -> dict[str, Any]:
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
