"""Bins: a counter's value spread over several items, each with its share of value and room.

Every bin is what a counter without bins is: a total between a lower and an upper bound, and the
rooms that follow from them. The shares add up to the whole, so no bin can break the counter's
bounds without breaking its own, and no change has to look at more than the bins that it touches.
Pure functions; `spread` carries them out.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from countledger.ledger import amount
from countledger.ledger.amount import EXACT
from countledger.producers.strict.sending import Part
from countledger.producers.strict.state import StrictState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Key


def deal(value: Amount, shares: int) -> list[Amount]:
    """A value in shares as even as its own last digit allows, the larger ones first."""
    exponent = min(0, _exponent(value))
    units = int(Decimal(value).scaleb(-exponent, EXACT))
    each, rest = divmod(units, shares)
    return [
        amount.canonical(Decimal(each + (number < rest)).scaleb(exponent, EXACT))
        for number in range(shares)
    ]


def _exponent(value: Amount) -> int:
    exponent = Decimal(value).as_tuple().exponent
    return exponent if isinstance(exponent, int) else 0


def deal_state(whole: StrictState, bins: int) -> list[StrictState]:
    """The states of the bins: value and room of each side are dealt out evenly.

    A counter that opens at its bound has no room to deal on that side, and all of it on the other.
    """
    totals = deal(whole.total, bins)
    uppers = _bounds(totals, whole.total, whole.upper, bins)
    lowers = _bounds(totals, whole.total, whole.lower, bins)
    return [
        StrictState(whole.incarnation, whole.version, total, lower, upper)
        for total, lower, upper in zip(totals, lowers, uppers, strict=True)
    ]


def _bounds(
    totals: Sequence[Amount], total: Amount, bound: Amount | None, bins: int
) -> Sequence[Amount | None]:
    if bound is None:
        return [None] * bins
    # The distance is dealt from the other end, so that a bin with more value has less room.
    distances = deal(amount.add(bound, amount.negated(total)), bins)[::-1]
    return [amount.add(t, d) for t, d in zip(totals, distances, strict=True)]


def whole_of(states: Sequence[StrictState]) -> StrictState:
    """The counter that the bins make up."""
    return StrictState(
        incarnation=states[0].incarnation,
        version=sum(state.version for state in states),
        total=amount.total_of(state.total for state in states),
        lower=_sum([state.lower for state in states]),
        upper=_sum([state.upper for state in states]),
    )


def _sum(bounds: Sequence[Amount | None]) -> Amount | None:
    there = [bound for bound in bounds if bound is not None]
    return amount.total_of(there) if there else None


def split(places: Sequence[tuple[Key, StrictState]], delta: Amount) -> list[Part] | None:
    """A change over as few bins as can take it, those with the most room first.

    None: all of them together cannot.
    """
    rooms = [(_room(state, delta), number) for number, (_, state) in enumerate(places)]
    unbounded = next((number for room, number in rooms if room is None), None)
    if unbounded is not None:
        return [Part(places[unbounded][0], delta)]
    parts: list[Part] = []
    left = delta if delta > 0 else amount.negated(delta)
    bounded = [(room, number) for room, number in rooms if room is not None]
    for room, number in sorted(bounded, reverse=True):
        take = min(room, left)
        if take <= 0:
            return None
        signed = take if delta > 0 else amount.negated(take)
        parts.append(Part(places[number][0], amount.canonical(signed)))
        left = amount.add(left, amount.negated(take))
        if left == 0:
            return parts
    return None


def _room(state: StrictState, delta: Amount) -> Amount | None:
    """How far a bin can go the change's way; None: as far as it takes."""
    bound = state.upper if delta > 0 else state.lower
    if bound is None:
        return None
    distance = amount.add(bound, amount.negated(state.total))
    return distance if delta > 0 else amount.negated(distance)
