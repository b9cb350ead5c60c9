"""The client of one stack for event loops: `CountLedger`, whose methods are awaited.

    async with countledger.AsyncCountLedger() as ledger:
        receipt = await ledger.record("likes:post-1", +1)
        total = await ledger.total("likes:post-1", after=receipt)

Each method has the signature, the costs, the errors and the promises of the synchronous one, which
it runs: see `CountLedger`. Iterators become asynchronous iterators. Needs the extra `async`.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from countledger.client import CountLedger, ledger_on
from countledger.ledger.asynchronous.calls import OpenClients, loop_connection
from countledger.ledger.asynchronous.forms import AsyncForm, awaited, iterated, iterated_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import Self

    import boto3

    from countledger import Buffering, Failure, Receipt, Settings, Total, TotalOverRegions
    from countledger.compaction.asynchronous.forms import (
        AsyncDeletions,
        AsyncSchedules,
        AsyncWorker,
    )
    from countledger.consumers.asynchronous.forms import (
        AsyncAlerts,
        AsyncAuditor,
        AsyncGroups,
        AsyncQuarantine,
        AsyncRankings,
        AsyncWindowAuditor,
        AsyncWindowSettings,
    )
    from countledger.ledger.asynchronous.namespaces import AsyncNamespaces
    from countledger.ledger.attributes import OnCorrupt
    from countledger.ledger.connection import Connection
    from countledger.producers.asynchronous.forms import (
        AsyncClaims,
        AsyncQuotas,
        AsyncSequences,
        AsyncStrictCounters,
    )
    from countledger.producers.asynchronous.streams import AsyncExpiredEntries, AsyncKinesisProducer
    from countledger.producers.buffer.asynchronous import AsyncBufferedProducer


_L = TypeVar("_L", bound="AsyncCountLedger")


class AsyncCountLedger(AsyncForm[CountLedger]):
    """The counters of one stack, for one event loop at a time; `async with` opens the clients.

    Thousands of calls may run at once. A cancelled call raises its `CancelledError` whose cause,
    `errors.CallCancelled`, says what the call may have done.

    A forked child opens the object again by `async with`, on an event loop of its own.
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
            settings: as of `CountLedger`.
            session: as of `CountLedger`; its credentials are used, and refreshed, as they are.
            endpoint_url: as of `CountLedger`.

        Raises:
            BadSetting: the environment has a setting with an invalid value.
        """
        self._use(CountLedger(settings, session=session, endpoint_url=endpoint_url))

    def __reduce__(self) -> tuple[Any, ...]:
        """As of `CountLedger`; what is unpickled is not open.

        Raises:
            TypeError: the session is the app's own, or the stack is in memory.
        """
        return _on, (type(self), self._ledger.connection)

    def _use(self, ledger: CountLedger) -> None:
        opened = OpenClients()
        ledger.connection = loop_connection(ledger.connection, opened)
        super().__init__(opened, lambda: ledger)
        self._ledger = ledger

    async def __aenter__(self) -> Self:
        """Open the clients of the running event loop; each connects at its first use.

        Raises:
            LedgerNotOpen: the object is open already.
        """
        self._opened.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """As `aclose`."""
        await self.aclose()

    async def aclose(self) -> None:
        """Accept no call any more, wait for those that run, and close all connections."""
        await self._opened.aclose()

    record = awaited(CountLedger.record)
    record_many = awaited(CountLedger.record_many)
    record_stream = iterated(CountLedger.record_stream)
    resend = awaited(CountLedger.resend)
    set_value = awaited(CountLedger.set_value)
    exact = awaited(CountLedger.exact)
    head = awaited(CountLedger.head)
    entries = iterated(CountLedger.entries)
    archived = iterated_in_thread(CountLedger.archived)
    windows = awaited(CountLedger.windows)
    snapshot = awaited(CountLedger.snapshot)
    freshness = awaited(CountLedger.freshness)
    names = iterated(CountLedger.names)
    names_page = awaited(CountLedger.names_page)
    counters = iterated(CountLedger.counters)
    due = iterated(CountLedger.due)

    async def compactor(self, *, archive_as_found: bool = False) -> AsyncWorker:
        """As `CountLedger.compactor`; the worker works in threads."""
        from countledger.compaction.asynchronous.forms import AsyncWorker

        made = await self._call_in_thread(
            "compactor", lambda: self._ledger.compactor(archive_as_found=archive_as_found)
        )
        return AsyncWorker(self._opened, lambda: made)

    async def buffered(
        self,
        buffering: Buffering | None = None,
        *,
        on_failure: Callable[[Failure], object] | None = None,
    ) -> AsyncBufferedProducer:
        """As `CountLedger.buffered`; callbacks are called in the event loop, and must not block."""
        from countledger import Buffering
        from countledger.producers.buffer.asynchronous import AsyncBufferedProducer, AsyncOutcomes
        from countledger.producers.buffer.producer import BufferedProducer

        connection, settings = self._ledger.connection, buffering or Buffering()
        made = await self._call(
            "buffered",
            lambda: BufferedProducer(connection, settings, on_failure, AsyncOutcomes),
        )
        return AsyncBufferedProducer(made)

    @overload
    async def total(
        self,
        counter: str,
        *,
        after: Receipt | None = None,
        timeout_s: float = 10,
        regions: Literal[False] = False,
    ) -> Total: ...
    @overload
    async def total(self, counter: str, *, regions: Literal[True]) -> TotalOverRegions: ...
    async def total(
        self,
        counter: str,
        *,
        after: Receipt | None = None,
        timeout_s: float = 10,
        regions: bool = False,
    ) -> Total | TotalOverRegions:
        """As `CountLedger.total`; with `regions` in a thread."""
        ledger = self._ledger
        if regions and after is None:
            return await self._call_in_thread("total", lambda: ledger.total(counter, regions=True))
        return await self._call(
            "total",
            lambda: ledger.total(counter, after=after, timeout_s=timeout_s, regions=regions),  # type: ignore[call-overload]  # both together: it refuses
        )

    @overload
    async def totals(
        self,
        counters: Iterable[str],
        *,
        on_corrupt: OnCorrupt | None = None,
        regions: Literal[False] = False,
    ) -> dict[str, Total]: ...
    @overload
    async def totals(
        self, counters: Iterable[str], *, regions: Literal[True]
    ) -> dict[str, TotalOverRegions]: ...
    async def totals(
        self,
        counters: Iterable[str],
        *,
        on_corrupt: OnCorrupt | None = None,
        regions: bool = False,
    ) -> dict[str, Total] | dict[str, TotalOverRegions]:
        """As `CountLedger.totals`; with `regions` in a thread."""
        ledger = self._ledger
        if regions:
            return await self._call_in_thread(
                "totals", lambda: ledger.totals(counters, regions=True)
            )
        return await self._call("totals", lambda: ledger.totals(counters, on_corrupt=on_corrupt))

    @property
    def write_units(self) -> float:
        """The write units that this object's calls consumed so far."""
        return self._ledger.write_units

    @property
    def read_units(self) -> float:
        """The read units that this object's calls consumed so far."""
        return self._ledger.read_units

    @cached_property
    def namespaces(self) -> AsyncNamespaces:
        """The namespaces of the stack: create, read and list them."""
        from countledger.ledger.asynchronous.namespaces import AsyncNamespaces

        return AsyncNamespaces(self._opened, lambda: self._ledger.namespaces)

    @cached_property
    def strict(self) -> AsyncStrictCounters:
        """The strict counters of the stack, which never pass their bounds."""
        from countledger.producers.asynchronous.forms import AsyncStrictCounters

        return AsyncStrictCounters(self._opened, lambda: self._ledger.strict)

    @cached_property
    def sequences(self) -> AsyncSequences:
        """Numbers that are given out once, and the numbering of an app's own items."""
        from countledger.producers.asynchronous.forms import AsyncSequences

        return AsyncSequences(self._opened, lambda: self._ledger.sequences)

    @cached_property
    def claims(self) -> AsyncClaims:
        """Values that at most one owner has: take, change and release them."""
        from countledger.producers.asynchronous.forms import AsyncClaims

        return AsyncClaims(self._opened, lambda: self._ledger.claims)

    @cached_property
    def quotas(self) -> AsyncQuotas:
        """Limits for each counter and window of time."""
        from countledger.producers.asynchronous.forms import AsyncQuotas

        return AsyncQuotas(self._opened, lambda: self._ledger.quotas)

    @cached_property
    def groups(self) -> AsyncGroups:
        """Groups of counters: their members, their totals, their top."""
        from countledger.consumers.asynchronous.forms import AsyncGroups

        return AsyncGroups(self._opened, lambda: self._ledger.groups)

    @cached_property
    def rankings(self) -> AsyncRankings:
        """Rankings of namespaces."""
        from countledger.consumers.asynchronous.forms import AsyncRankings

        return AsyncRankings(self._opened, lambda: self._ledger.rankings)

    @cached_property
    def window_settings(self) -> AsyncWindowSettings:
        """The windows of namespaces."""
        from countledger.consumers.asynchronous.forms import AsyncWindowSettings

        return AsyncWindowSettings(self._opened, lambda: self._ledger.window_settings)

    @cached_property
    def audit(self) -> AsyncAuditor:
        """Verify totals against their ledgers, and repair those that drifted; in threads."""
        from countledger.consumers.asynchronous.forms import AsyncAuditor

        return AsyncAuditor(self._opened, lambda: self._ledger.audit)

    @cached_property
    def window_audit(self) -> AsyncWindowAuditor:
        """Verify windows, and rebuild those that differ; in threads."""
        from countledger.consumers.asynchronous.forms import AsyncWindowAuditor

        return AsyncWindowAuditor(self._opened, lambda: self._ledger.window_audit)

    @cached_property
    def alerts(self) -> AsyncAlerts:
        """Rules for totals that cross thresholds, and the alert log."""
        from countledger.consumers.asynchronous.forms import AsyncAlerts

        return AsyncAlerts(self._opened, lambda: self._ledger.alerts)

    @cached_property
    def quarantine(self) -> AsyncQuarantine:
        """Records that could not be applied: list, resend or discard them."""
        from countledger.consumers.asynchronous.forms import AsyncQuarantine

        return AsyncQuarantine(self._opened, lambda: self._ledger.quarantine)

    @cached_property
    def schedules(self) -> AsyncSchedules:
        """When and how counters are compacted."""
        from countledger.compaction.asynchronous.forms import AsyncSchedules

        return AsyncSchedules(self._opened, lambda: self._ledger.schedules)

    @cached_property
    def deletions(self) -> AsyncDeletions:
        """Delete counters with everything that is stored about them; in threads."""
        from countledger.compaction.asynchronous.forms import AsyncDeletions

        return AsyncDeletions(self._opened, lambda: self._ledger.deletions)

    @cached_property
    def kinesis(self) -> AsyncKinesisProducer:
        """Send events through the stack's Kinesis stream; in threads."""
        from countledger.producers.asynchronous.streams import AsyncKinesisProducer

        return AsyncKinesisProducer(self._opened, lambda: self._ledger.kinesis)

    @cached_property
    def expired(self) -> AsyncExpiredEntries:
        """Entries that came through Kinesis after their horizon; in threads."""
        from countledger.producers.asynchronous.streams import AsyncExpiredEntries

        return AsyncExpiredEntries(self._opened, lambda: self._ledger.expired)


def _on(kind: type[_L], connection: Connection) -> _L:
    """The client of a connection, which is not open."""
    made = kind.__new__(kind)
    made._use(ledger_on(CountLedger, connection))  # noqa: SLF001 - of this module
    return made
