"""Routes of strict counters: create, change, read, bound, withdraw, delete."""

from __future__ import annotations

from datetime import timedelta
from itertools import islice
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import Field

from countledger import outcomes
from countledger.infra.calls.shapes import (
    PAGE_DEFAULT,
    AmountText,
    CounterPath,
    CounterText,
    DeltaText,
    HoldPath,
    InputBody,
    Limit,
    LimitText,
    NoteMap,
    ShownTime,
    View,
)
from countledger.infra.http.calls import (
    Called,
    CountedRoute,
    OptionalKey,
    RequiredKey,
    answer_of,
    answered,
    key_of_namespaces,
)
from countledger.infra.http.problems import HOW, KeyMissing
from countledger.ledger import keys
from countledger.ledger.errors import BadInput
from countledger.ledger.limits import (
    BINS_MAX,
    HISTORY_MAX,
    HISTORY_MIN,
    HOLD_MAX_MS,
    HOLD_MIN_MS,
    MARKER_WINDOW_MAX_MS,
    MARKER_WINDOW_MIN_MS,
    SET_TOKENS_MAX,
    TRANSACTION_ACTIONS,
)

# Routes of holds: reserve an amount of a strict counter, confirm or cancel it.


hold_routes = APIRouter(route_class=CountedRoute, tags=["holds"])


class NewHold(InputBody):
    """What is reserved, and for how long it can be confirmed."""

    amount: DeltaText
    expires_in_ms: Annotated[int, Field(ge=HOLD_MIN_MS, le=HOLD_MAX_MS)]
    note: NoteMap | None = None


class Confirmation(InputBody):
    """How much of a hold is taken; by default all of it."""

    amount: DeltaText | None = None
    readmit: bool = False


class HoldAnswer(View):
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


class HoldsAnswer(View):
    """The open holds of a counter, by their time."""

    holds: list[HoldAnswer]
    more: bool


class HeldAnswer(View):
    """The amount is reserved, by this request."""

    outcome: Literal["held"] = "held"
    counter: str
    id: str
    amount: AmountText
    expires_at: ShownTime


class DuplicateHold(View):
    """The same was done before; the hold is as it is stored."""

    outcome: Literal["duplicate"] = "duplicate"
    counter: str
    value: AmountText | None
    hold: HoldAnswer | None


class ConfirmedAnswer(View):
    """The hold, or a part of it, is taken, by this request."""

    outcome: Literal["confirmed"] = "confirmed"
    counter: str
    id: str
    amount: AmountText
    released: AmountText


class CancelledAnswer(View):
    """The hold is cancelled, by this request."""

    outcome: Literal["cancelled"] = "cancelled"
    counter: str
    id: str
    amount: AmountText


HELD: Final[dict[type, type[View]]] = {
    outcomes.Held: HeldAnswer,
    outcomes.Duplicate: DuplicateHold,
    outcomes.Confirmed: ConfirmedAnswer,
    outcomes.Cancelled: CancelledAnswer,
}


@hold_routes.post("/v1/strict/{counter}/holds", response_model=HeldAnswer | DuplicateHold)
def place_hold(counter: CounterPath, body: NewHold, key: RequiredKey, call: Called) -> Response:
    """Reserve an amount of a counter of method `marker`. Four write units, one for the index."""
    outcome = call.writes(counter).strict.hold(
        counter,
        body.amount,
        expires_in=timedelta(milliseconds=body.expires_in_ms),
        key=key,
        note=body.note,
    )
    return answer_of(outcome, HELD)


@hold_routes.get("/v1/strict/{counter}/holds", response_model=HoldsAnswer)
def list_holds(counter: CounterPath, call: Called, limit: Limit = PAGE_DEFAULT) -> Response:
    """The open holds of a counter, by their time. Half a read unit for each."""
    found = list(islice(call.reads(counter).strict.holds(counter), limit + 1))
    shown = [HoldAnswer.model_validate(one) for one in found[:limit]]
    return answered(HoldsAnswer(holds=shown, more=len(found) > limit))


