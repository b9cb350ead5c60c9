"""The Lambda functions of compaction: wiring only.

dispatch    a schedule's tick: {"namespace": "likes", "revision": "..."}
compact     a batch of messages from the queue; each failure is reported by message
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from countledger.compaction.dispatcher import Dispatcher
from countledger.compaction.report import RunOutcome
from countledger.compaction.worker import BatchResult, WorkBatch
from countledger.ledger.connection import Connection
from countledger.ledger.errors import BadPayload
from countledger.ledger.foreign_events import described, object_in, records_in
from countledger.ledger.limits import SECOND_MS

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

    from countledger.compaction.report import CompactionReport

# For the requests under way when the time is nearly over: a generation's retries, and the answer.
_MARGIN_MS: Final = 20 * SECOND_MS


@dataclass(frozen=True, slots=True)
class _CompactionParts:
    connection: Connection
    logger: Logger
    metrics: Metrics


@cache
def _parts() -> _CompactionParts:
    """Built at the first invocation, from the function's environment."""
    return _CompactionParts(Connection.open(), Logger(), Metrics())


def dispatch(event: object, context: LambdaContext) -> dict[str, Any]:
    """A trigger's tick, with namespace and revision: `Dispatcher.dispatch`."""
    expected = 'the input of a trigger, {"namespace": "...", "revision": "..."}'
    given = object_in(event, expected)
    namespace, revision = given.get("namespace"), given.get("revision")
    if not (isinstance(namespace, str) and isinstance(revision, str)):
        raise BadPayload(f"the event is {described(event)}; expected is {expected}")
    parts = _parts()
    deadline_ms = _deadline_ms(parts, context)
    done = Dispatcher(parts.connection).dispatch(namespace, revision, deadline_ms=deadline_ms)
    answer: dict[str, Any] = {
        "namespace": done.namespace,
        "due": done.due,
        "sent": done.sent,
        "backlog": done.backlog,
        "swept": done.swept,
        "detail": done.detail,
    }
    parts.logger.info("dispatched", **answer)
    parts.metrics.add_metric("DueCounters", MetricUnit.Count, done.due)
    parts.metrics.add_metric("DispatchedCounters", MetricUnit.Count, done.sent)
    parts.metrics.flush_metrics()
    return answer


def compact(event: object, context: LambdaContext) -> dict[str, Any]:
    """Process a batch of the queue; the answer lists the messages to deliver again.

    A counter without time left is still due: the schedule's next tick sends it again. BadPayload: a
    mapping of another source must be removed; nothing of it is handled.
    """
    messages = messages_in(event)
    parts = _parts()
    # A new one for each batch: schedules change.
    batch = WorkBatch(parts.connection, partial(log_report, parts.logger))
    tally = batch.run(messages, _deadline_ms(parts, context))
    _report(parts, tally)
    return {"batchItemFailures": [{"itemIdentifier": one} for one in tally.again]}


def messages_in(event: object) -> dict[str, str]:
    """The messages of a batch: their bodies by their ids; BadPayload if a record is no message."""
    expected = "messages of an event source mapping of the compaction queue"
    try:
        return {one["messageId"]: one["body"] for one in records_in(event, expected)}
    except (KeyError, TypeError):
        raise BadPayload(f"the event is {described(event)}; expected is {expected}") from None


def log_report(logger: Logger, report: CompactionReport) -> None:
    """Log the report of a counter: as an error if it failed, else at debug level."""
    fields: dict[str, Any] = {
        "counter": report.counter,
        "outcome": str(report.outcome),
        "reason": report.detail,
    }
    if report.outcome in {RunOutcome.FAILED, RunOutcome.TAMPERED}:
        logger.error("a counter could not be compacted", **fields)
    else:
        logger.debug("compacted", **fields)


def _report(parts: _CompactionParts, tally: BatchResult) -> None:
    for message, reason in tally.bad.items():
        parts.logger.error("a message could not be processed", message_id=message, reason=reason)
    numbers: dict[str, Any] = {
        "CompactedCounters": tally.outcomes.total(),
        "MergedEntries": tally.merged,
        "CompactionWriteUnits": tally.write_units,
        "FailedCompactions": tally.failed,
        "TamperedCounters": tally.tampered,
    }
    outcomes = {str(outcome): count for outcome, count in tally.outcomes.items()}
    parts.logger.info("batch", outcomes=outcomes, left=tally.left, not_due=tally.not_due, **numbers)
    for name, value in numbers.items():
        parts.metrics.add_metric(name, MetricUnit.Count, value)
    parts.metrics.flush_metrics()


def _deadline_ms(parts: _CompactionParts, context: LambdaContext) -> int:
    return parts.connection.clock.now_ms() + context.get_remaining_time_in_millis() - _MARGIN_MS
