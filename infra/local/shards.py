"""Reads the shards of a DynamoDB stream or of a Kinesis stream, parents before children.

`ShardSource` is what the pump needs of any stream.
"""

from __future__ import annotations

import base64
import json
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

    from mypy_boto3_dynamodbstreams import DynamoDBStreamsClient
    from mypy_boto3_kinesis import KinesisClient

    from countledger.infra.template import MappingSettings


# What an event source mapping does next: pure decisions, no I/O.
#
# The laws are Lambda's for a DynamoDB stream with one batch at a time per shard: what goes into a
# batch, what an answer means, what is delivered again, when a tumbling window closes.


# The largest event of a synchronous invocation, less headroom for what surrounds the records.
MAX_EVENT_BYTES: Final = 6 * 1024 * 1024 - 64 * 1024
MAX_STATE_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """A stream record, encoded as JSON as Lambda would deliver it."""

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
    """

    handled: int
    again: tuple[RecordBatch, ...] = ()
    withdrawn: RecordBatch | None = None


def window_start(created_s: float, length_s: int) -> int:
    return int(created_s // length_s) * length_s


def next_batch_size(
    records: Sequence[StreamRecord], settings: MappingSettings, window: TumblingWindow | None
) -> int:
    """How many of the waiting records go into the next batch.

    As many as the batch size and Lambda's event size allow, and no record of a later window. (A
    record that is older than the window, come late, is delivered in it.)
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
    """What the answer of an invocation that did not raise says about the batch."""
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


_PAGE_RECORDS: Final = 1_000  # the most that GetRecords of either service gives
StartingPosition = Literal["TRIM_HORIZON", "LATEST"]


@dataclass(frozen=True, slots=True)
class ListedShard:
    """A shard of a stream, and the one it was split from."""

    shard_id: str
    parent_id: str | None


def list_shards(streams: DynamoDBStreamsClient, stream_arn: str) -> Iterator[ListedShard]:
    """All shards of the stream that the service still shows. One call per hundred shards."""
    after: dict[str, Any] = {}
    while True:
        answer = streams.describe_stream(StreamArn=stream_arn, **after)["StreamDescription"]
        for shard in answer["Shards"]:
            yield ListedShard(shard["ShardId"], shard.get("ParentShardId"))
        if "LastEvaluatedShardId" not in answer:
            return
        after = {"ExclusiveStartShardId": answer["LastEvaluatedShardId"]}


def readable(shards: Collection[ListedShard], finished: Collection[str]) -> list[ListedShard]:
    """The shards whose turn it is: not finished, and their parent is finished or long gone."""
    known = {shard.shard_id for shard in shards}
    return [
        shard
        for shard in shards
        if shard.shard_id not in finished
        and (shard.parent_id not in known or shard.parent_id in finished)
    ]


class ShardReader(Protocol):
    """Reads one shard from a starting position, in order."""

    @property
    def ended(self) -> bool:
        """Whether the shard is closed and all of it has been read."""

    def read(self) -> tuple[int, list[StreamRecord]]:
        """One request: how many records came, and those of them that pass the filter."""


class ShardSource(Protocol):
    """A stream, as an event source mapping reads it."""

    @property
    def arn(self) -> str:
        """The stream's name in events."""

    def shards(self) -> list[ListedShard]:
        """All shards that the service still shows."""

    def reader(self, shard_id: str, start: StartingPosition, after: str | None) -> ShardReader:
        """A reader of one of them; after a sequence number, if that is given."""


@dataclass(frozen=True, slots=True)
class StreamSource:
    """A DynamoDB stream."""

    streams: DynamoDBStreamsClient
    arn: str
    passes: Callable[[Mapping[str, Any]], bool]

    def shards(self) -> list[ListedShard]:
        return list(list_shards(self.streams, self.arn))

    def reader(
        self, shard_id: str, start: StartingPosition, after: str | None
    ) -> StreamShardReader:
        made = StreamShardReader(self.streams, self.arn, shard_id, start=start, passes=self.passes)
        made.last_sequence = after
        return made


