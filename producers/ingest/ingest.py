"""The ingest: batches of the stream go into the ledger, and every payload is counted in or out.

    1  read the batch: entries, and what can be none                          pure
    2  write the entries: those with an id in batches, keyed ones by condition
    3  what failed for now makes its record the point to begin again
    4  what can never be written goes to the quarantine, as far as that point

Of the records before that point: payloads = accepted + duplicates + quarantined. Delivered again,
an entry is known again and counts once; something quarantined may be quarantined again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from countledger.ledger.errors import CountledgerError, KeyExpired
from countledger.producers.ingest.quarantine import is_expired, messages_of
from countledger.producers.ingest.reading import DecodedEntry, RejectedEvent, RejectionKind, read
from countledger.producers.ingest.writing import is_final
from countledger.producers.receipt import Status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countledger.ledger.deadline import Deadline
    from countledger.producers.ingest.quarantine import QuarantineSink
    from countledger.producers.ingest.writing import Fate, Writer


@dataclass(slots=True)
class IngestOutcome:
    """What became of a batch; counts are of the records that are done with.

    Attributes:
        records: how many were delivered.
        payloads: how many payloads they carry.
        accepted: entries that are in the ledger.
        duplicates: entries that were in the ledger before, or came twice.
        quarantined: those that went to the quarantine, by kind.
        retry_from: the first record to be delivered again, or None.
        errors: why, each reason once.
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
    """Brings batches of a stream into the ledger.

    Attributes:
        writer: writes entries.
        quarantine: takes what will not be in the ledger.
        origin: the region where entries are written.
    """

    writer: Writer
    quarantine: QuarantineSink
    origin: str

    def apply(
        self,
        records: Sequence[Mapping[str, Any]],
        *,
        stream: str,
        shard: str,
        deadline: Deadline | None = None,
    ) -> IngestOutcome:
        """Bring a batch of one shard into the ledger: a write unit for each KB of an entry.

        Args:
            records: as Lambda delivers them, in order.
            stream: which they come from, for the quarantine.
            shard: of that stream.
            deadline: after which no write is begun; what is not written is delivered again.

        Raises:
            BadPayload: a record is none of Kinesis; nothing was written.
        """
        contents = list(read(records, self.origin))
        found = [one for one in contents if isinstance(one, DecodedEntry)]
        fates = dict(
            zip(
                (one.place for one in found),
                self.writer.write([one.entry for one in found], deadline),
                strict=True,
            )
        )
        judged = [_judged(one, fates) for one in contents]
        outcome = IngestOutcome(records=len(records))
        for one, fate in zip(contents, judged, strict=True):
            if isinstance(fate, CountledgerError):
                _begin_again(outcome, one.place.record, fate)
        self._set_aside(
            [fate for fate in judged if isinstance(fate, RejectedEvent)], outcome, stream, shard
        )
        for one, fate in zip(contents, judged, strict=True):
            if outcome.retry_from is None or one.place.record < outcome.retry_from:
                _count(outcome, fate)
        return outcome

    def _set_aside(
        self, rejected: Sequence[RejectedEvent], outcome: IngestOutcome, stream: str, shard: str
    ) -> None:
        """Step 4; where a queue takes nothing, its records are delivered again."""
        until = outcome.retry_from
        done = [one for one in rejected if until is None or one.place.record < until]
        for expired in (False, True):
            of_one_queue = [one for one in done if is_expired(one) is expired]
            for letter in messages_of(of_one_queue, stream, shard):
                try:
                    self.quarantine.put(letter, expired=expired)
                except CountledgerError as error:
                    _begin_again(outcome, letter.records[0], error)
                    break


def _judged(
    one: DecodedEntry | RejectedEvent, fates: Mapping[Any, Fate]
) -> Status | RejectedEvent | CountledgerError:
    """What is to become of a payload: it is in, out for good, or to be tried again."""
    if isinstance(one, RejectedEvent):
        return one
    fate = fates[one.place]
    if isinstance(fate, Status) or not is_final(fate):
        return fate
    kind = RejectionKind.EXPIRED if isinstance(fate, KeyExpired) else RejectionKind.REFUSED
    return RejectedEvent(one.place, one.payload, kind, str(fate))


def _begin_again(outcome: IngestOutcome, record: int, error: CountledgerError) -> None:
    if outcome.retry_from is None or record < outcome.retry_from:
        outcome.retry_from = record
    if str(error) not in outcome.errors:
        outcome.errors.append(str(error))


def _count(outcome: IngestOutcome, fate: Status | RejectedEvent | CountledgerError) -> None:
    outcome.payloads += 1
    if isinstance(fate, RejectedEvent):
        outcome.quarantined[fate.kind] = outcome.quarantined.get(fate.kind, 0) + 1
    elif fate is Status.DUPLICATE:
        outcome.duplicates += 1
    else:
        outcome.accepted += 1
