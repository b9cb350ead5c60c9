"""What a batch of stream records costs the materializer, from the event to the last total."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import boto3

from countledger.consumers.directory import ShardDirectory
from countledger.consumers.materializer import Materializer
from countledger.consumers.namespace_rules import DueRules
from countledger.consumers.stream import ShardName
from tests.bench import fold
from tests.bench.emitting import REGION, ledger_at
from tests.bench.way import Way, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_TABLE: Final = "bench-counters"
_SHARD: Final = ShardName("bench", "shard")
# As far away as DynamoDB is from a Lambda of its region.
_NEAR_MS: Final = 3


class _Then:
    """The time at which the batch was made."""

    def now_ms(self) -> int:
        """Always the same."""
        return fold.NOW_MS

    def sleep_ms(self, duration_ms: float) -> None:
        """Return after that many milliseconds."""
        time.sleep(duration_ms / 1_000)


class _NoQuarantine:
    """Nothing in the batch belongs there."""

    def put(self, record: Mapping[str, Any], reason: str, shard: str) -> None:
        """Fail the benchmark."""
        raise AssertionError(record, reason, shard)


def _batches(counters: Sequence[str]) -> int:
    return len(counters) // fold.RECORDS


def _read_only(read: Callable[[list[dict[str, Any]]], object], _url: str) -> Work:
    """Nothing is written: what the batch itself takes."""
    records = fold.batch()

    def work(counters: Sequence[str]) -> float:
        for _ in range(_batches(counters)):
            read(records)
        return 0.0

    return work


def _update_each(url: str) -> Work:
    """As the usual handler does: an update for each record, and nothing that drops a second one."""
    client = boto3.client("dynamodb", region_name=REGION, endpoint_url=url)

    def work(counters: Sequence[str]) -> float:
        for counter in counters:
            client.update_item(
                TableName=_TABLE,
                Key={"counter": {"S": counter}, "part": {"S": "total"}},
                UpdateExpression="ADD #t :d",
                ExpressionAttributeNames={"#t": "total"},
                ExpressionAttributeValues={":d": {"N": "1"}},
            )
        return len(counters)

    return work


def _materialize(url: str) -> Work:
    dynamo = ledger_at(url).connection.dynamo("standard")
    clock = _Then()
    rules = DueRules(dynamo, _TABLE, clock)
    shards = ShardDirectory({str(_SHARD): clock.now_ms()})
    materializer = Materializer(dynamo, _TABLE, _NoQuarantine(), clock, rules, shards=shards)
    records = fold.batch()

    def work(counters: Sequence[str]) -> float:
        before = dynamo.meter.write_units
        for _ in range(_batches(counters)):
            outcome = materializer.apply(records, _SHARD)
            if (outcome.updates, outcome.failed) != (fold.COUNTERS, {}):
                raise AssertionError(outcome)
        return dynamo.meter.write_units - before

    return work


_MANY: Final = 200 * fold.RECORDS
_SOME: Final = 20 * fold.RECORDS

FOLDS: Final = (
    Way("the least possible fold", partial(_read_only, fold.least_possible), _MANY),
    Way("fold", partial(_read_only, fold.ours), _MANY),
)
# The first of each pair is what the other is compared with.
HANDLERS: Final = (
    Way("boto3: one update for each record", _update_each, 1_000),
    Way("materializer", _materialize, _SOME),
)
HANDLERS_NEAR: Final = (
    Way("boto3: one update for each record", _update_each, 500, delay_ms=_NEAR_MS),
    Way("materializer", _materialize, _SOME, delay_ms=_NEAR_MS),
)
