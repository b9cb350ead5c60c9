"""Routes of holds: reserve an amount of a strict counter, confirm or cancel it."""

from __future__ import annotations

from datetime import timedelta
from itertools import islice
from typing import Annotated, Final, Literal

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import Field

from countledger import outcomes
from countledger.infra.http.calls import Called, CountedRoute, answer_of, answered
from countledger.infra.http.cursors import PAGE_DEFAULT, Limit
from countledger.infra.http.idempotency import RequiredKey
from countledger.infra.http.shapes import (
    AmountText,
    AnswerBody,
    CounterPath,
    DeltaText,
    HoldPath,
    InputBody,
    NoteMap,
    ShownTime,
)
from countledger.ledger.limits import HOLD_MAX_MS, HOLD_MIN_MS

routes = APIRouter(route_class=CountedRoute, tags=["holds"])


class NewHold(InputBody):
    """What is reserved, and for how long it can be confirmed."""

    amount: DeltaText
    expires_in_ms: Annotated[int, Field(ge=HOLD_MIN_MS, le=HOLD_MAX_MS)]
    note: NoteMap | None = None


class Confirmation(InputBody):
    """How much of a hold is taken; by default all of it."""

    amount: DeltaText | None = None
    readmit: bool = False


class HoldAnswer(AnswerBody):
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


class HoldsAnswer(AnswerBody):
    """The open holds of a counter, by their time."""

    holds: list[HoldAnswer]
    more: bool


class HeldAnswer(AnswerBody):
    """The amount is reserved, by this request."""

    outcome: Literal["held"] = "held"
    counter: str
    id: str
    amount: AmountText
    expires_at: ShownTime


class DuplicateHold(AnswerBody):
    """The same was done before; the hold is as it is stored."""

    outcome: Literal["duplicate"] = "duplicate"
    counter: str
    value: AmountText | None
    hold: HoldAnswer | None


class ConfirmedAnswer(AnswerBody):
    """The hold, or a part of it, is taken, by this request."""

    outcome: Literal["confirmed"] = "confirmed"
    counter: str
    id: str
    amount: AmountText
    released: AmountText


class CancelledAnswer(AnswerBody):
    """The hold is cancelled, by this request."""

    outcome: Literal["cancelled"] = "cancelled"
    counter: str
    id: str
    amount: AmountText


HELD: Final[dict[type, type[AnswerBody]]] = {
    outcomes.Held: HeldAnswer,
    outcomes.Duplicate: DuplicateHold,
    outcomes.Confirmed: ConfirmedAnswer,
    outcomes.Cancelled: CancelledAnswer,
}


@routes.post("/v1/strict/{counter}/holds", response_model=HeldAnswer | DuplicateHold)
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


@routes.get("/v1/strict/{counter}/holds", response_model=HoldsAnswer)
def list_holds(counter: CounterPath, call: Called, limit: Limit = PAGE_DEFAULT) -> Response:
    """The open holds of a counter, by their time. Half a read unit for each."""
    found = list(islice(call.reads(counter).strict.holds(counter), limit + 1))
    shown = [HoldAnswer.model_validate(one) for one in found[:limit]]
    return answered(HoldsAnswer(holds=shown, more=len(found) > limit))


@routes.post("/v1/holds/{hold}/confirmation", response_model=ConfirmedAnswer | DuplicateHold)
def confirm_hold(hold: HoldPath, body: Confirmation, call: Called) -> Response:
    """Take what is held. Four write units, one for the index, a read unit; more with bins.

    The hold itself identifies the call: a retry is answered `duplicate`.
    """
    strict = call.writes(_counter_of(hold)).strict
    return answer_of(strict.confirm(hold, body.amount, readmit=body.readmit), HELD)


@routes.post("/v1/holds/{hold}/cancellation", response_model=CancelledAnswer | DuplicateHold)
def cancel_hold(hold: HoldPath, call: Called) -> Response:
    """Make what is held available again. As many units as a confirmation."""
    return answer_of(call.writes(_counter_of(hold)).strict.cancel(hold), HELD)


def _counter_of(hold: str) -> str:
    return hold.partition("#")[0]
