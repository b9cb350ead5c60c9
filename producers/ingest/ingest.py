"""The ingest: writes batches of the Kinesis stream to the ledger, and accounts for every message.

For each piece of a batch (`pieces`), until the deadline:

    1  decode it: entries, and what is rejected
    2  write the entries: those with an id in batches, those with a key one by one
    3  after a failure that a retry may pass, its record is the point from which to retry
    4  quarantine what can never be written, up to that point
    5  within a long record: store how many of its messages are done

Of what is done: payloads = accepted + duplicates + quarantined. An entry that is delivered again is
recognised and counts once; what is quarantined again has the same item.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from countledger.ledger.errors import CountledgerError, KeyExpired
from countledger.ledger.limits import INGEST_PIECE
from countledger.producers.event import Status
from countledger.producers.ingest.entries import (
    DecodedEntry,
    RejectedEvent,
    RejectionKind,
    is_final,
    lateness,
    pieces_of,
)
from countledger.producers.ingest.quarantine import is_expired, messages_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countledger.ledger.departure import Deadline
    from countledger.producers.ingest.entries import (
        EntryWriter,
        IngestPiece,
        RecordContent,
        RecordProgress,
        WriteResult,
    )
    from countledger.producers.ingest.quarantine import QuarantineSink


@dataclass(slots=True)
class IngestOutcome:
    """The result for a batch.

    It counts the messages of the records before `retry_from`, and of that record the messages of
    the pieces that are done.

    Attributes:
        records: the number of delivered records.
        payloads: the number of messages in them.
        accepted: entries that were written.
        duplicates: entries that were in the ledger before, or twice in a piece of the batch.
        quarantined: quarantined messages, by kind.
        retry_from: the index of the first record to be delivered again, or None.
        errors: the reasons, each once.
    """

    records: int
    payloads: int = 0
    accepted: int = 0
    duplicates: int = 0
    quarantined: dict[RejectionKind, int] = field(default_factory=dict)
    retry_from: int | None = None
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Ingest:
    """Writes batches of a stream to the ledger.

    Attributes:
        writer: writes entries.
        quarantine: takes what can never be written.
        origin: the region where entries are written.
        progress: stores how far long records have been written.
        piece: how many payloads are written before it looks at its deadline.
    """

    writer: EntryWriter
    quarantine: QuarantineSink
    origin: str
    progress: RecordProgress
    piece: int = INGEST_PIECE

    def apply(
        self,
        records: Sequence[Mapping[str, Any]],
        *,
        stream: str,
        shard: str,
        deadline: Deadline | None = None,
    ) -> IngestOutcome:
        """Write a batch of one shard to the ledger: a write unit for each KB of an entry.

        A record with more than 4,000 messages costs a read unit, and a write unit for each further
        4,000.

        Args:
            records: as Lambda delivers them, in order.
            stream: their stream, for the quarantine.
            shard: their shard.
            deadline: no write begins after it; what is not written is delivered again.

        Raises:
            BadPayload: a record is not one of Kinesis; what is before it may be written.
        """
        outcome = IngestOutcome(records=len(records))

        def done(content: RecordContent) -> int:
            try:
                return self.progress.done(stream, shard, content)
            except CountledgerError as error:
                _note(outcome, error)
                return 0

        finished = 0
        late: CountledgerError | None = None
        pieces = pieces_of(records, self.origin, done, self.piece)
        while late is None and (piece := next(pieces, None)) is not None:
            self._write(piece, outcome, stream, shard, deadline)
            if outcome.retry_from is not None:
                return outcome
            finished = piece.until
            if piece.part is not None:
                try:
                    self.progress.save(stream, shard, piece.part)
                except CountledgerError as error:
                    _note(outcome, error)
            late = lateness(deadline)
        if late is not None and finished < len(records):
            _retry_from(outcome, finished, late)
        return outcome

    def _write(
        self,
        piece: IngestPiece,
        outcome: IngestOutcome,
        stream: str,
        shard: str,
        deadline: Deadline | None,
    ) -> None:
        """Steps 1 to 4 for a piece."""
        payloads = piece.payloads
        found = [one for one in payloads if isinstance(one, DecodedEntry)]
        written = self.writer.write([one.entry for one in found], deadline)
        results = dict(zip((one.place for one in found), written, strict=True))
        verdicts = [_verdict_of(one, results) for one in payloads]
        for one, result in zip(payloads, verdicts, strict=True):
            if isinstance(result, CountledgerError):
                _retry_from(outcome, one.place.record, result)
        rejected = [result for result in verdicts if isinstance(result, RejectedEvent)]
        self._quarantine(rejected, outcome, stream, shard, deadline)
        for one, result in zip(payloads, verdicts, strict=True):
            if outcome.retry_from is None or one.place.record < outcome.retry_from:
                _count(outcome, result)

    def _quarantine(
        self,
        rejected: Sequence[RejectedEvent],
        outcome: IngestOutcome,
        stream: str,
        shard: str,
        deadline: Deadline | None,
    ) -> None:
        """Step 4. If a queue fails, the records of its message are delivered again."""
        until = outcome.retry_from
        done = [one for one in rejected if until is None or one.place.record < until]
        for expired in (False, True):
            of_one_queue = [one for one in done if is_expired(one) is expired]
            for message in messages_of(of_one_queue, stream, shard):
                error: CountledgerError | None = lateness(deadline)
                try:
                    if error is None:
                        self.quarantine.put(message, expired=expired)
                except CountledgerError as failed:
                    error = failed
                if error is not None:
                    _retry_from(outcome, message.records[0], error)
                    break


def _verdict_of(
    one: DecodedEntry | RejectedEvent, results: Mapping[Any, WriteResult]
) -> Status | RejectedEvent | CountledgerError:
    """What happens to a payload: it is written, quarantined (rejected), or retried (an error)."""
    if isinstance(one, RejectedEvent):
        return one
    result = results[one.place]
    if isinstance(result, Status) or not is_final(result):
        return result
    kind = RejectionKind.EXPIRED if isinstance(result, KeyExpired) else RejectionKind.REFUSED
    return RejectedEvent(one.place, one.payload, kind, str(result))


def _retry_from(outcome: IngestOutcome, record: int, error: CountledgerError) -> None:
    if outcome.retry_from is None or record < outcome.retry_from:
        outcome.retry_from = record
    _note(outcome, error)


def _note(outcome: IngestOutcome, error: CountledgerError) -> None:
    if str(error) not in outcome.errors:
        outcome.errors.append(str(error))


def _count(outcome: IngestOutcome, result: Status | RejectedEvent | CountledgerError) -> None:
    outcome.payloads += result.messages if isinstance(result, RejectedEvent) else 1
    if isinstance(result, RejectedEvent):
        count = outcome.quarantined.get(result.kind, 0) + result.messages
        outcome.quarantined[result.kind] = count
    elif result is Status.DUPLICATE:
        outcome.duplicates += 1
    else:
        outcome.accepted += 1
