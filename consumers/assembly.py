"""What reads, verifies and repairs totals, put together from a connection to a stack.

Each function imports what it needs: a process that reads a total never loads what repairs one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from countledger.consumers.audit import Auditor
    from countledger.consumers.proof import CatchingUp
    from countledger.consumers.rankings import Rankings
    from countledger.consumers.record import LedgerStream
    from countledger.consumers.totals import TotalsReader
    from countledger.consumers.window_audit import WindowAuditor
    from countledger.consumers.windows import WindowSettings, WindowsReader
    from countledger.ledger.attributes import Item
    from countledger.ledger.connection import Connection
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.entry import Entry
    from countledger.ledger.exact import ExactReader
    from countledger.ledger.namespace import Namespaces
    from countledger.ledger.quarantine import (
        QuarantinedRecord,
        QuarantineService,
        Redrive,
        RedriveAnswer,
    )

__all__ = [
    "CatchingUp",
    "LedgerStream",
    "QuarantineService",
    "Rankings",
    "Redrive",
    "WindowAuditor",
    "WindowSettings",
    "WindowsReader",
    "auditor_of",
    "catching_up_of",
    "deletable_totals_of",
    "quarantine_of",
    "stream_of",
    "window_auditor_of",
    "windows_of",
]


def _counters_of(connection: Connection) -> tuple[DynamoClient, str]:
    return connection.retrying, connection.setting("counters_table")


def catching_up_of(totals: TotalsReader, exact: ExactReader, namespaces: Namespaces) -> CatchingUp:
    """What waits until a stack's totals include what was recorded."""
    from countledger.consumers.proof import CatchingUp

    return CatchingUp(totals, exact, namespaces, totals.connection.clock)


def stream_of(connection: Connection) -> LedgerStream:
    """The stream of a stack's table `ledger`."""
    from countledger.consumers.record import LedgerStream

    return LedgerStream(connection.streams(), connection.setting("ledger_stream_arn"))


def deletable_totals_of(
    connection: Connection, namespaces: Namespaces
) -> tuple[
    Callable[[str], Item | None],
    Callable[[str], str | None],
    Callable[[str], str | None],
    Callable[[str, int], list[str]],
]:
    """What a deletion does with a region's totals: read, prove, clear and tidy, in this order."""
    from countledger.consumers.audit import why_not_exact
    from countledger.consumers.leftovers import Leftovers
    from countledger.consumers.window_audit import clear_with_windows
    from countledger.ledger.exact import ExactReader

    audit = auditor_of(connection, ExactReader.of(connection), namespaces)
    tidy = Leftovers(connection).delete
    verifier = audit.verifier
    clear = partial(clear_with_windows, verifier)
    return verifier.totals.item, partial(why_not_exact, audit), clear, tidy


def windows_of(connection: Connection) -> WindowsReader:
    """The reader of a stack's windows."""
    from countledger.consumers.totals import TotalsReader
    from countledger.consumers.windows import WindowsReader

    return WindowsReader(
        TotalsReader(connection),
        stream_of(connection),
        connection.clock,
        clock_skew_ms=connection.settings.clock_skew_ms,
    )


def auditor_of(connection: Connection, exact: ExactReader, namespaces: Namespaces) -> Auditor:
    """What verifies and repairs the totals of a stack."""
    from countledger.consumers.audit import Auditor
    from countledger.consumers.totals import TotalsReader
    from countledger.consumers.verify import Verifier
    from countledger.ledger.limits import late_write_ms

    verifier = Verifier(
        TotalsReader(connection, of_ledgers=True),
        exact,
        stream_of(connection),
        connection.clock,
        clock_skew_ms=connection.settings.clock_skew_ms,
        late_ms=late_write_ms(connection.settings.clock_skew_ms),
    )
    return Auditor(verifier, namespaces, connection.region)


def window_auditor_of(
    auditor: Auditor, archive_at: Callable[[str], Callable[[str, str], Iterable[Entry]]]
) -> WindowAuditor:
    """What verifies and rebuilds windows."""
    from countledger.consumers.window_audit import WindowAuditor

    return WindowAuditor(auditor, archive_at)


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
    store = QuarantineStore(*_counters_of(connection), connection.clock)
    notices = partial(notices_of, connection)
    return QuarantineService(store, redrives, notices, connection.clock)
