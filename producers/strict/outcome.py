"""What becomes of a change: values, not errors, for the caller has to handle each of them.

Applied       it is in, by this call
Duplicate     it is in, and was before this call as far as the method can tell
BoundReached  it is not in, and no request of this call can still bring it in
SetFull       the same: the set of keys takes no more
Withdrawn       the same: the key was given up, for good
Contended     the same: others were always faster, or the service was busy
Unknown       it may be in or not, and the method cannot tell

Of changes of several counters at once, `counter` is all their names; of `BoundReached` it is the
one that refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from countledger.ledger.amount import Amount
    from countledger.producers.strict.state import StrictState


@dataclass(frozen=True, slots=True)
class Applied:
    """The change is in, by a request of this call.

    Attributes:
        counter: the counter's name.
        value: its value with the change; for `crt` and `marker` read right afterwards, so that
            later changes may be in it. None for a counter with bins, or if that read failed.
        known: what the next change may be given instead of a read (`occ` and `history`).
    """

    counter: str
    value: Amount | None
    known: StrictState | None = None


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The change came in under this key before; it counts once.

    Attributes:
        counter: the counter's name.
        value: its value now, or None where the answer did not tell.
    """

    counter: str
    value: Amount | None


@dataclass(frozen=True, slots=True)
class BoundReached:
    """The change would pass a bound. It is not in, and will not come in by this call.

    Attributes:
        counter: the counter's name.
        value: its current value.
        side: which bound.
        bound: where that lies.
        asked: the delta that was asked for.
    """

    counter: str
    value: Amount
    side: Literal["upper", "lower"]
    bound: Amount
    asked: Amount


@dataclass(frozen=True, slots=True)
class SetFull:
    """The counter remembers as many keys as it may; it takes no new change.

    Attributes:
        counter: the counter's name.
        value: its current value.
        max_tokens: how many keys it remembers.
    """

    counter: str
    value: Amount
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The change under this key is not in, and never will be.

    Attributes:
        counter: the counter's name.
        id: what the key stands for; of method `crt`, the token.
    """

    counter: str
    id: str


@dataclass(frozen=True, slots=True)
class Contended:
    """Not in after that many attempts, each of which was clearly refused; try again later.

    Attributes:
        counter: the counter's name.
        attempts: how many there were.
        reason: of the last refusal.
    """

    counter: str
    attempts: int
    reason: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """The change may be in or not; the method cannot tell.

    Attributes:
        counter: the counter's name.
        advice: what the caller can do about it.
    """

    counter: str
    advice: str


Refusal: TypeAlias = BoundReached | SetFull | Contended
StrictOutcome: TypeAlias = (
    Applied | Duplicate | BoundReached | SetFull | Withdrawn | Contended | Unknown
)
