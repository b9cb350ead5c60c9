"""The definition of a strict counter, fixed at creation: method, bins, how much it remembers.

A process reads a definition once and keeps it. Every write is conditional on `incarnation`, an id
that the creation of the counter draws: if the counter was deleted or recreated, the condition
fails, and the process reads the definition again.

The item that holds a strict counter's value, or one bin's share of it, and its bounds.

DynamoDB cannot evaluate `total + delta <= upper` in a condition. So the item also stores the
headroom on each side, and each change moves the total and both headrooms in one write:

    headroom_up   = upper - total      (an absent bound counts as 0)
    headroom_down = total - held - lower

`held` is what open holds reserve: it is part of the total, and no change can take it. Both
headrooms are always stored and always move. Whether a bound exists is stored in the bound itself.
So one update works for every counter, with or without bounds, and a bound can be set, moved or
removed while other processes change the counter.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Final

from countledger.ledger import amount, keys
from countledger.ledger.amount import EXACT, fits, to_text
from countledger.ledger.attributes import (
    Item,
    check_format,
    describe,
    optional,
    require,
    require_amount,
)
from countledger.ledger.errors import BadBounds, BadSetting, CorruptItem, CountledgerError, shown
from countledger.ledger.limits import (
    BINS_MAX,
    HISTORY_DEFAULT,
    HISTORY_MAX,
    HISTORY_MIN,
    MARKER_WINDOW_DEFAULT_MS,
    MARKER_WINDOW_MAX_MS,
    MARKER_WINDOW_MIN_MS,
    NUMBER_MAX_DIGITS,
    SET_MAX_BYTES,
    SET_TOKENS_DEFAULT,
    SET_TOKENS_MAX,
)
from countledger.ledger.operations import Absent, Add, AllOf, AnyOf, Assign, Compare

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Key
    from countledger.ledger.operations import Clause, Condition


class StaleDefinition(CountledgerError):
    """The counter is not the one that was read: it was deleted or recreated (inner use).

    Whatever reads or writes the items of a counter may raise it; a call of an app then begins again
    with the definition of the present incarnation.
    """


class Method(StrEnum):
    """How the changes of a counter are written; fixed at its creation."""

    ATOMIC = "atomic"
    OCC = "occ"
    HISTORY = "history"
    REQUEST_TOKEN = "request_token"  # noqa: S105 - a method, no secret
    MARKER = "marker"
    SET = "set"


SPREADABLE: Final = (Method.ATOMIC, Method.REQUEST_TOKEN, Method.MARKER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A choice that one method has and no other."""

    name: str
    owner: Method
    default: int
    low: int
    high: int
    why: str

    def take(self, method: Method, value: object) -> int | None:
        """The choice, or its default; None for the other methods."""
        if method is not self.owner:
            if value is not None:
                raise BadSetting(
                    f"{self.name} is a choice of method {self.owner}; this is {method}"
                )
            return None
        if value is None:
            return self.default
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadSetting(f"{self.name} {value!r} is not an int: give a whole number")
        if not self.low <= value <= self.high:
            raise BadSetting(
                f"{self.name} {shown(value)} is not between {self.low} and {self.high}: {self.why}"
            )
        return value


HISTORY: Final = Choice(
    name="history",
    owner=Method.HISTORY,
    default=HISTORY_DEFAULT,
    low=HISTORY_MIN,
    high=HISTORY_MAX,
    why="method occ remembers one change, and a longer history makes every write more expensive",
)
MAX_TOKENS: Final = Choice(
    name="max_tokens",
    owner=Method.SET,
    default=SET_TOKENS_DEFAULT,
    low=1,
    high=SET_TOKENS_MAX,
    why=f"a larger set would pass {SET_MAX_BYTES // 1024} KB, all written with every change",
)
WINDOW_MS: Final = Choice(
    name="window_ms",
    owner=Method.MARKER,
    default=MARKER_WINDOW_DEFAULT_MS,
    low=MARKER_WINDOW_MIN_MS,
    high=MARKER_WINDOW_MAX_MS,
    why="a retry within it is recognized, and until its end the marker is stored",
)


