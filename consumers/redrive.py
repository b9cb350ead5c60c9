"""What `quarantine resend` does with records of the streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countledger.ledger.quarantine_service import RedriveAnswer

if TYPE_CHECKING:
    from countledger.consumers.auditor import Auditor
    from countledger.ledger.quarantine_record import QuarantinedRecord


@dataclass(frozen=True, slots=True)
class RepairCounter:
    """Repairs the counter of a record of the stream of `ledger`; the record is never applied.

    The watermark has passed the record. A repair reads the ledger, which has the entry, after a
    proof that all other records were applied, and raises the watermarks. So nothing counts twice.

    Attributes:
        auditor: repairs.
    """

    auditor: Auditor

    def __call__(self, record: QuarantinedRecord, *, even_if_counted: bool) -> RedriveAnswer:  # noqa: ARG002 - of the protocol
        """As `Auditor.repair`.

        Raises:
            WrongKind: the counter is not a ledger counter.
        """
        if record.counter is None:
            return RedriveAnswer(
                resolved=False,
                detail="the record names no counter: run countledger verify --all, then discard it",
            )
        repair = self.auditor.repair(record.counter)
        detail = f"{record.counter}: {repair.remedy} ({repair.reason})"
        return RedriveAnswer(repair.healthy, detail)


def review_alert_log(record: QuarantinedRecord, *, even_if_counted: bool) -> RedriveAnswer:  # noqa: ARG001 - of the protocol
    """A change of a total that no rule saw: the total is right, but an alert may be missing."""
    name = "COUNTER" if record.counter is None else record.counter
    return RedriveAnswer(
        resolved=False,
        detail=f"no total is wrong, but an alert may be missing: see countledger alert log {name}, "
        "inform the people concerned, then discard this",
    )
