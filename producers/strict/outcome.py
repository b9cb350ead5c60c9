"""The outcomes of a change: values, not errors, because the caller has to handle each of them.

Applied       the change is applied, by this call
Duplicate     the change is applied; as far as the method knows, by an earlier call
BoundReached  rejected: no request of this call can still apply the change
SetFull       rejected too: the set of keys is full
Withdrawn     rejected too: the key was withdrawn
Contended     rejected too: others were always faster, or the service was busy
Unknown       the change may be applied or not, and the method cannot know

For changes of several counters in one transaction, `counter` is all their names; in `BoundReached`
it is the counter that refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from countledger.ledger.amount import Amount
    from countledger.producers.strict.state import StrictState


@dataclass(frozen=True, slots=True)
class Applied:
    """The change is applied, by a request of this call.

    Attributes:
        counter: the counter's name.
        value: its value with the change; for `crt` and `marker` read right afterwards, so it may
            include later changes. None for a counter with bins, or if that read failed.
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
    """

    counter: str
    value: Amount | None


@dataclass(frozen=True, slots=True)
class BoundReached:
    """The change would pass a bound. It is not applied, and this call will never apply it.

    Attributes:
        counter: the counter's name.
        value: its current value.
        side: which bound.
        bound: the bound itself.
        asked: the delta of the change.
    """

    counter: str
    value: Amount
    side: Literal["upper", "lower"]
    bound: Amount
    asked: Amount


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
        id: the id of the key; for method `crt`, the token.
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


Refusal: TypeAlias = BoundReached | SetFull | Contended
StrictOutcome: TypeAlias = (
    Applied | Duplicate | BoundReached | SetFull | Withdrawn | Contended | Unknown
)
