"""Routes of quotas: create and change limits; acquire, reserve, commit and release amounts."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import Field

from countledger import Admitted, Committed
from countledger.infra.calls.access import ScopeVerb
from countledger.infra.http.calls import Called, CountedRoute, RequiredKey, answer_of, answered
from countledger.infra.calls.shapes import (
    AmountText,
    AnswerBody,
    CounterPath,
    DeltaText,
    InputBody,
    LimitText,
    PerText,
    PrefixPath,
    PrefixText,
    ShownTime,
    from_cursor,
    to_cursor,
)
from countledger.ledger import keys
from countledger.ledger.amount import to_text
from countledger.ledger.clock import to_datetime, to_ms
from countledger.ledger.errors import BadQuota, CountledgerError
from countledger.ledger.values import parse_delta_text
from countledger.producers.quotas.quota import Ticket

routes = APIRouter(route_class=CountedRoute, tags=["quotas"])

_ZONE_MAX: Final = 64
_TICKET_MAX: Final = 8_000
# Parts of a ticket that are parts of keys.
_NAME: Final = re.compile(r"[!-~]{1,300}")


class NewQuota(InputBody):
    """A limit for each counter whose name begins with a prefix."""

    prefix: PrefixText
    limit: LimitText
    per: PerText
    time_zone: Annotated[str, Field(min_length=1, max_length=_ZONE_MAX)] = "UTC"
    method: Literal["request_token", "marker"] = "marker"


class LimitInput(InputBody):
    """The new limit."""

    limit: LimitText


class OwnLimitInput(InputBody):
    """A limit of one counter's own; null: that of its quota again."""

    limit: LimitText | None


class AmountInput(InputBody):
    """An amount that is acquired or reserved."""

    amount: DeltaText


class TicketInput(InputBody):
    """A reservation, as its answer names it."""

    ticket: Annotated[str, Field(min_length=1, max_length=_TICKET_MAX)]


class CommitInput(TicketInput):
    """What was used of a reservation; by default all of it."""

    actual: LimitText | None = None


class QuotaAnswer(AnswerBody):
    """A quota."""

    prefix: str
    limit: AmountText
    per: str
    time_zone: str
    method: str
    revision: int
    updated_at: ShownTime


class QuotasAnswer(AnswerBody):
    """All quotas, by their prefixes."""

    quotas: list[QuotaAnswer]


class UsageAnswer(AnswerBody):
    """What a counter has used in its present window."""

    counter: str
    prefix: str
    limit: AmountText
    overridden: bool
    used: AmountText
    overrun: AmountText
    remaining: AmountText
    window: str
    resets_at: ShownTime


class AdmittedAnswer(AnswerBody):
    """The amount is counted, and within the limit."""

    counter: str
    amount: AmountText
    window: str
    remaining: AmountText | None
    resets_at: ShownTime
    duplicate: bool | None
    ticket: str | None


class CommittedAnswer(AnswerBody):
    """What was used is counted."""

    counter: str
    actual: AmountText
    overrun: AmountText
    duplicate: bool


class ReleasedAnswer(AnswerBody):
    """Nothing is counted for the reservation."""

    released: bool


@routes.post("/v1/quotas", status_code=201, response_model=QuotaAnswer)
def create_quota(body: NewQuota, call: Called) -> Response:
    """Create the quota of a prefix, which is at least a namespace and its colon. One write unit."""
    made = call.administers(body.prefix).quotas.create(
        body.prefix,
        limit=body.limit,
        per=body.per,
        time_zone=body.time_zone,
        method=body.method,
    )
    return answered(QuotaAnswer.model_validate(made), 201)


@routes.get("/v1/quotas", response_model=QuotasAnswer)
def list_quotas(call: Called) -> Response:
    """All quotas of the stack. A read unit for each 4 KB."""
    found = call.may(ScopeVerb.READ).quotas.list()
    return answered(QuotasAnswer(quotas=[QuotaAnswer.model_validate(one) for one in found]))


@routes.put("/v1/quotas/{prefix}/limit", status_code=204)
def set_limit(prefix: PrefixPath, body: LimitInput, call: Called) -> Response:
    """Change the limit of a quota, also while it is used. A read unit and a write unit."""
    call.administers(prefix).quotas.set_limit(prefix, body.limit)
    return Response(status_code=204)


