"""The materializer's function: what it answers to its mapping, and how it is wired."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from aws_lambda_powertools import Logger, Metrics

from countledger import CountLedger
from countledger.consumers import audit_handler, handler
from countledger.consumers.materializer import Materializer
from countledger.consumers.progress import decode_progress
from countledger.consumers.record import ShardName
from countledger.ledger import keys
from countledger.ledger.errors import Throttled
from countledger.ledger.limits import HOUR_MS, INVOCATION_TIME_MS, late_write_ms
from tests.unit.connections import connection_on
from tests.unit.consumers.records import image, record
from tests.unit.consumers.world import COUNTERS, Kept, opened
from tests.unit.ledger.clocks import ManualClock
from tests.unit.ledger.memory import MemoryClient, at

SHARD = ShardName("label", "shardId-1")
ARN = "arn:aws:dynamodb:r:1:table/t/stream/label"


@dataclass(frozen=True, slots=True)
class _Context:
    left_ms: int = INVOCATION_TIME_MS
    aws_request_id: str = "request"

    def get_remaining_time_in_millis(self) -> int:
        return self.left_ms


# The counters whose updates are throttled.
_refused: set[str] = set()


def _refusing(_kind: str, write: Any, request: Callable[[], Any]) -> Any:  # noqa: ANN401
    if write.key["counter"] in _refused:
        raise Throttled("slow")
    return request()


@pytest.fixture
def dynamo(monkeypatch: pytest.MonkeyPatch) -> MemoryClient:
    """Of a function whose shard was handled to 1 before."""
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "test")
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "test")
    dynamo = opened(SHARD, MemoryClient(plans=[at(_refusing)]))
    _refused.clear()
    unused: Any = None
    parts = handler._MaterializerParts(
        Materializer(connection_on(dynamo, ManualClock()), Kept()), Logger(), Metrics(), unused
    )
    monkeypatch.setattr(handler, "_parts", lambda: parts)
    return dynamo


def _answer(records: Sequence[dict[str, Any]], left_ms: int = INVOCATION_TIME_MS) -> Any:  # noqa: ANN401
    event = {"Records": records, "shardId": SHARD.id, "eventSourceARN": ARN, "state": {}}
    context: Any = _Context(left_ms)
    return handler.materialize(event, context)


def _totals(dynamo: MemoryClient) -> dict[str, Any]:
    return {key[0]: i["total"] for key, i in dynamo.tables[COUNTERS].items() if key[1] == "total"}


def _position(dynamo: MemoryClient) -> int:
    item = dynamo.get(COUNTERS, keys.progress_key(str(SHARD)))
    assert item is not None
    return decode_progress(item).position


def _records(*counters: str, width: int = 0) -> list[dict[str, Any]]:
    """One of each counter, from 100 on; their numbers spelled with so many digits."""
    made = [record(100 + n, 1, counter=counter) for n, counter in enumerate(counters)]
    for one in made:
        stream = one["dynamodb"]
        stream["SequenceNumber"] = stream["SequenceNumber"].zfill(width)
    return made


@pytest.mark.parametrize("width", [0, 21], ids=["", "leading zeros"])
def test_a_counter_that_fails_is_delivered_again_from_its_first_record(
    dynamo: MemoryClient, width: int
) -> None:
    records = _records("a:x", "a:slow", "a:x", "a:y", width=width)
    _refused.add("a:slow")

    answer = _answer(records)

    named = records[1]["dynamodb"]["SequenceNumber"]
    assert answer == {"state": {}, "batchItemFailures": [{"itemIdentifier": named}]}
    assert (_totals(dynamo), _position(dynamo)) == ({"a:x": 2, "a:y": 1}, 100)
    assert _answer(records[1:])["batchItemFailures"] == answer["batchItemFailures"]
    _refused.clear()
    assert _answer(records[1:]) == {"state": {}, "batchItemFailures": []}
    assert (_totals(dynamo), _position(dynamo)) == ({"a:x": 2, "a:slow": 1, "a:y": 1}, 103)


def test_progress_that_cannot_be_moved_names_the_last_record(dynamo: MemoryClient) -> None:
    records = _records("a:x", "a:y")
    _refused.add(f"stream#{SHARD}")

    assert _answer(records)["batchItemFailures"] == [{"itemIdentifier": "101"}]
    _refused.clear()
    assert _answer(records[1:])["batchItemFailures"] == []
    assert (_totals(dynamo), _position(dynamo)) == ({"a:x": 1, "a:y": 1}, 101)


def test_the_log_names_the_entries_that_are_not_delivered_again() -> None:
    """A line for an entry says that its total includes it, so none is written too early."""
    records = _records("a:x", "a:y", "a:z")
    names = [one["dynamodb"]["Keys"]["entry"]["S"] for one in records]
    broken: list[dict[str, Any]] = [
        {"dynamodb": {"Keys": None, "SequenceNumber": "98"}},
        {"dynamodb": {"Keys": {"entry": {"S": 1}}, "SequenceNumber": "99"}},
    ]

    assert handler.handled_entries(records, None) == names
    assert handler.handled_entries(records, 102) == names[:2]
    assert handler.handled_entries(records, 100) == []
    assert handler.handled_entries([*broken, *records], None) == names
    assert handler.handled_entries([broken[1], *records], None) == names


def test_a_window_that_closes_is_answered_with_an_empty_state(dynamo: MemoryClient) -> None:
    assert _answer([]) == {"state": {}, "batchItemFailures": []}
    assert _position(dynamo) == 1


def test_how_far_clocks_may_differ_decides_when_watermarks_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "COUNTLEDGER_CLOCK_SKEW_MS": str(HOUR_MS),
        "COUNTLEDGER_COUNTERS_TABLE": "counters",
        "COUNTLEDGER_LEDGER_TABLE": "ledger",
        "COUNTLEDGER_QUARANTINE_QUEUE_URL": "https://queue",
        "COUNTLEDGER_LEDGER_STREAM_ARN": ARN,
        "COUNTLEDGER_HOME_REGION": "eu-west-1",
        "POWERTOOLS_SERVICE_NAME": "test",
        "POWERTOOLS_METRICS_NAMESPACE": "test",
    }.items():
        monkeypatch.setenv(name, value)

    late_ms = late_write_ms(HOUR_MS)
    assert late_ms > late_write_ms(0) + HOUR_MS
    assert handler._parts.__wrapped__().materializer.passed.late_ms == late_ms
    assert audit_handler._parts.__wrapped__().verifier.connection.late_write_ms == late_ms
    assert CountLedger().audit.connection.late_write_ms == late_ms


def test_a_replaced_entry_is_counted_and_named(
    dynamo: MemoryClient, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A change of other attributes is none."""
    kept = record(101, 5, counter="a:x", name="MODIFY", old=image(5))
    moved = record(102, -1_000, counter="a:x", name="MODIFY", old=image(5))
    grown = record(103, 5, counter="a:x", name="MODIFY", old=image(5), events=9)

    assert _answer([record(100, 5, counter="a:x"), kept, moved, grown])["batchItemFailures"] == []
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    named = [vars(one) for one in caplog.records if "replaced" in one.getMessage()]
    assert [(one["entry"], one["delta_moved_by"]) for one in named] == [
        (moved["dynamodb"]["Keys"]["entry"]["S"], "-1005"),
        (grown["dynamodb"]["Keys"]["entry"]["S"], "0"),
    ]
    assert [one["ReplacedEntries"] for one in lines if "ReplacedEntries" in one] == [[2.0]]
    assert _totals(dynamo) == {"a:x": -1_000}


@pytest.mark.parametrize("records", [{}, {"Records": []}])
def test_the_invocation_that_closes_a_window_does_nothing(
    dynamo: MemoryClient, records: dict[str, Any]
) -> None:
    closing = {**records, "shardId": "s", "eventSourceARN": ARN, "isFinalInvokeForWindow": True}
    unused: Any = _Context()

    assert handler.materialize(closing, unused) == {"state": {}, "batchItemFailures": []}

    assert not {"update", "put"} & set(dynamo.calls)
