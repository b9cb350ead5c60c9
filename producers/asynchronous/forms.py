"""What writes counters, for event loops: each method as in its synchronous class."""

from __future__ import annotations

from functools import cached_property

from countledger.ledger.asynchronous.forms import AsyncForm, awaited, iterated
from countledger.producers.strict.counters import StrictCounters
from countledger.producers.strict.transaction import StrictTransactions


class AsyncStrictTransactions(AsyncForm[StrictTransactions]):
    """Changes of several strict counters at once; see `StrictTransactions`."""

    change = awaited(StrictTransactions.change)
    transfer = awaited(StrictTransactions.transfer)
    set_value = awaited(StrictTransactions.set_value)
    withdraw = awaited(StrictTransactions.withdraw)


class AsyncStrictCounters(AsyncForm[StrictCounters]):
    """The strict counters of a stack; see `StrictCounters`."""

    create = awaited(StrictCounters.create)
    change = awaited(StrictCounters.change)
    show = awaited(StrictCounters.show)
    set_bounds = awaited(StrictCounters.set_bounds)
    delete = awaited(StrictCounters.delete)
    list = iterated(StrictCounters.list)
    withdraw = awaited(StrictCounters.withdraw)
    hold = awaited(StrictCounters.hold)
    confirm = awaited(StrictCounters.confirm)
    cancel = awaited(StrictCounters.cancel)
    holds = iterated(StrictCounters.holds)
    verify_holds = awaited(StrictCounters.verify_holds)

    @cached_property
    def transactions(self) -> AsyncStrictTransactions:
        """Changes of several strict counters at once."""
        return AsyncStrictTransactions(self._opened, lambda: self._find().transactions)
