"""An event that is not a function's own is said once, in words, and loses nobody's events."""

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from aws_lambda_powertools import Logger, Metrics
from mypy_boto3_sqs import SQSClient

from countledger import probe
from countledger.compaction import functions as compaction
from countledger.consumers import alert_handler, audit_handler
from countledger.consumers import handler as materializer
from countledger.consumers.alerts.rule_index import RuleCache
from countledger.consumers.alerts.rules import Rules
from countledger.consumers.quarantine import StoredQuarantine
from countledger.consumers.record import foreign_reason
from countledger.infra.http import functions as http
from countledger.ledger.errors import BadPayload, Throttled
from countledger.ledger.foreign_events import records_in
from countledger.ledger.message_queue import MessageQueue
from countledger.ledger.quarantine import (
    CONTENT_MAX_BYTES,
    ForeignEvents,
    QuarantineSource,
    QuarantineStore,
    quarantine_ids_in,
)
from countledger.producers.ingest import handler as ingest
from tests.unit.alerts import evaluating
from tests.unit.connections import connection_on
from tests.unit.consumers.records import record
from tests.unit.ledger.clocks import NOW_MS
from tests.unit.ledger.memory import Fault, MemoryClient
from tests.unit.producers.ingest.world import World
from tests.unit.producers.kinesis.streams import delivered

TEST_EVENT = {"key1": "value1", "key2": "value2", "key3": "value3"}
SQS = {"messageId": "m-1", "body": "{}", "eventSource": "aws:sqs"}
PIPED = {"eventSource": "aws:kinesis", "sequenceNumber": "4" * 56, "data": "e30="}


class _Context:
    aws_request_id = "r"

    def get_remaining_time_in_millis(self) -> int:
        return 120_000


CONTEXT: Any = _Context()


@dataclass
class Letters:
    """The call of SQS that sends."""

    bodies: list[str] = field(default_factory=list)

    def send_message(self, *, QueueUrl: str, MessageBody: str) -> dict[str, str]:  # noqa: N803 - the service's names
        del QueueUrl
        self.bodies.append(MessageBody)
        return {"MessageId": "1"}


@dataclass
class ForeignWorld:
    dynamo: MemoryClient = field(default_factory=MemoryClient)
    letters: Letters = field(default_factory=Letters)

    def events(self, source: QuarantineSource) -> ForeignEvents:
        store = QuarantineStore(connection_on(self.dynamo))
        queue = MessageQueue(cast("SQSClient", self.letters), "url", "the quarantine")
        return ForeignEvents(store, queue, source)

    def kept(self) -> list[Any]:
        """The records in quarantine, in the order of their items."""
        items = self.dynamo.items("counters")
        return [one for item in items for one in json.loads(item["content"])]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[ForeignWorld]:
    """The functions of streams, each with its quarantine; nothing else of them is reached."""
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "test")
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "test")
    world = ForeignWorld()
    nothing: Any = None
    ledger = world.events(QuarantineSource.LEDGER)
    quarantine: Any = materializer._Quarantine.__new__(materializer._Quarantine)
    quarantine.keep_event = ledger.keep
    parts: dict[Any, Any] = {
        materializer: materializer._MaterializerParts(nothing, Logger(), Metrics(), quarantine),
        alert_handler: alert_handler._EvaluatorParts(
            nothing, nothing, world.events(QuarantineSource.COUNTERS), Logger(), Metrics()
        ),
        ingest: ingest._IngestParts(
            World().ingest, world.events(QuarantineSource.KINESIS), Logger(), Metrics()
        ),
    }
    for module, built in parts.items():
        monkeypatch.setattr(module, "_parts", lambda built=built: built)
    yield world
    Metrics().clear_metrics()


STREAM_FUNCTIONS = pytest.mark.parametrize(
    "function", [materializer.materialize, alert_handler.evaluate, ingest.ingest]
)
ALL_FUNCTIONS = pytest.mark.parametrize(
    "function",
    [
        materializer.materialize,
        alert_handler.evaluate,
        ingest.ingest,
        compaction.compact,
        compaction.dispatch,
        audit_handler.audit,
        probe.probe,
        http.handle,
    ],
)
Function = Callable[[Any, Any], dict[str, Any]]


@ALL_FUNCTIONS
@pytest.mark.parametrize(
    ("event", "words"),
    [
        (TEST_EVENT, "an object with the fields key1, key2, key3"),
        ({}, "an empty object"),
        ([], "a list of 0 items"),
        ("text", "not an object"),
        (None, "not an object"),
    ],
)
def test_an_event_without_records_fails_and_says_what_is_expected(
    world: ForeignWorld, function: Function, event: object, words: str
) -> None:
    """Nothing of anybody is in it. A test in the console shows the error."""
    with pytest.raises(BadPayload) as refused:
        function(event, CONTEXT)

    text = str(refused.value)
    assert "expected is " in text
    assert words in text
    assert world.letters.bodies == []


@pytest.mark.parametrize("event", [{}, {"Records": []}, {"Records": None}])
def test_the_invocation_that_closes_a_window_is_an_empty_batch(event: dict[str, Any]) -> None:
    """Lambda may send it without the field; no other event lacks it."""
    final = {**event, "shardId": "s", "state": {}, "isFinalInvokeForWindow": True}

    assert records_in(final, "records") == []
    if "Records" not in event:
        for other in ({**final, "isFinalInvokeForWindow": False}, {"shardId": "s", "state": {}}):
            with pytest.raises(BadPayload, match="expected is records"):
                records_in(other, "records")


