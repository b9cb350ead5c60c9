"""The Lambda function of the ingest: wiring, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from countledger.ledger.clock import SystemClock
from countledger.ledger.connection import Connection
from countledger.ledger.departure import Deadline
from countledger.ledger.errors import BadPayload
from countledger.ledger.foreign_events import answer_to_foreign, described, records_in
from countledger.ledger.limits import INGEST_MARGIN_MS, INGEST_TIME_MS
from countledger.ledger.message_queue import MessageQueue
from countledger.ledger.quarantine import ForeignEvents, QuarantineSource, QuarantineStore
from countledger.producers.ingest.entries import RejectionKind
from countledger.producers.ingest.ingest import (
    Ingest,
    IngestOutcome,
    IngestQuarantine,
    IngestQueues,
)

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


_EXPECTED: Final = "records of an event source mapping of the stack's Kinesis stream"


@dataclass(frozen=True, slots=True)
class _IngestParts:
    ingest: Ingest
    foreign: ForeignEvents
    logger: Logger
    metrics: Metrics


@cache
def _parts() -> _IngestParts:
    """Built at the first invocation, from the function's environment."""
    connection = Connection.open()
    queues = IngestQueues(
        *(
            MessageQueue(
                connection.queues(), connection.setting(setting), "the quarantine of the ingest"
            )
            for setting in ("ingest_quarantine_queue_url", "ingest_expired_queue_url")
        )
    )
    store = QuarantineStore(connection)
    quarantine = IngestQuarantine(store, queues)
    foreign = ForeignEvents(store, queues.rejected, QuarantineSource.KINESIS)
    return _IngestParts(Ingest(connection, quarantine), foreign, Logger(), Metrics())


def ingest(event: object, context: LambdaContext) -> dict[str, Any]:
    """Write a batch of records of the stream to the ledger.

    The event is one of an event source mapping of Kinesis; records of anything else are kept in
    quarantine.
    """
    parts = _parts()
    records = records_in(event, _EXPECTED)
    deadline = Deadline.within(SystemClock(), context, INGEST_TIME_MS, INGEST_MARGIN_MS)
    try:
        stream, shard = source_of(records, is_batch=isinstance(event, dict))
        outcome = parts.ingest.apply(records, stream=stream, shard=shard, deadline=deadline)
    except BadPayload as error:
        parts.foreign.keep(records, str(error))
        return answer_to_foreign(parts.logger, parts.metrics, str(error))
    _report(parts, outcome, shard, context)
    return answer_of(outcome, records)


def answer_of(outcome: IngestOutcome, records: list[dict[str, Any]]) -> dict[str, Any]:
    """The answer to the mapping: from which record on to deliver the shard again."""
    if outcome.retry_from is None:
        return {"batchItemFailures": []}
    first = records[outcome.retry_from]["kinesis"]["sequenceNumber"]
    return {"batchItemFailures": [{"itemIdentifier": first}]}


def source_of(records: list[Any], *, is_batch: bool = True) -> tuple[str, str]:
    """The stream and the shard of a batch, for people who read the quarantine.

    `is_batch`: the records came as Lambda delivers them, not as a list of their own.
    """
    if not records:
        return "", ""
    try:
        if is_batch and records[0]["eventSource"] == "aws:kinesis":
            shard, _, _ = records[0]["eventID"].partition(":")
            return str(records[0]["eventSourceARN"]), shard
    except (KeyError, TypeError, AttributeError):
        pass
    what = described({"Records": records} if is_batch else records)
    raise BadPayload(f"the event is {what}; expected is {_EXPECTED}")


def _report(
    parts: _IngestParts, outcome: IngestOutcome, shard: str, context: LambdaContext
) -> None:
    for error in outcome.errors:
        parts.logger.error("records will be delivered again", reason=error)
    quarantined = {str(kind): count for kind, count in outcome.quarantined.items()}
    parts.logger.info(
        "batch",
        shard=shard,
        request_id=getattr(context, "aws_request_id", None),
        records=outcome.records,
        payloads=outcome.payloads,
        accepted=outcome.accepted,
        duplicates=outcome.duplicates,
        quarantined=quarantined,
        retry_from=outcome.retry_from,
    )
    metrics = parts.metrics
    metrics.add_metric("IngestRecords", MetricUnit.Count, outcome.records)
    metrics.add_metric("IngestPayloads", MetricUnit.Count, outcome.payloads)
    metrics.add_metric("IngestAccepted", MetricUnit.Count, outcome.accepted)
    metrics.add_metric("IngestDuplicates", MetricUnit.Count, outcome.duplicates)
    metrics.add_metric("IngestQuarantined", MetricUnit.Count, sum(outcome.quarantined.values()))
    metrics.add_metric(
        "IngestExpired", MetricUnit.Count, outcome.quarantined.get(RejectionKind.EXPIRED, 0)
    )
    metrics.flush_metrics()
