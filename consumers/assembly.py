"""What reads, verifies and repairs totals, put together from a connection to a stack.

Each function imports what it needs: a process that reads a total never loads what repairs one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.consumers.window_audit import WindowAuditor
    from countledger.ledger.connection import Connection
    from countledger.ledger.quarantine import (
        QuarantinedRecord,
        QuarantineService,
        Redrive,
        RedriveAnswer,
    )

__all__ = ["quarantine_of"]


def quarantine_of(
    connection: Connection, windows: WindowAuditor, ingest: Callable[[], Redrive]
) -> QuarantineService:
    """The quarantine of a stack.

    Args:
        connection: to the stack.
        windows: repairs the counters of records of the ledger, and their windows.
        ingest: the redrive of records of Kinesis; it is made for each of them, because it needs an
            extra that the others do not.
    """
    from countledger.consumers.audit import RepairCounter, review_alert_log
    from countledger.ledger.quarantine import (
        QuarantineService,
        QuarantineSource,
        QuarantineStore,
        notices_of,
    )

    def redrive_ingested(record: QuarantinedRecord, *, even_if_counted: bool) -> RedriveAnswer:
        return ingest()(record, even_if_counted=even_if_counted)

    redrives: dict[QuarantineSource, Redrive] = {
        QuarantineSource.LEDGER: RepairCounter(windows.auditor, windows.rebuild),
        QuarantineSource.COUNTERS: review_alert_log,
        QuarantineSource.KINESIS: redrive_ingested,
    }
    store = QuarantineStore(connection.retrying, connection.counters, connection.clock)
    notices = partial(notices_of, connection)
    return QuarantineService(store, redrives, notices, connection.clock)
