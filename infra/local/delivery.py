"""What an event source mapping does next: pure decisions, no I/O.

The laws are Lambda's for a DynamoDB stream with one batch at a time per shard: what goes into a
batch, what an answer means, what is delivered again, when a tumbling window closes.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final, TypeAlias

from countledger.infra.template import MappingSettings

# The largest event of a synchronous invocation, less headroom for what surrounds the records.
MAX_EVENT_BYTES: Final = 6 * 1024 * 1024 - 64 * 1024
MAX_STATE_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """A stream record, ready to be delivered.

    Attributes:
        sequence: its sequence number.
        created_s: when it was written, in seconds since 1970.
        encoded: the record as JSON, as Lambda would deliver it.
    """

    sequence: str
    created_s: float
    encoded: str


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Records that are delivered together, and how often they failed so far."""

    records: tuple[StreamRecord, ...]
    failures: int = 0


@dataclass(frozen=True, slots=True)
class TumblingWindow:
    """A tumbling window of one shard: where it begins, how long it is, what the function keeps."""

    start_s: int
    length_s: int
    state: Mapping[str, Any] = field(default_factory=dict)

    @property
    def end_s(self) -> int:
        """The first second after it."""
        return self.start_s + self.length_s


@dataclass(frozen=True, slots=True)
class BatchHandled:
    """The function handled all; `state` is what it wants to keep in the window."""

    state: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BatchFailed:
    """The function handled nothing, or it is unknown what."""

    reason: str


@dataclass(frozen=True, slots=True)
class BatchPartlyFailed:
    """The function handled what comes before the record at `index`, and not that one."""

    index: int
    state: Mapping[str, Any]


BatchVerdict: TypeAlias = BatchHandled | BatchFailed | BatchPartlyFailed


@dataclass(frozen=True, slots=True)
class FollowUp:
    """What follows from a verdict.

    Attributes:
        handled: how many records of the batch are done with.
        again: batches to deliver next, in this order, before anything else of the shard.
        withdrawn: records that are dropped after the last retry, if any.
    """

    handled: int
    again: tuple[RecordBatch, ...] = ()
    withdrawn: RecordBatch | None = None


def window_start(created_s: float, length_s: int) -> int:
    """The beginning of the window that a record belongs to."""
    return int(created_s // length_s) * length_s


def next_batch_size(
    records: Sequence[StreamRecord], settings: MappingSettings, window: TumblingWindow | None
) -> int:
    """How many of the waiting records go into the next batch.

    As many as the batch size and Lambda's event size allow, and none of a later window. (A record
    that is older than the window, come late, is delivered in it.)
    """
    size_bytes = 0
    for index, record in enumerate(islice(records, settings.batch_size)):
        size_bytes += len(record.encoded.encode()) + 1
        if index and size_bytes > MAX_EVENT_BYTES:
            return index
        if window is not None and record.created_s >= window.end_s:
            return index
    return min(len(records), settings.batch_size)


def verdict_of(
    answer: object, batch: RecordBatch, settings: MappingSettings, *, windowed: bool
) -> BatchVerdict:
    """What the function's answer says about the batch.

    Args:
        answer: the decoded answer of an invocation that did not raise.
        batch: what was delivered.
        settings: of the mapping.
        windowed: whether the event belonged to a window; then the answer must carry `state`.
    """
    known = answer if isinstance(answer, Mapping) else {}
    state = known.get("state")
    if not windowed:
        state = {}
    elif not isinstance(state, Mapping):
        return BatchFailed("the answer carries no state, which a tumbling window demands")
    elif len(json.dumps(state)) > MAX_STATE_BYTES:
        return BatchFailed(
            "the state is over 1 MB; Lambda would end the window early, the pump cannot"
        )
    reported = known.get("batchItemFailures") if settings.partial_failures else None
    if not reported:
        return BatchHandled(state)
    return _lowest_failure(reported, batch, state)


def _lowest_failure(reported: object, batch: RecordBatch, state: Mapping[str, Any]) -> BatchVerdict:
    positions = {record.sequence: index for index, record in enumerate(batch.records)}
    lowest = len(batch.records)
    for one in reported if isinstance(reported, list) else [reported]:
        name = one.get("itemIdentifier") if isinstance(one, Mapping) else None
        if not isinstance(name, str) or name not in positions:
            return BatchFailed(
                f"batchItemFailures names {one!r}, which is not a record of the batch"
            )
        lowest = min(lowest, positions[name])
    return BatchPartlyFailed(lowest, state)


def follow_up(batch: RecordBatch, verdict: BatchVerdict, settings: MappingSettings) -> FollowUp:
    """What is done, what is delivered again, what is abandoned.

    A reported failure makes its record the checkpoint: what comes before is done, the rest is
    delivered again. A failed function has its batch halved, if the mapping says so, which spends no
    retry; a batch that cannot be halved spends one.
    """
    if isinstance(verdict, BatchHandled):
        return FollowUp(handled=len(batch.records))
    if isinstance(verdict, BatchPartlyFailed):
        return _again(batch.records[verdict.index :], batch, settings, handled=verdict.index)
    if settings.bisect and len(batch.records) > 1:
        middle = len(batch.records) // 2
        halves = (batch.records[:middle], batch.records[middle:])
        return FollowUp(
            handled=0, again=tuple(RecordBatch(half, batch.failures) for half in halves)
        )
    return _again(batch.records, batch, settings, handled=0)


def _again(
    records: tuple[StreamRecord, ...],
    batch: RecordBatch,
    settings: MappingSettings,
    *,
    handled: int,
) -> FollowUp:
    rest = RecordBatch(records, batch.failures + 1)
    if 0 <= settings.retries < rest.failures:
        return FollowUp(handled=handled, withdrawn=rest)
    return FollowUp(handled=handled, again=(rest,))


def event(
    batch: RecordBatch,
    *,
    shard_id: str,
    stream_arn: str,
    window: TumblingWindow | None,
    final: bool = False,
) -> bytes:
    """The event of one invocation, as JSON."""
    around: dict[str, Any] = {}
    if window is not None:
        around = {
            "shardId": shard_id,
            "eventSourceARN": stream_arn,
            "window": {"start": _timestamp(window.start_s), "end": _timestamp(window.end_s)},
            "state": dict(window.state),
            "isFinalInvokeForWindow": final,
            "isWindowTerminatedEarly": False,
        }
    records = ",".join(record.encoded for record in batch.records)
    rest = json.dumps(around)[1:-1]
    return f'{{"Records":[{records}]{", " if rest else ""}{rest}}}'.encode()


def _timestamp(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def on_failure_note(withdrawn: RecordBatch, *, shard_id: str, stream_arn: str) -> dict[str, Any]:
    """What Lambda sends to an on-failure destination: where the records are, not their content."""
    first, last = withdrawn.records[0], withdrawn.records[-1]
    return {
        "version": "1.0",
        "requestContext": {
            "condition": "RetryAttemptsExhausted",
            "approximateInvokeCount": withdrawn.failures,
        },
        "DDBStreamBatchInfo": {
            "shardId": shard_id,
            "startSequenceNumber": first.sequence,
            "endSequenceNumber": last.sequence,
            "approximateArrivalOfFirstRecord": _timestamp(int(first.created_s)),
            "approximateArrivalOfLastRecord": _timestamp(int(last.created_s)),
            "batchSize": len(withdrawn.records),
            "streamArn": stream_arn,
        },
    }
