"""The calls of quotas: `countledger quota`, `/v1/quotas`, `/v1/usage`."""

import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from countledger import Admitted, Denied
from countledger.infra.calls.access import ScopeVerb
from countledger.infra.calls.call import (
    ADMINISTERS,
    READS,
    WRITES,
    Call,
    Calls,
    GivenKey,
    NeedsScope,
    Param,
)
from countledger.infra.calls.shapes import (
    AmountText,
    CounterText,
    PerText,
    PrefixText,
    ShownTime,
    Text,
    View,
    amount_text,
    from_cursor,
    to_cursor,
)
from countledger.ledger import keys
from countledger.ledger.amount import Amount, to_text
from countledger.ledger.clock import to_datetime, to_ms
from countledger.ledger.errors import BadQuota, CountledgerError
from countledger.ledger.limits import ADMISSION_LIMITS_MAX
from countledger.ledger.values import parse_delta_text
from countledger.producers.quotas.quota import CountedIn, Quota, Ticket

QUOTAS: Final = Calls(
    "quota",
    """Limits for each window of time: budgets a day, calls an hour.

    A quota is for every counter whose name begins with its prefix; each may use the limit once in
    every window. What costs so much as is known only afterwards is reserved, and then committed or
    released.
    """,
    tag="quotas",
)

_ZONE_MAX: Final = 64
_TICKET_MAX: Final = 8_000
# Parts of a ticket that are parts of keys.
_NAME: Final = re.compile(r"[!-~]{1,300}")


# ---- tickets as texts ----


def to_ticket(ticket: Ticket) -> str:
    """A ticket as a text; it grants nothing without scopes of its counters' namespaces."""
    places = json.dumps(ticket.counted_in, separators=(",", ":"), ensure_ascii=False)
    return to_cursor(
        to_text(ticket.amount), places, ticket.key_id, ticket.reservation, to_ms(ticket.until)
    )


def from_ticket(text: str) -> Ticket:
    try:
        found = from_cursor(text, str, str, str, str, int)
        assert found is not None  # noqa: S101 - a text is given
        amount, places, key_id, reservation, until_ms = found
        counted_in = tuple(_counted_in(*one) for one in json.loads(places))
        if not counted_in or not all(_NAME.fullmatch(one) for one in (key_id, reservation)):
            raise BadQuota("a part of it is none")
        until: datetime = to_datetime(until_ms)
        return Ticket(parse_delta_text(amount), counted_in, key_id, reservation, until)
    except (CountledgerError, ValueError, TypeError, OverflowError, OSError, RecursionError):
        # Also times out of range.
        raise BadQuota(f"ticket {text[:60]!r} is of no reservation of this stack") from None


def _counted_in(*parts: Any) -> CountedIn:  # noqa: ANN401 - of JSON
    if [*map(type, parts)] != [str, str, str, str, str, int]:
        raise BadQuota("a part of it is none")
    found = CountedIn(*parts)
    keys.check_counter(found.counter)
    if not all(map(_NAME.fullmatch, (found.incarnation, found.window))):
        raise BadQuota("a part of it is none")
    return found


# ---- parameters ----

Prefix = Annotated[
    PrefixText, Param("The beginning of the names: a namespace and its colon, as llm:.")
]
Counter = Annotated[CounterText, Param("The counter, as llm:team-1.")]
LimitText = Annotated[Amount, amount_text("limit", BadQuota)]
Actual = Annotated[Amount, amount_text("actual amount", BadQuota)]
Kind = Annotated[
    PerText | None,
    Param("The kind of window, where the prefix or the counter has several quotas."),
]
# Of a call under several limits.
Also = Annotated[
    list[CounterText] | None,
    Field(max_length=ADMISSION_LIMITS_MAX),
    Param("Another counter that it is counted for; repeatable: for all of them, or for none."),
    WRITES,
]
Limit = Annotated[LimitText, Param("What each counter may use in one window.")]
Wanted = Annotated[
    Amount,
    amount_text("amount", BadQuota),
    Field(description="an exact decimal number above 0", examples=["0.05"]),
    Param("How much: an exact number above 0."),
]
TicketText = Annotated[
    Ticket,
    Text(from_ticket, r"^[A-Za-z0-9_-]+$", minLength=1, maxLength=_TICKET_MAX),
    Param("The reservation, as `reserve` showed it."),
    NeedsScope(ScopeVerb.WRITE, lambda ticket: map(keys.namespace_of, ticket.counters)),
]


# ---- what is shown ----


class QuotaView(View):
    """A quota, and the limits that single counters have of their own."""

    prefix: str
    limit: AmountText
    per: str
    time_zone: str
    method: str
    revision: int
    updated_at: ShownTime
    counters: dict[str, AmountText]

    @classmethod
    def of(cls, quota: Quota, counters: dict[str, Any] | None = None) -> "QuotaView":
        own = {} if counters is None else counters
        return cls(**{name: getattr(quota, name) for name in _OF_QUOTA}, counters=own)


