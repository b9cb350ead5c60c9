"""The parts of compaction put together, from a connection to a stack."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from countledger.compaction.archive import ArchiveLocation, S3Archive, archive_at
from countledger.compaction.compactor import Compactor
from countledger.compaction.deletion import RegionalTotals
from countledger.compaction.deletions import Deletions, LedgerDeleter
from countledger.compaction.dispatcher import Dispatcher, WorkQueue
from countledger.compaction.due import DueIndex, Sweeper
from countledger.compaction.plan import limits_by
from countledger.compaction.regions import Regions
from countledger.compaction.schedule import Triggers, schedule_in
from countledger.compaction.worker import Worker
from countledger.ledger import keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from countledger.compaction.report import CompactionReport
    from countledger.compaction.schedule import Schedule
    from countledger.ledger.connection import Connection
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.namespace import Kind, Namespaces

__all__ = [
    "Deletions",
    "RegionalTotals",
    "Regions",
    "Worker",
    "deletions_of",
    "dispatcher_of",
    "index_of",
    "reading_archive_of",
    "sweeper_of",
    "worker_of",
]


def index_of(connection: Connection) -> DueIndex:
    """The due index of a stack."""
    dynamo, table = connection.dynamo("standard"), connection.setting("counters_table")
    return DueIndex(dynamo, table, connection.clock, connection.random)


def reading_archive_of(connection: Connection, place: str) -> S3Archive:
    """The archive at `s3://bucket/prefix`, to be read; it need not be in a schedule."""
    return S3Archive(connection.objects(), ArchiveLocation.parse(place))


def sweeper_of(connection: Connection) -> Sweeper:
    """The sweeper, which puts missing counters into that index."""
    dynamo, table = connection.dynamo("standard"), connection.setting("counters_table")
    return Sweeper(dynamo, table, connection.clock)


def dispatcher_of(connection: Connection) -> Dispatcher:
    """The dispatcher, which sends due counters to the workers."""
    url, clock = connection.setting("compaction_queue_url"), connection.clock
    queue = WorkQueue(connection.queues(), url, clock, connection.random)
    triggers = Triggers(connection)
    home = connection.setting("home_region")
    return Dispatcher(index_of(connection), queue, triggers, connection.region, home, clock)


def worker_of(
    connection: Connection,
    regions: Regions,
    namespaces: Namespaces,
    *,
    archive_as_found: bool = False,
) -> Worker:
    """A worker that compacts as the schedules say; it reads each schedule once.

    Args:
        connection: to the stack.
        regions: of the ledger, from the home region; they may be shared by many workers.
        namespaces: of the stack; as `regions`.
        archive_as_found: as `Compactor.archive_as_found`.
    """
    index, plain = index_of(connection), _compactor_of(connection, regions, namespaces)

    def compactor_for(schedule: Schedule | None) -> Compactor:
        if schedule is None:
            return plain
        return replace(
            plain,
            limit=limits_by(connection, schedule.min_age_ms),
            retire=schedule.retire,
            archive=archive_at(connection, schedule.archive),
            archive_as_found=archive_as_found,
        )

    return Worker(
        index, namespaces, partial(_schedule_at, index.dynamo, index.table), compactor_for
    )


def _schedule_at(dynamo: DynamoClient, table: str, namespace: str) -> Schedule | None:
    """The schedule of a namespace, or None. One read unit."""
    return schedule_in(dynamo.get(table, keys.schedule_key(namespace), consistent=True))


def _compactor_of(connection: Connection, regions: Regions, namespaces: Namespaces) -> Compactor:
    """A compactor for counters of namespaces that have no schedule."""
    return Compactor(
        regions,
        namespaces,
        limits_by(connection),
        clock=connection.clock,
        new_run=connection.ids.unique_id,
        random=connection.random,
    )


def deletions_of(
    connection: Connection,
    regions: Regions,
    namespaces: Namespaces,
    *,
    totals: Callable[[str], RegionalTotals],
    tidy_markers: Callable[[str, int], None],
    seen: Callable[[str], Callable[[], object]],
    at_once: Mapping[Kind, Callable[[str], None]],
    names: Callable[[str], Iterator[str]],
) -> Deletions:
    """The deletion of counters; each is compacted first as its schedule says, except for the age.

    Raises:
        WrongRegion: the connection is not to the home region.
    """
    dynamo, table = connection.dynamo("standard"), connection.setting("counters_table")

    def compact(counter: str) -> CompactionReport:
        schedule = _schedule_at(dynamo, table, keys.namespace_of(counter))
        compactor = _compactor_of(connection, regions, namespaces)
        if schedule is not None:
            archive = archive_at(connection, schedule.archive)
            compactor = replace(compactor, retire=schedule.retire, archive=archive)
        return compactor.compact(counter)

    ledger = LedgerDeleter(connection, regions, compact, totals)
    return Deletions(ledger, at_once, tidy_markers, names, seen)
