"""Carries a change to the item, or to the bins, that will have it.

    1  one bin, drawn by chance (method crt: by the key, so that a retry meets it again)
    2  refused: a few others
    3  refused: read all bins as of one moment, and bring the change in over as few of them as can
       take it, in one transaction; again while others are faster
    4  all of them together have no room: bound reached, as of that moment

A place that gives no clear answer is not left before that is resolved; where the method cannot
resolve it, no other place is tried. A counter without bins is one place, and steps 2 and 3 fall
away.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from countledger.ledger.attempts import Backoff
from countledger.ledger.errors import CorruptItem, Throttled, TokenMismatch, TransactionCancelled
from countledger.producers.strict import bins
from countledger.producers.strict.context import PASSING, StaleDefinition
from countledger.producers.strict.definition import Method
from countledger.producers.strict.outcome import BoundReached, Contended, Unknown
from countledger.producers.strict.sending import Part
from countledger.producers.strict.state import StrictState, decode_state, refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.attributes import Item, Key
    from countledger.producers.strict.change import StrictChange
    from countledger.producers.strict.context import MethodContext
    from countledger.producers.strict.definition import Definition
    from countledger.producers.strict.outcome import Refusal, StrictOutcome
    from countledger.producers.strict.sending import PendingChange

# Bins asked one by one before all are read: each costs a write, the reading two units for each bin.
_PLACES: Final = 3
_SPLITS: Final = 10
_READS: Final = Backoff(attempts=10, base_ms=10, cap_ms=500)
_TAKEN_ELSEWHERE: Final = (
    "the key was used within the last ten minutes: for this change, split over other bins, or for "
    "another one; method marker can tell"
)


def carry_out(
    context: MethodContext, definition: Definition, change: StrictChange, sending: PendingChange
) -> StrictOutcome:
    """Bring a change in wherever there is room.

    Raises:
        StaleDefinition: the counter is not the one that was read.
    """
    refused: Refusal | None = None
    elsewhere = False
    for place in first_places(definition, change, context.random):
        try:
            outcome = sending.at([Part(place, change.delta)])
        except TokenMismatch:
            elsewhere = True
            continue
        if not isinstance(outcome, BoundReached):
            return outcome
        refused = outcome
    if elsewhere:
        return Unknown(change.counter, _TAKEN_ELSEWHERE)
    if definition.bins > 1:
        return _over_all(context, definition, change, sending)
    if refused is None:
        raise AssertionError("a counter has at least one place")
    return sending.confirm_refusal(refused)


def first_places(definition: Definition, change: StrictChange, random: Random) -> Sequence[Key]:
    """The places to ask first."""
    if definition.method is Method.CRT:
        random = Random(change.id)  # noqa: S311 - spreads load, guards nothing
    places = definition.places
    return random.sample(places, min(_PLACES, len(places)))


def _over_all(
    context: MethodContext, definition: Definition, change: StrictChange, sending: PendingChange
) -> StrictOutcome:
    for _ in range(_SPLITS):
        try:
            states = read_bins(context, definition)
        except PASSING as error:
            return sending.confirm_refusal(Contended(change.counter, _PLACES, str(error)))
        parts = bins.split(list(zip(definition.places, states, strict=True)), change.delta)
        if parts is None:
            refused = refusal(change.counter, bins.whole_of(states), change.delta)
            if refused is None:
                raise CorruptItem(
                    f"strict counter {change.counter!r}: its bins' rooms contradict their sums"
                )
            return sending.confirm_refusal(refused)
        try:
            outcome = sending.at(parts)
        except TokenMismatch:
            return Unknown(change.counter, _TAKEN_ELSEWHERE)
        if not isinstance(outcome, BoundReached):
            return outcome
    busy = "other changes took the room each time before this one could"
    return sending.confirm_refusal(Contended(change.counter, _SPLITS, busy))


def read_states(context: MethodContext, definition: Definition) -> list[StrictState]:
    """Of each item that holds a share of the value its state, all as of one moment.

    One read unit for each 4 KB of the one item; with bins as `read_bins`.

    Raises:
        StaleDefinition, Throttled: as `read_bins`.
    """
    if definition.bins > 1:
        return read_bins(context, definition)
    return [decode_state(context.read_incarnation(definition.main, definition.incarnation))]


def read_bins(context: MethodContext, definition: Definition) -> list[StrictState]:
    """The states of the bins as of one moment: two read units each.

    Raises:
        StaleDefinition, Throttled: as `bin_items`.
    """
    return [decode_state(item) for item in bin_items(context, definition)]


def bin_items(context: MethodContext, definition: Definition) -> list[Item]:
    """The bins as of one moment, as they are stored: two read units each.

    Raises:
        StaleDefinition: one is gone, or belongs to another incarnation of the counter.
        Throttled: writes were in the way of every attempt.
    """
    waits_ms = _READS.waits_ms(context.random)
    while True:
        try:
            items = context.reads.transact_get(context.table, definition.places)
        except (TransactionCancelled, *PASSING) as error:
            wait_ms = next(waits_ms, None)
            if wait_ms is None:
                raise Throttled(f"bins of {definition.counter!r} not read: {error}") from error
            context.clock.sleep_ms(wait_ms)
            continue
        there = [item for item in items if item is not None]
        if len(there) < len(items) or any(
            item.get("incarnation") != definition.incarnation for item in there
        ):
            raise StaleDefinition(f"strict counter {definition.counter!r} was deleted or recreated")
        return there