@dataclass(frozen=True, slots=True)
class Definition:
    """A strict counter as it was created; `StrictCounter` says what the choices mean."""

    counter: str
    incarnation: str
    method: Method
    bins: int = 1
    history: int | None = None
    max_tokens: int | None = None
    window_ms: int | None = None

    @property
    def marker_window_ms(self) -> int:
        return self.window_ms or MARKER_WINDOW_DEFAULT_MS

    @property
    def main(self) -> Key:
        """The key of the item that holds the definition and, without bins, the value."""
        return keys.total_key(self.counter)

    @property
    def places(self) -> list[Key]:
        """The keys of the items that hold the value."""
        if self.bins == 1:
            return [self.main]
        return [keys.bin_key(self.counter, number) for number in range(self.bins)]

    def is_of(self, item: Item | None) -> bool:
        return item is not None and item.get("incarnation") == self.incarnation

    def expect(self, item: Item | None) -> Item:
        """An item, if it belongs to this incarnation.

        If not, the counter's markers and tokens mean nothing any more.
        """
        if item is None or not self.is_of(item):
            raise self.stale()
        return item

    def stale(self) -> StaleDefinition:
        return StaleDefinition(f"strict counter {self.counter!r} was deleted or recreated")


def define(
    counter: str,
    incarnation: str,
    method: str,
    *,
    bins: int = 1,
    history: int | None = None,
    max_tokens: int | None = None,
    window_ms: int | None = None,
) -> Definition:
    """A definition by the caller's choices, with defaults for the chosen method."""
    try:
        chosen = Method(method)
    except ValueError:
        raise BadSetting(f"method {method!r} is invalid: give one of {', '.join(Method)}") from None
    if isinstance(bins, bool) or not 1 <= bins <= BINS_MAX:
        raise BadSetting(f"bins {shown(bins)} must be a number from 1 to {BINS_MAX}")
    if bins > 1 and chosen not in SPREADABLE:
        raise BadSetting(
            f"a counter of method {chosen} cannot have bins: it remembers its changes in one item; "
            f"take {', '.join(SPREADABLE)}, or leave the bins out"
        )
    return Definition(
        counter,
        incarnation,
        chosen,
        bins,
        history=HISTORY.take(chosen, history),
        max_tokens=MAX_TOKENS.take(chosen, max_tokens),
        window_ms=WINDOW_MS.take(chosen, window_ms),
    )


def encode_definition(definition: Definition) -> Item:
    return {
        **definition.main,
        "incarnation": definition.incarnation,
        "method": str(definition.method),
        "bins": definition.bins if definition.bins > 1 else None,
        "history": definition.history,
        "max_tokens": definition.max_tokens,
        "window_ms": definition.window_ms,
    }


def decode_definition(item: Item) -> Definition:
    check_format(item)
    name = require(item, "method", str)
    if name not in list(Method):
        raise CorruptItem(
            f"strict counter {item.get('counter')!r} has the method {shown(name)}", item
        )
    bins = optional(item, "bins", int) or 1
    if not 1 <= bins <= BINS_MAX:
        raise CorruptItem(f"{describe(item)}: 'bins' is {shown(bins)}, no number of bins", item)
    return Definition(
        require(item, "counter", str),
        require(item, "incarnation", str),
        Method(name),
        bins,
        optional(item, "history", int),
        optional(item, "max_tokens", int),
        optional(item, "window_ms", int),
    )


