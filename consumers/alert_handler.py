"""The Lambda function of the evaluator: wiring only."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from countledger.consumers.alerts.evaluator import EvaluationOutcome, Evaluator
from countledger.consumers.alerts.rule_index import RuleCache
from countledger.consumers.alerts.rules import Rules
from countledger.consumers.alerts.service import ConnectedServices
from countledger.consumers.quarantine import StoredQuarantine
from countledger.consumers.record import failures_from, foreign_reason, label_of
from countledger.consumers.region_state import RegionStateStore
from countledger.consumers.total_writer import windows_of
from countledger.ledger.connection import Connection
from countledger.ledger.departure import Deadline
from countledger.ledger.errors import OutOfTime
from countledger.ledger.foreign_events import answer_to_foreign, records_in
from countledger.ledger.message_queue import MessageQueue
from countledger.ledger.quarantine import ForeignEvents, QuarantineSource, QuarantineStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aws_lambda_powertools.utilities.typing import LambdaContext


_EXPECTED: Final = "records of an event source mapping of the stream of the table `counters`"


@dataclass(frozen=True, slots=True)
class _EvaluatorParts:
    rules: RuleCache
    evaluator: Evaluator
    foreign: ForeignEvents
    logger: Logger
    metrics: Metrics


@cache
def _parts() -> _EvaluatorParts:
    connection = Connection.open()
    services = ConnectedServices(connection)
    rules = RuleCache(Rules(connection))
    url = connection.setting("quarantine_queue_url")
    queue = MessageQueue(connection.queues(), url, "the quarantine")
    store = QuarantineStore(connection)
    return _EvaluatorParts(
        rules,
        Evaluator(
            connection,
            rules,
            services.publisher,
            services.dead_letters,
            StoredQuarantine(store, queue, QuarantineSource.COUNTERS),
            windows=windows_of(connection),
            region=RegionStateStore(connection),
        ),
        ForeignEvents(store, queue, QuarantineSource.COUNTERS),
        Logger(),
        Metrics(),
    )


def evaluate(event: object, context: LambdaContext) -> dict[str, Any]:
    """The handler of the evaluator; records of anything but the stream are kept in quarantine."""
    parts = _parts()
    records = records_in(event, _EXPECTED)
    reason = foreign_reason(event, records, _EXPECTED) if records else None
    if reason is not None:
        parts.foreign.keep(records, reason)
        return answer_to_foreign(parts.logger, parts.metrics, reason)
    stream = label_of(records[0].get("eventSourceARN", "")) if records else ""
    deadline = Deadline.within(parts.evaluator.connection.clock, context)
    outcome = parts.evaluator.apply(records, stream, deadline)
    _report(parts, outcome, context)
    return answer_of(outcome, records)


def answer_of(outcome: EvaluationOutcome, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The answer to the mapping: the record from which the shard must be delivered again."""
    return {"batchItemFailures": failures_from(records, outcome.retry_from)}


def _report(parts: _EvaluatorParts, outcome: EvaluationOutcome, context: LambdaContext) -> None:
    for (counter, rule), error in outcome.failed.items():
        if not isinstance(error, OutOfTime):
            parts.logger.error(
                "a counter could not be evaluated", counter=counter, rule=rule, reason=str(error)
            )
    unreadable = parts.rules.unreadable
    for rule, reason in unreadable.items():
        parts.logger.error("a rule cannot be read and is not evaluated", rule=rule, reason=reason)
    parts.logger.info(
        "batch",
        request_id=getattr(context, "aws_request_id", None),
        records=outcome.records,
        changes=outcome.changes,
        alerts=outcome.published,
        dead_letters=outcome.dead,
        quarantined=outcome.quarantined,
        late=outcome.late,
        lag_ms=outcome.lag_ms,
        retry_from=outcome.retry_from,
    )
    metrics = parts.metrics
    metrics.add_metric("TotalChanges", MetricUnit.Count, outcome.changes)
    metrics.add_metric("Alerts", MetricUnit.Count, outcome.published)
    metrics.add_metric("DeadLetters", MetricUnit.Count, outcome.dead)
    metrics.add_metric("Quarantined", MetricUnit.Count, outcome.quarantined)
    metrics.add_metric("FailedCounters", MetricUnit.Count, len(outcome.failed) - outcome.late)
    metrics.add_metric("UnreadableRules", MetricUnit.Count, len(unreadable))
    if outcome.lag_ms is not None:
        metrics.add_metric("LagMs", MetricUnit.Milliseconds, outcome.lag_ms)
    metrics.flush_metrics()
