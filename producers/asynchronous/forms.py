"""What writes counters, for event loops: each method as in its synchronous class."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, cast

from countledger.ledger.asynchronous.forms import AsyncForm, awaited, iterated
from countledger.ledger.errors import BadInput, shown
from countledger.ledger.limits import BLOCK_DEFAULT
from countledger.producers.claims.claims import Claims
from countledger.producers.quotas.guard import Guard, OnFailure, OnUnpriced, form_of
from countledger.producers.quotas.quotas import Quotas
from countledger.producers.sequences.sequences import Lease, Sequences
from countledger.producers.strict.counters import StrictCounters
from countledger.producers.strict.transaction import StrictTransactions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from countledger.ledger.amount import Amount

_F = TypeVar("_F", bound="Callable[..., Coroutine[Any, Any, Any] | AsyncIterator[Any]]")


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


class AsyncLease(AsyncForm[Lease]):
    """Draws numbers out of blocks, which all tasks share; see `Lease`."""

    draw = awaited(Lease.draw)


class AsyncSequences(AsyncForm[Sequences]):
    """Numbers that are given out once; see `Sequences`."""

    create = awaited(Sequences.create)
    draw = awaited(Sequences.draw)
    draw_block = awaited(Sequences.draw_block)
    draw_expected = awaited(Sequences.draw_expected)
    show = awaited(Sequences.show)
    delete = awaited(Sequences.delete)
    append = awaited(Sequences.append)
    resume = awaited(Sequences.resume)

    async def lease(self, sequence: str, block: int = BLOCK_DEFAULT) -> AsyncLease:
        """As `Sequences.lease`; numbers are drawn by `await lease.draw()`."""
        made = await self._call("Sequences.lease", lambda: self._find().lease(sequence, block))
        return AsyncLease(self._opened, lambda: made)


class AsyncClaims(AsyncForm[Claims]):
    """Values that at most one owner has; see `Claims`."""

    take = awaited(Claims.take)
    change = awaited(Claims.change)
    release = awaited(Claims.release)
    owner = awaited(Claims.owner)
    find = awaited(Claims.find)


class AsyncQuotas(AsyncForm[Quotas]):
    """Limits for each window of time; see `Quotas`."""

    create = awaited(Quotas.create)
    set_limit = awaited(Quotas.set_limit)
    override = awaited(Quotas.override)
    overrides = awaited(Quotas.overrides)
    list = awaited(Quotas.list)
    show = awaited(Quotas.show)
    usage = awaited(Quotas.usage)
    delete = awaited(Quotas.delete)
    acquire = awaited(Quotas.acquire)
    reserve = awaited(Quotas.reserve)
    commit = awaited(Quotas.commit)
    release = awaited(Quotas.release)

    def guard(
        self,
        counter: str,
        amount: Amount = 1,
        *,
        actual: Callable[[Any], Amount] | None = None,
        on_failure: OnFailure = "release",
        on_unpriced: OnUnpriced = "commit",
        on_error: Callable[[Exception], object] | None = None,
    ) -> Callable[[_F], _F]:
        """As `Quotas.guard`, for coroutine functions and asynchronous generator functions.

        Raises:
            BadInput: by the decorator, for another function.
            QuotaDenied, NotPriced: by the decorated function.
        """
        guard = Guard(
            cast("Quotas", self), counter, amount, actual, on_error, on_failure, on_unpriced
        )

        def decorate(function: _F) -> _F:
            if not form_of(function).awaited:
                raise BadInput(
                    f"{shown(function)} is no coroutine function and no asynchronous generator "
                    "function: guard one, or use `CountLedger`"
                )
            return cast("_F", guard(function))

        return decorate
