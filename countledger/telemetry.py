"""OpenTelemetry spans and metrics of a client, on request (extra `otel`).

    from countledger.telemetry import traced

    client = traced(CountLedger())

Each request to DynamoDB is a span of kind CLIENT, below the span that is active in its thread, and
a measure of its duration. A process that does not import this module pays nothing for it.
Exporters are a matter of the application: without its OpenTelemetry SDK nothing is recorded.

Outcomes of quotas are counted: how many were admitted, denied and committed, and the overruns.

Requests of `AsyncCountLedger`, and those to other services, have no spans.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, cast

from botocore.exceptions import ClientError

from countledger.client import CountLedger
from countledger.ledger import keys
from countledger.ledger.connection import Connection
from countledger.ledger.processes import made_once
from countledger.producers.quotas.quota import Admitted, Committed, Denied

try:
    from opentelemetry.metrics import get_meter
    from opentelemetry.trace import SpanKind, Status, StatusCode, get_tracer
except ImportError as error:
    raise ImportError(
        f"spans and metrics need the extra `otel` ({error}): pip install 'countledger[otel]'"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mypy_boto3_dynamodb import DynamoDBClient
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

    from countledger.ledger.connection import Retries
    from countledger.ledger.dynamo import DynamoClient
    from countledger.producers.quotas.quotas import Quotas

# ---- names: the semantic conventions of databases, stable since this version, and of DynamoDB ----
SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.33.0"
SYSTEM: Final = "db.system.name"
OPERATION: Final = "db.operation.name"
COLLECTION: Final = "db.collection.name"
BATCH_SIZE: Final = "db.operation.batch.size"
STATUS_CODE: Final = "db.response.status_code"
ERROR_TYPE: Final = "error.type"
DURATION: Final = "db.client.operation.duration"
CONSUMED: Final = "aws.dynamodb.consumed_capacity"
DYNAMODB: Final = "aws.dynamodb"
# The buckets that the conventions advise for that duration, in seconds.
BUCKETS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)
# ---- names of our own ----
COUNTER: Final = "countledger.counter"
ENTRY: Final = "countledger.entry"
UNITS: Final = "countledger.consumed_units"
NAMESPACE: Final = "countledger.namespace"
OUTCOME: Final = "countledger.outcome"
QUOTA_OUTCOMES: Final = "countledger.quota.outcomes"
QUOTA_OVERRUN: Final = "countledger.quota.overrun"

_OPERATIONS: Final = {
    "get_item": "GetItem",
    "put_item": "PutItem",
    "update_item": "UpdateItem",
    "delete_item": "DeleteItem",
    "query": "Query",
    "scan": "Scan",
    "batch_get_item": "BatchGetItem",
    "batch_write_item": "BatchWriteItem",
    "transact_write_items": "TransactWriteItems",
    "transact_get_items": "TransactGetItems",
}
# An answer of a conditional write, and no failure: a duplicate, a bound, a lost race.
_ANSWERS: Final = frozenset({"ConditionalCheckFailedException", "TransactionCanceledException"})


def traced(
    client: CountLedger,
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> CountLedger:
    """Another client of the same stack, whose requests have spans and are measured.

    Args:
        client: it stays as it is.
        tracer_provider: where spans go; None: the global provider.
        meter_provider: where measures go; None: the global provider.
    """
    plain = client.connection
    known = {one.name: getattr(plain, one.name) for one in fields(Connection) if one.init}
    recorder = _Recorder.of(tracer_provider, meter_provider)
    made = _TracedCountLedger(
        plain.settings, session=plain.session, endpoint_url=plain.endpoint_url
    )
    made._telemetry = recorder  # noqa: SLF001 - of this module
    made.connection = TracedConnection(**known, recorder=recorder)
    return made


class _TracedCountLedger(CountLedger):
    """A client whose quotas are observed as well."""

    _telemetry: _Recorder

    @made_once
    def quotas(self) -> Quotas:
        from countledger.producers.quotas.quotas import Quotas  # noqa: PLC0415 - at its first use

        return Quotas(self.connection, self._telemetry.observe)


@dataclass(frozen=True, kw_only=True)
class TracedConnection(Connection):
    """A connection whose DynamoDB clients are traced."""

    recorder: _Recorder

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "a traced client cannot be pickled, because its providers are of this process: pickle "
            "the client that it was made from, and call `traced` in the other process"
        )

    def dynamo(self, retries: Retries, *, region: str | None = None) -> DynamoClient:
        plain = super().dynamo(retries, region=region)
        client = cast("DynamoDBClient", _TracedClient(plain.client, self.recorder))
        return replace(plain, client=client)


class _TracedClient:
    """A low-level client whose calls on items are recorded; everything else is the client's own."""

    def __init__(self, client: DynamoDBClient, recorder: _Recorder) -> None:
        self._client = client
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of the client
        # Read at each call: after a fork it is another client's.
        attribute = getattr(self._client, name)
        operation = _OPERATIONS.get(name)
        return attribute if operation is None else partial(self._recorder, operation, attribute)


