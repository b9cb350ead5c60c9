"""The product's own objects, as one process has them: put together over simulated clients."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from countledger.compaction.archive import ArchiveLocation, S3Archive
from countledger.compaction.compactor import Compactor
from countledger.compaction.deletion import RegionalTotals
from countledger.compaction.deletions import LedgerDeleter
from countledger.compaction.dispatcher import Dispatcher
from countledger.compaction.regions import Promotion
from countledger.compaction.report import Retire
from countledger.compaction.schedules import Schedules
from countledger.compaction.worker import WorkBatch, Worker
from countledger.consumers.audit import Auditor, why_not_exact
from countledger.consumers.groups import Groups
from countledger.consumers.leftovers import Leftovers
from countledger.consumers.record import LedgerStream
from countledger.consumers.totals import TotalsReader
from countledger.consumers.window_audit import clear_with_windows
from countledger.consumers.window_verify import WindowVerifier
from countledger.ledger.clock import Backoff
from countledger.ledger.exact import ExactReader
from countledger.ledger.limits import SECOND_MS
from countledger.ledger.namespace import KnownNamespaces, Namespaces
from countledger.producers.claims.claims import Claims
from countledger.producers.quotas.quotas import Quotas
from countledger.producers.recorder import Compensator, Recorder
from countledger.producers.sender import Sender
from countledger.producers.sequences.sequences import Sequences
from countledger.producers.strict.counters import StrictCounters
from tests.simulation.connection import connection_of
from tests.simulation.loop import SimulatedLoop
from tests.simulation.objects import ObjectsClient

if TYPE_CHECKING:
    from collections.abc import Mapping

    from countledger.compaction.report import CompactionReport
    from countledger.compaction.schedule import Schedule
    from countledger.producers.sequences.sequences import Lease
    from tests.simulation.buffer_operations import Hand
    from tests.simulation.connection import ProcessConnection
    from tests.simulation.process import Process
    from tests.simulation.world import World

_PATIENCE_MS = 5 * SECOND_MS
# The sequence whose numbers are leased.
LEASED = "q:events"


@dataclass(eq=False)
class Product:
    """What one process has of the product.

    Attributes:
        process: which one.
        reports: of the worker's function.
        hands: of buffers.
        at: the region whose tables it reads and writes; None: its own.
        elsewhere: the same process, with the tables of other regions.
    """

    process: Process
    reports: list[CompactionReport] = field(default_factory=list)
    hands: dict[str, Hand] = field(default_factory=dict)
    at: str | None = None
    elsewhere: dict[str, Product] = field(default_factory=dict)

    @property
    def world(self) -> World:
        """Where it runs."""
        return self.process.world

    @cached_property
    def connection(self) -> ProcessConnection:
        """What its services are made of."""
        return connection_of(self.process, self.at)

    @cached_property
    def reads(self) -> Any:  # noqa: ANN401 - a client
        """A client whose SDK retries."""
        return self.connection.retrying

    @cached_property
    def writes(self) -> Any:  # noqa: ANN401 - a client
        """A client whose SDK does not."""
        return self.connection.unretried

    @cached_property
    def loop(self) -> SimulatedLoop:
        """The event loop of the process."""
        return SimulatedLoop(self.process)

    @cached_property
    def namespaces(self) -> Namespaces:
        """As the process sees them."""
        return Namespaces(self.connection)

    @cached_property
    def recorder(self) -> Recorder:
        """Records entries."""
        made = Recorder(self.connection)
        # It gives up sooner than the product, so that more entries come back.
        object.__setattr__(made, "sender", Sender(self.connection, Backoff(4, 50, 2_000)))
        return made

    @cached_property
    def exact(self) -> ExactReader:
        """Reads exact sums."""
        return ExactReader(self.connection)

    @cached_property
    def compensator(self) -> Compensator:
        """Sets counters to values."""
        return Compensator(self.recorder, self.exact)

    @cached_property
    def totals(self) -> TotalsReader:
        """Reads totals."""
        return TotalsReader(self.connection)

    @cached_property
    def stream(self) -> LedgerStream:
        """The ledger's stream."""
        return LedgerStream(self.connection)

    @cached_property
    def auditor(self) -> Auditor:
        """Verifies and repairs."""
        return Auditor(self.connection, _PATIENCE_MS)

    @cached_property
    def strict(self) -> StrictCounters:
        """Strict counters."""
        return StrictCounters(self.connection)

    @cached_property
    def leftovers(self) -> Leftovers:
        """What lies beside a counter that is gone."""
        return Leftovers(self.connection)

    @cached_property
    def sequences(self) -> Sequences:
        """Numbers that are given out once."""
        return Sequences(self.connection)

    @cached_property
    def lease(self) -> Lease:
        """Numbers that the process holds from one call to the next."""
        return self.sequences.lease(LEASED, block=4)

    @cached_property
    def claims(self) -> Claims:
        """Values that one owner has."""
        return Claims(self.connection)

    @cached_property
    def quotas(self) -> Quotas:
        """Limits for each window."""
        return Quotas(self.connection)

    def compactor(self, schedule: Schedule | None = None) -> Compactor:
        """Merges entries."""
        return Compactor(
            self.new_process,
            schedule.retire if schedule else self.world.random.choice(list(Retire)),
            self.archive if self.world.shape.archive else None,
            min_age_ms=schedule.min_age_ms if schedule else None,
            as_home=self.process.region in self.world.believers,
            covers_max=self.world.shape.covers_max,
            workers=1,
            lease_ms=self.world.shape.lease_ms,
        )

    @property
    def new_process(self) -> ProcessConnection:
        """Its connection, as of a process that knows nothing of the regions yet."""
        known = self.connection.shared(KnownNamespaces)
        return replace(self.connection, _shared={KnownNamespaces: known})

    def promotion(self) -> Promotion:
        """Makes its region the home that merges."""
        return Promotion(self.new_process, lease_ms=self.world.shape.lease_ms)

    @cached_property
    def archive(self) -> S3Archive:
        """Keeps merged entries."""
        client: Any = ObjectsClient(self.world.bucket, self.process)
        return S3Archive(client, ArchiveLocation(self.world.bucket.name, ""))

    @property
    def windows(self) -> WindowVerifier:
        """Verifies windows, with what is archived."""
        archived = self.archive.entries if self.world.shape.archive else None
        return WindowVerifier(self.auditor.verifier, archived)

    @cached_property
    def groups(self) -> Groups:
        """Groups of counters."""
        return Groups(self.connection)

    @property
    def deleter(self) -> LedgerDeleter:
        """Deletes ledger counters."""
        return LedgerDeleter(self.connection, self.totals_in, self.compactor())

    def totals_in(self, region: str) -> RegionalTotals:
        """The totals of a region, to a deletion."""
        there = self
        if region != self.process.region:
            there = self.elsewhere.setdefault(region, Product(self.process, at=region))
        return RegionalTotals(
            there.totals.item,
            partial(why_not_exact, there.auditor.verifier),
            partial(clear_with_windows, there.auditor.verifier),
            there.leftovers.delete,
        )

    @cached_property
    def schedules(self) -> Schedules:
        """Schedules of compaction."""
        return Schedules(self.connection)

    def dispatch(self, namespace: str, revision: str) -> None:
        """What the dispatcher's function does."""
        Dispatcher(self.connection).dispatch(namespace, revision)

    def work(self, messages: Mapping[str, str], deadline_ms: int) -> list[str]:
        """What the worker's function does."""
        worker = Worker(self.connection, compactor_for=self.compactor)
        batch = WorkBatch(self.connection, self.reports.append, worker, page_size=3)
        return batch.run(messages, deadline_ms).again
