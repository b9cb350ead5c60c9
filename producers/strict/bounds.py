"""Bounds: checking them, and moving them while the counter is in use.

A bound moves by one update of each item that holds a share of the value: the bound is set, and the
room on its side moves by the same distance, on condition that the bound is still the one that was
read and (unless forced) that the room does not become negative. Changes go on meanwhile: they ask
for room, wherever the bound lies.

Forced past the value, a bound leaves a negative room: every change towards it is refused until
changes the other way have brought the value back.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal

from countledger.ledger import amount
from countledger.ledger.amount import fits, to_text
from countledger.ledger.errors import BadBounds
from countledger.ledger.expressions import Absent, Add, Assign, Compare, Drop
from countledger.ledger.limits import NUMBER_MAX_DIGITS
from countledger.ledger.operations import Update
from countledger.producers.strict.bins import deal
from countledger.producers.strict.state import StrictState, of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Key
    from countledger.ledger.expressions import Clause, Condition

Side = Literal["lower", "upper"]


class Keep(Enum):
    """What a bound is given as when it shall stay as it is."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP


@dataclass(frozen=True, slots=True)
class Bounds:
    """A lower and an upper bound, either of which may be absent; valid at birth.

    Raises:
        BadBounds: one is no exact number, they cross, or they leave no room for any change.
    """

    lower: Amount | None
    upper: Amount | None

    def __post_init__(self) -> None:
        """Refuse what no counter can keep, and settle the one spelling of each number."""
        object.__setattr__(self, "lower", check_amount("lower bound", self.lower))
        object.__setattr__(self, "upper", check_amount("upper bound", self.upper))
        if self.lower is None or self.upper is None:
            return
        if self.lower >= self.upper:
            raise BadBounds(
                f"a lower bound of {to_text(self.lower)} and an upper one of {to_text(self.upper)} "
                "leave no room for any change"
            )

    def check_inside(self, value: Amount, advice: str = "") -> None:
        """Whether a value keeps them.

        Args:
            value: of the counter.
            advice: what a caller whose value lies outside can do about it.

        Raises:
            BadBounds: naming the bound that it passes.
        """
        shown, advice = to_text(value), f": {advice}" if advice else ""
        for bound in (self.lower, self.upper, 0):
            if bound is not None and not fits(amount.add(value, amount.negated(bound))):
                raise BadBounds(
                    f"the value {shown} lies so far from the bound {to_text(bound)} that the room "
                    f"between them needs more than {NUMBER_MAX_DIGITS} digits"
                )
        if self.upper is not None and value > self.upper:
            raise BadBounds(
                f"the value {shown} lies above the upper bound {to_text(self.upper)}{advice}"
            )
        if self.lower is not None and value < self.lower:
            raise BadBounds(
                f"the value {shown} lies below the lower bound {to_text(self.lower)}{advice}"
            )


def check_amount(what: str, value: object) -> Amount | None:
    """A number that a counter may be given as a bound or a value, or None.

    Raises:
        BadBounds: naming the rule that it breaks.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        kind = type(value).__name__
        raise BadBounds(f"{what} {value!r} is a {kind}: give an int or a decimal.Decimal")
    if isinstance(value, Decimal) and not value.is_finite():
        raise BadBounds(f"{what} {value} is not a finite number")
    if not amount.may_be_added(value):
        raise BadBounds(f"{what} {amount.short(value)} {amount.TOO_LONG}")
    return amount.canonical(value)


def targets(
    states: Sequence[StrictState], bounds: Bounds
) -> list[tuple[Amount | None, Amount | None]]:
    """The bounds of each item: what is left to the counter's bounds is dealt out evenly anew."""
    total = amount.total_of(state.total for state in states)

    def shares(bound: Amount | None) -> list[Amount | None]:
        if bound is None:
            return [None] * len(states)
        distances = deal(amount.add(bound, amount.negated(total)), len(states))
        return [amount.add(s.total, d) for s, d in zip(states, distances, strict=True)]

    return list(zip(shares(bounds.lower), shares(bounds.upper), strict=True))


def plan_bounds(
    table: str,
    key: Key,
    state: StrictState,
    target: tuple[Amount | None, Amount | None],
    *,
    force: bool,
) -> Update:
    """The write that moves an item's bounds, if they are what was read. One write unit."""
    clauses: list[Clause] = [Add("version", 1)]
    conditions: list[Condition] = []
    sides: tuple[tuple[Side, str, Amount | None, Amount | None, int], ...] = (
        ("lower", "headroom_down", state.lower, target[0], -1),
        ("upper", "headroom_up", state.upper, target[1], 1),
    )
    for side, room, old, new, sign in sides:
        distance = amount.add(new or 0, amount.negated(old or 0))
        opened = distance if sign > 0 else amount.negated(distance)
        clauses.append(Drop(side) if new is None else Assign(side, new))
        clauses.append(Add(room, opened))
        conditions.append(Absent(side) if old is None else Compare(side, "=", old))
        if new is not None and not force:
            conditions.append(Compare(room, ">=", amount.negated(opened)))
    return Update(table, key, tuple(clauses), of(state.incarnation, *conditions))
