"""A change of a strict counter, the update that writes it, and why an item refuses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from countledger.ledger import amount, keys
from countledger.ledger.amount import parse_delta, to_text
from countledger.ledger.clock import show_duration
from countledger.ledger.entry import check_note
from countledger.ledger.errors import (
    ClockSkew,
    CorruptItem,
    IdempotencyKeyReused,
    KeyExpired,
)
from countledger.ledger.ids import IdempotencyKey, check_key, id_of_key
from countledger.ledger.operations import Update
from countledger.producers.strict.definition import decode_state, has_headroom, moved, of
from countledger.producers.strict.outcome import BoundReached

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import Steps
    from countledger.ledger.attributes import Item
    from countledger.ledger.errors import Reason
    from countledger.ledger.operations import Condition
    from countledger.producers.strict.context import MethodContext
    from countledger.producers.strict.definition import Definition, Part, StrictState
    from countledger.producers.strict.outcome import Refusal, StrictOutcome


@dataclass(frozen=True, slots=True)
class StrictChange:
    """One change, the same for every attempt.

    Attributes:
        counter: the counter's name.
        delta: the amount to add, not zero.
        id: the id of its key, or drawn for this call; at most 36 characters.
        at_ms: when the call began.
        key: as the caller gave it, or None.
        key_at_ms: when the key was made, if the caller gave that.
        note: the caller's short texts.
    """

    counter: str
    delta: Amount
    id: str
    at_ms: int
    key: str | None = None
    key_at_ms: int | None = None
    note: Mapping[str, str] | None = None

    @property
    def tag(self) -> str:
        """How an item remembers it: its id and its delta."""
        return f"{self.id}={to_text(self.delta)}"

    def remembered_in(self, tags: Iterable[str]) -> bool:
        """Whether it is among the remembered changes.

        Raises:
            IdempotencyKeyReused: its id is, with another delta.
        """
        prefix = f"{self.id}="
        for tag in tags:
            if tag.startswith(prefix):
                if tag != self.tag:
                    raise self.reused(tag.removeprefix(prefix))
                return True
        return False

    def reused(self, delta: object) -> IdempotencyKeyReused:
        """The error for a key that was used with another delta."""
        before = "something else" if delta is None else f"a delta of {delta}"
        return IdempotencyKeyReused(
            f"idempotency key {self.key!r} of counter {self.counter!r} was used for {before}, and "
            f"now comes with {to_text(self.delta)}: a new change needs a new key"
        )

    def remembered_until(self, life_ms: int) -> int:
        """Until when a method that remembers keys for so long surely recognizes this one."""
        return (self.at_ms if self.key_at_ms is None else self.key_at_ms) + life_ms

    def check_age(self, now_ms: int, life_ms: int, skew_ms: int) -> None:
        """Check that its key, if it has a time, is still remembered if it was used before.

        Raises:
            KeyExpired: it was made too long ago.
            ClockSkew: it is dated further ahead than clocks may differ.
        """
        what = f"idempotency key {self.key!r} of counter {self.counter!r}"
        check_key_age(what, self.key_at_ms, now_ms, life_ms, skew_ms)


def check_key_age(
    what: str, key_at_ms: int | None, now_ms: int, life_ms: int, skew_ms: int
) -> None:
    """Check that a key made at that time (None: unknown) is still remembered.

    Raises:
        KeyExpired, ClockSkew: as `StrictChange.check_age`; `what` names the key.
    """
    age_ms = now_ms - (now_ms if key_at_ms is None else key_at_ms)
    if age_ms > life_ms:
        raise KeyExpired(
            f"{what} was made {show_duration(age_ms)} ago and is remembered for "
            f"{show_duration(life_ms)}: whether it counted is no longer known"
        )
    if -age_ms > skew_ms:
        raise ClockSkew(
            f"{what} is dated {show_duration(-age_ms)} ahead; clocks may differ by "
            f"{show_duration(skew_ms)}"
        )


def remembered_until(
    context: MethodContext, key: str | IdempotencyKey, life_ms: int, what: str
) -> int | None:
    """Until when a key with a time is surely remembered; None: a bare key has none.

    Raises:
        KeyExpired, ClockSkew: that is over, or the key is dated too far ahead; `what` names its
            counters.
    """
    if not isinstance(key, IdempotencyKey):
        return None
    named = f"idempotency key {key.key!r} of {what}"
    check_key_age(named, key.at_ms, context.clock.now_ms(), life_ms, context.clock_skew_ms)
    return key.at_ms + life_ms


def make_change(
    counter: str,
    delta: Amount,
    key: str | IdempotencyKey | None,
    note: Mapping[str, str] | None,
    *,
    now_ms: int,
    new_id: Callable[[int], str],
) -> StrictChange:
    """A validated change.

    Raises:
        BadCounterName, BadDelta, BadKey, BadNote: naming the value and the rule that it breaks.
    """
    if key is not None and not isinstance(key, IdempotencyKey):
        key = check_key(key)
    return StrictChange(
        counter=keys.check_counter(counter),
        delta=parse_delta(delta),
        id=new_id(now_ms) if key is None else id_of_key(key),
        at_ms=now_ms,
        key=key.key if isinstance(key, IdempotencyKey) else key,
        key_at_ms=key.at_ms if isinstance(key, IdempotencyKey) else None,
        note=None if note is None else check_note(note),
    )


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """What a caller wants under one key, the same for every attempt.

    Attributes:
        counters: the names of all counters concerned.
        facts: what a retry has to repeat, as the marker stores it.
        key: of all of it together.
        at_ms: when the call began.
        note: the caller's short texts, stored in the marker.
        value: the value of the counter afterwards, if it is known before.
    """

    counters: tuple[str, ...]
    facts: Mapping[str, Mapping[str, Amount]]
    key: str | IdempotencyKey
    at_ms: int
    note: Mapping[str, str] | None = None
    value: Amount | None = None

    @property
    def what(self) -> str:
        """The counters, for outcomes and messages."""
        return ", ".join(self.counters)

    @property
    def id(self) -> str:
        """The id of the key."""
        return id_of_key(self.key)

    @property
    def key_text(self) -> str:
        """The key without its time."""
        return self.key.key if isinstance(self.key, IdempotencyKey) else self.key


class PendingChange(Protocol):
    """A change under one method, and what is known of its attempts so far."""

    def at(self, parts: Sequence[Part]) -> Steps[StrictOutcome]:
        """Apply it to these items, with retries as the method allows.

        Returns:
            `BoundReached` if an item has not enough headroom: nothing was written, and other items
            may be tried. (Its numbers are those of the item, which may be a bin.)

        Raises:
            StaleDefinition: the counter was deleted or recreated.
        """

    def confirm_refusal(self, refused: Refusal) -> Steps[StrictOutcome]:
        """Make a refusal final: afterwards no request of this call can apply the change."""


def update_of(
    table: str, definition: Definition, part: Part, now_ms: int | None, *more: Condition
) -> Update:
    """The write that moves an item by its part, if it has the headroom: one write unit."""
    return Update(
        table,
        part.key,
        moved(part.delta, now_ms),
        of(definition.incarnation, has_headroom(part.delta), *more),
        returning="ALL_NEW",
    )


def refusal(counter: str, state: StrictState, delta: Amount) -> BoundReached | None:
    """The result of the condition `has_headroom` for a state; None: there is enough headroom."""
    after = amount.add(state.total, delta)
    if delta > 0 and state.upper is not None and after > state.upper:
        return BoundReached(counter, state.total, "upper", state.upper, delta)
    free = amount.add(after, amount.negated(state.held))
    if delta < 0 and state.lower is not None and free < state.lower:
        return BoundReached(counter, state.total, "lower", state.lower, delta, state.held)
    return None


def refused_by(definition: Definition, part: Part, item: Item | None) -> BoundReached:
    """Why an item whose condition failed has refused its part.

    Raises:
        StaleDefinition: it is gone, or belongs to another incarnation of the counter.
    """
    if item is None or not definition.is_of(item):
        raise definition.stale()
    refused = refusal(definition.counter, decode_state(item), part.delta)
    if refused is None:
        raise CorruptItem(
            f"strict counter {definition.counter!r}: total, bounds and headroom contradict each "
            "other; an item was changed by hand"
        )
    return refused


def refused_among(
    definition: Definition, parts: Sequence[Part], reasons: Sequence[Reason]
) -> BoundReached | None:
    """The refusal in a cancelled transaction; None if no condition failed.

    Raises:
        StaleDefinition: as `refused_by`.
    """
    for part, reason in zip(parts, reasons, strict=True):
        if reason.condition_failed:
            return refused_by(definition, part, reason.item)
    return None
