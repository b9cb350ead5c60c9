"""Malformed records delay no counter, and none is passed before it is in quarantine."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from countledger.consumers.materializer import Materializer
from countledger.consumers.progress import ShardDirectory
from countledger.consumers.record import ShardName
from countledger.ledger.departure import Deadline
from countledger.ledger.errors import CountledgerError, OutOfTime, Throttled
from tests.unit.connections import connection_on
from tests.unit.consumers.records import record
from tests.unit.ledger.clocks import NOW_MS, ManualClock
from tests.unit.ledger.memory import MemoryClient

SHARD = ShardName("stream", "shard-1")
MALFORMED = 3_000
FIRST = 10**20


@dataclass
class SlowQuarantine:
    """Each record takes it as long as its requests do, and some it does not take.

    Attributes:
        clock: which moves.
        takes_ms: for each.
        refused: the sequence numbers that it does not take.
        kept: those that it has, in order, and how many totals there were then.
    """

    clock: ManualClock
    dynamo: MemoryClient
    takes_ms: int = 20
    refused: frozenset[int] = frozenset()
    error: CountledgerError = field(default_factory=lambda: Throttled("slow"))
    kept: list[int] = field(default_factory=list)
    totals_then: set[int] = field(default_factory=set)

    def put(self, record: Mapping[str, Any], reason: str, shard: str) -> None:
        del reason, shard
        sequence = int(record["dynamodb"].get("SequenceNumber", 0))
        self.totals_then.add(sum(item["part"] == "total" for item in self.dynamo.items("counters")))
        self.clock.sleep_ms(self.takes_ms)
        if sequence in self.refused:
            raise self.error
        self.kept.append(sequence)


@dataclass
class RejectingWorld:
    clock: ManualClock = field(default_factory=ManualClock)
    dynamo: MemoryClient = field(default_factory=MemoryClient)

    def __post_init__(self) -> None:
        self.quarantine = SlowQuarantine(self.clock, self.dynamo)
        connection = connection_on(self.dynamo, self.clock)
        self.materializer = Materializer(connection, self.quarantine, shards=ShardDirectory())

    def batch(self, malformed: int = MALFORMED) -> list[dict[str, Any]]:
        """Malformed entries of one namespace, and then a counter of another one."""
        bad = [record(FIRST + n, "x", counter=f"bad:{n}") for n in range(malformed)]
        return [*bad, record(FIRST + malformed, 7, counter="good:a")]

    def total(self) -> object:
        found = [one for one in self.dynamo.items("counters") if one["counter"] == "good:a"]
        return found[0]["total"] if found else None


def test_totals_are_written_before_any_record_is_quarantined() -> None:
    """3,000 of one namespace delayed another by more than a minute."""
    world = RejectingWorld()
    deadline = Deadline(world.clock, NOW_MS + 10**9, NOW_MS + 10**9)

    outcome = world.materializer.apply(world.batch(), SHARD, deadline)

    assert (outcome.retry_from, outcome.quarantined) == (None, MALFORMED)
    assert world.quarantine.totals_then == {1}
    assert sorted(world.quarantine.kept) == [FIRST + n for n in range(MALFORMED)]


def test_a_quarantine_without_time_for_all_comes_further_each_time() -> None:
    world = RejectingWorld()
    records, invocations = world.batch(), 0
    while records and invocations < 50:
        begun_ms = world.clock.now_ms()
        deadline = Deadline(world.clock, begun_ms + 5_000, begun_ms + 6_000)
        outcome = world.materializer.apply(records, SHARD, deadline)
        invocations += 1
        assert world.total() == 7  # from the first one on
        assert world.clock.now_ms() - begun_ms <= 5_000 + 16 * world.quarantine.takes_ms
        if outcome.retry_from is None:
            break
        assert isinstance(next(iter(outcome.failed.values())), OutOfTime)
        records = [
            one for one in records if int(one["dynamodb"]["SequenceNumber"]) >= outcome.retry_from
        ]

    assert outcome.retry_from is None
    assert invocations < 30
    assert set(world.quarantine.kept) == {FIRST + n for n in range(MALFORMED)}
    assert len(world.quarantine.kept) < MALFORMED + 16 * invocations


def test_a_record_that_is_not_quarantined_is_delivered_again_and_the_totals_stay() -> None:
    world = RejectingWorld()
    world.quarantine.refused = frozenset({FIRST + 3})

    outcome = world.materializer.apply(world.batch(8), SHARD)

    assert (outcome.retry_from, outcome.quarantined) == (FIRST + 3, 7)
    assert [str(one) for one in outcome.failed.values()] == ["slow"]
    assert world.total() == 7
    world.quarantine.refused = frozenset()
    again = world.materializer.apply(world.batch(8), SHARD)
    assert (again.retry_from, world.total()) == (None, 7)
    assert FIRST + 3 in world.quarantine.kept


def test_a_record_without_a_number_that_is_not_quarantined_fails_the_batch() -> None:
    """A shard is delivered again from a number: without one nothing may be passed."""
    world = RejectingWorld()
    unnumbered = record(1)
    del unnumbered["dynamodb"]["SequenceNumber"]
    world.quarantine.refused = frozenset({0})

    with pytest.raises(Throttled):
        world.materializer.apply([unnumbered, *world.batch(1)], SHARD)

    assert world.total() is None


def test_no_watermark_passes_a_record_of_its_counter_that_is_not_quarantined() -> None:
    """A later release may be able to apply it when it is delivered again."""
    world = RejectingWorld()
    world.quarantine.refused = frozenset({FIRST})
    records = [record(FIRST, "x"), record(FIRST + 1, 5), *world.batch(0)]
    records[2]["dynamodb"]["SequenceNumber"] = str(FIRST + 2)

    outcome = world.materializer.apply(records, SHARD)
    counters = {item["counter"] for item in world.dynamo.items("counters") if "total" in item}
    world.quarantine.refused = frozenset()
    again = world.materializer.apply([record(FIRST, 2), *records[1:]], SHARD)

    assert (outcome.retry_from, counters) == (FIRST, {"good:a"})
    assert again.retry_from is None
    totals = {i["counter"]: i["total"] for i in world.dynamo.items("counters") if "total" in i}
    assert totals == {"a:b": 7, "good:a": 7}