@dataclass(frozen=True, slots=True)
class _Recorder:
    """Records spans, their durations in seconds, their units, and the outcomes of quotas.

    `overruns`: by how much commits were above their reservations.
    """

    tracer: Any
    durations: Any
    units: Any
    outcomes: Any
    overruns: Any

    @classmethod
    def of(cls, tracers: TracerProvider | None, meters: MeterProvider | None) -> _Recorder:
        meter = get_meter("countledger", meter_provider=meters, schema_url=SCHEMA_URL)
        return cls(
            get_tracer("countledger", tracer_provider=tracers, schema_url=SCHEMA_URL),
            meter.create_histogram(
                DURATION,
                "s",
                "Duration of database client operations.",
                explicit_bucket_boundaries_advisory=BUCKETS,
            ),
            meter.create_counter(UNITS, "{unit}", "Request units of DynamoDB that were consumed."),
            meter.create_counter(QUOTA_OUTCOMES, "{call}", "Outcomes of quotas."),
            meter.create_counter(QUOTA_OVERRUN, "1", "What was committed above its reservation."),
        )

    def observe(self, outcome: Admitted | Denied | Committed) -> None:
        """Count the outcome of a quota, by the namespace of its counter."""
        shared = {NAMESPACE: keys.namespace_of(outcome.counter)}
        duplicate = not isinstance(outcome, Denied) and outcome.duplicate
        name = "duplicate" if duplicate else type(outcome).__name__.lower()
        self.outcomes.add(1, shared | {OUTCOME: name})
        if isinstance(outcome, Committed) and outcome.overrun and not duplicate:
            self.overruns.add(float(outcome.overrun), shared)

    def __call__(
        self,
        operation: str,
        call: Callable[..., Mapping[str, Any]],
        **arguments: Any,  # noqa: ANN401 - of the call
    ) -> Mapping[str, Any]:
        shared = {SYSTEM: DYNAMODB, OPERATION: operation, **_table_of(arguments)}
        name = f"{operation} {shared[COLLECTION]}" if COLLECTION in shared else operation
        span = self.tracer.start_as_current_span(
            name,
            kind=SpanKind.CLIENT,
            attributes=shared | _item_of(arguments),
            record_exception=False,
            set_status_on_exception=False,
        )
        began = perf_counter()
        outcome: dict[str, str] = {}
        with span as current:
            try:
                answer = call(**arguments)
                self._consumed(current, answer, shared)
            except BaseException as error:
                outcome = _failure_of(error)
                current.set_attributes(outcome)
                if ERROR_TYPE in outcome:
                    current.set_status(Status(StatusCode.ERROR, outcome[ERROR_TYPE]))
                raise
            finally:
                self.durations.record(perf_counter() - began, shared | outcome)
        return answer

    def _consumed(self, span: Span, answer: Mapping[str, Any], shared: dict[str, str]) -> None:
        consumed = answer.get("ConsumedCapacity") or []
        parts = consumed if isinstance(consumed, list) else [consumed]
        span.set_attribute(CONSUMED, [json.dumps(part) for part in parts])
        self.units.add(sum(float(part.get("CapacityUnits", 0)) for part in parts), shared)


def _table_of(arguments: Mapping[str, Any]) -> dict[str, str]:
    """The one table of a call; none if a call names several."""
    if "TableName" in arguments:
        return {COLLECTION: arguments["TableName"]}
    names = {*arguments.get("RequestItems", ())}
    for item in arguments.get("TransactItems", ()):
        names |= {part["TableName"] for part in item.values()}
    return {COLLECTION: names.pop()} if len(names) == 1 else {}


def _item_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Which item a call is about, or how many."""
    item = arguments.get("Key") or arguments.get("Item")
    if item:
        named = ((COUNTER, item.get("counter")), (ENTRY, item.get("entry")))
        return {name: value["S"] for name, value in named if value}
    many: Iterable[Any] = arguments.get("TransactItems") or ()
    size = sum(1 for _ in many)
    for requests in arguments.get("RequestItems", {}).values():
        size += len(requests["Keys"] if isinstance(requests, dict) else requests)
    return {BATCH_SIZE: size} if size > 1 else {}


def _failure_of(error: BaseException) -> dict[str, str]:
    """How a call failed, by the service's code or the type of the error."""
    if not isinstance(error, ClientError):
        return {ERROR_TYPE: type(error).__qualname__}
    code = str(error.response.get("Error", {}).get("Code", "unknown"))
    return {STATUS_CODE: code} if code in _ANSWERS else {STATUS_CODE: code, ERROR_TYPE: code}
