"""A whole stack in memory: for tests of apps, see `countledger.testing`."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import countledger
from countledger.client import CountLedger
from countledger.infra.memory.connection import MemoryConnection
from countledger.infra.memory.functions import StackFunctions
from countledger.infra.memory.tables import MemoryClock, MemoryTables
from countledger.ledger.connection import replaced_by
from countledger.ledger.dynamo import Meter
from countledger.ledger.errors import BadSetting
from countledger.ledger.limits import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from typing import Any

    from countledger.aio import AsyncCountLedger
    from countledger.compaction.report import CompactionReport
    from countledger.infra.memory.services import Notification
    from countledger.ledger.errors import CountledgerError


class MemoryStack:
    """A stack in this process: the product's own code over tables in memory.

    Each write is followed by its delivery: when `record` returns, `total` includes it, and the
    alerts that it raises are published. Waits take no time. The stack may be used by many threads;
    requests are carried out one after the other. Two stacks share nothing.

    Attributes:
        ledger: the client of the stack, for code that takes one.
        clock: the time of the stack.
    """

    def __init__(self, *, at: datetime | None = None) -> None:
        """Create an empty stack, in about a millisecond.

        Args:
            at: the time of the stack, which then passes by waits and `advance` only; None: it
                follows the machine's clock, ahead of it by all waits.

        Raises:
            BadTime: the time is naive.
        """
        self.clock = MemoryClock(at)
        self._memory = MemoryTables(self.clock)
        self._of_functions = MemoryConnection.to(self._memory)
        self._functions = StackFunctions(self._of_functions)
        self._held = False
        connection = replace(self._of_functions, meter=Meter(), after_write=self._after_write)
        self.ledger = CountLedger(connection.settings, session=connection.session)
        self.ledger.connection = connection

    @cached_property
    def async_ledger(self) -> AsyncCountLedger:
        """The client of the stack for event loops; use it by `async with`. Needs the extra `async`.

        Raises:
            SetupError: the extra is not installed.
        """
        from countledger.aio import AsyncCountLedger  # noqa: PLC0415 - of an extra

        to = self.ledger.connection
        made = AsyncCountLedger(to.settings, session=to.session)
        made._ledger.connection = to  # noqa: SLF001 - of this package
        return made

    # ---- what goes wrong ----

    def lose_next_answer(self) -> None:
        """Let the next write of the app be applied, and its answer be lost.

        The client tries again by itself where that is safe. Several calls plan several faults.
        """
        self._memory.faults.lose_next_answer()

    def delay_next(self) -> None:
        """Let the next write of the app be under way until `land`; the client gets no answer.

        The client tries again by itself where that is safe; then the same change is under way
        twice.
        """
        self._memory.faults.delay_next()

    def land(self) -> list[CountledgerError | None]:
        """Let the writes of `delay_next` arrive, in their order.

        A write that was sent longer ago than a signed request lives (15 minutes) is refused.

        Returns:
            For each write the error with which it was refused, or None: it was applied.
        """
        with self._memory.lock:
            landed = self._memory.faults.land()
        self._after_write()
        return landed

    def before_next_request(self, call: Callable[[], object], *, skip: int = 0) -> None:
        """Run another call just before the next request of the app leaves, read or write.

        Calls and faults are met in the order in which they were planned. The requests of `call`
        meet only faults that `call` itself plans.

        Args:
            call: what runs; what it raises, the app's call raises.
            skip: how many more requests leave before it.

        Raises:
            BadSetting: `skip` is negative.
        """
        self._memory.faults.before_next_request(call, skip=skip)

    def fail_next(self, error: CountledgerError | None = None) -> None:
        """Let the next write of the app fail before it is applied.

        Args:
            error: what the DynamoDB client raises; None: `Unclear`, as without an answer.

        Raises:
            BadSetting: `error` is not an error of countledger.
        """
        self._memory.faults.fail_next(error)

    def throttle(self, requests: int = 1) -> None:
        """Let the next requests of the app be throttled, reads and writes.

        Raises:
            BadSetting: the number is not at least 1.
        """
        self._memory.faults.throttle(requests)

    @property
    def planned_faults(self) -> int:
        """How many faults and calls no request has met yet, and how many writes have to `land`."""
        return self._memory.faults.pending

    # ---- delivery and time ----

    def hold_stream(self) -> None:
        """Deliver nothing until `deliver`: totals stay as they are, and no alert is published."""
        self._held = True

    def deliver(self) -> None:
        """Deliver everything that was written, and go on after each write.

        Raises:
            CountledgerError: one of the stack's functions failed; what it did not handle is
                delivered again with the next delivery.
        """
        self._held = False
        self._functions.deliver()

    def redeliver(self, batches: int = 1) -> int:
        """Deliver the last batches again, as Lambda may at any time; how many records that were.

        Args:
            batches: how many batches of each stream; without `hold_stream` each write is one.

        Raises:
            BadSetting: the number is not at least 1.
        """
        if batches < 1:
            raise BadSetting(f"redeliver {batches!r} batches: give at least 1")
        return self._functions.redeliver(batches)

    @property
    def failures(self) -> list[CountledgerError]:
        """What went wrong in deliveries after writes; it should be empty."""
        return list(self._functions.failures)

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> None:
        """Let time pass, then do what became due: times to live, expired holds, deliveries.

        Raises:
            BadTime: the sum is negative.
        """
        units = ((days, DAY_MS), (hours, HOUR_MS), (minutes, MINUTE_MS), (seconds, SECOND_MS))
        self.clock.sleep_ms(sum(number * unit_ms for number, unit_ms in units))
        self._memory.expire()
        self._functions.release_holds()
        self._after_write()

    def compact(self, counter: str) -> CompactionReport:
        """Compact a ledger counter, due or not, as the schedule of its namespace says.

        Entries can be merged once they are older than the horizon and what belongs to it: `advance`
        the clock by 25 hours first.

        Raises:
            CountledgerError: the compaction failed.
        """
        from countledger.compaction.assembly import Regions, worker_of  # noqa: PLC0415 - at first use
        from countledger.ledger.assembly import namespaces_of  # noqa: PLC0415 - at first use

        to = self._of_functions
        report = worker_of(to, Regions.of(to), namespaces_of(to)).compact(counter)
        if report.error is not None:
            raise report.error
        self._after_write()
        return report

    # ---- what happened ----

    @property
    def notifications(self) -> list[Notification]:
        """The alerts that the event bus and topics accepted, with their target, in order."""
        return list(self._of_functions.targets.published)

    @property
    def alerts(self) -> list[dict[str, Any]]:
        """The messages of these alerts, as docs/alert-message.schema.json describes them."""
        return [one.alert for one in self.notifications]

    # ---- tables of the app ----

    def create_table(self, name: str, partition_key: str, sort_key: str | None = None) -> None:
        """Create a table of the app's own, for items that are written together with counters.

        Raises:
            BadSetting: the table exists.
        """
        self._memory.add(name, partition_key, sort_key)

    def items(self, table: str) -> list[dict[str, Any]]:
        """The items of a table, in key order.

        Raises:
            TableNotFound: it does not exist.
        """
        with self._memory.lock:
            stored = self._memory.table(table).items
            return [dict(stored[key]) for key in sorted(stored)]

    # ---- the default client ----

    @contextmanager
    def installed(self) -> Iterator[MemoryStack]:
        """Let `countledger.record`, `countledger.total` and each new `CountLedger()` use it.

        It is so in the whole process, in every thread, while the block runs. A `CountLedger` or
        `AsyncCountLedger` that was made before is not redirected, such as one that a module made
        when it was imported: it still works on its own stack, in AWS.

        Raises:
            SetupError: a stack is installed already.
        """
        with replaced_by(self.ledger.connection):
            countledger._default.cache_clear()  # noqa: SLF001 - the default client of this package
            try:
                yield self
            finally:
                countledger._default.cache_clear()  # noqa: SLF001 - as above

    def _after_write(self) -> None:
        if not self._held:
            self._functions.deliver_quietly()