@hold_routes.post("/v1/holds/{hold}/confirmation", response_model=ConfirmedAnswer | DuplicateHold)
def confirm_hold(hold: HoldPath, body: Confirmation, call: Called) -> Response:
    """Take what is held. Four write units, one for the index, a read unit; more with bins.

    The hold itself identifies the call: a retry is answered `duplicate`.
    """
    strict = call.writes(_counter_of(hold)).strict
    return answer_of(strict.confirm(hold, body.amount, readmit=body.readmit), HELD)


@hold_routes.post("/v1/holds/{hold}/cancellation", response_model=CancelledAnswer | DuplicateHold)
def cancel_hold(hold: HoldPath, call: Called) -> Response:
    """Make what is held available again. As many units as a confirmation."""
    return answer_of(call.writes(_counter_of(hold)).strict.cancel(hold), HELD)


def _counter_of(hold: str) -> str:
    return hold.partition("#")[0]


routes = APIRouter(route_class=CountedRoute, tags=["strict"])

MethodName = Literal["atomic", "occ", "history", "request_token", "marker", "set"]


METHOD_WITHOUT_KEYS: Final = "atomic"


class CounterTwice(BadInput):
    """A request names a counter twice."""


class NewStrict(InputBody):
    """A strict counter to be created; docs/strict.md compares the methods."""

    counter: CounterText
    method: MethodName
    lower: LimitText | None = None
    upper: LimitText | None = None
    opening: LimitText = 0
    bins: Annotated[int, Field(ge=1, le=BINS_MAX)] = 1
    history: Annotated[int, Field(ge=HISTORY_MIN, le=HISTORY_MAX)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=SET_TOKENS_MAX)] | None = None
    window_ms: Annotated[int, Field(ge=MARKER_WINDOW_MIN_MS, le=MARKER_WINDOW_MAX_MS)] | None = None
    regions: bool = False


class StrictAnswer(View):
    """A strict counter as of one moment."""

    counter: str
    method: str
    value: AmountText
    held: AmountText
    available: AmountText
    lower: AmountText | None
    upper: AmountText | None
    version: int
    bins: int
    history: int | None
    max_tokens: int | None
    remembered: int
    window_ms: int | None
    updated_at: ShownTime | None
    write_units: int


class StrictChangeInput(InputBody):
    """A change of a strict counter."""

    delta: DeltaText
    prefer: Annotated[
        Literal["under", "over"] | None,
        Field(description="which miscount to prefer after a lost answer (method atomic)"),
    ] = None
    note: NoteMap | None = None


class StrictValueInput(InputBody):
    """What a strict counter is set to."""

    value: LimitText
    note: NoteMap | None = None


class CounterChange(InputBody):
    """One of several changes."""

    counter: CounterText
    delta: DeltaText


class StrictChangesInput(InputBody):
    """Changes of several counters, all or none; each counter once."""

    changes: Annotated[list[CounterChange], Field(min_length=1, max_length=TRANSACTION_ACTIONS - 1)]
    note: NoteMap | None = None


class BoundsInput(InputBody):
    """New bounds; one that is not given stays, and null removes it."""

    lower: LimitText | None = None
    upper: LimitText | None = None
    force: bool = False


class AppliedAnswer(View):
    """The change is applied, by this request."""

    outcome: Literal["applied"] = "applied"
    counter: str
    value: AmountText | None


class DuplicateAnswer(View):
    """The change was applied under this key before; it counts once."""

    outcome: Literal["duplicate"] = "duplicate"
    counter: str
    value: AmountText | None


class WithdrawnAnswer(View):
    """The change under this key is not applied, and never will be."""

    outcome: Literal["withdrawn"] = "withdrawn"
    counter: str
    id: str


CHANGED: Final[dict[type, type[View]]] = {
    outcomes.Applied: AppliedAnswer,
    outcomes.Duplicate: DuplicateAnswer,
}
_WITHDRAWN: Final[dict[type, type[View]]] = {**CHANGED, outcomes.Withdrawn: WithdrawnAnswer}


