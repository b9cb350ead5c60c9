"""A ledger, its stream and its totals in memory, for verdicts and repairs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from countledger.compaction.deletion import new_mark
from countledger.consumers.materializer import BatchOutcome, Materializer
from countledger.consumers.progress import ShardDirectory, ShardProgress, advance_of, history_after
from countledger.consumers.record import ShardName, StreamShard
from countledger.consumers.verify import Repair, Repairer, Verdict, Verifier
from countledger.ledger import keys
from countledger.ledger.amount import Amount
from countledger.ledger.attributes import Item, encode
from countledger.ledger.entry import Entry, encode_entry
from countledger.ledger.ids import new_id
from countledger.ledger.limits import LATE_WRITE_MS
from countledger.ledger.operations import Add, Put, Update
from countledger.ledger.records import CHANGED_BY, INCARNATION, REVISION
from countledger.ledger.windows import WindowSetting
from tests.unit.connections import UnitConnection, connection_on
from tests.unit.ledger.clocks import NOW_MS, ManualClock
from tests.unit.ledger.memory import MemoryClient

LEDGER = "ledger"
COUNTERS = "counters"
COUNTER = "a:b"
STREAM = "arn:aws:dynamodb:r:1:table/t/stream/label"


@dataclass(slots=True)
class Kept:
    """A quarantine in a list: record and reason."""

    records: list[tuple[Mapping[str, Any], str]] = field(default_factory=list)

    def put(self, record: Mapping[str, Any], reason: str, shard: str) -> None:
        self.records.append((record, f"{reason} ({shard})"))


@dataclass(frozen=True, slots=True)
class MemoryStream:
    """A client of a stream in lists, of which each page is all that follows."""

    known: dict[str, StreamShard] = field(default_factory=dict)
    records: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def describe_stream(self, **_: object) -> dict[str, Any]:
        shards = [
            {"ShardId": one.shard.id}
            | ({} if one.parent is None else {"ParentShardId": one.parent})
            | ({"SequenceNumberRange": {"EndingSequenceNumber": "9"}} if one.closed else {})
            for one in self.known.values()
        ]
        return {"StreamDescription": {"StreamStatus": "ENABLED", "Shards": shards}}

    def get_shard_iterator(self, **asked: str) -> dict[str, str]:
        return {"ShardIterator": f"{asked['ShardId']} {asked.get('SequenceNumber', '-1')}"}

    def get_records(self, **asked: str) -> dict[str, Any]:
        shard, after = asked["ShardIterator"].split()
        numbered = ((int(one["dynamodb"]["SequenceNumber"]), one) for one in self.records[shard])
        return {"Records": [one for number, one in numbered if number > int(after)]}


@dataclass(slots=True)
class World:
    """A ledger, its stream, and totals that somebody keeps, or not."""

    dynamo: MemoryClient = field(default_factory=MemoryClient)
    stream: MemoryStream = field(default_factory=MemoryStream)
    clock: ManualClock = field(default_factory=ManualClock)
    quarantine: Kept = field(default_factory=Kept)
    sequence: int = 100

    def add_shard(self, name: str, *, parent: str | None = None, closed: bool = False) -> None:
        self.stream.known[name] = StreamShard(ShardName("label", name), parent, closed)
        self.stream.records[name] = []

    def close(self, name: str) -> None:
        self.stream.known[name] = StreamShard(ShardName("label", name), None, closed=True)

    def emit(self, delta: Amount, *, counter: str = COUNTER, shard: str = "s") -> dict[str, Any]:
        """An entry, and its record in the stream."""
        return self.show(counter, shard, item=self.write(delta, counter))

    def write(
        self, delta: Amount, counter: str = COUNTER, occurred_at_ms: int | None = None
    ) -> Item:
        """An entry that the stream does not show yet."""
        at_ms = self.clock.now_ms()
        entry = Entry(
            counter=counter,
            id=new_id(at_ms),
            delta=delta,
            at_ms=at_ms,
            origin="r",
            occurred_at_ms=occurred_at_ms,
        )
        item = encode_entry(entry, 1)
        self.dynamo.put(Put(LEDGER, item))
        return item

    def show(
        self,
        counter: str = COUNTER,
        shard: str = "s",
        name: str = "INSERT",
        item: Item | None = None,
    ) -> dict[str, Any]:
        """A record, as the streams API gives it."""
        self.sequence += 1
        made = datetime.fromtimestamp(self.clock.now_ms() // 1000, UTC)
        stream = {
            "SequenceNumber": str(self.sequence),
            "ApproximateCreationDateTime": made,
            "Keys": {"counter": {"S": counter}, "entry": {"S": f"e#{self.sequence}"}},
        }
        if item is not None:
            stream["Keys"] = encode({"counter": counter, "entry": item["entry"]})
            stream["NewImage"] = encode(item)
        record = {"eventName": name, "dynamodb": stream}
        self.stream.records[shard].append(record)
        return record

    def deliver(
        self,
        records: Sequence[dict[str, Any]],
        shard: str = "s",
        windows: Callable[[str], Sequence[WindowSetting]] | None = None,
    ) -> BatchOutcome:
        """Give records to the materializer itself, as Lambda does."""
        connection = connection_on(self.dynamo, self.clock)
        materializer = Materializer(connection, self.quarantine, windows=windows)
        return materializer.apply(events_of(records), ShardName("label", shard))

    def handle(self, record: dict[str, Any], delta: Amount, shard: str = "s") -> None:
        counter = record["dynamodb"]["Keys"]["counter"]["S"]
        ones = (Add("events", 1), Add("entries", 1), Add("version", 1))
        key = keys.total_key(counter)
        self.dynamo.update(Update(COUNTERS, key, (Add("total", delta), *ones)))
        self.pass_over(record, shard)

    def pass_over(self, record: dict[str, Any], shard: str = "s") -> None:
        made_ms = int(record["dynamodb"]["ApproximateCreationDateTime"].timestamp() * 1000)
        sequence = record["dynamodb"]["SequenceNumber"]
        now_ms = self.clock.now_ms()
        name = ShardName("label", shard)
        before = ShardDirectory().open(self.dynamo, COUNTERS, name, now_ms)
        history = history_after(before, now_ms, LATE_WRITE_MS)
        one = ShardProgress(str(name), sequence, made_ms, now_ms, 1, 1, 2.0, *history)
        self.dynamo.update(advance_of(COUNTERS, one))

    def connection(self) -> UnitConnection:
        """A process that knows nothing yet."""
        clients = {"dynamodbstreams": self.stream}
        return connection_on(self.dynamo, self.clock, clients=clients, ledger_stream_arn=STREAM)

    def verifier(self) -> Verifier:
        return Verifier(self.connection())

    def verdict(self, counter: str = COUNTER) -> Verdict:
        return next(self.verifier().verify([counter]))

    def repair(self, counter: str = COUNTER, *, dry_run: bool = False) -> Repair:
        return next(Repairer(self.verifier(), dry_run).repair([counter]))

    def total(self, counter: str = COUNTER) -> Item:
        """The total's item; an empty one where there is none."""
        return self.dynamo.get(COUNTERS, keys.total_key(counter), consistent=True) or {}

    def corrupt(self, counter: str = COUNTER, **attributes: object) -> None:
        """Edit a total by hand: no version tells of it."""
        self.dynamo.put(Put(COUNTERS, {**self.total(counter), **attributes}))


def events_of(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records as Lambda delivers them: times are numbers."""
    return [
        {
            **record,
            "dynamodb": {
                **record["dynamodb"],
                "ApproximateCreationDateTime": record["dynamodb"][
                    "ApproximateCreationDateTime"
                ].timestamp(),
            },
        }
        for record in records
    ]


def opened(shard: ShardName, dynamo: MemoryClient | None = None) -> MemoryClient:
    """A client of a table in which a record of the shard was handled before; then faults."""
    dynamo = dynamo or MemoryClient()
    kept, dynamo.faults[:] = list(dynamo.faults), []
    ShardDirectory().open(dynamo, COUNTERS, shard, NOW_MS)
    one = ShardProgress(str(shard), "1", NOW_MS - 1_000, NOW_MS - 1_000, 0, 0, 0)
    dynamo.update(advance_of(COUNTERS, one))
    dynamo.faults.extend(kept)
    dynamo.calls.clear()
    return dynamo


def deletion_mark(counter: str, mark_id: str) -> Put:
    """The mark of a deletion, as the product stores it."""
    own = {INCARNATION: mark_id, REVISION: 1, CHANGED_BY: "call"}
    return Put(LEDGER, {**new_mark(counter, 1), **own})