class _IteratorReader(ABC):
    """Reads one shard of either service by iterators, which the services let expire.

    Attributes:
        last_sequence: of the last record read, passed by a filter or not.
    """

    def __init__(self, client: Any, arn: str, shard_id: str, start: StartingPosition) -> None:  # noqa: ANN401 - of either service
        self._client = client
        self._arn = arn
        self._shard_id = shard_id
        self._start: StartingPosition = start
        self._iterator: str | None = None
        self.last_sequence: str | None = None
        self.ended = False

    def read(self) -> tuple[int, list[StreamRecord]]:
        """One GetRecords: how many records came, and those of them that pass the filter."""
        if self.ended:
            return 0, []
        try:
            answer = self._client.get_records(
                ShardIterator=self._iterator or self._new_iterator(), Limit=_PAGE_RECORDS
            )
        except self._client.exceptions.ExpiredIteratorException:
            # Failures held up the shard for longer than an iterator lives (5 or 15 minutes).
            self._iterator = None
            return self.read()
        self._iterator = answer.get("NextShardIterator")
        self.ended = self._iterator is None
        records = answer["Records"]
        if records:
            self.last_sequence = self._sequence(records[-1])
        return len(records), self._delivered(records)

    @abstractmethod
    def _new_iterator(self) -> str: ...

    @abstractmethod
    def _sequence(self, record: Mapping[str, Any]) -> str: ...

    @abstractmethod
    def _delivered(self, records: Sequence[Mapping[str, Any]]) -> list[StreamRecord]: ...


class StreamShardReader(_IteratorReader):
    def __init__(
        self,
        streams: DynamoDBStreamsClient,
        stream_arn: str,
        shard_id: str,
        *,
        start: StartingPosition,
        passes: Callable[[Mapping[str, Any]], bool],
    ) -> None:
        super().__init__(streams, stream_arn, shard_id, start)
        self._passes = passes

    def _new_iterator(self) -> str:
        position: dict[str, Any] = {"ShardIteratorType": self._start}
        if self.last_sequence is not None:
            position = {
                "ShardIteratorType": "AFTER_SEQUENCE_NUMBER",
                "SequenceNumber": self.last_sequence,
            }
        shard = {"StreamArn": self._arn, "ShardId": self._shard_id}
        try:
            answer = self._client.get_shard_iterator(**shard, **position)
        except self._client.exceptions.TrimmedDataAccessException:
            answer = self._client.get_shard_iterator(**shard, ShardIteratorType="TRIM_HORIZON")
        return str(answer["ShardIterator"])

    def _sequence(self, record: Mapping[str, Any]) -> str:
        return str(record["dynamodb"]["SequenceNumber"])

    def _delivered(self, records: Sequence[Mapping[str, Any]]) -> list[StreamRecord]:
        return [_stream_record(one, self._arn) for one in records if self._passes(one)]


def _stream_record(record: Mapping[str, Any], stream_arn: str) -> StreamRecord:
    """The record as Lambda delivers it: JSON, times as numbers, binary as base64."""
    inner = record["dynamodb"]
    delivered = {**record, "eventSourceARN": stream_arn}
    if "userIdentity" in record:  # the stream's API and Lambda spell it differently
        delivered["userIdentity"] = {
            "type": record["userIdentity"].get("Type"),
            "principalId": record["userIdentity"].get("PrincipalId"),
        }
    return StreamRecord(
        sequence=inner["SequenceNumber"],
        created_s=inner["ApproximateCreationDateTime"].timestamp(),
        encoded=json.dumps(delivered, default=_plain, separators=(",", ":")),
    )


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        seconds = value.timestamp()
        return int(seconds) if seconds.is_integer() else seconds
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"a stream record holds {value!r}, which has no JSON form")


