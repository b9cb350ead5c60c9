"""Commits and releases: a reservation is resolved once, in the window that it was counted in.

One transaction moves the marker of the reservation from `reserved` to its end and corrects the
counter of its window: four write units. A commit of exactly the reserved amount changes the marker
alone: one write unit. The answers mean:

    done                       this call did it
    marker is resolved         by this call or another one: a duplicate if in the same way, else
                               refused
    marker is gone, or of      the time of the reservation is over: it stays counted
    another reservation
    throttle, conflict         nothing was written: again
    no answer                  again: the marker is moved once
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from countledger.ledger.amount import add, negated, to_text
from countledger.ledger.attempts import Done, Recheck, RetryPeriodOver, Send, attempt, otherwise
from countledger.ledger.clock import to_ms
from countledger.ledger.errors import (
    BadQuota,
    ConditionFailed,
    CorruptItem,
    CountledgerError,
    TicketExpired,
    TicketResolved,
    TransactionCancelled,
)
from countledger.ledger.operations import Get, Transact
from countledger.producers.quotas import decision as writing
from countledger.producers.quotas.quota import Committed
from countledger.producers.strict.context import raise_exhausted

if TYPE_CHECKING:
    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import Exhausted, Reply, Steps, Verdict
    from countledger.ledger.attributes import Item
    from countledger.producers.quotas.quota import Ticket
    from countledger.producers.strict.context import MethodContext

_ADVICE: Final = "call again with the same ticket: it cannot be resolved twice"


def committing(context: MethodContext, ticket: Ticket, actual: Amount) -> Steps[Committed]:
    """Count the actual amount instead of the reserved one.

    Raises:
        TicketResolved: it was released, or committed with another amount.
        TicketExpired: it can no longer be resolved.
        BadQuota: the ticket was changed.
        Unclear, Throttled: call again with the same ticket.
    """
    mine = yield from _resolving(context, ticket, writing.COMMITTED, actual)
    overrun = max(0, add(actual, negated(ticket.amount)))
    return Committed(ticket.counter, actual, overrun, duplicate=not mine)


def releasing(context: MethodContext, ticket: Ticket) -> Steps[bool]:
    """Count nothing for a reservation; whether this call did it.

    Raises:
        TicketResolved: it was committed.
        TicketExpired, Unclear, Throttled: as `committing`.
    """
    return (yield from _resolving(context, ticket, writing.RELEASED, 0))


def _resolving(context: MethodContext, ticket: Ticket, state: str, actual: Amount) -> Steps[bool]:
    call = context.new_id(context.clock.now_ms())
    mark = writing.resolution(context.table, ticket, state, actual, call)
    correction = writing.correction(context.table, ticket, actual)
    operation: Any = mark if correction is None else Transact([mark, correction], call)

    def interpret(reply: Reply[Any]) -> Verdict[Any, Item | bool | None]:
        match reply.answer:
            case ConditionFailed(item=item):
                return Done(item)
            case TransactionCancelled(reasons=(mark, _)) if mark.condition_failed:
                return Done(mark.item)
            case TransactionCancelled(reasons=(mark, window)) if (
                window.condition_failed and not mark.passing
            ):
                # Nothing promises that the condition of the marker is named as well.
                return Recheck(Get(context.table, ticket.marker_key))
            case CountledgerError():
                return otherwise(reply)
        return Done(reply.answer if isinstance(reply.state, Get) else True)

    def give_up(exhausted: Exhausted[Any]) -> Any:  # noqa: ANN401 - it only raises
        if isinstance(exhausted.error, RetryPeriodOver) and not exhausted.maybe_applied:
            raise _expired(ticket) from exhausted.error
        raise_exhausted(exhausted, f"to resolve a reservation of {ticket.counter!r}", _ADVICE)

    attempts = context.attempts(to_ms(ticket.until))
    ended = yield from attempt(operation, Send, interpret, give_up, attempts)
    if isinstance(ended, bool):
        return ended
    return _meaning_of(ended, ticket, state, actual) == call


def _meaning_of(marker: Item | None, ticket: Ticket, state: str, actual: Amount) -> object:
    """Which call has resolved a reservation in the wanted way.

    Raises:
        TicketExpired: its marker is gone.
        BadQuota: the ticket was changed.
        TicketResolved: it was resolved in another way.
    """
    if marker is None or marker.get("call") != ticket.reservation:
        raise _expired(ticket)
    if (marker.get("amount"), marker.get("window")) != (ticket.amount, ticket.window):
        raise BadQuota(
            f"the ticket of {ticket.counter!r} has another amount or window than its reservation: "
            "give the ticket as it was answered"
        )
    if marker.get("state") == writing.RESERVED:
        raise CorruptItem(
            f"quota of {ticket.counter!r}: what window {ticket.window} has used does not include "
            "this reservation; the item was changed by hand",
            marker,
        )
    found = marker.get("state"), marker.get("actual")
    if found != (state, actual):
        raise TicketResolved(
            f"the reservation of {to_text(ticket.amount)} of {ticket.counter!r} is "
            f"{marker.get('state')} ({marker.get('actual')}); it cannot be {state} "
            f"({to_text(actual)}) any more"
        )
    return marker.get("resolved_by")


def _expired(ticket: Ticket) -> TicketExpired:
    return TicketExpired(
        f"the reservation of {to_text(ticket.amount)} of {ticket.counter!r} could be resolved "
        f"until {ticket.until.isoformat()}: it stays counted in window {ticket.window}"
    )