_OF_QUOTA: Final = tuple(name for name in QuotaView.model_fields if name != "counters")


class UsageView(View):
    """What a counter has used under one of its quotas, in the present window."""

    counter: str
    prefix: str
    per: str
    limit: AmountText
    overridden: bool
    used: AmountText
    overrun: AmountText
    remaining: AmountText
    window: str
    resets_at: ShownTime


class LimitView(View):
    """One of the limits, after the amount was counted."""

    counter: str
    prefix: str
    per: str
    window: str
    limit: AmountText | None
    remaining: AmountText | None
    resets_at: ShownTime


class AdmittedView(View):
    """The amount is counted, and within every limit.

    `counter`, `window`, `remaining` and `resets_at` are of the limit with the least left.
    """

    counter: str
    amount: AmountText
    window: str
    remaining: AmountText | None
    resets_at: ShownTime
    duplicate: bool | None
    ticket: Annotated[str | None, Field(description="of a reservation")]
    limits: list[LimitView]

    @classmethod
    def of(cls, outcome: Admitted | Denied) -> "AdmittedView | Denied":
        if isinstance(outcome, Denied):
            return outcome
        ticket = None if outcome.ticket is None else to_ticket(outcome.ticket)
        limits = [LimitView.model_validate(one) for one in outcome.limits]
        names = (name for name in cls.model_fields if name not in {"ticket", "limits"})
        found = {name: getattr(outcome, name) for name in names}
        return cls(**found, ticket=ticket, limits=limits)

    def row(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in type(self).model_fields if name != "limits"}


class CommittedView(View):
    """What was used is counted."""

    counters: list[str]
    actual: AmountText
    overrun: AmountText
    duplicate: bool

    def row(self) -> dict[str, object]:
        return {**super().row(), "counters": " ".join(self.counters)}


class ReleasedView(View):
    """Nothing is counted for the reservation."""

    released: bool


# ---- the calls ----


@QUOTAS.op("create", "POST /v1/quotas 201", costs="One write unit.")
def create_quota(
    call: Call,
    prefix: Annotated[Prefix, ADMINISTERS],
    *,
    limit: Limit,
    per: Annotated[PerText, Param("The kind of window: minute, hour, day or month.")],
    time_zone: Annotated[
        str,
        Field(min_length=1, max_length=_ZONE_MAX),
        Param("Whose hours, days and months: an IANA name, as Europe/Berlin."),
    ] = "UTC",
    method: Annotated[
        Literal["request_token", "marker"],
        Param("How keys are remembered: marker (a day) or request_token (10 minutes)."),
    ] = "marker",
) -> QuotaView:
    """Create a quota; kind of window, time zone and method stay as they are.

    A prefix may have a quota for each kind of window: an amount must fit into all of them.

    Examples:
      countledger quota create llm: --limit 30 --per day
      countledger quota create api:free- --limit 100 --per hour --time-zone Europe/Berlin
    """
    quotas = call.ledger.quotas
    return QuotaView.of(
        quotas.create(prefix, limit=limit, per=per, time_zone=time_zone, method=method)
    )


@QUOTAS.op("set", "PUT /v1/quotas/{prefix}/limit 204", costs="A read unit and a write unit.")
def set_limit(
    call: Call, prefix: Annotated[Prefix, ADMINISTERS], limit: Limit, *, per: Kind = None
) -> None:
    """Change the limit of a quota, also while it is used. Processes see it within five seconds.

    Examples:
      countledger quota set llm: 50
      countledger quota set llm: 1000 --per month
    """
    call.ledger.quotas.set_limit(prefix, limit, per=per)


@QUOTAS.op(
    "override",
    "PUT /v1/usage/{counter}/limit 204",
    costs="Up to three read units, and four write units.",
)
def override_limit(
    call: Call,
    counter: Annotated[Counter, ADMINISTERS],
    limit: Annotated[
        LimitText | None, Param("Its own limit; none: that of its quota again.", none="none")
    ],
    *,
    per: Kind = None,
) -> None:
    """Give one counter a limit of its own; without one it has that of its quota again.

    Examples:
      countledger quota override llm:team-1 80
      countledger quota override llm:team-1 none
    """
    call.ledger.quotas.override(counter, limit, per=per)


