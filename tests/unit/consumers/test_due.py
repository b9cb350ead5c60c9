"""The materializer's side of the due index."""

from typing import Any

import pytest

from countledger.consumers.materializer import Materializer
from countledger.consumers.progress import ShardDirectory
from countledger.consumers.record import ShardName
from countledger.consumers.total_writer import due_rule_of
from countledger.ledger import keys
from countledger.ledger.errors import RequestRejected, Throttled
from countledger.ledger.limits import DUE_RULE_LIFE_MS, HOUR_MS
from tests.unit.connections import connection_on
from tests.unit.consumers.records import COUNTER, record
from tests.unit.consumers.world import opened
from tests.unit.ledger.clocks import NOW_MS, ManualClock
from tests.unit.ledger.memory import Fault, MemoryClient

TABLE = "counters"
SHARD = ShardName("label", "shardId-1")
SCHEDULE = {**keys.schedule_key("a"), "min_entries": 3, "age_ms": HOUR_MS}


class NoQuarantine:
    """Takes nothing: none of these records is bad."""

    def put(self, record: object, reason: str, shard: str) -> None:
        raise AssertionError((record, reason, shard))


def _dynamo(schedule: dict[str, Any] | None = SCHEDULE) -> MemoryClient:
    dynamo = opened(SHARD)
    if schedule is not None:
        key = keys.schedule_key("a")
        dynamo.tables[TABLE][key["counter"], key["part"]] = schedule
    return dynamo


def _materializer(dynamo: MemoryClient, clock: ManualClock | None = None) -> Materializer:
    clock = clock or ManualClock()
    connection = connection_on(dynamo, clock)
    rule_of = due_rule_of(connection)
    shards = ShardDirectory({str(SHARD): NOW_MS})
    return Materializer(connection, NoQuarantine(), rule_of, shards=shards)


def _total(dynamo: MemoryClient) -> dict[str, Any]:
    return dynamo.tables[TABLE][COUNTER, "total"]


def test_a_schedule_is_looked_up_once_a_minute_and_its_age_counts_from_the_oldest_entry() -> None:
    """Without a schedule nothing is marked; a new one is known within a minute."""
    dynamo, clock = _dynamo(None), ManualClock()
    materializer = _materializer(dynamo, clock)
    for n in range(100, 120):
        materializer.apply([record(n)], SHARD)
    assert "due_at" not in _total(dynamo)
    assert dynamo.calls.count("get") == 20 + 1  # of progress, and the schedule

    dynamo.tables[TABLE]["namespace#a", "schedule"] = SCHEDULE
    clock.at_ms += DUE_RULE_LIFE_MS
    due_ms = clock.at_ms + HOUR_MS
    for n in (120, 121):
        materializer.apply([record(n)], SHARD)
        clock.at_ms += 1_000

    assert dynamo.calls.count("get") == 22 + 2
    assert _total(dynamo)["due_at"] == due_ms


@pytest.mark.parametrize("applied", [False, True])
def test_a_mark_that_was_lost_is_made_when_the_batch_comes_again(*, applied: bool) -> None:
    """The total has the batch, and its mark is missing: all records are duplicates then."""
    dynamo = _dynamo()
    dynamo.faults[:] = [None, Fault(Throttled("slow"), applied=applied)]
    materializer = _materializer(dynamo)
    records = [record(n) for n in range(100, 103)]

    first, again = (materializer.apply(records, SHARD) for _ in range(2))

    assert (first.retry_from, list(first.failed)) == (100, [COUNTER])
    assert (again.retry_from, again.updates, again.duplicates) == (None, 0, 3)
    assert (_total(dynamo)["total"], _total(dynamo)["due_at"]) == (3, NOW_MS + HOUR_MS)


@pytest.mark.parametrize(
    "corrupt",
    [
        {**SCHEDULE, "min_entries": "many"},
        {**SCHEDULE, "age_ms": None},
        {**SCHEDULE, "v": 2},
    ],
)
def test_a_schedule_that_cannot_be_read_stops_no_total(corrupt: dict[str, Any]) -> None:
    """It counts as none here; its dispatcher is where it fails."""
    dynamo = _dynamo({name: value for name, value in corrupt.items() if value is not None})

    outcome = _materializer(dynamo).apply([record(n) for n in range(100, 110)], SHARD)

    assert (outcome.retry_from, _total(dynamo)["total"]) == (None, 10)
    assert "due_at" not in _total(dynamo)


@pytest.mark.parametrize("flaw", ["the mark is refused", "the count was edited"])
def test_what_keeps_a_counter_out_of_the_index_stops_no_stream(flaw: str) -> None:
    """The total is right without its mark; asking for the batch again would never end."""
    dynamo = _dynamo()
    materializer = _materializer(dynamo)
    materializer.apply([record(100)], SHARD)
    if flaw == "the count was edited":
        _total(dynamo)["compacted"] = "some"
    else:
        dynamo.faults[:] = [None, Fault(RequestRejected("invalid"))]

    outcome = materializer.apply([record(n) for n in range(101, 110)], SHARD)

    assert (outcome.retry_from, _total(dynamo)["total"]) == (None, 10)
    assert "due_at" not in _total(dynamo)