@dataclass(frozen=True, slots=True)
class KinesisSource:
    client: KinesisClient
    arn: str

    def shards(self) -> list[ListedShard]:
        """One call per thousand shards."""
        found: list[ListedShard] = []
        which: dict[str, Any] = {"StreamARN": self.arn}
        while True:
            answer = self.client.list_shards(**which)
            # The child of two merged shards waits for one of them: no order rests on the other.
            found += [
                ListedShard(one["ShardId"], one.get("ParentShardId")) for one in answer["Shards"]
            ]
            if "NextToken" not in answer:
                return found
            which = {"NextToken": answer["NextToken"]}

    def reader(self, shard_id: str, start: StartingPosition, after: str | None) -> KinesisReader:
        made = KinesisReader(self.client, self.arn, shard_id, start)
        made.last_sequence = after
        return made


class KinesisReader(_IteratorReader):
    def read(self) -> tuple[int, list[StreamRecord]]:
        try:
            return super().read()
        except self._client.exceptions.ResourceNotFoundException:
            # The local engine forgets a shard, and its records, as soon as it is split or merged.
            self.ended = True
            return 0, []

    def _new_iterator(self) -> str:
        position: dict[str, Any] = {"ShardIteratorType": self._start}
        if self.last_sequence is not None:
            position = {
                "ShardIteratorType": "AFTER_SEQUENCE_NUMBER",
                "StartingSequenceNumber": self.last_sequence,
            }
        answer = self._client.get_shard_iterator(
            StreamARN=self._arn, ShardId=self._shard_id, **position
        )
        return str(answer["ShardIterator"])

    def _sequence(self, record: Mapping[str, Any]) -> str:
        return str(record["SequenceNumber"])

    def _delivered(self, records: Sequence[Mapping[str, Any]]) -> list[StreamRecord]:
        return [stream_record(one, self._arn, self._shard_id) for one in records]


def stream_record(record: Mapping[str, Any], arn: str, shard_id: str) -> StreamRecord:
    """The record as Lambda delivers it: JSON, times as numbers, data as base64."""
    sequence = record["SequenceNumber"]
    created_s = record["ApproximateArrivalTimestamp"].timestamp()
    delivered = {
        "kinesis": {
            "kinesisSchemaVersion": "1.0",
            "partitionKey": record["PartitionKey"],
            "sequenceNumber": sequence,
            "data": base64.b64encode(record["Data"]).decode(),
            "approximateArrivalTimestamp": created_s,
        },
        "eventSource": "aws:kinesis",
        "eventVersion": "1.0",
        "eventID": f"{shard_id}:{sequence}",
        "eventName": "aws:kinesis:record",
        "awsRegion": arn.split(":")[3],
        "eventSourceARN": arn,
    }
    return StreamRecord(sequence, created_s, json.dumps(delivered, separators=(",", ":")))


# One shard on its way through the function: one batch at a time, in order.


_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FunctionAnswer:
    """What an invocation came to: the decoded payload, or the function's error."""

    payload: object
    error: str | None = None


Invoke: TypeAlias = Callable[[bytes], FunctionAnswer]
OnFailure: TypeAlias = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Invocation:
    """One invocation that was made."""

    shard_id: str
    sequences: tuple[str, ...]
    final: bool
    verdict: BatchVerdict

    @property
    def failed(self) -> bool:
        """Whether anything of it must be delivered again or was abandoned."""
        return not isinstance(self.verdict, BatchHandled)


class ReadAhead:
    """Reads a shard one request ahead, while the function works on what came before.

    It says that there is nothing only if there is nothing now: an empty answer that was read ahead
    is older than the last invocation, which may have written more.
    """

    def __init__(self, reader: ShardReader, readers: Executor) -> None:
        """Nobody else may use the reader."""
        self._reader, self._readers = reader, readers
        self._ahead: Future[tuple[int, list[StreamRecord]]] | None = None

    @property
    def ended(self) -> bool:
        return self._ahead is None and self._reader.ended

    def read(self) -> tuple[int, list[StreamRecord]]:
        ahead, self._ahead = self._ahead, None
        count, records = (0, []) if ahead is None else ahead.result()
        if count == 0:
            count, records = self._reader.read()
        if count > 0 and not self._reader.ended:
            self._ahead = self._readers.submit(self._reader.read)
        return count, records


