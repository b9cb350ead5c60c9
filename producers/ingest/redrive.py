"""Taking in again what the ingest quarantined, by its own reading and writing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countledger.ledger.errors import BadInput, CountledgerError, KeyExpired
from countledger.ledger.quarantine_service import RedriveAnswer
from countledger.producers.ingest.expired import LateStatus, Override
from countledger.producers.ingest.reading import RejectionKind
from countledger.producers.ingest.writing import Writer
from countledger.producers.kinesis.aggregate import BrokenAggregate, unpack
from countledger.producers.kinesis.message import decode
from countledger.producers.receipt import Status
from countledger.producers.sender import sender_of

if TYPE_CHECKING:
    from countledger.ledger.connection import Connection
    from countledger.ledger.entry import Entry
    from countledger.ledger.namespace import Namespaces
    from countledger.ledger.quarantine_record import QuarantinedRecord


@dataclass(frozen=True, slots=True)
class IngestRedrive:
    """Brings what came through Kinesis into the ledger, under the identity that it came with.

    What is older than its horizon may not be written under it any more; of that the ledger is asked
    whether it was counted (see `expired`).

    Attributes:
        writer: the ingest's own.
        override: judges what expired, and sends it again.
        origin: the region where entries are written.
    """

    writer: Writer
    override: Override
    origin: str

    def __call__(self, copy: QuarantinedRecord, *, even_if_counted: bool) -> RedriveAnswer:
        """A write unit for each KB of each entry; of what expired three read units as well.

        Raises:
            CountledgerError: one of them could not be judged.
        """
        if copy.cut_from_bytes is not None:
            return RedriveAnswer(
                settled=False,
                said=f"only the first {len(copy.content)} of its {copy.cut_from_bytes} bytes are "
                "kept: have its producer send it again, then discard it",
            )
        try:
            payloads = unpack(copy.content) if copy.part is None else [copy.content]
            entries = [decode(one, arrived_ms=copy.at_ms, origin=self.origin) for one in payloads]
        except (BrokenAggregate, BadInput) as error:
            return RedriveAnswer(settled=False, said=str(error))
        expired = copy.kind == RejectionKind.EXPIRED
        answers = [self._one(entry, even_if_counted, expired) for entry in entries]
        said = sorted({answer.said for answer in answers})
        return RedriveAnswer(all(answer.settled for answer in answers), "; ".join(said))

    def _one(self, entry: Entry, even_if_counted: bool, expired: bool) -> RedriveAnswer:  # noqa: FBT001 - handed on
        if not expired:
            (fate,) = self.writer.write([entry])
            if isinstance(fate, Status):
                return RedriveAnswer(settled=True, said=str(fate))
            if not isinstance(fate, KeyExpired):
                return RedriveAnswer(settled=False, said=str(fate))
        late = self.override.late(entry, send=True, even_if_counted=even_if_counted)
        if isinstance(late.sent, CountledgerError):
            return RedriveAnswer(settled=False, said=str(late.sent))
        if late.settled:
            said = "it was counted" if late.sent is None else f"{late.sent}, as a new entry"
            return RedriveAnswer(settled=True, said=said)
        if late.standing is LateStatus.UNKNOWN:
            return RedriveAnswer(
                settled=False,
                said="it may have been counted before: look for it with countledger entries "
                "--archived, then discard it, or resend it with --even-if-counted",
            )
        return RedriveAnswer(settled=False, said="its key is taken by an entry with another delta")


def ingest_redrive(connection: Connection, namespaces: Namespaces) -> IngestRedrive:
    """The parts of it, for a stack."""
    sender = sender_of(connection, namespaces)
    override = Override(sender, connection.dynamo("standard"))
    return IngestRedrive(Writer(sender), override, connection.region)