class Keep(Enum):
    """A bound that stays as it is."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP


@dataclass(frozen=True, slots=True)
class StrictState:
    """A value and its bounds at one version, which grows with every write of the item.

    `total` is the value, or this bin's share of it; `held` what open holds reserve of it. `tags`:
    the last changes, newest at the end (`occ` and `history`). `tokens`: all changes (`set`).
    """

    incarnation: str
    version: int
    total: Amount
    lower: Amount | None = None
    upper: Amount | None = None
    held: Amount = 0
    tags: tuple[str, ...] = ()
    tokens: frozenset[str] = frozenset()

    @property
    def available(self) -> Amount:
        return amount.add(self.total, amount.negated(self.held))


def has_headroom(delta: Amount) -> Condition:
    """The item has no bound in the direction of the change, or enough headroom for it."""
    if delta > 0:
        return AnyOf(Absent("upper"), Compare("headroom_up", ">=", delta))
    return AnyOf(Absent("lower"), Compare("headroom_down", ">=", amount.negated(delta)))


def of(incarnation: str, *conditions: Condition) -> Condition:
    """The item belongs to this incarnation of the counter, and the conditions hold for it."""
    return AllOf(Compare("incarnation", "=", incarnation), *conditions)


def moved(delta: Amount, now_ms: int | None) -> tuple[Clause, ...]:
    """What a change does to the item; no `now_ms` where a retry must send the same request."""
    against = amount.negated(delta)
    stamp = () if now_ms is None else (Assign("updated_at", now_ms),)
    return (
        *stamp,
        Add("total", delta),
        Add("headroom_up", against),
        Add("headroom_down", delta),
        Add("version", 1),
    )


def reserved(held: Amount, now_ms: int) -> tuple[Clause, ...]:
    """What a hold does to the item: the total stays, and less of it is available."""
    return (
        Assign("updated_at", now_ms),
        Add("held", held),
        Add("headroom_down", amount.negated(held)),
        Add("version", 1),
    )


def unreserved(held: Amount, taken: Amount, now_ms: int) -> tuple[Clause, ...]:
    """What the end of a hold does to the item: the taken part leaves the total, the rest is free.

    Both headrooms move as the definition says: the lower one gets what is not taken.
    """
    left = amount.add(held, amount.negated(taken))
    moves: tuple[Clause, ...] = ()
    if taken:
        moves = (Add("total", amount.negated(taken)), Add("headroom_up", taken))
    return (
        Assign("updated_at", now_ms),
        *moves,
        Add("held", amount.negated(held)),
        Add("headroom_down", left),
        Add("version", 1),
    )


def encode_state(state: StrictState) -> Item:
    """The attributes of a state, with its headrooms; each method adds what it remembers."""
    return {
        "incarnation": state.incarnation,
        "version": state.version,
        "total": state.total,
        "lower": state.lower,
        "upper": state.upper,
        "headroom_up": amount.add(state.upper or 0, amount.negated(state.total)),
        "headroom_down": amount.add(state.available, amount.negated(state.lower or 0)),
        "held": state.held or None,
    }


def decode_state(item: Item) -> StrictState:
    check_format(item)
    tag = optional(item, "tag", str)
    tags = (optional(item, "tags", list) or []) if tag is None else [tag]
    return StrictState(
        incarnation=require(item, "incarnation", str),
        version=require(item, "version", int),
        total=require_amount(item, "total"),
        lower=None if "lower" not in item else require_amount(item, "lower"),
        upper=None if "upper" not in item else require_amount(item, "upper"),
        held=0 if "held" not in item else require_amount(item, "held"),
        tags=tuple(tags),
        tokens=frozenset(optional(item, "tokens", set) or ()),
    )


@dataclass(frozen=True, slots=True)
class Bounds:
    """A lower and an upper bound, each of which may be absent. Validated when created."""

    lower: Amount | None
    upper: Amount | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "lower", check_amount("lower bound", self.lower))
        object.__setattr__(self, "upper", check_amount("upper bound", self.upper))
        if self.lower is None or self.upper is None:
            return
        if self.lower >= self.upper:
            raise BadBounds(
                f"a lower bound of {to_text(self.lower)} and an upper one of {to_text(self.upper)} "
                "leave no headroom for any change"
            )

    def check_inside(self, value: Amount, advice: str = "", held: Amount = 0) -> None:
        """Check that a value is within the bounds, and what is not held of it above the lower one.

        `advice`: what a caller whose value is outside can do about it.
        """
        shown, advice = to_text(value), f": {advice}" if advice else ""
        for bound in (self.lower, self.upper, 0):
            if bound is not None and not fits(amount.add(value, amount.negated(bound))):
                raise BadBounds(
                    f"the value {shown} is so far from the bound {to_text(bound)} that the "
                    f"headroom between them needs more than {NUMBER_MAX_DIGITS} digits"
                )
        if self.upper is not None and value > self.upper:
            raise BadBounds(
                f"the value {shown} is above the upper bound {to_text(self.upper)}{advice}"
            )
        if self.lower is not None and amount.add(value, amount.negated(held)) < self.lower:
            less = f", less the {to_text(held)} that are held," if held else ""
            raise BadBounds(
                f"the value {shown}{less} is below the lower bound {to_text(self.lower)}{advice}"
            )


def check_amount(what: str, value: object) -> Amount | None:
    """A valid bound or value of a counter in its canonical form, or None."""
    return None if value is None else amount.check_exact(what, value, BadBounds)


def check_value(what: str, value: object) -> Amount | None:
    """A value that changes may bring a counter to, in its canonical form, or None."""
    return None if value is None else amount.check_sum(what, value, BadBounds)


# Bins: a counter's value over several items, each with its share of value, bounds and headroom.
#
# Each bin is what a counter without bins is: a total between a lower and an upper bound, with its
# headroom. The shares add up to the whole, so no bin can break the counter's bounds without
# breaking its own, and a change reads and writes only the bins that it changes. All functions here
# are pure.


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
