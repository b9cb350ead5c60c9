"""The item that carries a strict counter's value, or a share of it, and what a change does to it.

A condition cannot add, so `total + delta <= upper` cannot be asked. So the item carries how much
room each side has, and every change moves total and rooms in one write:

    headroom_up   = upper - total      (an absent bound counts as 0 here)
    headroom_down = total - lower

Both rooms are always there and always move; whether a bound holds is told by the bound itself. So
one update fits every counter, bounded or not, and a bound can be set, moved and taken away while
the counter is in use, without any writer knowing. What condition and refusal rest on is written
once, in `has_headroom` and `refusal`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countledger.ledger import amount
from countledger.ledger.attributes import Item, check_format, optional, require, require_amount
from countledger.ledger.expressions import (
    Absent,
    Add,
    AllOf,
    AnyOf,
    Assign,
    Compare,
)
from countledger.producers.strict.outcome import BoundReached

if TYPE_CHECKING:
    from countledger.ledger.amount import Amount
    from countledger.ledger.expressions import Clause, Condition


@dataclass(frozen=True, slots=True)
class StrictState:
    """A value and its bounds at one version.

    Attributes:
        incarnation: which incarnation of the counter it belongs to.
        version: grows with every write of the item; a state is known by it.
        total: the value, or this bin's share of it.
        lower: the least that the value may be, or None.
        upper: the most that it may be, or None.
        tags: the changes that were made last, newest at the end (`occ` and `history`).
        tokens: the changes that were made (`set`).
    """

    incarnation: str
    version: int
    total: Amount
    lower: Amount | None = None
    upper: Amount | None = None
    tags: tuple[str, ...] = ()
    tokens: frozenset[str] = frozenset()


def has_headroom(delta: Amount) -> Condition:
    """The side that the change moves towards is unbounded, or has that much room."""
    if delta > 0:
        return AnyOf(Absent("upper"), Compare("headroom_up", ">=", delta))
    return AnyOf(Absent("lower"), Compare("headroom_down", ">=", amount.negated(delta)))


def refusal(counter: str, state: StrictState, delta: Amount) -> BoundReached | None:
    """The same as a judgement of a state; None where there is room."""
    after = amount.add(state.total, delta)
    if delta > 0 and state.upper is not None and after > state.upper:
        return BoundReached(counter, state.total, "upper", state.upper, delta)
    if delta < 0 and state.lower is not None and after < state.lower:
        return BoundReached(counter, state.total, "lower", state.lower, delta)
    return None


def of(incarnation: str, *conditions: Condition) -> Condition:
    """The item belongs to this incarnation of the counter, and the conditions hold of it."""
    return AllOf(Compare("incarnation", "=", incarnation), *conditions)


def moved(delta: Amount, now_ms: int | None) -> tuple[Clause, ...]:
    """What a change does to the item; `now_ms` is left out where a retry must not differ."""
    against = amount.negated(delta)
    stamp = () if now_ms is None else (Assign("updated_at", now_ms),)
    return (
        *stamp,
        Add("total", delta),
        Add("headroom_up", against),
        Add("headroom_down", delta),
        Add("version", 1),
    )


def encode_state(state: StrictState) -> Item:
    """The attributes of a state, with its rooms; the methods' memories are theirs to add."""
    return {
        "incarnation": state.incarnation,
        "version": state.version,
        "total": state.total,
        "lower": state.lower,
        "upper": state.upper,
        "headroom_up": amount.add(state.upper or 0, amount.negated(state.total)),
        "headroom_down": amount.add(state.total, amount.negated(state.lower or 0)),
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
        tags=tuple(tags),
        tokens=frozenset(optional(item, "tokens", set) or ()),
    )
