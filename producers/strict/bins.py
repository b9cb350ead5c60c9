"""Bins: a counter's value over several items, each with its share of value, bounds and headroom.

Each bin is what a counter without bins is: a total between a lower and an upper bound, with its
headroom. The shares add up to the whole, so no bin can break the counter's bounds without breaking
its own, and a change reads and writes only the bins that it changes. All functions here are pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from countledger.ledger import amount
from countledger.ledger.amount import EXACT
from countledger.producers.strict.state import StrictState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Key
    from countledger.producers.strict.state import Bounds


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a change that one item takes: all of it, unless it is split over bins."""

    key: Key
    delta: Amount


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


def deal_state(
    whole: StrictState, bins: int, held: Sequence[Amount] | None = None
) -> list[StrictState]:
    """The states of the bins: the value and the headroom of each side in even shares.

    A counter that starts at a bound has no headroom on that side. What each bin holds stays there
    (`held`; None: nothing).
    """
    totals = deal(whole.total, bins)
    held = held or [0] * bins
    free = [amount.add(t, amount.negated(h)) for t, h in zip(totals, held, strict=True)]
    # Headroom is dealt in reverse order, so that a bin with more value has less of it.
    uppers = _bounds(totals, whole.total, whole.upper, reverse=True)
    lowers = _bounds(free, whole.available, whole.lower, reverse=True)
    return [
        StrictState(whole.incarnation, whole.version, total, lower, upper, kept)
        for total, lower, upper, kept in zip(totals, lowers, uppers, held, strict=True)
    ]


def bounds_of_bins(
    states: Sequence[StrictState], bounds: Bounds
) -> list[tuple[Amount | None, Amount | None]]:
    """The new bounds of each item: the counter's headroom is dealt evenly over them."""
    totals = [state.total for state in states]
    free = [state.available for state in states]
    lowers = _bounds(free, amount.total_of(free), bounds.lower)
    uppers = _bounds(totals, amount.total_of(totals), bounds.upper)
    return list(zip(lowers, uppers, strict=True))


def _bounds(
    totals: Sequence[Amount], whole: Amount, bound: Amount | None, *, reverse: bool = False
) -> Sequence[Amount | None]:
    if bound is None:
        return [None] * len(totals)
    distances = deal(amount.add(bound, amount.negated(whole)), len(totals))
    ordered = distances[::-1] if reverse else distances
    return [amount.add(t, d) for t, d in zip(totals, ordered, strict=True)]


def whole_of(states: Sequence[StrictState]) -> StrictState:
    """The counter that the bins make up."""
    return StrictState(
        incarnation=states[0].incarnation,
        version=sum(state.version for state in states),
        total=amount.total_of(state.total for state in states),
        lower=_sum([state.lower for state in states]),
        upper=_sum([state.upper for state in states]),
        held=amount.total_of(state.held for state in states),
    )


def _sum(bounds: Sequence[Amount | None]) -> Amount | None:
    existing = [bound for bound in bounds if bound is not None]
    return amount.total_of(existing) if existing else None


def split(places: Sequence[tuple[Key, StrictState]], delta: Amount) -> list[Part] | None:
    """A change over as few bins as have headroom for it, those with the most headroom first.

    None: all of them together have not enough.
    """
    headrooms = [(_headroom(state, delta), number) for number, (_, state) in enumerate(places)]
    unbounded = next((number for headroom, number in headrooms if headroom is None), None)
    if unbounded is not None:
        return [Part(places[unbounded][0], delta)]
    parts: list[Part] = []
    left = delta if delta > 0 else amount.negated(delta)
    bounded = [(headroom, number) for headroom, number in headrooms if headroom is not None]
    for headroom, number in sorted(bounded, reverse=True):
        take = min(headroom, left)
        if take <= 0:
            return None
        signed = take if delta > 0 else amount.negated(take)
        parts.append(Part(places[number][0], amount.canonical(signed)))
        left = amount.add(left, amount.negated(take))
        if left == 0:
            return parts
    return None


def _headroom(state: StrictState, delta: Amount) -> Amount | None:
    """How far a bin's value can move in the direction of the change; None: without limit."""
    bound = state.upper if delta > 0 else state.lower
    if bound is None:
        return None
    value = state.total if delta > 0 else state.available
    distance = amount.add(bound, amount.negated(value))
    return distance if delta > 0 else amount.negated(distance)
