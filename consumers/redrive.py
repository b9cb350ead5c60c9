"""What can be done about records of the streams that were quarantined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countledger.ledger.quarantine_service import RedriveAnswer

if TYPE_CHECKING:
    from countledger.consumers.auditor import Auditor
    from countledger.ledger.quarantine_record import QuarantinedRecord


@dataclass(frozen=True, slots=True)
class RepairCounter:
    """A record of the stream of `ledger` is never fed again: its counter is repaired.

    Its watermark has passed. A repair reads the ledger, which has the entry, behind the proof that
    everything else had arrived, and raises the watermarks; so it cannot count twice.

    Attributes:
        auditor: repairs.
    """

    auditor: Auditor

    def __call__(self, copy: QuarantinedRecord, *, even_if_counted: bool) -> RedriveAnswer:  # noqa: ARG002 - of the protocol
        """As `Auditor.repair`.

        Raises:
            WrongKind: it is no counter of a ledger.
        """
        if copy.counter is None:
            return RedriveAnswer(
                settled=False,
                said="the record names no counter: run countledger verify --all, then discard it",
            )
        repair = self.auditor.repair(copy.counter)
        return RedriveAnswer(repair.healthy, f"{copy.counter}: {repair.remedy} ({repair.reason})")


def review_alert_log(copy: QuarantinedRecord, *, even_if_counted: bool) -> RedriveAnswer:  # noqa: ARG001 - of the protocol
    """A change of a total that could not be judged: the total is right, an alert may be missing."""
    name = "COUNTER" if copy.counter is None else copy.counter
    return RedriveAnswer(
        settled=False,
        said=f"no total is wrong, but an alert may be missing: see countledger alert log {name}, "
        "tell whom it concerns, then discard this",
    )
