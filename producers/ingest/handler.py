"""The Lambda function of the ingest: wiring, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from countledger.ledger.assembly import namespaces_of
from countledger.ledger.before_send import Deadline
from countledger.ledger.clock import SystemClock
from countledger.ledger.connection import Connection
from countledger.ledger.errors import BadPayload
from countledger.ledger.limits import INGEST_MARGIN_MS, INGEST_TIME_MS
from countledger.ledger.message_queue import MessageQueue
from countledger.ledger.quarantine_store import QuarantineStore
from countledger.producers.ingest.entries import EntryWriter, RejectionKind
from countledger.producers.ingest.ingest import Ingest, IngestOutcome
from countledger.producers.ingest.pieces import RecordProgress
from countledger.producers.ingest.quarantine import IngestQuarantine, IngestQueues
from countledger.producers.sender import sender_of

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


@dataclass(frozen=True, slots=True)
class _IngestParts:
    ingest: Ingest
    logger: Logger
    metrics: Metrics


@cache
def _parts() -> _IngestParts:
    """Built at the first invocation, from the function's environment."""
    connection = Connection.open()
    sender = sender_of(connection, namespaces_of(connection))
    queues = IngestQueues(
        *(
            MessageQueue(
                connection.queues(), connection.setting(setting), "the quarantine of the ingest"
            )
            for setting in ("ingest_quarantine_queue_url", "ingest_expired_queue_url")
        )
    )
    dynamo, table = connection.dynamo("standard"), connection.setting("counters_table")
    quarantine = IngestQuarantine(QuarantineStore(dynamo, table), queues)
    progress = RecordProgress(dynamo, table)
    ingest = Ingest(EntryWriter(sender), quarantine, connection.region, progress)
    return _IngestParts(ingest, Logger(), Metrics())


def ingest(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Write a batch of records of the stream to the ledger.

    Args:
        event: as an event source mapping of Kinesis sends it.
        context: of the invocation.

    Returns:
        From which record on the shard has to be delivered again, if at all.

    Raises:
        BadPayload: a record of the event is not one of Kinesis.
    """
    parts = _parts()
    records = event.get("Records") or []
    stream, shard = source_of(records)
    deadline = Deadline.within(SystemClock(), context, INGEST_TIME_MS, INGEST_MARGIN_MS)
    outcome = parts.ingest.apply(records, stream=stream, shard=shard, deadline=deadline)
    _report(parts, outcome, shard, context)
    return answer_of(outcome, records)


def answer_of(outcome: IngestOutcome, records: list[dict[str, Any]]) -> dict[str, Any]:
    """The answer to the mapping: from which record on to deliver the shard again."""
    if outcome.retry_from is None:
        return {"batchItemFailures": []}
    first = records[outcome.retry_from]["kinesis"]["sequenceNumber"]
    return {"batchItemFailures": [{"itemIdentifier": first}]}


def source_of(records: list[dict[str, Any]]) -> tuple[str, str]:
    """The stream and the shard of a batch, for people who read the quarantine.

    Raises:
        BadPayload: the first record does not name them.
    """
    if not records:
        return "", ""
    try:
        shard, _, _ = records[0]["eventID"].partition(":")
        return records[0]["eventSourceARN"], shard
    except (KeyError, TypeError, AttributeError) as error:
        raise BadPayload(
            f"the first record of the event is not one of Kinesis: {error!r}"
        ) from None


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
