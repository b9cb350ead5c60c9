"""The item that holds a strict counter's value, or one bin's share of it, and its bounds.

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
from enum import Enum
from typing import TYPE_CHECKING, Final

from countledger.ledger import amount
from countledger.ledger.amount import fits, to_text
from countledger.ledger.attributes import Item, check_format, optional, require, require_amount
from countledger.ledger.errors import BadBounds
from countledger.ledger.limits import NUMBER_MAX_DIGITS
from countledger.ledger.operations import Absent, Add, AllOf, AnyOf, Assign, Compare

if TYPE_CHECKING:
    from countledger.ledger.amount import Amount
    from countledger.ledger.operations import Clause, Condition


class Keep(Enum):
    """A bound that stays as it is."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP


@dataclass(frozen=True, slots=True)
class StrictState:
    """A value and its bounds at one version.

    Attributes:
        incarnation: the incarnation of the counter that the item belongs to.
        version: grows with every write of the item, so it identifies a state.
        total: the value, or this bin's share of it.
        lower: the least that the value may be, or None.
        upper: the most that the value may be, or None.
        held: what open holds reserve of the total.
        tags: the last changes, newest at the end (`occ` and `history`).
        tokens: all changes (`set`).
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
        """The total without what is held."""
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
    """The state in an item.

    Raises:
        CorruptItem: an attribute is absent or of another type.
        NewerFormat: a later release wrote it.
    """
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
    """A lower and an upper bound, each of which may be absent. Validated when created.

    Raises:
        BadBounds: one is not an exact number, they cross, or they leave no headroom at all.
    """

    lower: Amount | None
    upper: Amount | None

    def __post_init__(self) -> None:
        """Validate both bounds and write each number in its canonical form."""
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
        """Check that a value is within the bounds.

        Args:
            value: of the counter.
            held: what open holds reserve of it, which has to stay above the lower bound.
            advice: what a caller whose value is outside can do about it.

        Raises:
            BadBounds: naming the bound that the value passes.
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
    """A valid bound or value of a counter in its canonical form, or None.

    Raises:
        BadBounds: naming the rule that it breaks.
    """
    return None if value is None else amount.check_exact(what, value, BadBounds)


def check_value(what: str, value: object) -> Amount | None:
    """A value that changes may bring a counter to, in its canonical form, or None.

    Raises:
        BadBounds: naming the rule that it breaks.
    """
    return None if value is None else amount.check_sum(what, value, BadBounds)
