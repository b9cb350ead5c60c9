"""Spans and metrics of a client on the deployed stack, as an SDK of OpenTelemetry gets them."""

from typing import Any

import pytest

from countledger import Admitted, CountLedger, Event
from countledger.infra.local.stack import LocalStack
from countledger.ledger.errors import CountledgerError
from tests.e2e.world import client_of

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from countledger.telemetry import (
    BUCKETS,
    DURATION,
    NAMESPACE,
    OUTCOME,
    QUOTA_OUTCOMES,
    QUOTA_OVERRUN,
    UNITS,
    traced,
)


class Watched:
    """A traced client of a stack, and what its SDK has got."""

    def __init__(self, client: CountLedger) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        meters = MeterProvider(metric_readers=[self.reader])
        self.client = traced(client, tracer_provider=self.tracers, meter_provider=meters)

    def spans(self, operation: str) -> list[Any]:
        found = self.exporter.get_finished_spans()
        return [
            one for one in found if (one.attributes or {}).get("db.operation.name") == operation
        ]

    def points(self, metric: str) -> list[Any]:
        data: Any = self.reader.get_metrics_data()
        (scope,) = data.resource_metrics[0].scope_metrics
        (found,) = [one for one in scope.metrics if one.name == metric]
        return list(found.data.data_points)


@pytest.fixture
def watched(stack: LocalStack) -> Watched:
    """A client that may do everything, and is traced."""
    return Watched(client_of(stack))


def test_a_request_is_a_span_below_the_active_one(
    watched: Watched, stack: LocalStack, counter: str
) -> None:
    """It names the entry, by which the materializer's log finds it."""
    with watched.tracers.get_tracer("app").start_as_current_span("order") as order:
        receipt = watched.client.record(counter, 1, key="k")
    stack.pump.drain()

    assert watched.client.total(counter).value == 1
    span = watched.spans("PutItem")[-1]  # the first made the namespace
    table = stack.outputs["LedgerTableName"]
    assert span.name == f"PutItem {table}"
    assert span.kind is SpanKind.CLIENT
    assert span.parent.span_id == order.get_span_context().span_id
    assert span.instrumentation_scope.schema_url == "https://opentelemetry.io/schemas/1.33.0"
    assert span.attributes["db.system.name"] == "aws.dynamodb"
    assert span.attributes["db.collection.name"] == table
    assert span.attributes["countledger.counter"] == counter
    assert span.attributes["countledger.entry"].endswith(receipt.id)
    assert '"CapacityUnits": 1' in span.attributes["aws.dynamodb.consumed_capacity"][0]
    assert watched.spans("GetItem")[-1].attributes["countledger.counter"] == counter


def test_a_duplicate_is_an_answer_and_no_error(watched: Watched, counter: str) -> None:
    for _ in range(2):
        watched.client.record(counter, 1, key="k")

    span = watched.spans("PutItem")[-1]
    assert span.attributes["db.response.status_code"] == "ConditionalCheckFailedException"
    assert "error.type" not in span.attributes
    assert span.status.status_code is StatusCode.UNSET


def test_a_failure_has_its_type_in_span_and_measure(stack: LocalStack, counter: str) -> None:
    watched = Watched(client_of(stack, counters_table="no-such-table"))

    with pytest.raises(CountledgerError):
        watched.client.total(counter)

    (span,) = watched.spans("GetItem")
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["error.type"] == "ResourceNotFoundException"
    (point,) = [
        one for one in watched.points(DURATION) if one.attributes["db.operation.name"] == "GetItem"
    ]
    assert point.attributes["error.type"] == "ResourceNotFoundException"


def test_batches_say_how_many_and_measures_add_up(watched: Watched, counter: str) -> None:
    watched.client.record(counter, 1)
    watched.client.record_many(Event(counter, 1) for _ in range(30))

    sizes = [span.attributes["db.operation.batch.size"] for span in watched.spans("BatchWriteItem")]
    assert sorted(sizes) == [5, 25]
    durations = {one.attributes["db.operation.name"]: one for one in watched.points(DURATION)}
    assert durations["BatchWriteItem"].count == 2
    assert tuple(durations["BatchWriteItem"].explicit_bounds) == BUCKETS
    units = {one.attributes["db.operation.name"]: one.value for one in watched.points(UNITS)}
    assert units["BatchWriteItem"] == 30
    assert watched.client.write_units == sum(units[one] for one in ("BatchWriteItem", "PutItem"))


def test_the_client_that_it_was_made_of_stays_as_it_is(stack: LocalStack, counter: str) -> None:
    plain = client_of(stack)
    watched = Watched(plain)
    before = len(watched.exporter.get_finished_spans())

    plain.record(counter, 1)

    assert len(watched.exporter.get_finished_spans()) == before


def test_outcomes_of_quotas_are_counted_by_namespace(watched: Watched, name: str) -> None:
    quotas, counter = watched.client.quotas, f"{name}:team-1"
    quotas.create(f"{name}:", limit=10, per="month")

    quotas.acquire(counter, 1, key="k")
    quotas.acquire(counter, 1, key="k")
    held = quotas.reserve(counter, 5)
    assert isinstance(held, Admitted)
    for _ in range(2):
        quotas.commit(held, 8)
    quotas.acquire(counter, 5)

    found = {one.attributes[OUTCOME]: one.value for one in watched.points(QUOTA_OUTCOMES)}
    assert found == {"admitted": 2, "duplicate": 2, "committed": 1, "denied": 1}
    (overrun,) = watched.points(QUOTA_OVERRUN)
    assert (overrun.value, overrun.attributes) == (3, {NAMESPACE: name})