@QUOTAS.op(
    "acquire",
    "POST /v1/usage/{counter}/acquisitions",
    costs="Two write units for each limit, two for the marker (method `marker`), and a read unit "
    "for each limit.",
)
def acquire(
    call: Call,
    counter: Annotated[Counter, WRITES],
    amount: Wanted = 1,
    *,
    also: Also = None,
    key: GivenKey = None,
    prefer: Annotated[
        Literal["under", "over"],
        Param("After a lost answer: over = at least once, under = at most once.", only="command"),
    ] = "under",
) -> AdmittedView | Denied:
    """Count an amount in the present windows, if every limit allows it: else it is denied.

    It is counted under each quota of each counter, or under none. The answer has the windows in
    which it is counted, what each has left, and its end; or the limit that refuses.

    Exit codes: 0 admitted. 4 denied; the line says when to try again. 3 unknown, or refused for
    now. 2 bad input, or no quota is for the counter.

    Examples:
      countledger quota acquire llm:team-1 0.05
      countledger quota acquire llm:team-1 0.05 --key request-9
      countledger quota acquire llm:team-1 0.05 --also org:acme --also user:u7
    """
    counters = [counter, *(also or [])]
    return AdmittedView.of(call.ledger.quotas.acquire(counters, amount, key=key, prefer=prefer))


@QUOTAS.op(
    "reserve",
    "POST /v1/usage/{counter}/reservations",
    costs="Two write units for each limit, two for the marker, and a read unit for each limit.",
)
def reserve(
    call: Call,
    counter: Annotated[Counter, WRITES],
    amount: Wanted,
    *,
    also: Also = None,
    key: GivenKey = None,
) -> AdmittedView | Denied:
    """Count the most that something may cost, as an acquisition; commit or release it afterwards.

    The answer has the ticket of the reservation.

    Exit codes: as "countledger quota acquire".

    Examples:
      countledger quota reserve llm:team-1 2 --key request-9
    """
    counters = [counter, *(also or [])]
    return AdmittedView.of(call.ledger.quotas.reserve(counters, amount, key=key))


@QUOTAS.op(
    "commit",
    "POST /v1/commits",
    costs="Two write units for each limit, and two for the marker; one in all if both are equal.",
)
def commit(
    call: Call,
    ticket: TicketText,
    actual: Annotated[Actual | None, Param("What was used; by default all of it.")] = None,
) -> CommittedView:
    """Count what was used instead of what was reserved, also if it is more.

    Examples:
      countledger quota commit "$TICKET" 1.25
    """
    return CommittedView.model_validate(call.ledger.quotas.commit(ticket, actual))


@QUOTAS.op(
    "release",
    "POST /v1/releases",
    costs="Two write units for each limit, and two for the marker.",
)
def release(call: Call, ticket: TicketText) -> ReleasedView:
    """Count nothing for a reservation; `released` is false if it was released before.

    Examples:
      countledger quota release "$TICKET"
    """
    return ReleasedView(released=call.ledger.quotas.release(ticket))


@QUOTAS.op(
    "show",
    "GET /v1/usage/{counter}",
    costs="A read unit, and up to two for each quota.",
    whole=True,
)
def show_usage(call: Call, counter: Annotated[Counter, READS]) -> Iterator[UsageView]:
    """Show what a counter has used under each of its quotas, in the present windows.

    Examples:
      countledger quota show llm:team-1
    """
    return map(UsageView.model_validate, call.ledger.quotas.show(counter))


@QUOTAS.op(
    "usage",
    "GET /v1/quotas/{prefix}/usage",
    costs="A read unit for each 4 KB, at least 16, and up to two for the quota.",
    whole=True,
)
def list_usage(
    call: Call, prefix: Annotated[Prefix, READS], *, per: Kind = None
) -> Iterator[UsageView]:
    """Show what every counter of a quota has used in the present window, by name.

    A counter that has used nothing is not listed.

    Examples:
      countledger quota usage llm:
      countledger quota usage llm: --per month
    """
    found = call.ledger.quotas.usage(prefix, per=per, on_corrupt=call.on_corrupt)
    return map(UsageView.model_validate, found)


@QUOTAS.op(
    "list",
    "GET /v1/quotas",
    costs="A read unit for each 4 KB, and one for each quota.",
    everywhere=ScopeVerb.READ,
)
def list_quotas(call: Call) -> Iterator[QuotaView]:
    """List the quotas, with the limits that single counters have of their own.

    What cannot be read is named, and the exit code is 1.

    Examples:
      countledger quota list
    """
    quotas, note = call.ledger.quotas, call.on_corrupt
    found = quotas.list(on_corrupt=note)
    return (QuotaView.of(one, quotas.overrides(one, on_corrupt=note)) for one in found)


@QUOTAS.op(
    "delete",
    "DELETE /v1/quotas/{prefix} 204",
    costs="A read unit, a write unit, and one for each counter's own limit.",
    confirm="Delete quota {prefix!r}, and what its counters have used?",
)
def delete_quota(call: Call, prefix: Annotated[Prefix, ADMINISTERS], *, per: Kind = None) -> None:
    """Delete a quota, with what its counters have used. At a terminal it asks first.

    Nothing is admitted under it any more, within five seconds. Elsewhere --yes is required.

    Examples:
      countledger quota delete llm: --yes
    """
    call.ledger.quotas.delete(prefix, per=per)
