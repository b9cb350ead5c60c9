"""What a batch of stream records costs the materializer, from the event to the last total."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import boto3

from countledger.consumers.materializer import Materializer
from countledger.consumers.progress import ShardDirectory
from countledger.consumers.record import ShardName
from countledger.consumers.total_writer import due_rule_of
from countledger.ledger.calendar import Per
from tools.bench import evaluate, fold
from tools.bench.emitting import REGION, ledger_at
from tools.bench.way import Way, Work, with_each_transport

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


def _read_only(
    read: Callable[[list[dict[str, Any]]], object],
    _url: str,
    batch: list[dict[str, Any]] | None = None,
) -> Work:
    """Nothing is written: what the batch itself takes."""
    records = batch or fold.batch()

    def work(counters: Sequence[str]) -> float:
        for _ in range(len(counters) // fold.RECORDS):
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


def materializing(distinct: int, size: int, url: str) -> Work:
    """Apply batches of that many records, of so many counters."""
    clock = _Then()
    connection = replace(ledger_at(url).connection.with_counters(_TABLE), clock=clock)
    dynamo, rule_of = connection.retrying, due_rule_of(connection)
    shards = ShardDirectory({str(_SHARD): clock.now_ms()})
    materializer = Materializer(connection, _NoQuarantine(), rule_of, shards=shards)
    records = fold.batch(distinct, size)

    def work(counters: Sequence[str]) -> float:
        before = dynamo.meter.write_units
        for _ in range(len(counters) // size):
            outcome = materializer.apply(records, _SHARD)
            if (outcome.updates, outcome.failed) != (distinct, {}):
                raise AssertionError(outcome)
        return dynamo.meter.write_units - before

    return work


def _of_totals(read: Callable[[list[dict[str, Any]]], object], url: str) -> Work:
    """The same of a batch of the stream of totals."""
    return _read_only(read, url, evaluate.batch(time.time_ns() // 10**9))


def _evaluate(rules: int, url: str) -> Work:
    evaluator = evaluate.evaluator_with(rules)
    records = evaluate.batch(evaluator.connection.clock.now_ms() // 1000)
    return _read_only(partial(evaluator.apply, stream="stream"), url, records)


_MANY: Final = 200 * fold.RECORDS
_SOME: Final = 20 * fold.RECORDS

FOLDS: Final = (
    Way("the least possible fold", partial(_read_only, fold.least_possible), _MANY),
    Way("fold", partial(_read_only, fold.ours), _MANY),
)


def _with_windows(finest: Per, url: str, late_ms: Sequence[int] = ()) -> Work:
    read = partial(fold.with_windows, fold.setting(finest))
    return _read_only(read, url, fold.batch(late_ms=late_ms))


_ON_TIME: Final = {one: partial(_with_windows, one) for one in (Per.DAY, Per.HOUR, Per.MINUTE)}
# The first of them is what the others are compared with.
WINDOWED: Final = (
    FOLDS[1],
    *(Way(f"fold, windows by {one}", work, _MANY) for one, work in _ON_TIME.items()),
    Way(
        "fold, windows by hour, late events",
        partial(_with_windows, Per.HOUR, late_ms=fold.late_mix()),
        _MANY,
    ),
)
_EACH: Final = Way("boto3: one update for each record", _update_each, 1_000)
_BATCHED: Final = Way("materializer", partial(materializing, fold.COUNTERS, fold.RECORDS), _SOME)
_DISTINCT: Final = Way(
    "materializer", partial(materializing, fold.RECORDS, fold.RECORDS), 4 * fold.RECORDS
)

# The first of each is what the others are compared with.
HANDLERS: Final = (_EACH, *with_each_transport(_BATCHED))
HANDLERS_DISTINCT: Final = (_EACH, *with_each_transport(_DISTINCT))
HANDLERS_NEAR: Final = (
    replace(_EACH, events=500, delay_ms=_NEAR_MS),
    *(replace(way, delay_ms=_NEAR_MS) for way in with_each_transport(_BATCHED)),
)
# No calls: what the code itself takes.
EVALUATORS: Final = (
    Way("the least possible fold", partial(_of_totals, evaluate.least_possible), _MANY),
    Way("evaluator, 10 rules", partial(_evaluate, 10), _MANY),
    Way("evaluator, 1,000 rules", partial(_evaluate, 1_000), _MANY),
)
