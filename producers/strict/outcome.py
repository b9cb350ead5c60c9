"""The outcomes of a change: values, not errors, because the caller has to handle each of them.

Applied       the change is applied, by this call
Duplicate     the change is applied; as far as the method knows, by an earlier call
BoundReached  rejected: no request of this call can still apply the change
SetFull       rejected too: the set of keys is full
Withdrawn     rejected too: the key was withdrawn
Contended     rejected too: others were always faster, or the service was busy
Unknown       the change may be applied or not, and the method cannot know

Held           an amount is reserved, by this call (`hold`)
Confirmed      a hold is taken, or a part of it, by this call
Cancelled      a hold is cancelled, by this call
HoldExpired, HoldCancelled, HoldConfirmed    rejected: the hold has ended in another way
ExceedsHold    rejected: more was to be confirmed than is held

For changes of several counters in one transaction, `counter` is all their names; in `BoundReached`
it is the counter that refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from countledger.ledger import amount

if TYPE_CHECKING:
    from datetime import datetime

    from countledger.ledger.amount import Amount
    from countledger.producers.strict.definition import StrictState
    from countledger.producers.strict.hold import Hold


@dataclass(frozen=True, slots=True)
class Applied:
    """The change is applied once, by a request of this call.

    Method `request_token`, after an attempt without an answer: or of an earlier call under its key.

    Attributes:
        counter: the counter's name.
        value: its value with the change; for `request_token` and `marker` read right afterwards, so
            it may include later changes. None for a counter with bins, or if that read failed.
        known: the state to pass to the next change, which saves a read (`occ` and `history`).
    """

    counter: str
    value: Amount | None
    known: StrictState | None = None


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The change was applied under this key before; it counts once.

    Attributes:
        counter: the counter's name.
        value: its value now, or None if the answer does not include it.
        hold: the hold as it is stored, if the call was about one.
    """

    counter: str
    value: Amount | None
    hold: Hold | None = None


@dataclass(frozen=True, slots=True)
class BoundReached:
    """The change would pass a bound. It is not applied, and this call will never apply it.

    Attributes:
        counter: the counter's name.
        value: its current value.
        side: which bound.
        bound: the bound itself.
        asked: the delta of the change.
        held: what open holds reserve of the value, if the bound is the lower one.
    """

    counter: str
    value: Amount
    side: Literal["upper", "lower"]
    bound: Amount
    asked: Amount
    held: Amount = 0

    @property
    def available(self) -> Amount:
        """The value without what is held."""
        return amount.add(self.value, amount.negated(self.held))


@dataclass(frozen=True, slots=True)
class SetFull:
    """The counter remembers its maximum number of keys; it takes no new change.

    Attributes:
        counter: the counter's name.
        value: its current value.
        max_tokens: that number.
    """

    counter: str
    value: Amount
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The change under this key is not applied, and never will be.

    Attributes:
        counter: the counter's name.
        id: the id of the key; for method `request_token`, the token.
    """

    counter: str
    id: str


@dataclass(frozen=True, slots=True)
class Contended:
    """Not applied: each attempt was clearly refused; try again later.

    Attributes:
        counter: the counter's name.
        attempts: how many.
        reason: of the last refusal.
    """

    counter: str
    attempts: int
    reason: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """The change may be applied or not; the method cannot know.

    Attributes:
        counter: the counter's name.
        advice: what the caller can do.
    """

    counter: str
    advice: str


@dataclass(frozen=True, slots=True)
class Held:
    """The amount is reserved, by a request of this call.

    Attributes:
        counter: the counter's name.
        id: what to confirm or to cancel it by.
        amount: how much is reserved.
        expires_at: until when it can be confirmed.
    """

    counter: str
    id: str
    amount: Amount
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The hold, or a part of it, is taken, by this call.

    Attributes:
        counter: the counter's name.
        id: of the hold.
        amount: how much left the counter's value.
        released: how much is available again.
    """

    counter: str
    id: str
    amount: Amount
    released: Amount


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The hold is cancelled, by this call: all of it is available again.

    Attributes:
        counter: the counter's name.
        id: of the hold.
        amount: how much is available again.
    """

    counter: str
    id: str
    amount: Amount


@dataclass(frozen=True, slots=True)
class HoldExpired:
    """Rejected: the time of the hold is over. Nothing of it was taken by this call.

    Attributes:
        counter: the counter's name.
        id: of the hold.
        amount: how much it reserved.
        expires_at: until when it could be confirmed.
    """

    counter: str
    id: str
    amount: Amount
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class HoldCancelled:
    """Rejected: the hold was cancelled.

    Attributes:
        counter: the counter's name.
        id: of the hold.
    """

    counter: str
    id: str


@dataclass(frozen=True, slots=True)
class HoldConfirmed:
    """Rejected: the hold was confirmed, when confirming with another amount.

    Attributes:
        counter: the counter's name.
        id: of the hold.
        amount: how much was taken.
    """

    counter: str
    id: str
    amount: Amount


@dataclass(frozen=True, slots=True)
class ExceedsHold:
    """Rejected: more was to be confirmed than the hold reserves. It is still open.

    Attributes:
        counter: the counter's name.
        id: of the hold.
        held: how much it reserves.
        asked: how much was to be confirmed.
    """

    counter: str
    id: str
    held: Amount
    asked: Amount


Refusal: TypeAlias = BoundReached | SetFull | Contended
StrictOutcome: TypeAlias = (
    Applied | Duplicate | BoundReached | SetFull | Withdrawn | Contended | Unknown
)
HoldOutcome: TypeAlias = Held | Duplicate | BoundReached | Withdrawn | Contended | Unknown
EndOutcome: TypeAlias = (
    Confirmed
    | Cancelled
    | Duplicate
    | BoundReached
    | HoldExpired
    | HoldCancelled
    | HoldConfirmed
    | ExceedsHold
    | Contended
    | Unknown
)
