"""The Lambda function of the materializer: wiring only."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from countledger.consumers.materializer import Materializer
from countledger.consumers.progress import PassedShards
from countledger.consumers.record import (
    ShardName,
    failures_from,
    find,
    foreign_reason,
    index_of,
    label_of,
    replaced_entries,
)
from countledger.consumers.total_writer import due_rule_of, rank_clauses_of, windows_of
from countledger.ledger.amount import to_text
from countledger.ledger.connection import Connection
from countledger.ledger.departure import Deadline
from countledger.ledger.errors import BadPayload, OutOfTime, ProgressLost
from countledger.ledger.foreign_events import answer_to_foreign, object_in, records_in
from countledger.ledger.processes import made_once

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aws_lambda_powertools.utilities.typing import LambdaContext

    from countledger.consumers.materializer import BatchOutcome
    from countledger.consumers.quarantine import StoredQuarantine
    from countledger.ledger.errors import CorruptItem

_EXPECTED: Final = "records of an event source mapping of the stream of the table `ledger`"
# CloudWatch takes 256 KB as one event; the sort key of an entry has some 40 characters.
_ENTRIES_PER_LINE: Final = 1_000


@dataclass(frozen=True, slots=True)
class _MaterializerParts:
    materializer: Materializer
    logger: Logger
    metrics: Metrics
    quarantine: _Quarantine


class _Quarantine:
    """The quarantine, opened at the first record that is put into it: most functions never do."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._queue_url = connection.setting("quarantine_queue_url")

    def put(self, record: Mapping[str, Any], reason: str, shard: str) -> None:
        self._opened.put(record, reason, shard)

    def keep_event(self, records: Sequence[Any], reason: str) -> None:
        from countledger.ledger.quarantine import ForeignEvents  # noqa: PLC0415 - see above

        opened = self._opened
        ForeignEvents(opened.store, opened.queue, opened.source).keep(records, reason)

    @made_once
    def _opened(self) -> StoredQuarantine:
        from countledger.consumers.quarantine import StoredQuarantine  # noqa: PLC0415 - see above
        from countledger.ledger.message_queue import MessageQueue  # noqa: PLC0415 - see above
        from countledger.ledger.quarantine import (  # noqa: PLC0415 - see above
            QuarantineSource,
            QuarantineStore,
        )

        connection = self._connection
        store = QuarantineStore(connection)
        queue = MessageQueue(connection.queues(), self._queue_url, "the quarantine")
        return StoredQuarantine(store, queue, QuarantineSource.LEDGER)


@cache
def _parts() -> _MaterializerParts:
    connection = Connection.open()
    logger, metrics = Logger(), Metrics()

    def unread(error: CorruptItem) -> None:
        logger.error("windows are not counted: their settings cannot be read", reason=str(error))
        metrics.add_metric("WindowSettingsUnread", MetricUnit.Count, 1)

    quarantine = _Quarantine(connection)
    return _MaterializerParts(
        Materializer(
            connection,
            quarantine,
            due_rule_of=due_rule_of(connection),
            rank_clauses=rank_clauses_of(connection),
            windows=windows_of(connection, on_corrupt=unread),
            passed=PassedShards(connection.late_write_ms),
        ),
        logger,
        metrics,
        quarantine,
    )


def shard_of(event: dict[str, Any]) -> ShardName:
    """The shard of an event; without its name nothing can be applied exactly once."""
    shard_id = event.get("shardId")
    stream_arn = event.get("eventSourceARN")
    if not isinstance(shard_id, str) or not isinstance(stream_arn, str):
        raise BadPayload(
            "the event has no shardId and eventSourceARN: set TumblingWindowInSeconds on the event "
            "source mapping, because Lambda sends them only with windows"
        )
    return ShardName(label_of(stream_arn), shard_id)


