"""Redriving what the ingest quarantined: one record by one, or the queue of the expired entries."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from countledger.ledger.errors import BadInput, BadPayload, CountledgerError, KeyExpired
from countledger.ledger.message_queue import MessageQueue
from countledger.ledger.quarantine import (
    HandledHow,
    QuarantineHandling,
    QuarantineStore,
    RedriveAnswer,
    quarantine_ids_in,
)
from countledger.producers.event import Status
from countledger.producers.ingest.entries import EntryWriter, RejectionKind
from countledger.producers.ingest.ingest import FORMAT, LateEntry, LateResender, LateStatus
from countledger.producers.kinesis import (
    BrokenAggregate,
    UnpackedRecord,
    decode,
    unpack_record,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.ledger.connection import Connection
    from countledger.ledger.entry import Entry
    from countledger.ledger.quarantine import QuarantinedRecord

_BY: Final = "expired.resend"
_DETAILS: Final = {
    LateStatus.COUNTED: "it was counted",
    LateStatus.UNKNOWN: "it may have been counted before: look for it with countledger entries "
    "--archived, then discard it, or resend it with --even-if-counted",
    LateStatus.REFUSED: "its key was used by an entry with another delta",
}


@dataclass(frozen=True, slots=True)
class IngestRedrive:
    """Writes a quarantined record of Kinesis to the ledger with its own identity."""

    connection: Connection
    writer: EntryWriter = field(init=False, repr=False, compare=False)
    resender: LateResender = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "writer", EntryWriter(self.connection))
        object.__setattr__(self, "resender", LateResender(self.connection))

    def __call__(self, record: QuarantinedRecord, *, even_if_counted: bool) -> RedriveAnswer:
        """A write unit for each KB of each entry; three read units more for a late one."""
        if record.cut_from_bytes is not None:
            return RedriveAnswer(
                resolved=False,
                detail=f"only the first {len(record.content)} of its {record.cut_from_bytes} bytes "
                "are kept: have its producer send it again, then discard it",
            )
        try:
            whole = record.part is None or record.messages > 1
            found = (
                unpack_record(record.content) if whole else UnpackedRecord([record.content], None)
            )
            origin = self.connection.region
            entries = [
                decode(one, arrived_ms=record.at_ms, origin=origin) for one in found.messages
            ]
        except (BrokenAggregate, BadInput) as error:
            return RedriveAnswer(
                resolved=False,
                detail=f"{error}; it can never be counted: have its producer send it again, "
                "corrected, then discard it",
            )
        expired = record.kind == RejectionKind.EXPIRED
        answers = [self._one(entry, even_if_counted, expired) for entry in entries]
        details = sorted({answer.detail for answer in answers})
        resolved = all(answer.resolved for answer in answers)
        if found.unread is not None:
            advice = "have its producer send what they have in this format, then discard it"
            details.append(f"{found.unread}; {advice}")
            resolved = False
        return RedriveAnswer(resolved, "; ".join(details))

    def _one(self, entry: Entry, even_if_counted: bool, expired: bool) -> RedriveAnswer:  # noqa: FBT001 - handed on
        if not expired:
            (result,) = self.writer.write([entry])
            if not isinstance(result, KeyExpired):
                return RedriveAnswer(isinstance(result, Status), str(result))
        late = self.resender.resolve(entry, send=True, even_if_counted=even_if_counted)
        if isinstance(late.sent, CountledgerError):
            detail = str(late.sent)
        elif late.sent is not None:
            detail = f"{late.sent}, as a new entry"
        else:
            detail = _DETAILS[late.status]
        return RedriveAnswer(late.resolved, detail)


@dataclass(frozen=True, slots=True)
class ExpiredEntries:
    """The queue of the entries that waited in a backlog for longer than their horizon.

    Raises:
        StackNotFound: the stack has no Kinesis stream.
    """

    connection: Connection
    queue: MessageQueue = field(init=False, repr=False, compare=False)
    resender: LateResender = field(init=False, repr=False, compare=False)
    store: QuarantineStore = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        to, found = self.connection, partial(object.__setattr__, self)
        url = to.setting("ingest_expired_queue_url")
        found("queue", MessageQueue(to.queues(), url, "the expired entries"))
        found("resender", LateResender(to))
        found("store", QuarantineStore(to))

    def list(self) -> Iterator[LateEntry]:
        """All of them with their status; they stay in the queue. Three read units each.

        Raises:
            BadPayload: a message is not one of the ingest.
            CountledgerError: a request failed.
        """
        return self._each(send=False, even_if_counted=False)

    def resend(self, *, even_if_counted: bool = False) -> Iterator[LateEntry]:
        """Send the uncounted ones; a message is deleted when all its entries are counted.

        Three read units each, and a write unit for each KB of those that are sent.

        Args:
            even_if_counted: whether to send also those whose status is unknown: they may count
                twice.

        Yields:
            The result of each; an error is that entry's own.

        Raises:
            As `list`.
        """
        return self._each(send=True, even_if_counted=even_if_counted)

    def _each(self, *, send: bool, even_if_counted: bool) -> Iterator[LateEntry]:
        with self.queue.reader() as reader:
            for message in reader:
                resolved = True
                for entry in entries_in(message.body, self.connection.region):
                    one = self.resender.resolve(entry, send=send, even_if_counted=even_if_counted)
                    resolved = resolved and one.resolved
                    yield one
                if send and resolved:
                    # Before the delete: after a crash in between the message is read once more.
                    self._mark_handled(message.body)
                    reader.delete(message)

    def _mark_handled(self, body: str) -> None:
        handling = QuarantineHandling(HandledHow.RESENT, _BY, self.connection.clock.now_ms())
        for quarantine_id in quarantine_ids_in(body):
            record = self.store.find(quarantine_id)
            if record is not None and record.handled is None:
                self.store.handle(record, handling)


def entries_in(body: str, origin: str) -> list[Entry]:
    try:
        document = json.loads(body)
        if document["format"] != FORMAT:
            raise BadPayload(
                f"the message has format {document['format']!r}; this release reads {FORMAT}"
            )
        return [
            decode(
                one["text"].encode() if "text" in one else base64.b64decode(one["base64"]),
                arrived_ms=one["arrived_ms"],
                origin=origin,
            )
            for one in document["rejected"]
        ]
    except (KeyError, TypeError, AttributeError, binascii.Error, json.JSONDecodeError) as error:
        raise BadPayload(f"a message of the expired entries cannot be read: {error!r}") from None
