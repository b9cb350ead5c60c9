"""What can be done about what the ingest quarantined; the extra `kinesis` is needed only then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from countledger.ledger.connection import Connection
    from countledger.ledger.namespace import Namespaces
    from countledger.ledger.quarantine_record import QuarantinedRecord
    from countledger.ledger.quarantine_service import RedriveAnswer


@dataclass(frozen=True, slots=True)
class RedriveOfKinesis:
    """Takes in again what came through Kinesis.

    Attributes:
        connection: to the stack.
        namespaces: of the stack.
    """

    connection: Connection
    namespaces: Namespaces

    def __call__(self, copy: QuarantinedRecord, *, even_if_counted: bool) -> RedriveAnswer:
        """As `IngestRedrive`.

        Raises:
            SetupError: the extra `kinesis` is not installed.
        """
        from countledger.producers.ingest.redrive import ingest_redrive  # noqa: PLC0415 - an extra

        again = ingest_redrive(self.connection, self.namespaces)
        return again(copy, even_if_counted=even_if_counted)