@STREAM_FUNCTIONS
@pytest.mark.parametrize(
    ("event", "words"),
    [
        ([PIPED, PIPED], "a list of 2 items, as an EventBridge pipe sends it"),
        ([record(10**20)], "a list of 1 items, as an EventBridge pipe sends it"),
        ({"Records": [SQS]}, "1 records of aws:sqs"),
        ({"Records": ["text", None]}, "2 records of an unknown source"),
        ({"Records": [{"eventSource": "aws:s3", "s3": {}}]}, "1 records of aws:s3"),
    ],
)
def test_records_of_something_else_are_kept_once_and_not_asked_for_again(
    world: ForeignWorld,
    capsys: pytest.CaptureFixture[str],
    function: Function,
    event: Any,  # noqa: ANN401 - anything
    words: str,
) -> None:
    records = event if isinstance(event, list) else event["Records"]

    answers = [function(event, CONTEXT) for _ in range(3)]

    assert [one["batchItemFailures"] for one in answers] == [[]] * 3
    assert world.kept() == records
    (letter,) = world.letters.bodies
    (item,) = world.dynamo.items("counters")
    assert quarantine_ids_in(letter)
    assert (item["kind"], item.get("messages", 1)) == ("foreign", len(records))
    assert words in item["reason"]
    assert "expected is records of an event source mapping of" in item["reason"]
    assert '"ForeignEvents":[1.0]' in capsys.readouterr().out.replace(" ", "")


@pytest.mark.parametrize("function", [materializer.materialize, alert_handler.evaluate])
@pytest.mark.parametrize(
    ("number", "words"),
    [("4" * 56, "sequence numbers of 56 digits"), (None, "without sequence numbers")],
)
def test_records_of_another_engine_are_said_in_words(
    world: ForeignWorld, function: Function, number: str | None, words: str
) -> None:
    """Those of DynamoDB have 21 to 40 digits; Kinesis, and engines built on it, have 56."""
    one = record(10**20)
    one["dynamodb"]["SequenceNumber"] = number

    answer = function({"Records": [one] * 3, "shardId": "s", "eventSourceARN": "a"}, CONTEXT)

    assert answer["batchItemFailures"] == []
    (item,) = world.dynamo.items("counters")
    assert words in item["reason"]
    assert len(world.kept()) == 3


def test_a_record_that_cannot_be_evaluated_names_its_stream(
    world: ForeignWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event does, and a table may have had several."""
    alerts, events = (
        evaluating.World([evaluating.rule(10)]),
        world.events(QuarantineSource.COUNTERS),
    )
    kept: Any = StoredQuarantine(events.store, events.queue, QuarantineSource.COUNTERS)
    alerts.quarantine = kept
    parts = replace(
        alert_handler._parts(),
        rules=RuleCache(Rules(alerts.connection)),
        evaluator=alerts.evaluator(),
    )
    monkeypatch.setattr(alert_handler, "_parts", lambda: parts)
    malformed = evaluating.record(1, None, 15, incarnation={"N": "7"})
    arn = "arn:aws:dynamodb:eu-west-1:111122223333:table/counters/stream/2030-01-01"

    answer = alert_handler.evaluate({"Records": [malformed | {"eventSourceARN": arn}]}, CONTEXT)

    assert answer == {"batchItemFailures": []}
    (item,) = world.dynamo.items("counters")
    assert item["where"] == "2030-01-01"


def test_records_of_kinesis_without_sequence_numbers_are_kept(world: ForeignWorld) -> None:
    one = delivered(b"{}", sequence=1, arrived_s=NOW_MS / 1_000)
    del one["kinesis"]["sequenceNumber"]

    assert ingest.ingest({"Records": [one]}, CONTEXT) == {"batchItemFailures": []}

    assert world.kept() == [one]


def test_an_event_of_a_stream_is_none_of_something_else() -> None:
    """One record of it without a number is quarantined by itself."""
    good, unnumbered = record(10**20), record(1)
    del unnumbered["dynamodb"]["SequenceNumber"]

    for records in ([good], [unnumbered, good], [good, unnumbered]):
        assert foreign_reason({"Records": records}, records, "x") is None
    assert foreign_reason({"Records": [unnumbered]}, [unnumbered], "x") is not None


@STREAM_FUNCTIONS
def test_records_that_cannot_be_kept_fail_the_invocation(
    world: ForeignWorld, function: Function
) -> None:
    """Then they are delivered again: nothing is lost."""
    world.dynamo.faults.append(Fault(Throttled("slow")))

    with pytest.raises(Throttled):
        function({"Records": [SQS]}, CONTEXT)

    assert function({"Records": [SQS]}, CONTEXT)["batchItemFailures"] == []
    assert world.kept() == [SQS]


def test_a_large_event_is_kept_in_several_items_and_whole(world: ForeignWorld) -> None:
    data = base64.b64encode(b"x" * 60_000).decode()
    records = [{**PIPED, "data": data, "n": n} for n in range(20)]

    ingest.ingest(records, CONTEXT)

    assert sorted(one["n"] for one in world.kept()) == list(range(20))
    items = world.dynamo.items("counters")
    assert len(items) == len(world.letters.bodies) == 7
    assert all(len(item["content"]) <= CONTENT_MAX_BYTES for item in items)


@pytest.mark.parametrize(
    "event",
    [{"Records": [{"eventSource": "aws:kinesis", "kinesis": {}}]}, [SQS, {}], {"Records": ["x"]}],
)
def test_the_compactor_handles_nothing_of_another_source(event: object) -> None:
    """It may keep nothing: what is not its own stays where it came from."""
    with pytest.raises(BadPayload, match="of the compaction queue"):
        compaction.compact(event, CONTEXT)
