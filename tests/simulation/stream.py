"""A table's stream: shards that split and roll over, records in order per item, trimmed in a day.

The product's own readers see it through a client of the streams API.
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
from countledger.ledger.errors import Throttled
from countledger.ledger.limits import DAY_MS

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from countledger.ledger.attributes import Item
    from tests.simulation.process import Process
    from tests.simulation.table import Change, Key

_PLACES: Final = 256
_FIRST_NUMBER: Final = 10**20


@dataclass(slots=True)
class Record:
    """One record, in the service's form once somebody reads it."""

    sequence: int
    made_ms: float
    visible_ms: float
    key: Key
    before: Item | None
    after: Item | None
    sort: str
    _made: dict[str, Any] | None = None

    def made(self) -> dict[str, Any]:
        """As the streams API gives it."""
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
    """One shard: the records of the items whose place lies in its range."""

    id: str
    parent: str | None
    low: int
    high: int
    next: int
    records: list[Record] = field(default_factory=list)
    closed: bool = False
    seen_ms: float = 0.0


@dataclass
class Stream:
    """The stream of one copy of a table.

    Attributes:
        arn: its name.
        random: decides on numbers and delays.
        now_ms: the true time.
        lag_ms: how long after a write its record may show, at the most.
        by_item: whether the entries of one counter lie in several shards.
        news: told when a record or a shard was added.
        on: whether what is written shows in it.
        hesitates: how many pages without records come before the first one with some.
    """

    arn: str
    random: Random
    now_ms: Callable[[], float]
    lag_ms: float
    by_item: bool
    news: Callable[[], None] = lambda: None
    shards: dict[str, ShardLog] = field(default_factory=dict)
    on: bool = True
    hesitates: int = 0

    def open(self, count: int) -> None:
        """The first shards."""
        step = _PLACES // count
        for number in range(count):
            high = _PLACES if number == count - 1 else (number + 1) * step
            self._add(None, number * step, high)

    def note(self, change: Change) -> None:
        """Write the record of a change."""
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
        """Append the record of something of that name to its shard; its sequence number."""
        place = blake2b(name.encode(), digest_size=1).digest()[0]
        log = next(one for one in self.leaves() if one.low <= place < one.high)
        now_ms = self.now_ms()
        log.seen_ms = max(log.seen_ms, now_ms + self.random.random() * self.lag_ms)
        log.next += self.random.randint(1, 1000)
        log.records.append(made_of(log.next, now_ms, log.seen_ms))
        self.news()
        return log.next

    def page(self, name: str, after: int, limit: int) -> tuple[list[Any], int, bool]:
        """The next records of a shard, the last number, and whether no more can come."""
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

    def split(self) -> None:
        """A shard is followed by another one, or by two."""
        log = self.random.choice(self.leaves())
        log.closed = True
        middle = (log.low + log.high) // 2
        if self.random.random() < 0.5 and log.low < middle < log.high:
            self._add(log.id, log.low, middle)
            self._add(log.id, middle, log.high)
        else:
            self._add(log.id, log.low, log.high)
        self.news()

    def kept(self, log: ShardLog) -> list[Record]:
        """Its records of the last day."""
        oldest_ms = self.now_ms() - DAY_MS
        first = bisect_right(log.records, oldest_ms, key=lambda one: one.made_ms)
        return log.records[first:] if first else log.records

    def _add(self, parent: str | None, low: int, high: int) -> None:
        name = f"shardId-{len(self.shards):08d}-{self.random.getrandbits(32):08x}"
        # Numbers of different shards tell nothing of each other.
        first = _FIRST_NUMBER * self.random.randint(1, 9) + self.random.getrandbits(40)
        self.shards[name] = ShardLog(name, parent, low, high, first)


class _Trimmed(ClientError):
    """What was asked for is not kept any more."""


class _Expired(ClientError):
    """The iterator is too old."""


@dataclass
class StreamsClient:
    """The streams API, as one process reaches it."""

    stream: Stream
    process: Process
    exceptions: Any = field(
        default_factory=lambda: SimpleNamespace(
            TrimmedDataAccessException=_Trimmed, ExpiredIteratorException=_Expired
        )
    )

    def describe_stream(self, **_: object) -> dict[str, Any]:
        """All shards."""
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
        ShardId: str,  # noqa: N803 - theirs
        ShardIteratorType: str,  # noqa: N803 - theirs
        SequenceNumber: str = "",  # noqa: N803 - theirs
        **_: object,
    ) -> dict[str, str]:
        """Where to begin: behind a record, at the oldest, or at the end."""
        log = self.stream.shards[ShardId]
        after = 0
        if ShardIteratorType == "LATEST":
            after = log.next
        elif ShardIteratorType == "AFTER_SEQUENCE_NUMBER":
            after = int(SequenceNumber)
            kept = self.stream.kept(log)
            if len(kept) < len(log.records) and (not kept or after < kept[0].sequence):
                raise _Trimmed({"Error": {"Code": "TrimmedDataAccessException"}}, "")
        return {"ShardIterator": f"{ShardId} {after} {self.stream.hesitates}"}

    def get_records(self, ShardIterator: str, Limit: int = 1000) -> dict[str, Any]:  # noqa: N803 - theirs
        """The next records; no further iterator behind the last one of a closed shard."""
        self._call("GetRecords")
        name, after, hesitates = ShardIterator.split(" ")
        if hesitates != "0":
            return {"Records": [], "NextShardIterator": f"{name} {after} {int(hesitates) - 1}"}
        found, last, ends = self.stream.page(name, int(after), Limit)
        answer: dict[str, Any] = {"Records": [one.made() for one in found]}
        if not ends:
            answer["NextShardIterator"] = f"{name} {last} 0"
        return answer

    def _call(self, what: str) -> None:
        try:
            self.process.read(what, lambda: None, attempts=4)
        except Throttled:
            answer: Any = {"Error": {"Code": "ThrottlingException", "Message": "too fast"}}
            raise ClientError(answer, what) from None