@routes.post("/v1/strict", status_code=201, response_model=StrictAnswer)
def create_strict(body: NewStrict, call: Called) -> Response:
    """Create a strict counter. Two write units, two for its list entry, two for each bin."""
    chosen = body.model_dump(exclude={"counter", "method"})
    created = call.administers(body.counter).strict.create(
        body.counter, method=body.method, **chosen
    )
    return answered(StrictAnswer.model_validate(created), 201)


@routes.get("/v1/strict/{counter}", response_model=StrictAnswer)
def show_strict(counter: CounterPath, call: Called) -> Response:
    """A strict counter with its bounds. One read unit; with bins two more for each."""
    return answered(StrictAnswer.model_validate(call.reads(counter).strict.show(counter)))


@routes.post("/v1/strict/{counter}/changes", response_model=AppliedAnswer | DuplicateAnswer)
def change_strict(
    counter: CounterPath, body: StrictChangeInput, key: OptionalKey, call: Called
) -> Response:
    """Add to a strict counter, or take from it, within its bounds. A write unit or more, by method.

    Methods that remember keys require an `Idempotency-Key`; method `atomic` remembers none and
    refuses it (without a key the counter is read first: a read unit, with bins two more for each).
    A change that a bound refuses is a problem `bound-reached`.
    """
    client = call.writes(counter)
    if key is None and client.strict.show(counter).method != METHOD_WITHOUT_KEYS:
        raise KeyMissing(f"this request requires {HOW}: without it a retry would count twice")
    outcome = client.strict.change(counter, body.delta, key=key, prefer=body.prefer, note=body.note)
    return answer_of(outcome, CHANGED)


@routes.put("/v1/strict/{counter}/value", response_model=AppliedAnswer | DuplicateAnswer)
def set_strict(
    counter: CounterPath, body: StrictValueInput, key: RequiredKey, call: Called
) -> Response:
    """Set a strict counter exactly to a value, within its bounds. Four write units, a read unit."""
    transactions = call.administers(counter).strict.transactions
    own = key_of_namespaces(key, [keys.namespace_of(counter)])
    outcome = transactions.set_value(counter, body.value, key=own, note=body.note)
    return answer_of(outcome, CHANGED)


@routes.post("/v1/strict-changes", response_model=AppliedAnswer | DuplicateAnswer)
def change_together(body: StrictChangesInput, key: RequiredKey, call: Called) -> Response:
    """Change up to 99 strict counters, all or none. Two write units each, and two for the key.

    A transfer takes from one counter and adds the same to another.
    """
    changes = {one.counter: one.delta for one in body.changes}
    for counter in changes:
        call.writes(counter)
    if len(changes) < len(body.changes):
        raise CounterTwice("a counter is named twice: add up its changes")
    own = key_of_namespaces(key, map(keys.namespace_of, changes))
    outcome = call.ledger.strict.transactions.change(changes, key=own, note=body.note)
    return answer_of(outcome, CHANGED)


@routes.post("/v1/strict/{counter}/withdrawals", response_model=WithdrawnAnswer | DuplicateAnswer)
def withdraw(counter: CounterPath, key: RequiredKey, call: Called) -> Response:
    """Withdraw the change under the key, or report that it was applied. Up to four write units."""
    return answer_of(call.writes(counter).strict.withdraw(counter, key), _WITHDRAWN)


@routes.patch("/v1/strict/{counter}/bounds", response_model=StrictAnswer)
def set_bounds(counter: CounterPath, body: BoundsInput, call: Called) -> Response:
    """Move bounds while the counter is in use. Two write units, with bins two for each."""
    given: dict[str, Any] = {name: getattr(body, name) for name in body.model_fields_set}
    moved = call.administers(counter).strict.set_bounds(counter, **given)
    return answered(StrictAnswer.model_validate(moved))


@routes.delete("/v1/strict/{counter}", status_code=204)
def delete_strict(counter: CounterPath, call: Called) -> Response:
    """Delete a strict counter. Two write units for each of its items, and a read unit."""
    call.administers(counter).strict.delete(counter)
    return Response(status_code=204)
