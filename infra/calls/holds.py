"""The calls of holds: `countledger strict hold`, `/v1/strict/{counter}/holds`, `/v1/holds`."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from countledger.infra.calls.access import ScopeVerb
from countledger.infra.calls.call import (
    READS,
    WRITES,
    Call,
    Calls,
    GivenKey,
    NeedsScope,
    Note,
    Param,
)
from countledger.infra.calls.shapes import (
    AmountText,
    CounterText,
    DeltaText,
    HoldText,
    ShownTime,
    View,
)
from countledger.ledger import keys
from countledger.ledger.limits import HOLD_MAX_MS, HOLD_MIN_MS, MINUTE_MS
from countledger.ledger.values import parse_duration_ms
from countledger.producers.strict.outcome import (
    BoundReached,
    Cancelled,
    Confirmed,
    Contended,
    Duplicate,
    ExceedsHold,
    Held,
    HoldCancelled,
    HoldConfirmed,
    HoldExpired,
    Unknown,
    Withdrawn,
)

# Commands of the group of strict counters.
HOLDS: Final = Calls("strict", "Amounts of strict counters that are reserved.", tag="holds")

_LENGTH_MS: Final = 10 * MINUTE_MS


# ---- parameters ----

HoldId = Annotated[
    HoldText,
    Param("The id that `strict hold` showed.", metavar="HOLD"),
    NeedsScope(ScopeVerb.WRITE, lambda hold: [keys.namespace_of(hold.partition("#")[0])]),
]


# ---- what is shown ----


class HoldView(View):
    """A hold as it is stored."""

    id: str
    counter: str
    amount: AmountText
    state: str
    expires_at: ShownTime
    key: str | None
    note: dict[str, str] | None
    confirmed: AmountText
    ended_at: ShownTime | None

    def row(self) -> Mapping[str, object]:
        return {
            "id": self.id,
            "amount": self.amount,
            "key": self.key,
            "expires": self.expires_at,
        }


class HeldView(View):
    """The amount is reserved, by this call."""

    outcome: Literal["held"] = "held"
    counter: str
    id: str
    amount: AmountText
    expires_at: ShownTime


class DuplicateHoldView(View):
    """The same was done before; the hold is as it is stored."""

    outcome: Literal["duplicate"] = "duplicate"
    counter: str
    value: AmountText | None
    hold: HoldView | None

    def row(self) -> Mapping[str, object]:
        stored = self.hold
        return {
            "outcome": self.outcome,
            "counter": self.counter,
            "id": stored and stored.id,
            "amount": stored and stored.amount,
            "state": stored and stored.state,
            "expires_at": stored and stored.expires_at,
        }


class ConfirmedView(View):
    """The hold, or a part of it, is taken, by this call."""

    outcome: Literal["confirmed"] = "confirmed"
    counter: str
    id: str
    amount: AmountText
    released: AmountText


class CancelledView(View):
    """The hold is cancelled, by this call."""

    outcome: Literal["cancelled"] = "cancelled"
    counter: str
    id: str
    amount: AmountText


class ExpiredView(View):
    """The time of the hold is over: what it held is available again, or will be in a minute."""

    outcome: Literal["hold_expired"] = "hold_expired"
    counter: str
    id: str
    amount: AmountText
    expires_at: ShownTime


NotTaken: TypeAlias = (
    BoundReached | HoldCancelled | HoldConfirmed | HoldExpired | ExceedsHold | Contended | Unknown
)


# ---- the calls ----


@HOLDS.op("hold", "POST /v1/strict/{counter}/holds", costs="Four write units, one for the index.")
def place_hold(
    call: Call,
    counter: Annotated[CounterText, Param("A counter of method marker."), WRITES],
    amount: Annotated[DeltaText, Param("How much to hold, more than 0.")],
    *,
    key: GivenKey = None,
    expires_in_ms: Annotated[
        int,
        Field(ge=HOLD_MIN_MS, le=HOLD_MAX_MS),
        Param(
            "For how long it can be confirmed. [dim]By default 10m[/dim]",
            metavar="TIME",
            option="--expires-in",
            text=parse_duration_ms,
        ),
    ] = _LENGTH_MS,
    note: Note = None,
) -> HeldView | DuplicateHoldView | BoundReached | Withdrawn | Contended | Unknown:
    """Reserve an amount of a strict counter of method `marker`, to be confirmed or cancelled later.

    The value stays, and nothing else can take what is held. After its time it is released.

    Exit codes: 0 held, now or before under this key. 4 not enough is available. 3 unknown, or too
    many conflicts: run it again with the same key. 2 bad input, or a key that was withdrawn.

    Examples:
      countledger strict hold tickets:hall 2 --key basket-7 --expires-in 10m
    """
    length = timedelta(milliseconds=expires_in_ms)
    outcome = call.ledger.strict.hold(counter, amount, expires_in=length, key=key, note=note)
    match outcome:
        case Held():
            return HeldView.model_validate(outcome)
        case Duplicate():
            return DuplicateHoldView.model_validate(outcome)
    return outcome


@HOLDS.op(
    "confirm",
    "POST /v1/holds/{hold}/confirmation",
    costs="Four write units, one for the index, a read unit; more with bins.",
)
def confirm_hold(
    call: Call,
    hold: HoldId,
    amount: Annotated[
        DeltaText | None, Param("How much of it to take; the rest is released.")
    ] = None,
    *,
    readmit: Annotated[bool, Param("After its time: take it if enough is available.")] = False,
) -> ConfirmedView | DuplicateHoldView | NotTaken:
    """Take what is held, all of it or a part. The outcome of a retry is "duplicate".

    Exit codes: 0 taken, now or before. 4 refused: it has expired, was cancelled, was confirmed with
    another amount, or holds less. 3 unknown, or too many conflicts: run it again.

    Examples:
      countledger strict confirm tickets:hall#k0123456789abcdef0123456789abcdef
      countledger strict confirm tickets:hall#k0123456789abcdef0123456789abcdef 1
    """
    outcome = call.ledger.strict.confirm(hold, amount, readmit=readmit)
    match outcome:
        case Confirmed():
            return ConfirmedView.model_validate(outcome)
        case Duplicate():
            return DuplicateHoldView.model_validate(outcome)
        case Cancelled():
            raise AssertionError("a confirmation cancels nothing")
    return outcome


@HOLDS.op(
    "cancel",
    "POST /v1/holds/{hold}/cancellation",
    costs="Four write units, one for the index, a read unit; more with bins.",
)
def cancel_hold(
    call: Call, hold: HoldId
) -> CancelledView | DuplicateHoldView | ExpiredView | HoldConfirmed | Contended | Unknown:
    """Make what is held available again. One whose time is over is so without this call.

    Exit codes: 0 available again, now or before. 4 it was confirmed. 3 unknown, or too many
    conflicts: run it again.

    Examples:
      countledger strict cancel tickets:hall#k0123456789abcdef0123456789abcdef
    """
    outcome = call.ledger.strict.cancel(hold)
    match outcome:
        case Cancelled():
            return CancelledView.model_validate(outcome)
        case Duplicate():
            return DuplicateHoldView.model_validate(outcome)
        case HoldExpired():
            return ExpiredView.model_validate(outcome)
        case HoldConfirmed() | Contended() | Unknown():
            return outcome
    raise AssertionError(f"a cancellation takes nothing: {outcome}")


@HOLDS.op("holds", "GET /v1/strict/{counter}/holds", costs="Half a read unit for each.")
def list_holds(
    call: Call,
    counter: Annotated[CounterText, Param("The counter whose open holds to list."), READS],
) -> Iterator[HoldView]:
    """List the open holds of a counter, those that end first first.

    Also those whose time is over and that nobody needed to release yet.

    Examples:
      countledger strict holds tickets:hall
    """
    found = call.ledger.strict.holds(counter, on_corrupt=call.on_corrupt)
    return map(HoldView.model_validate, found)