@routes.delete("/v1/quotas/{prefix}", status_code=204)
def delete_quota(prefix: PrefixPath, call: Called) -> Response:
    """Delete a quota. A read unit, a write unit, and one for each counter's own limit."""
    call.administers(prefix).quotas.delete(prefix)
    return Response(status_code=204)


@routes.get("/v1/usage/{counter}", response_model=UsageAnswer)
def show_usage(counter: CounterPath, call: Called) -> Response:
    """What a counter has used in its present window. Up to three read units."""
    return answered(UsageAnswer.model_validate(call.reads(counter).quotas.show(counter)))


@routes.put("/v1/usage/{counter}/limit", status_code=204)
def override_limit(counter: CounterPath, body: OwnLimitInput, call: Called) -> Response:
    """Give one counter a limit of its own. Up to three read units, and four write units."""
    call.administers(counter).quotas.override(counter, body.limit)
    return Response(status_code=204)


@routes.post("/v1/usage/{counter}/acquisitions", response_model=AdmittedAnswer)
def acquire(counter: CounterPath, body: AmountInput, key: RequiredKey, call: Called) -> Response:
    """Count an amount in the present window, if the limit allows it: else a problem `denied`, 429.

    Two write units (method `request_token`) or four (`marker`), and a read unit.
    """
    outcome = call.writes(counter).quotas.acquire(counter, body.amount, key=key)
    return _admitted(outcome)


@routes.post("/v1/usage/{counter}/reservations", response_model=AdmittedAnswer)
def reserve(counter: CounterPath, body: AmountInput, key: RequiredKey, call: Called) -> Response:
    """As an acquisition, for a cost that is known later. Four write units and a read unit."""
    return _admitted(call.writes(counter).quotas.reserve(counter, body.amount, key=key))


@routes.post("/v1/commits", response_model=CommittedAnswer)
def commit(body: CommitInput, call: Called) -> Response:
    """Count what was used instead of what was reserved. Four write units; one if both are equal."""
    ticket = from_ticket(body.ticket)
    outcome = call.writes(ticket.counter).quotas.commit(ticket, body.actual)
    return answer_of(outcome, {Committed: CommittedAnswer})


@routes.post("/v1/releases", response_model=ReleasedAnswer)
def release(body: TicketInput, call: Called) -> Response:
    """Count nothing for a reservation; `released` is false if it was released before.

    Four write units.
    """
    ticket = from_ticket(body.ticket)
    return answered(ReleasedAnswer(released=call.writes(ticket.counter).quotas.release(ticket)))


def _admitted(outcome: object) -> Response:
    if not isinstance(outcome, Admitted):
        return answer_of(outcome, {})
    shown: dict[str, Any] = {
        name: getattr(outcome, name) for name in AdmittedAnswer.model_fields if name != "ticket"
    }
    ticket = None if outcome.ticket is None else to_ticket(outcome.ticket)
    return answered(AdmittedAnswer(**shown, ticket=ticket))


def to_ticket(ticket: Ticket) -> str:
    """A ticket as a text; it grants nothing without a scope of its counter's namespace."""
    return to_cursor(
        ticket.counter,
        to_text(ticket.amount),
        ticket.incarnation,
        ticket.window,
        ticket.key_id,
        ticket.reservation,
        to_ms(ticket.until),
    )


def from_ticket(text: str) -> Ticket:
    try:
        found = from_cursor(text, str, str, str, str, str, str, int)
        assert found is not None  # noqa: S101 - a text is given
        counter, amount, incarnation, window, key_id, reservation, until_ms = found
        until: datetime = to_datetime(until_ms)
        if not all(_NAME.fullmatch(one) for one in (incarnation, window, key_id, reservation)):
            raise BadQuota("a part of it is none")
        counter = keys.check_counter(counter)
        return Ticket(
            counter, parse_delta_text(amount), incarnation, window, key_id, reservation, until
        )
    except (CountledgerError, ValueError, OverflowError, OSError):  # also times out of range
        raise BadQuota(f"ticket {text[:60]!r} is of no reservation of this API") from None
