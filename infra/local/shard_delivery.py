"""One shard on its way through the function: one batch at a time, in order."""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from countledger.infra.local import delivery
from countledger.infra.local.delivery import (
    BatchFailed,
    BatchHandled,
    BatchVerdict,
    RecordBatch,
    StreamRecord,
    TumblingWindow,
)
from countledger.infra.local.shards import ShardReader
from countledger.infra.template import MappingSettings

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
    """One invocation that was made.

    Attributes:
        shard_id: of which shard.
        sequences: the sequence numbers of the records delivered, in order.
        final: whether it closed a window.
        verdict: what came of it.
    """

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
        """Read nothing yet.

        Args:
            reader: reads the shard; nobody else uses it.
            readers: where it reads ahead.
        """
        self._reader, self._readers = reader, readers
        self._ahead: Future[tuple[int, list[StreamRecord]]] | None = None

    @property
    def ended(self) -> bool:
        """As of a reader."""
        return self._ahead is None and self._reader.ended

    def read(self) -> tuple[int, list[StreamRecord]]:
        """As of a reader; it raises what the reader raised."""
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
        """Describe a lane; nothing is read yet.

        Args:
            shard_id: of the shard.
            reader: reads it.
            settings: of the event source mapping.
            stream_arn: of its stream.
            invoke: calls the function with an event.
            on_failure: called with the note of a batch that is abandoned after the last retry.
            reorder: puts the halves of a failed batch into the order in which they are delivered;
                the service promises none. None: as they were.
        """
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
        """Whether the shard is closed and all of it has been handled."""
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
        follow_up = delivery.follow_up(batch, verdict, self._settings)
        again = list(follow_up.again)
        if self._reorder is not None:
            self._reorder(again)
        self._batches.extendleft(reversed(again))
        self._report(follow_up.withdrawn)
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
            start_s = delivery.window_start(self._waiting[0].created_s, length_s)
            self._window = TumblingWindow(start_s, length_s)
        size = delivery.next_batch_size(self._waiting, self._settings, self._window)
        self._batches.append(RecordBatch(tuple(self._waiting.popleft() for _ in range(size))))

    def _call(self, batch: RecordBatch, *, final: bool) -> BatchVerdict:
        event = delivery.event(
            batch,
            shard_id=self._shard_id,
            stream_arn=self._stream_arn,
            window=self._window,
            final=final,
        )
        answer = self._invoke(event)
        if answer.error is not None:
            _LOG.warning("the function failed: %s", answer.error)
            return BatchFailed(answer.error)
        windowed = self._window is not None
        return delivery.verdict_of(answer.payload, batch, self._settings, windowed=windowed)

    def _report(self, withdrawn: RecordBatch | None) -> None:
        if withdrawn is not None and self._on_failure is not None:
            note = delivery.on_failure_note(
                withdrawn, shard_id=self._shard_id, stream_arn=self._stream_arn
            )
            self._on_failure(note)

    def _delivery(self, batch: RecordBatch, verdict: BatchVerdict, *, final: bool) -> Invocation:
        sequences = tuple(record.sequence for record in batch.records)
        return Invocation(self._shard_id, sequences, final, verdict)