class ShardDelivery:
    """Takes the records of one shard to the function."""

    def __init__(
        self,
        shard_id: str,
        reader: ShardReader,
        settings: MappingSettings,
        *,
        stream_arn: str,
        invoke: Invoke,
        on_failure: OnFailure | None,
        reorder: Callable[[list[RecordBatch]], None] | None = None,
    ) -> None:
        """`reorder` orders the halves of a failed batch: the service promises no order."""
        self._shard_id = shard_id
        self._reader = reader
        self._settings = settings
        self._stream_arn = stream_arn
        self._invoke = invoke
        self._on_failure = on_failure
        self._reorder = reorder
        self._waiting: deque[StreamRecord] = deque()
        self._batches: deque[RecordBatch] = deque()
        self._window: TumblingWindow | None = None
        # The last record of which nothing before it must be delivered again.
        self.handled_through: str | None = None

    @property
    def finished(self) -> bool:
        left = self._waiting or self._batches or self._window is not None
        return self._reader.ended and not left

    def fill(self) -> int:
        """Read until a batch is full or the shard shows nothing; how many records came.

        Nothing is read while a batch must be delivered again.
        """
        read = 0
        while not self._batches and len(self._waiting) < self._settings.batch_size:
            count, records = self._reader.read()
            self._waiting += records
            read += count
            if count == 0:
                break
        return read

    def deliver(self, now_s: float) -> Invocation | None:
        """Make the next invocation, if there is one to make.

        An exception of the invocation itself changes nothing: the same batch is next again.
        """
        if not self._batches:
            if self._window_is_over(now_s):
                return self._close_window()
            if self._waiting:
                self._form_batch()
        if not self._batches:
            return None
        batch = self._batches[0]
        verdict = self._call(batch, final=False)
        self._batches.popleft()
        then = follow_up(batch, verdict, self._settings)
        again = list(then.again)
        if self._reorder is not None:
            self._reorder(again)
        self._batches.extendleft(reversed(again))
        self._report(then.withdrawn)
        if not self._batches:
            self.handled_through = batch.records[-1].sequence
        if self._window is not None and not isinstance(verdict, BatchFailed):
            self._window = TumblingWindow(
                self._window.start_s, self._window.length_s, verdict.state
            )
        return self._delivery(batch, verdict, final=False)

    def _window_is_over(self, now_s: float) -> bool:
        if self._window is None:
            return False
        if self._waiting:
            return self._waiting[0].created_s >= self._window.end_s
        return self._reader.ended or now_s >= self._window.end_s

    def _close_window(self) -> Invocation:
        nothing = RecordBatch(())
        verdict = self._call(nothing, final=True)
        if isinstance(verdict, BatchHandled):  # otherwise the shard waits, as it does on AWS
            self._window = None
        return self._delivery(nothing, verdict, final=True)

    def _form_batch(self) -> None:
        length_s = self._settings.window_s
        if length_s and self._window is None:
            start_s = window_start(self._waiting[0].created_s, length_s)
            self._window = TumblingWindow(start_s, length_s)
        size = next_batch_size(self._waiting, self._settings, self._window)
        self._batches.append(RecordBatch(tuple(self._waiting.popleft() for _ in range(size))))

    def _call(self, batch: RecordBatch, *, final: bool) -> BatchVerdict:
        sent = event(
            batch,
            shard_id=self._shard_id,
            stream_arn=self._stream_arn,
            window=self._window,
            final=final,
        )
        answer = self._invoke(sent)
        if answer.error is not None:
            _LOG.warning("the function failed: %s", answer.error)
            return BatchFailed(answer.error)
        windowed = self._window is not None
        return verdict_of(answer.payload, batch, self._settings, windowed=windowed)

    def _report(self, withdrawn: RecordBatch | None) -> None:
        if withdrawn is not None and self._on_failure is not None:
            note = on_failure_note(withdrawn, shard_id=self._shard_id, stream_arn=self._stream_arn)
            self._on_failure(note)

    def _delivery(self, batch: RecordBatch, verdict: BatchVerdict, *, final: bool) -> Invocation:
        sequences = tuple(record.sequence for record in batch.records)
        return Invocation(self._shard_id, sequences, final, verdict)