def materialize(event: object, context: LambdaContext) -> dict[str, Any]:
    """The handler of the materializer; records of anything but the stream are kept in quarantine.

    Its answer has an empty window state, and the record from which the shard must be delivered
    again. A missing progress item raises `ProgressLost`: action required.
    """
    parts = _parts()
    records = records_in(event, _EXPECTED)
    reason = foreign_reason(event, records, _EXPECTED) if records else None
    if reason is not None:
        parts.quarantine.keep_event(records, reason)
        return answer_to_foreign(parts.logger, parts.metrics, reason) | {"state": {}}
    shard = shard_of(object_in(event, _EXPECTED))
    deadline = Deadline.within(parts.materializer.connection.clock, context)
    try:
        outcome = parts.materializer.apply(records, shard, deadline)
    except ProgressLost as lost:
        parts.logger.exception(
            "the progress of a shard is lost: action required", shard=str(shard), reason=str(lost)
        )
        parts.metrics.add_metric("ProgressLost", MetricUnit.Count, 1)
        parts.metrics.flush_metrics()
        raise
    _log_handled(parts.logger, handled_entries(records, outcome.retry_from), shard, context)
    _report(parts, outcome, shard, context, replaced=_log_replaced(parts.logger, records))
    return answer_of(outcome, records)


def answer_of(outcome: BatchOutcome, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"state": {}, "batchItemFailures": failures_from(records, outcome.retry_from)}


def handled_entries(records: Sequence[Mapping[str, Any]], retry_from: int | None) -> list[str]:
    """The sort keys of the records that are not delivered again; each ends with the entry's id.

    Their totals include them now, or did before, or they are quarantined.
    """
    handled = records[: None if retry_from is None else index_of(records, retry_from)]
    try:
        names = [record["dynamodb"]["Keys"]["entry"]["S"] for record in handled]
    except (KeyError, TypeError):
        names = [_sort_key_of(record) for record in handled]
    return [name for name in names if isinstance(name, str)]


def _sort_key_of(record: Mapping[str, Any]) -> object:
    try:
        return record["dynamodb"]["Keys"]["entry"]["S"]
    except (KeyError, TypeError):
        return None  # malformed, so it is quarantined


def _log_handled(
    logger: Logger, entries: Sequence[str], shard: ShardName, context: LambdaContext
) -> None:
    """Name the entries of a batch, so that the log finds one by its id.

    As one text: CloudWatch Logs Insights finds 200 fields in an event, and a list is many.
    """
    for begin in range(0, len(entries), _ENTRIES_PER_LINE):
        logger.info(
            "handled",
            shard=str(shard),
            request_id=getattr(context, "aws_request_id", None),
            entries=" ".join(entries[begin : begin + _ENTRIES_PER_LINE]),
        )


def _log_replaced(logger: Logger, records: Sequence[Mapping[str, Any]]) -> int:
    """Name the entries that were replaced; how many. A record that comes again is counted again."""
    found = replaced_entries(records)
    for change in found:
        logger.error(
            "an entry was replaced after it was recorded",
            counter=change.counter,
            entry=_sort_key_of(find(records, change.sequence)),
            delta_moved_by=to_text(change.delta),
            events_moved_by=change.events,
        )
    return len(found)


def _report(
    parts: _MaterializerParts,
    outcome: BatchOutcome,
    shard: ShardName,
    context: LambdaContext,
    *,
    replaced: int,
) -> None:
    for counter, error in outcome.failed.items():
        if not isinstance(error, OutOfTime):
            parts.logger.error("a counter could not be written", counter=counter, reason=str(error))
    parts.logger.info(
        "batch",
        shard=str(shard),
        request_id=getattr(context, "aws_request_id", None),
        records=outcome.records,
        counters=outcome.counters,
        duplicates=outcome.duplicates,
        quarantined=outcome.quarantined,
        late=outcome.late,
        window_items=outcome.windows,
        refused_times=outcome.refused_times,
        lag_ms=outcome.lag_ms,
        retry_from=outcome.retry_from,
    )
    metrics = parts.metrics
    metrics.add_metric("Records", MetricUnit.Count, outcome.records)
    metrics.add_metric("Counters", MetricUnit.Count, outcome.counters)
    metrics.add_metric("WindowItems", MetricUnit.Count, outcome.windows)
    metrics.add_metric("WindowTimesRefused", MetricUnit.Count, outcome.refused_times)
    metrics.add_metric("DuplicatesDropped", MetricUnit.Count, outcome.duplicates)
    metrics.add_metric("Quarantined", MetricUnit.Count, outcome.quarantined)
    metrics.add_metric("ReplacedEntries", MetricUnit.Count, replaced)
    metrics.add_metric("FailedCounters", MetricUnit.Count, len(outcome.failed) - outcome.late)
    if outcome.lag_ms is not None:
        metrics.add_metric("LagMs", MetricUnit.Milliseconds, outcome.lag_ms)
    metrics.flush_metrics()
