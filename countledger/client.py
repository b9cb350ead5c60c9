"""The client of one stack: a method or a property for each capability.

Each of them imports its own part of the package at its first use, so an app that records pays for
recording only.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from countledger.ledger.connection import Connection
from countledger.ledger.processes import made_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    import boto3

    from countledger import (
        Amount,
        BufferedProducer,
        Buffering,
        Correction,
        CountledgerError,
        Entry,
        Event,
        ExactSum,
        Failure,
        Freshness,
        Head,
        IdempotencyKey,
        RangeKey,
        Receipt,
        Settings,
        Snapshot,
        Total,
        TotalOverRegions,
        WindowSum,
    )
    from countledger.compaction.deletions import Deletions
    from countledger.compaction.schedules import Schedules
    from countledger.compaction.worker import Worker
    from countledger.consumers.alerts.service import Alerts
    from countledger.consumers.audit import Auditor
    from countledger.consumers.groups import Groups
    from countledger.consumers.over_regions import RegionsReader
    from countledger.consumers.proof import CatchingUp
    from countledger.consumers.rankings import Rankings
    from countledger.consumers.totals import NamesPage, TotalsReader
    from countledger.consumers.window_audit import WindowAuditor
    from countledger.consumers.windows import WindowSettings, WindowsReader
    from countledger.ledger.attributes import OnCorrupt
    from countledger.ledger.exact import ExactReader
    from countledger.ledger.namespace import Namespaces
    from countledger.ledger.quarantine import (
        QuarantinedRecord,
        QuarantineService,
        RedriveAnswer,
    )
    from countledger.producers.claims.claims import Claims
    from countledger.producers.ingest.redrive import ExpiredEntries
    from countledger.producers.kinesis import KinesisProducer
    from countledger.producers.quotas.quotas import Quotas
    from countledger.producers.recorder import Recorder
    from countledger.producers.sequences.sequences import Sequences
    from countledger.producers.strict.counters import StrictCounters


_L = TypeVar("_L", bound="CountLedger")


class CountLedger:
    """The counters of one stack. Safe to share between threads; opens connections at first use.

    A forked child may continue with the object of its parent: each process has its own clients.
    Another process gets it pickled, as its settings, unless it has a session of the app's own.
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
            session: the source of credentials and region; None uses the usual AWS environment.
            endpoint_url: an endpoint instead of AWS's own; None reads AWS_ENDPOINT_URL.

        Raises:
            BadSetting: the environment has a setting with an invalid value.
        """
        self.connection = Connection.open(settings, session=session, endpoint_url=endpoint_url)

    def __reduce__(self) -> tuple[Any, ...]:
        """By its settings: another process has a client of its own, of the same stack.

        Raises:
            TypeError: the session is the app's own, or the stack is in memory.
        """
        return ledger_on, (type(self), self.connection)

    def record(
        self,
        counter: str,
        delta: Amount,
        *,
        key: str | IdempotencyKey | RangeKey | None = None,
        occurred_at: datetime | None = None,
        note: Mapping[str, str] | None = None,
    ) -> Receipt:
        """Add to a counter, exactly once. One write unit for each KB, one round trip.

        Args:
            counter: `namespace:rest`, or a plain name in namespace `default`.
            delta: an int or an exact decimal, not zero.
            key: what a retry repeats. A bare key is remembered for at least the horizon. With its
                time (`IdempotencyKey`) the identity is the pair, and a retry after the horizon is
                refused and not counted. `RangeKey` makes the key of a range of another system's
                records. Without a key the call itself retries safely, but another call is another
                change.
            occurred_at: the event's own business time; not part of the identity.
            note: short texts of your own, for the change log.

        Raises:
            IdempotencyKeyReused: the key was used with another delta.
            KeyExpired, ClockSkew: the key's time is before the horizon, or in the future.
            BadInput: another argument breaks its rule; nothing was written.
            Unacknowledged: AWS gave no clear answer; `resend` the entry that the error carries.
        """
        from countledger import Event

        return self._recorder.record(Event(counter, delta, key, occurred_at, note))

    def record_many(self, events: Iterable[Event]) -> Sequence[Receipt | CountledgerError]:
        """Record many events, several at a time; as `record` for each. Returns when all are sent.

        Args:
            events: any number of them; they are collected first. `record_stream` accepts events
                that do not fit into memory.

        Returns:
            One outcome for each event, in order: a receipt, or this event's error as a value.

        Raises:
            BadInput: one of them is no `Event`. No event was recorded.
            SetupError: a reason that concerns every event: no table, no permission, no connection.
                No event was recorded. If some were, the error is the outcome of the others instead.
        """
        return self._recorder.record_many(events)

    def record_stream(self, events: Iterable[Event]) -> Iterator[Receipt | CountledgerError]:
        """As `record_many` for any number of events. It writes only while it is iterated.

        Yields:
            One outcome for each event, in order: a receipt, or this event's error as a value.

        Raises:
            BadInput: one of them is no `Event`, after the outcomes of the sent events.
            SetupError: a reason that concerns every event, after the outcomes of the sent events.
        """
        return self._recorder.record_stream(events)

    def resend(self, entry: Entry) -> Receipt:
        """Send an entry again that an `Unacknowledged` error carries; it cannot count twice.

        Raises:
            KeyExpired: it was created longer ago than the horizon.
            Unacknowledged: again AWS gave no clear answer.
        """
        return self._recorder.resend(entry)

    def buffered(
        self,
        buffering: Buffering | None = None,
        *,
        on_failure: Callable[[Failure], object] | None = None,
    ) -> BufferedProducer:
        """A producer that accepts events immediately and sends them in the background, in batches.

        As many write units as `record`; coalesced events share one entry and its units.

        Args:
            buffering: its bounds, whether it coalesces, and its spool; None uses the defaults.
            on_failure: called with each failure; without it, `flush` and `close` raise them.

        Raises:
            SetupError: the stack does not exist, or the spool cannot be used.
        """
        from countledger import Buffering
        from countledger.producers.buffer.producer import BufferedProducer

        return BufferedProducer(self.connection, buffering or Buffering(), on_failure)

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
            Unacknowledged: AWS gave no clear answer; call again with the same key.
        """
        from countledger.producers.recorder import Compensator

        return Compensator(self._recorder, self._exact).set_value(counter, value, key, note)

    @overload
    def total(
        self,
        counter: str,
        *,
        after: Receipt | None = None,
        timeout_s: float = 10,
        regions: Literal[False] = False,
    ) -> Total: ...
    @overload
    def total(self, counter: str, *, regions: Literal[True]) -> TotalOverRegions: ...
    def total(
        self,
        counter: str,
        *,
        after: Receipt | None = None,
        timeout_s: float = 10,
        regions: bool = False,
    ) -> Total | TotalOverRegions:
        """A counter's total, exact up to the stream's lag; for a strict counter its value.

        Half a read unit, and as much for each bin.

        With `after` it waits until the total includes the entry of a receipt, and every other one
        that was acknowledged before the call. That costs an exact read and a read unit as well, and
        half of one for each read of the total: some 10 in the first second, then 2 a second.

        With `regions` each region's total, and of them the one that counted the most entries
        (never a sum of regions). In each region it costs half a read unit more for each stream
        shard. A region that does not answer within five seconds is named and not waited for.

        Args:
            counter: its name.
            after: the receipt of an entry of this counter.
            timeout_s: how long to wait for that entry, in seconds.
            regions: whether to read it in every region; not together with `after`.

        Raises:
            TotalBehind: with `after`, the total did not include the entry in time.
            BadInput: `after` is of another counter, or given with `regions`.
            RegionRebuilding: the totals of this region are incomplete.
            Unreachable: with `regions`, no region answered.
        """
        if after is not None:
            return self._after(after, counter, timeout_s, regions=regions)
        if regions:
            return self._over_regions.read([counter])[counter]
        return self._totals.read(counter)

    def _after(self, receipt: Receipt, counter: str, timeout_s: float, *, regions: bool) -> Total:
        from countledger import errors

        if regions:
            raise errors.BadInput("`after` waits for the total of one region: leave out `regions`")
        if receipt.counter != counter:
            raise errors.BadInput(
                f"the receipt is of counter {receipt.counter!r}, and the total is of {counter!r}: "
                "give a receipt of the same counter"
            )
        return self._catching_up.read(counter, timeout_s)

    @overload
    def totals(
        self,
        counters: Iterable[str],
        *,
        on_corrupt: OnCorrupt | None = None,
        regions: Literal[False] = False,
    ) -> dict[str, Total]: ...
    @overload
    def totals(
        self, counters: Iterable[str], *, regions: Literal[True]
    ) -> dict[str, TotalOverRegions]: ...
    def totals(
        self,
        counters: Iterable[str],
        *,
        on_corrupt: OnCorrupt | None = None,
        regions: bool = False,
    ) -> dict[str, Total] | dict[str, TotalOverRegions]:
        """The totals of many counters, not read at one moment. Half a read unit each.

        `on_corrupt` gets the error of an unreadable total; without it CorruptItem is raised. With
        `regions` as `total`; a region with a total that cannot be read is not included.
        """
        if regions:
            return self._over_regions.read(counters)
        return self._totals.read_many(counters, on_corrupt)

    def names(self, prefix: str = "") -> Iterator[str]:
        """The counters of every kind that have a total and begin with a prefix, in no order.

        A scan of the table `counters`: half a read unit for each 4 KB of it, whatever is found.
        """
        from countledger.consumers.totals import names_of

        return names_of(self.connection, prefix)

    def names_page(
        self, prefix: str = "", *, after: str | None = None, limit: int = 100
    ) -> NamesPage:
        """A part of what `names` finds; the next one begins `after` the place that it names.

        At most 20 requests, each for 1,000 items, and none after two seconds: half a read unit for
        each 4 KB of the items. So a part may have few names, or none, and still not be the last.

        Args:
            prefix: as of `names`.
            after: of the part before; None: the first one.
            limit: the largest number of names, 1 to 1,000.

        Raises:
            BadSetting: `limit` or `after` breaks its rule.
        """
        from countledger.consumers.totals import names_page

        return names_page(self.connection, prefix, after, limit)

    def windows(
        self,
        counter: str,
        per: str,
        *,
        since: datetime,
        until: datetime | None = None,
        prove: bool = False,
    ) -> list[WindowSum]:
        """The sums of a counter for each window of business time, those without events included.

        Each window is as exact as the total: what was recorded counts once, in the window of its
        `occurred_at`, else of its recording. Half a read unit for each 4 KB: an item of up to 1 KB
        for each month (days), day (hours) or half hour (minutes), and half a unit for the setting.
        At most every ten seconds also half a unit for each stream shard.

        Args:
            counter: of a namespace for which windows are switched on.
            per: `minute`, `hour`, `day` or `month`.
            since: an aware time in the first window.
            until: the first time after the last window; None: now.
            prove: look into the stream if the progress of its shards does not show that the windows
                are complete: on a quiet stack, progress moves late. A few requests for each shard,
                and the permission to read the stream.

        Raises:
            NoWindows: windows were never switched on for the namespace.
            BadSetting: there is no such kind of window, or not in this namespace.
            BadTime: a time is naive, `until` is not after `since`, there are more than 10,000
                windows, or minutes and hours of then are no longer kept.
            RegionRebuilding: the totals of this region are incomplete.
        """
        return self._windows.read(counter, per, since, until, prove=prove)

    def snapshot(self, counters: Iterable[str]) -> Snapshot:
        """The totals of up to 100 counters, all read at one moment. Two read units each.

        Totals of strict counters are exact, those of ledger counters as materialized by then. Bins
        count as counters; `totals` reads any number, but not at one moment.

        Raises:
            TooManyCounters: the counters, with their bins, do not fit into one transaction.
            Throttled: every attempt conflicted with writes.
        """
        from countledger.consumers.totals import SnapshotReader

        return SnapshotReader(self.connection).read(counters)

    def counters(self, namespace: str, *, on_corrupt: OnCorrupt | None = None) -> Iterator[Total]:
        """The counters of a namespace that have a total, with their totals.

        Strict counters by name, half a read unit for each, and each bin. Others by a scan of the
        whole table `counters`, in no order: half a read unit for each 4 KB.

        Args:
            namespace: whose counters.
            on_corrupt: called with the error of each total that cannot be read, which is left out.

        Raises:
            NamespaceUnknown: the namespace does not exist.
            CorruptItem: a total cannot be read, and `on_corrupt` is not given.
        """
        from countledger.consumers.totals import Listing

        return Listing(self.connection).counters(namespace, on_corrupt)

    def freshness(self, *, prove: bool = False) -> Freshness:
        """The time up to which totals are complete. Half a read unit for each stream shard.

        Args:
            prove: look into the stream, too, which shows whether totals lack anything (a quiet
                stream makes no progress). A few calls for each shard; `OperatePolicyArn` allows it.
        """
        if not prove:
            return self._totals.freshness()
        from countledger.consumers.proof import proven_freshness

        return proven_freshness(self.connection)

    def exact(self, counter: str) -> ExactSum:
        """The exact sum of a counter's ledger. Two read units, and one for each 4 KB of entries.

        Raises:
            WrongKind: the counter is strict and has no ledger; its total is exact.
        """
        from countledger.consumers.audit import of_a_ledger

        return self._exact.read(of_a_ledger(self.namespaces, counter))

    def entries(
        self,
        counter: str,
        *,
        limit: int | None = None,
        before: datetime | None = None,
        on_corrupt: OnCorrupt | None = None,
    ) -> Iterator[Entry]:
        """A counter's entries that are not merged yet, newest first; `head` sums up the others.

        Half a read unit for the head, and for each 4 KB read.

        Args:
            counter: its name.
            limit: the largest number of entries; None for all.
            before: only entries that were made before this aware time, in milliseconds.
            on_corrupt: called with the error of each entry that cannot be read, which is left out.

        Raises:
            BadTime: `before` is naive.
            CorruptItem: the head cannot be read; or an entry, and `on_corrupt` is not given.
            NamespaceUnknown: its namespace does not exist.
            WrongKind: the counter is strict and has no ledger.
        """
        from countledger.ledger import keys
        from countledger.ledger.exact import entries_of
        from countledger.ledger.namespace import Kind

        counter = keys.check_counter(counter)
        spread = self.namespaces.expect(counter, Kind.LEDGER).spread
        return entries_of(
            self.connection, counter, spread, limit, before=before, on_corrupt=on_corrupt
        )

    def head(self, counter: str) -> Head:
        """The one summary of all entries merged so far: number, sum and period.

        Half a read unit for each 4 KB of it.
        """
        from countledger.ledger.exact import head_of

        return head_of(self.connection, counter)

    def archived(self, counter: str, place: str) -> Iterator[Entry]:
        """The archived entries of a counter, the last merged ones first.

        One request for each generation of the counter; every object is compared with the checksum
        in its name. Half a read unit for each 4 KB of the head. Archived entries of a deleted
        counter with the same name are not included.

        Args:
            counter: its name.
            place: the archive: `s3://bucket/prefix`.

        Raises:
            BadSetting: `place` is not a location in S3.
            ArchiveRefused: the bucket does not exist, or refuses the request.
            CorruptArchive: an object does not match the checksum in its name.
        """
        from countledger.compaction.archive import S3Archive

        archive = S3Archive.at(self.connection, place)
        incarnation = self.head(counter).incarnation
        return archive.entries(counter, incarnation) if incarnation else iter(())

    def compactor(self, *, archive_as_found: bool = False) -> Worker:
        """A worker that compacts counters in this process, by the schedules of their namespaces.

        It reads each schedule once: create a new worker for each task.

        Args:
            archive_as_found: if an earlier run merged entries and did not archive them, archive the
                existing ones, although entries were deleted or changed by hand since.

        Raises:
            WrongRegion: this is not the home region.
        """
        from countledger.compaction.worker import Worker

        return Worker(self.connection, archive_as_found=archive_as_found)

    def due(self, namespace: str) -> Iterator[str]:
        """The counters of a namespace that are due for compaction, in no order.

        Half a read unit for each 4 KB of them, at least eight; none without a schedule.
        """
        from countledger.compaction.due import DueIndex

        return DueIndex(self.connection).due(namespace)

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
        """The namespaces of the stack: create, read and list them."""
        from countledger.ledger.namespace import Namespaces

        return Namespaces(self.connection)

    @made_once
    def strict(self) -> StrictCounters:
        """The strict counters of the stack, which never pass their bounds."""
        from countledger.producers.strict.counters import StrictCounters

        return StrictCounters(self.connection)

    @made_once
    def kinesis(self) -> KinesisProducer:
        """Send events through the stack's Kinesis stream; needs the extra `kinesis`.

        Raises:
            StackNotFound: the stack was deployed without a stream.
            SetupError: the extra is not installed.
        """
        from countledger.producers.kinesis import KinesisProducer

        return KinesisProducer(self.connection)

    @made_once
    def expired(self) -> ExpiredEntries:
        """Entries that came through Kinesis after their horizon: list them, and send them again.

        Raises:
            StackNotFound: the stack was deployed without a stream.
            SetupError: the extra `kinesis` is not installed.
        """
        from countledger.producers.ingest.redrive import ExpiredEntries

        return ExpiredEntries(self.connection)

    @made_once
    def quarantine(self) -> QuarantineService:
        """Records that could not be applied, evaluated or counted: list, resend or discard them."""
        from countledger.consumers.audit import RepairCounter, review_alert_log
        from countledger.ledger.quarantine import QuarantineService, QuarantineSource

        def of_kinesis(record: QuarantinedRecord, *, even_if_counted: bool) -> RedriveAnswer:
            # Made for each record: it needs an extra that the others do not.
            from countledger.producers.ingest.redrive import IngestRedrive

            redrive = IngestRedrive(self.connection)
            return redrive(record, even_if_counted=even_if_counted)

        return QuarantineService(
            self.connection,
            {
                QuarantineSource.LEDGER: RepairCounter(self.audit, self.window_audit.rebuild),
                QuarantineSource.COUNTERS: review_alert_log,
                QuarantineSource.KINESIS: of_kinesis,
            },
        )

    @made_once
    def sequences(self) -> Sequences:
        """Numbers that are given out once, and the numbering of an app's own items."""
        from countledger.producers.sequences.sequences import Sequences

        return Sequences(self.connection)

    @made_once
    def claims(self) -> Claims:
        """Values that at most one owner has: take, change and release them."""
        from countledger.producers.claims.claims import Claims

        return Claims(self.connection)

    @made_once
    def quotas(self) -> Quotas:
        """Limits for each counter and window of time: acquire, reserve, commit and release."""
        from countledger.producers.quotas.quotas import Quotas

        return Quotas(self.connection)

    @made_once
    def groups(self) -> Groups:
        """Groups of counters: their members, their totals, their top."""
        from countledger.consumers.groups import Groups

        return Groups(self.connection)

    @made_once
    def rankings(self) -> Rankings:
        """Rankings of namespaces: switch them on and off, and read the top."""
        from countledger.consumers.rankings import Rankings
        from countledger.consumers.region_state import RegionStateStore

        return Rankings(self.connection, RegionStateStore(self.connection))

    @made_once
    def window_settings(self) -> WindowSettings:
        """The windows of namespaces: switch them on, change them, switch them off, list them."""
        from countledger.consumers.windows import WindowSettings

        return WindowSettings(self.connection)

    @made_once
    def audit(self) -> Auditor:
        """Verify totals against their ledgers, and repair those that drifted."""
        from countledger.consumers.audit import Auditor

        return Auditor(self.connection)

    @made_once
    def window_audit(self) -> WindowAuditor:
        """Verify windows against their entries, and rebuild those that differ."""
        from countledger.consumers.window_audit import WindowAuditor

        return WindowAuditor(self.connection, self._archived_at)

    def _archived_at(self, place: str) -> Callable[[str, str], Iterator[Entry]]:
        from countledger.compaction.archive import S3Archive

        return S3Archive.at(self.connection, place).entries

    @made_once
    def schedules(self) -> Schedules:
        """When and how counters are compacted: create, change, read and delete schedules."""
        from countledger.compaction.schedules import Schedules

        return Schedules(self.connection)

    @made_once
    def alerts(self) -> Alerts:
        """The alerts of the stack: rules for totals that cross thresholds, and the alert log."""
        from countledger.consumers.alerts.service import Alerts, ConnectedServices

        return Alerts(self.connection, ConnectedServices(self.connection))

    @made_once
    def deletions(self) -> Deletions:
        """Delete counters with everything that is stored about them, by name or by namespace."""
        from countledger import Kind
        from countledger.compaction.deletion import RegionalTotals
        from countledger.compaction.deletions import Deletions, LedgerDeleter
        from countledger.consumers.audit import why_not_exact
        from countledger.consumers.leftovers import Leftovers
        from countledger.consumers.verify import Verifier
        from countledger.consumers.window_audit import clear_with_windows

        def totals(region: str) -> RegionalTotals:
            there = self.connection.in_region(region)
            verifier = Verifier(there)
            return RegionalTotals(
                verifier.totals.item,
                partial(why_not_exact, verifier),
                partial(clear_with_windows, verifier),
                Leftovers(there).delete,
            )

        leftovers = Leftovers(self.connection)
        return Deletions(
            LedgerDeleter(self.connection, cache(totals)),
            tidy=leftovers.delete_markers,
            seen=leftovers.seen,
            at_once={
                Kind.STRICT: self.strict.delete,
                Kind.STRICT_REGIONS: self.strict.delete,
                Kind.SEQUENCE: self.sequences.delete,
            },
            names=lambda namespace: (one.counter for one in self.counters(namespace)),
        )

    @made_once
    def _recorder(self) -> Recorder:
        from countledger.producers.recorder import Recorder

        return Recorder(self.connection)

    @made_once
    def _totals(self) -> TotalsReader:
        from countledger.consumers.totals import TotalsReader

        return TotalsReader(self.connection)

    @made_once
    def _windows(self) -> WindowsReader:
        from countledger.consumers.windows import WindowsReader

        return WindowsReader(self.connection)

    @made_once
    def _catching_up(self) -> CatchingUp:
        from countledger.consumers.proof import CatchingUp

        return CatchingUp(self.connection)

    @made_once
    def _over_regions(self) -> RegionsReader:
        from countledger.consumers.over_regions import RegionsReader

        return RegionsReader(self.connection)

    @made_once
    def _exact(self) -> ExactReader:
        from countledger.ledger.exact import ExactReader

        return ExactReader(self.connection)


def ledger_on(kind: type[_L], connection: Connection) -> _L:
    """The client of a connection."""
    made = kind.__new__(kind)
    made.connection = connection
    return made
