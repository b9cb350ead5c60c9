"""Sends packed entries into the stream with PutRecords; only records that failed are repeated."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from countledger.ledger.attempts import (
    PASSING,
    Again,
    Attempts,
    Done,
    Pause,
    RetryPeriodOver,
    Send,
    attempt,
    run,
)
from countledger.ledger.clock import Backoff, Clock, SystemClock
from countledger.ledger.departure import guarded
from countledger.ledger.errors import (
    CountledgerError,
    Throttled,
    Unclear,
)
from countledger.ledger.limits import HORIZON_MIN_MS
from countledger.ledger.service_errors import translated
from countledger.producers.event import unacknowledged
from countledger.producers.kinesis.aggregate import Aggregate, pack

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mypy_boto3_kinesis import KinesisClient

    from countledger.ledger.attempts import Answer, Reply, Step, Verdict
    from countledger.ledger.entry import Entry

# The limits of one call: the number of records, and their bytes with partition keys.
CALL_RECORDS: Final = 500
CALL_BYTES: Final = 5 * 1024 * 1024
# The sequence number of a record, or its error.
_Answer: TypeAlias = str | CountledgerError


class Sent(NamedTuple):
    """The acknowledgement of the stream: it has the entry, and the ingest will write it.

    If the ledger refuses the entry (a key used with another delta, a strict counter), that is not
    known here: the ingest quarantines the entry.
    """

    counter: str
    """The counter's name."""
    id: str
    """The entry's identity."""
    sequence: str
    """The sequence number of the record that carries it."""


KinesisOutcome: TypeAlias = Sent | CountledgerError


@dataclass(frozen=True, slots=True)
class RecordsProgress:
    """Where a call is.

    Attributes:
        pending: the numbers of the records to send.
        answers: the last answer to each record.
        maybe_stored: the records of which an attempt got no answer and may have been stored.
    """

    pending: tuple[int, ...]
    answers: Mapping[int, _Answer] = field(default_factory=dict)
    maybe_stored: frozenset[int] = frozenset()

    def after(self, answers: Mapping[int, _Answer]) -> RecordsProgress:
        """The same after these answers."""
        maybe_stored = {number for number, answer in answers.items() if isinstance(answer, Unclear)}
        pending = (number for number, answer in answers.items() if isinstance(answer, PASSING))
        return RecordsProgress(
            tuple(pending), {**self.answers, **answers}, self.maybe_stored | maybe_stored
        )


@dataclass(frozen=True, slots=True)
class KinesisSender:
    """Sends entries into a stream.

    Attributes:
        client: a Kinesis client whose SDK does not retry.
        stream: the stream's ARN or name.
        clock: waits between the attempts.
        random: the source of the jitter.
        backoff: the number of attempts, and the pauses between them.
        retry_period_ms: how long after its first attempt a record is sent again. The time of a bare
            key is the arrival of its record: after a long pause of this process, the second record
            would be another entry, at a time when the first may be merged already.
    """

    client: KinesisClient
    stream: str
    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=Random)
    backoff: Backoff = field(default_factory=Backoff)
    retry_period_ms: int = HORIZON_MIN_MS // 2

    def send_batch(self, entries: Sequence[Entry]) -> list[KinesisOutcome]:
        """Send entries; one call for up to 5 MB of them, and one for each retry.

        The ingest recognises an entry that is sent again: it cannot count twice.

        Returns:
            One outcome for each entry, in their order; an error is the outcome of its entry only.
        """
        outcomes: list[KinesisOutcome] = []
        for call in calls(pack(entries)):
            for record, answer in zip(call, self._put(call), strict=True):
                outcomes += _outcomes(record, answer)
        return outcomes

    def _put(self, records: Sequence[Aggregate]) -> list[_Answer]:
        """The sequence number of each record, or its error."""
        until_ms = self.clock.now_ms() + self.retry_period_ms
        steps = attempt(
            RecordsProgress(tuple(range(len(records)))),
            lambda progress: Send([records[number] for number in progress.pending]),
            self._interpret,
            lambda exhausted: exhausted.state,
            Attempts(self.clock, self.random, self.backoff, until_ms),
        )
        progress = run(steps, self._perform)
        answers = dict(progress.answers)
        for number in progress.maybe_stored:
            answer = answers[number]
            if not isinstance(answer, str):
                answers[number] = Unclear(str(answer))
        return [answers[number] for number in range(len(records))]

    def _interpret(
        self, reply: Reply[RecordsProgress]
    ) -> Verdict[RecordsProgress, RecordsProgress]:
        """Read the answers, one for each record.

        sequence number             done
        throttle, error, no answer  again
        too late, anything else     its error is the record's outcome
        """
        answer, progress = reply.answer, reply.state
        if isinstance(answer, RetryPeriodOver):
            late = Throttled(f"PutRecords on {self.stream}: not sent, {answer}")
            kept = {number: progress.answers.get(number, late) for number in progress.pending}
            return Done(progress.after(kept))
        if isinstance(answer, CountledgerError):
            answer = [answer] * len(progress.pending)
        progress = progress.after(dict(zip(progress.pending, answer, strict=True)))
        if not progress.pending:
            return Done(progress)
        error = progress.answers[progress.pending[0]]
        return Again(progress, error if isinstance(error, CountledgerError) else None)

    def _perform(self, step: Step) -> Answer:
        if isinstance(step, Pause):
            return self.clock.sleep_ms(step.wait_ms)
        what = f"PutRecords on {self.stream}"
        place: Any = {"StreamARN" if self.stream.startswith("arn:") else "StreamName": self.stream}
        records: Sequence[Aggregate] = step.operation
        with translated(what), guarded(step.before_send):
            answer = self.client.put_records(
                Records=[{"Data": r.data, "PartitionKey": r.partition_key} for r in records],
                **place,
            )
        results: Any = answer.get("Records", [])
        if len(results) != len(records):
            # botocore accepts any body with status 200 as a success.
            raise Unclear(
                f"{what}: no clear answer (it has {len(results)} of {len(records)} records)"
            )
        return [_record_answer(one, what) for one in results]


def calls(records: Iterator[Aggregate]) -> Iterator[list[Aggregate]]:
    """The records, grouped into calls within the limits."""
    held: list[Aggregate] = []
    size = 0
    for record in records:
        if held and (len(held) == CALL_RECORDS or size + record.size_bytes > CALL_BYTES):
            yield held
            held, size = [], 0
        held.append(record)
        size += record.size_bytes
    if held:
        yield held


def _record_answer(answer: dict[str, str], what: str) -> _Answer:
    """The answer of the service for one record of a call."""
    code = answer.get("ErrorCode")
    if code == "ProvisionedThroughputExceededException":
        return Throttled(f"{what}: the shard is busy")
    sequence = answer.get("SequenceNumber")
    if code or not sequence:
        return Unclear(f"{what}: {code or 'no clear answer'}: {answer.get('ErrorMessage', '')}")
    return sequence


def _outcomes(record: Aggregate, answer: _Answer) -> list[KinesisOutcome]:
    if isinstance(answer, str):
        return [Sent(entry.counter, entry.id, answer) for entry in record.entries]
    if not isinstance(answer, Throttled | Unclear):
        return [answer] * len(record.entries)
    return [unacknowledged(entry, answer, "stream") for entry in record.entries]
