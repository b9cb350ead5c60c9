"""The client of one stack: a method or a property for each capability.

Each of them imports its own part of the package at its first use, so an app that records pays for
recording only.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from countledger.ledger import keys
from countledger.ledger.connection import Connection
from countledger.ledger.forks import made_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import datetime

    import boto3

    from countledger.compaction.deletions import Deletions
    from countledger.compaction.regions import Regions
    from countledger.compaction.schedules import Schedules
    from countledger.compaction.worker import Worker
    from countledger.consumers.alerts.alerts import Alerts
    from countledger.consumers.auditor import Auditor
    from countledger.consumers.groups import Groups
    from countledger.consumers.rankings import Rankings
    from countledger.consumers.snapshot import Snapshot
    from countledger.consumers.stream import LedgerStream
    from countledger.consumers.totals import Freshness, TotalsReader
    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import OnCorrupt
    from countledger.ledger.entry import Entry
    from countledger.ledger.errors import CountledgerError
    from countledger.ledger.exact import ExactReader, ExactSum
    from countledger.ledger.head import Head
    from countledger.ledger.ids import IdempotencyKey
    from countledger.ledger.namespace import Namespaces
    from countledger.ledger.quarantine_record import QuarantinedRecord, QuarantineSource
    from countledger.ledger.quarantine_service import QuarantineService, Redrive, RedriveAnswer
    from countledger.ledger.settings import Settings
    from countledger.ledger.total import Total
    from countledger.producers.asynchronous.producer import AsyncBufferedProducer
    from countledger.producers.buffer.buffering import Buffering
    from countledger.producers.buffer.errors import Failure
    from countledger.producers.buffer.producer import BufferedProducer
    from countledger.producers.claims.claims import Claims
    from countledger.producers.compensation import Correction
    from countledger.producers.event import Event
    from countledger.producers.ingest.redrive import ExpiredEntries
    from countledger.producers.kinesis.producer import KinesisProducer
    from countledger.producers.receipt import Receipt
    from countledger.producers.recorder import Recorder
    from countledger.producers.sequences.sequences import Sequences
    from countledger.producers.strict.context import MethodContext
    from countledger.producers.strict.counters import StrictCounters


class CountLedger:
    """The counters of one stack. Safe to share between threads; opens nothing before it must.

    A forked child may go on with the object of its parent: each process makes its own clients.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        session: boto3.Session | None = None,
        endpoint_url: str | None = None,
    ) -> None:
        """Use a stack; no call is made yet.

        Args:
            settings: which stack, and where; None reads COUNTLEDGER_* from the environment.
            session: where credentials and region come from; None takes the usual AWS environment.
            endpoint_url: an endpoint instead of AWS's own; None leaves it to AWS_ENDPOINT_URL.

        Raises:
            BadSetting: the environment holds a setting that cannot be.
        """
        self.connection = Connection.open(settings, session=session, endpoint_url=endpoint_url)

    def record(
        self,
        counter: str,
        delta: Amount,
        *,
        key: str | IdempotencyKey | None = None,
        occurred_at: datetime | None = None,
        note: Mapping[str, str] | None = None,
    ) -> Receipt:
        """Add to a counter, exactly once. One write unit for each KB, one round trip.

        Args:
            counter: `namespace:rest`, or a plain name in namespace `default`.
            delta: an int or an exact decimal, not zero.
            key: what a retry repeats. A bare text is remembered for at least the horizon; with
                its time (`IdempotencyKey`) identity is the pair, and a retry beyond the horizon is
                refused and not counted. Without a key the call itself retries safely, but calling
                again is another change.
            occurred_at: the event's own business time; no part of the identity.
            note: own short texts, for the change log.

        Raises:
            IdempotencyKeyReused: the key came with another delta before.
            KeyExpired, ClockSkew: the key's time lies beyond the horizon, or ahead.
            BadInput: another argument breaks its rule; nothing was written.
            Unacknowledged: AWS gave no clear answer; `resend` the entry that the error carries.
        """
        from countledger.producers.event import Event

        return self._recorder.record(Event(counter, delta, key, occurred_at, note))

    def record_many(self, events: Iterable[Event]) -> list[Receipt | CountledgerError]:
        """Record many events, several at a time; as `record` for each. Returns when all are sent.

        Args:
            events: any number of them; they are gathered first. `record_stream` takes events that
                do not fit into memory.

        Returns:
            One outcome for each event, in order: a receipt, or this event's error as a value.

        Raises:
            SetupError: what concerns every event: no table, no permission, nothing reachable. No
                event was recorded; if some were, it is the outcome of those that were not.
        """
        return self._recorder.record_many(events)

    def record_stream(self, events: Iterable[Event]) -> Iterator[Receipt | CountledgerError]:
        """As `record_many` for any number of events. It writes only while it is iterated.

        Yields:
            One outcome for each event, in order: a receipt, or this event's error as a value.

        Raises:
            SetupError: what concerns every event, after the outcomes of those that had been sent.
        """
        return self._recorder.record_stream(events)

    def resend(self, entry: Entry) -> Receipt:
        """Send an entry again that an `Unacknowledged` error carries; it cannot count twice.

        Raises:
            KeyExpired: it was made longer ago than the horizon.
            Unacknowledged: again there was no clear answer.
        """
        return self._recorder.resend(entry)

    def buffered(
        self,
        buffering: Buffering | None = None,
        *,
        on_failure: Callable[[Failure], object] | None = None,
    ) -> BufferedProducer:
        """A producer that takes events at once and sends them in the background, in batches.

        As many write units as `record`; coalesced events share one entry and its units.

        Args:
            buffering: its bounds, whether it coalesces, and its spool; None takes the defaults.
            on_failure: told of each failure; without it, `flush` and `close` raise them.

        Raises:
            SetupError: there is no such stack, or the spool cannot be used.
        """
        from countledger.producers.buffer.assembly import buffered_producer
        from countledger.producers.buffer.buffering import Buffering

        return buffered_producer(self.connection, buffering or Buffering(), on_failure)

    def buffered_async(
        self,
        buffering: Buffering | None = None,
        *,
        on_failure: Callable[[Failure], object] | None = None,
    ) -> AsyncBufferedProducer:
        """As `buffered`, for an event loop: use it by `async with`. Needs the extra `async`.

        To find the stack may take a call: make it before the loop runs, or name the tables.
        """
        from countledger.producers.asynchronous.producer import async_producer
        from countledger.producers.buffer.buffering import Buffering

        return async_producer(
            self.connection, buffering or Buffering(), self.namespaces, on_failure
        )

    def set_value(
        self,
        counter: str,
        value: Amount,
        *,
        key: str | IdempotencyKey,
        note: Mapping[str, str] | None = None,
    ) -> Correction:
        """Set a ledger counter to a value, by one compensating entry. One write unit for each KB.

        And an exact read, and a read unit for the key. The entry adds what the exact sum lacks at
        that time; entries that arrive meanwhile are kept, and count on top. (A strict counter is
        set exactly by `strict.transactions.set_value`.)

        Raises:
            IdempotencyKeyReused: the key was used for another value, or another entry.
            WrongKind: the counter is strict and has no ledger.
            Unacknowledged: AWS gave no clear answer; repeat it with the same key.
        """
        from countledger.producers.compensation import Compensator

        return Compensator(self._recorder, self._exact).set_value(counter, value, key, note)

    def total(self, counter: str) -> Total:
        """A counter's total: exact up to the stream's lag; of a strict counter, its value.

        Half a read unit, and as much for each bin.
        """
        return self._totals.read(counter)

    def totals(
        self, counters: Iterable[str], *, on_corrupt: OnCorrupt | None = None
    ) -> dict[str, Total]:
        """The totals of many counters, no snapshot of one instant. Half a read unit each.

        A total that cannot be read is handed to `on_corrupt`; without that it raises CorruptItem.
        """
        return self._totals.read_many(counters, on_corrupt)

    def names(self, prefix: str = "") -> Iterator[str]:
        """The counters of every kind that have a total and begin so, in no order.

        A scan of the table `counters`: half a read unit for each 4 KB of it, whatever is found.
        """
        from countledger.consumers.totals import counters_beginning

        dynamo = self.connection.dynamo("standard")
        return counters_beginning(dynamo, self.connection.setting("counters_table"), prefix)

    def snapshot(self, counters: Iterable[str]) -> Snapshot:
        """The totals of up to 100 counters as of one moment. Two read units each.

        Those of strict counters are exact, those of ledger counters as materialized by then. Bins
        count as counters; `totals` reads any number, but not as of one moment.

        Raises:
            TooManyCounters: they, or they and their bins, do not fit into one transaction.
            Throttled: writes were in the way of every attempt.
        """
        from countledger.consumers.snapshot import SnapshotReader

        return SnapshotReader(self._totals.dynamo, self._totals.table).read(counters)

    def counters(self, namespace: str, *, on_corrupt: OnCorrupt | None = None) -> Iterator[Total]:
        """The counters of a namespace, with their totals; none that was never changed.

        Of strict counters by name, half a read unit for each, and each bin. The others are found by
        guarded through the whole table `counters`, in no order: half a read unit for each 4 KB.

        Args:
            namespace: whose counters.
            on_corrupt: called with the error of each total that cannot be read, which is left out.

        Raises:
            NamespaceUnknown: there is no such namespace.
            CorruptItem: a total cannot be read, and `on_corrupt` is not given.
        """
        from countledger.consumers.totals import Listing

        return Listing(self._totals, self.namespaces).counters(namespace, on_corrupt)

    def freshness(self) -> Freshness:
        """Up to where the totals are complete. Half a read unit for each stream shard."""
        return self._totals.freshness(self._stream)

    def exact(self, counter: str) -> ExactSum:
        """The exact sum of a counter's ledger. Two read units, and one for each 4 KB of entries.

        Raises:
            WrongKind: the counter is strict and has no ledger; its total is exact.
        """
        from countledger.consumers.auditor import of_a_ledger

        return self._exact.read(of_a_ledger(self.namespaces, counter))

    def entries(
        self, counter: str, *, limit: int | None = None, on_corrupt: OnCorrupt | None = None
    ) -> Iterator[Entry]:
        """A counter's entries that are not merged yet, newest first; `head` tells of the others.

        Half a read unit for the head, and for each 4 KB read.

        Args:
            counter: its name.
            limit: at most so many.
            on_corrupt: called with the error of each entry that cannot be read, which is left out.

        Raises:
            CorruptItem: the head cannot be read; or an entry, and `on_corrupt` is not given.
            NamespaceUnknown: nothing was ever recorded in its namespace.
            WrongKind: the counter is strict and has no ledger.
        """
        from countledger.ledger.change_log import newest_first
        from countledger.ledger.namespace import Kind

        namespace = self.namespaces.expect(keys.check_counter(counter), Kind.LEDGER)
        table = self.connection.setting("ledger_table")
        head = self.head(counter)
        dynamo, spread = self._exact.dynamo, namespace.spread
        return newest_first(dynamo, table, counter, spread, limit, head=head, on_corrupt=on_corrupt)

    def head(self, counter: str) -> Head:
        """The one summary of all entries merged so far: number, sum and period.

        Half a read unit for each 4 KB of it.
        """
        from countledger.ledger.head import decode_head

        key = keys.head_key(keys.check_counter(counter))
        return decode_head(self._exact.dynamo.get(self.connection.setting("ledger_table"), key))

    def archived(self, counter: str, place: str) -> Iterator[Entry]:
        """The merged entries of a counter that were archived, the last merged ones first.

        One request for each generation of the counter; every object is checked against the
        checksum in its name. Half a read unit for each 4 KB of the head. What was archived of a
        deleted counter of the same name is not among them.

        Args:
            counter: its name.
            place: where they were archived: `s3://bucket/prefix`.

        Raises:
            BadSetting: that is no place in S3.
            ArchiveRefused: the bucket does not exist, or refuses.
            CorruptArchive: an object is not what its name says.
        """
        from countledger.compaction.s3_archive import ArchiveLocation, S3Archive

        archive = S3Archive(self.connection.objects(), ArchiveLocation.parse(place))
        incarnation = self.head(counter).incarnation
        return archive.entries(counter, incarnation) if incarnation else iter(())

    def compactor(self, *, archive_as_found: bool = False) -> Worker:
        """What compacts counters here and now, as the schedules of their namespaces say.

        It reads each schedule once: take a new one for each piece of work.

        Args:
            archive_as_found: archive what an earlier run merged and did not archive as it is now,
                although entries were deleted or changed by hand since.

        Raises:
            WrongRegion: this is not the home region.
        """
        from countledger.compaction.assembly import worker_of

        return worker_of(
            self.connection, self._regions, self.namespaces, archive_as_found=archive_as_found
        )

    def due(self, namespace: str) -> Iterator[str]:
        """The counters of a namespace that are worth compacting now, in no order.

        Half a read unit for each 4 KB of them, eight at least; none without a schedule.
        """
        from countledger.compaction.assembly import index_of

        return index_of(self.connection).due(namespace)

    @property
    def write_units(self) -> float:
        """The write units that this object's calls consumed so far."""
        return self.connection.meter.write_units

    @property
    def read_units(self) -> float:
        """The read units that this object's calls consumed so far."""
        return self.connection.meter.read_units

    @made_once
    def namespaces(self) -> Namespaces:
        """The namespaces of the stack: make, read and list them."""
        from countledger.ledger.assembly import namespaces_of

        return namespaces_of(self.connection)

    @made_once
    def strict(self) -> StrictCounters:
        """The strict counters of the stack, which never pass their bounds."""
        from countledger.producers.strict.counters import StrictCounters

        return StrictCounters(
            self._means,
            self.namespaces,
            region=self.connection.region,
            home_region=self.connection.setting("home_region"),
        )

    @made_once
    def kinesis(self) -> KinesisProducer:
        """Send events through the stack's stream, thousands to a call; needs the extra `kinesis`.

        Raises:
            StackNotFound: the stack was deployed without a stream.
            SetupError: the extra is not installed.
        """
        from countledger.producers.kinesis.producer import producer_of

        return producer_of(self.connection)

    @made_once
    def expired(self) -> ExpiredEntries:
        """What came through Kinesis too late to be counted: list it, and send it again.

        Raises:
            StackNotFound: the stack was deployed without a stream.
            SetupError: the extra `kinesis` is not installed.
        """
        from countledger.producers.ingest.redrive import expired_of

        return expired_of(self.connection, self.namespaces)

    @made_once
    def quarantine(self) -> QuarantineService:
        """What could not be applied, judged or counted: list it, send it again, or discard it."""
        from countledger.consumers.redrive import RepairCounter, review_alert_log
        from countledger.ledger.quarantine_record import QuarantineSource
        from countledger.ledger.quarantine_service import QuarantineService
        from countledger.ledger.quarantine_store import QuarantineStore, notices_of

        def redrive_ingested(record: QuarantinedRecord, *, even_if_counted: bool) -> RedriveAnswer:
            # The extra `kinesis` is needed only for this.
            from countledger.producers.ingest.redrive import ingest_redrive

            redrive = ingest_redrive(self.connection, self.namespaces)
            return redrive(record, even_if_counted=even_if_counted)

        redrives: dict[QuarantineSource, Redrive] = {
            QuarantineSource.LEDGER: RepairCounter(self.audit),
            QuarantineSource.COUNTERS: review_alert_log,
            QuarantineSource.KINESIS: redrive_ingested,
        }
        store = QuarantineStore(self._totals.dynamo, self._totals.table)
        return QuarantineService(store, redrives, lambda: notices_of(self.connection))

    @made_once
    def sequences(self) -> Sequences:
        """Numbers that are given out once, and the numbering of an app's own items."""
        from countledger.producers.sequences.sequences import Sequences

        return Sequences(
            self._means,
            self.namespaces,
            region=self.connection.region,
            home_region=self.connection.setting("home_region"),
        )

    @made_once
    def claims(self) -> Claims:
        """Values that at most one owner has: take, change and release them."""
        from countledger.producers.claims.claims import Claims

        return Claims(
            self._means,
            region=self.connection.region,
            home_region=self.connection.setting("home_region"),
        )

    @made_once
    def groups(self) -> Groups:
        """Groups of counters: their members, their totals, their top."""
        from countledger.consumers.groups import Groups

        return Groups(self._totals, self.namespaces)

    @made_once
    def rankings(self) -> Rankings:
        """Which namespaces keep their totals in order, and the top of one."""
        from countledger.consumers.rankings import Rankings

        return Rankings(self._totals.dynamo, self._totals.table, self.namespaces)

    @made_once
    def audit(self) -> Auditor:
        """Verify totals against their ledgers, and repair those that drifted."""
        from countledger.consumers.auditor import Auditor
        from countledger.consumers.verify import Verifier
        from countledger.ledger.limits import late_write_ms

        verifier = Verifier(
            self._totals,
            self._exact,
            self._stream,
            clock_skew_ms=self.connection.settings.clock_skew_ms,
            late_ms=late_write_ms(self.connection.settings.clock_skew_ms),
        )
        return Auditor(verifier, self.namespaces, self.connection.region)

    @made_once
    def schedules(self) -> Schedules:
        """When and how counters are compacted: make, change, read and delete schedules."""
        from countledger.compaction.assembly import schedules_of

        return schedules_of(self.connection, self.namespaces)

    @made_once
    def alerts(self) -> Alerts:
        """The alerts of the stack: rules for totals that cross thresholds, and what they told."""
        from countledger.consumers.alerts.assembly import alerts_of

        return alerts_of(self.connection)

    @made_once
    def deletions(self) -> Deletions:
        """Delete counters with all that is kept of them, by name or by namespace."""
        from countledger.compaction.assembly import deletions_of
        from countledger.consumers.auditor import why_not_exact
        from countledger.consumers.leftovers import Leftovers
        from countledger.ledger.namespace import Kind

        leftovers = Leftovers(self.groups)
        return deletions_of(
            self.connection,
            self._regions,
            self.namespaces,
            unproven=partial(why_not_exact, self.audit),
            tidy=leftovers.remove,
            tidy_markers=leftovers.remove_markers,
            seen=leftovers.seen,
            at_once={Kind.STRICT: self.strict.delete, Kind.SEQUENCE: self.sequences.delete},
            names=lambda namespace: (one.counter for one in self.counters(namespace)),
        )

    @made_once
    def _means(self) -> MethodContext:
        from countledger.producers.strict.context import MethodContext

        return MethodContext(
            dynamo=self.connection.dynamo("none"),
            reads=self.connection.dynamo("standard"),
            table=self.connection.setting("counters_table"),
            clock_skew_ms=self.connection.settings.clock_skew_ms,
        )

    @made_once
    def _regions(self) -> Regions:
        from countledger.compaction.regions import Regions

        return Regions.of(self.connection)

    @made_once
    def _recorder(self) -> Recorder:
        from countledger.producers.recorder import Recorder
        from countledger.producers.sender import sender_of

        return Recorder(sender_of(self.connection, self.namespaces), self.connection.region)

    @made_once
    def _totals(self) -> TotalsReader:
        from countledger.consumers.totals import TotalsReader

        dynamo = self.connection.dynamo("standard")
        return TotalsReader(dynamo, self.connection.setting("counters_table"))

    @made_once
    def _stream(self) -> LedgerStream:
        from countledger.consumers.stream import LedgerStream

        return LedgerStream(self.connection.streams(), self.connection.setting("ledger_stream_arn"))

    @made_once
    def _exact(self) -> ExactReader:
        from countledger.ledger.exact import ExactReader

        dynamo = self.connection.dynamo("standard")
        return ExactReader(dynamo, self.connection.setting("ledger_table"))
