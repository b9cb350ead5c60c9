"""What an outcome that is no success means: an exit code, a status, a sentence for people."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from countledger.infra.calls.shapes import fields_of
from countledger.ledger.amount import to_text
from countledger.producers.quotas.quota import Denied
from countledger.producers.strict.outcome import (
    BoundReached,
    Contended,
    ExceedsHold,
    HoldCancelled,
    HoldConfirmed,
    HoldExpired,
    SetFull,
    Unknown,
    Withdrawn,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

BAD_INPUT: Final = 2
TRY_AGAIN: Final = 3
REFUSED: Final = 4


@dataclass(frozen=True, slots=True)
class Meaning:
    """What an outcome means.

    Attributes:
        exit_code: of a command.
        status: of an answer over HTTP.
        sentence: what a person reads.
        retry_after: after how long the same call may succeed; None: it is not known.
    """

    exit_code: int
    status: HTTPStatus
    sentence: Callable[[Any], str]
    retry_after: Callable[[Any], timedelta | None] = lambda _: None


def _reached(refused: BoundReached) -> str:
    held = f", of which {to_text(refused.held)} are held" if refused.held else ""
    asked = f"+{to_text(refused.asked)}" if refused.asked > 0 else to_text(refused.asked)
    return (
        f"bound reached: counter {refused.counter!r} is at {to_text(refused.value)}{held}, its "
        f"{refused.side} bound is {to_text(refused.bound)}: {asked} was refused"
    )


def _of_hold(text: str) -> Callable[[Any], str]:
    def sentence(outcome: Any) -> str:  # noqa: ANN401 - an outcome
        shown = {
            name: to_text(one)
            for name in ("amount", "held", "asked")
            if (one := getattr(outcome, name, None)) is not None
        }
        until = outcome.expires_at.isoformat() if hasattr(outcome, "expires_at") else None
        return f"hold {outcome.id!r} {text.format(until=until, **shown)}: nothing was changed"

    return sentence


REFUSALS: Final[Mapping[type, Meaning]] = {
    BoundReached: Meaning(REFUSED, HTTPStatus.CONFLICT, _reached),
    SetFull: Meaning(
        REFUSED,
        HTTPStatus.CONFLICT,
        lambda one: (
            f"set full: counter {one.counter!r} is at {to_text(one.value)} and holds "
            f"{one.max_tokens} keys, its maximum: this change is refused, as is every new one"
        ),
    ),
    Withdrawn: Meaning(
        BAD_INPUT,
        HTTPStatus.CONFLICT,
        lambda one: (
            f"not applied: this key of counter {one.counter!r} was withdrawn; what is new needs a "
            "new key"
        ),
    ),
    HoldExpired: Meaning(
        REFUSED, HTTPStatus.CONFLICT, _of_hold("could be confirmed until {until}")
    ),
    HoldCancelled: Meaning(REFUSED, HTTPStatus.CONFLICT, _of_hold("was cancelled")),
    HoldConfirmed: Meaning(REFUSED, HTTPStatus.CONFLICT, _of_hold("was confirmed with {amount}")),
    ExceedsHold: Meaning(
        REFUSED,
        HTTPStatus.CONFLICT,
        _of_hold("reserves {held}, and {asked} were to be confirmed"),
    ),
    Contended: Meaning(
        TRY_AGAIN,
        HTTPStatus.SERVICE_UNAVAILABLE,
        lambda one: (
            f"nothing done: counter {one.counter!r} let none of {one.attempts} attempts through "
            f"({one.reason}): try again later"
        ),
        lambda _: timedelta(seconds=1),
    ),
    Unknown: Meaning(
        TRY_AGAIN,
        HTTPStatus.GATEWAY_TIMEOUT,
        lambda one: f"unknown whether counter {one.counter!r} took it: {one.advice}",
    ),
    Denied: Meaning(
        REFUSED,
        HTTPStatus.TOO_MANY_REQUESTS,
        lambda one: one.reason,
        lambda one: one.retry_after,
    ),
}


def refusal_of(outcome: object) -> Meaning:
    return REFUSALS[type(outcome)]


def name_of(outcome: object) -> str:
    """The name of an outcome in a document: `BoundReached` is `bound_reached`."""
    name = type(outcome).__name__
    return "".join(f"_{one.lower()}" if one.isupper() else one for one in name).lstrip("_")


def document_of(outcome: object) -> dict[str, Any]:
    """An outcome as JSON, without the state that the next change may be given."""
    shown = {name: one for name, one in fields_of(outcome).items() if name != "known"}
    return {"outcome": name_of(outcome), **shown}
