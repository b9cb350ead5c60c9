"""The client of one stack for event loops: `CountLedger`, whose methods are awaited.

    async with countledger.AsyncCountLedger() as ledger:
        receipt = await ledger.record("likes:post-1", +1)
        total = await ledger.total("likes:post-1", after=receipt)

Each method has the signature, the costs, the errors and the promises of the synchronous one, which
it runs: see `CountLedger`. Iterators become asynchronous iterators. Needs the extra `async`.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Literal, overload

from countledger.client import CountLedger
from countledger.ledger.errors import SetupError
from countledger.ledger.replacement import replacement

try:
    from countledger.ledger.asynchronous.connection import LoopConnection, OpenClients
except ModuleNotFoundError as error:
    raise SetupError(f"{error.name} is not installed: pip install 'countledger[async]'") from error

from countledger.ledger.asynchronous.forms import AsyncForm, awaited, iterated

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType
    from typing import Self

    import boto3

    from countledger import Receipt, Settings, Total, TotalOverRegions
    from countledger.ledger.assembly import OnCorrupt
    from countledger.producers.asynchronous.forms import AsyncStrictCounters


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
        ledger = CountLedger(settings, session=session, endpoint_url=endpoint_url)
        plain, opened = ledger.connection, OpenClients()
        if replacement() is None:  # a stack in memory makes no requests
            ledger.connection = LoopConnection(
                plain.settings, plain.session, plain.endpoint_url, opened=opened
            )
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
    def strict(self) -> AsyncStrictCounters:
        """The strict counters of the stack, which never pass their bounds."""
        from countledger.producers.asynchronous.forms import AsyncStrictCounters

        return AsyncStrictCounters(self._opened, lambda: self._ledger.strict)
