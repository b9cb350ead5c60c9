"""Routes of alerts: rules for totals that cross thresholds, and the log of alerts."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import Field

from countledger import Rule
from countledger.consumers.alerts.message import AlertMessage, message_of
from countledger.infra.calls.access import ScopeVerb
from countledger.infra.calls.shapes import (
    PAGE_DEFAULT,
    AmountText,
    CounterText,
    InputBody,
    Limit,
    LimitText,
    PerText,
    PrefixText,
    ShownTime,
    View,
)
from countledger.infra.http.calls import Called, CountedRoute, answered
from countledger.ledger.clock import to_datetime
from countledger.ledger.limits import ALERT_RULE_NAME_MAX_BYTES

routes = APIRouter(route_class=CountedRoute, tags=["alerts"])

_NAME = rf"^[A-Za-z0-9._-]{{1,{ALERT_RULE_NAME_MAX_BYTES}}}$"
RuleName = Annotated[str, Field(pattern=_NAME)]


class RuleInput(InputBody):
    """A rule; docs/alerts.md explains its fields."""

    counter: CounterText | None = None
    prefix: PrefixText | None = None
    threshold: LimitText | None = None
    direction: Literal["rising", "falling", "both"] | None = None
    rearm: LimitText | None = None
    step: LimitText | None = None
    window: PerText | None = None
    of: Literal["value", "available"] = "value"
    to: Annotated[str, Field(min_length=1, max_length=2_048)] = "bus"


class NewRule(RuleInput):
    """A rule and its name."""

    name: RuleName


class RuleAnswer(View):
    """The current revision of a rule."""

    name: str
    counter: str | None
    prefix: str | None
    threshold: AmountText
    direction: str
    rearm: AmountText | None
    step: AmountText | None
    window: str | None
    of: str
    target: str
    evaluate_in: str
    revision: str
    effective_from: ShownTime


class RulesAnswer(View):
    """The rules of the stack; those that cannot be read are not evaluated."""

    rules: list[RuleAnswer]
    unreadable: dict[str, str]


class LoggedAnswer(View):
    """An alert, when it was published, and why its target refused it."""

    alert: AlertMessage
    published_at: ShownTime
    reason: str | None


class AlertLogAnswer(View):
    """Alerts, the newest first."""

    alerts: list[LoggedAnswer]


@routes.get("/v1/alerts/rules", response_model=RulesAnswer)
def list_rules(call: Called) -> Response:
    """The rules of the stack. Two read units for each 4 KB of rules."""
    alerts = call.may(ScopeVerb.READ).alerts
    rules = [_shown(one) for one in alerts.list()]
    return answered(RulesAnswer(rules=rules, unreadable=alerts.unreadable()))


@routes.post("/v1/alerts/rules", status_code=201, response_model=RuleAnswer)
def create_rule(body: NewRule, call: Called) -> Response:
    """Create a rule. Four write units, a read unit, and one for each 4 KB of rules."""
    spec: Any = body.model_dump(exclude={"name"}, exclude_unset=True)
    return answered(_shown(call.may(ScopeVerb.ADMIN).alerts.create(body.name, **spec)), 201)


@routes.get("/v1/alerts/rules/{name}", response_model=RuleAnswer)
def show_rule(name: RuleName, call: Called) -> Response:
    """The current revision of a rule. One read unit."""
    return answered(_shown(call.may(ScopeVerb.READ).alerts.get(name)))


@routes.delete("/v1/alerts/rules/{name}", status_code=204)
def delete_rule(name: RuleName, call: Called) -> Response:
    """Delete a rule, if it exists. A read unit and four write units."""
    call.may(ScopeVerb.ADMIN).alerts.delete(name)
    return Response(status_code=204)


@routes.get("/v1/alerts/log", response_model=AlertLogAnswer)
def alert_log(
    call: Called,
    counter: Annotated[CounterText | None, Query(description="by default of all")] = None,
    limit: Limit = PAGE_DEFAULT,
) -> Response:
    """The newest alerts of a counter, or of all. Half a read unit for each 4 KB."""
    client = call.may(ScopeVerb.READ) if counter is None else call.reads(counter)
    found = islice(client.alerts.log(counter, limit=limit), limit)
    shown = [
        LoggedAnswer(alert=message_of(one.alert), published_at=one.published_at, reason=one.reason)
        for one in found
    ]
    return answered(AlertLogAnswer(alerts=shown))


def _shown(rule: Rule) -> RuleAnswer:
    facts = {name: getattr(rule, name) for name in RuleAnswer.model_fields if hasattr(rule, name)}
    return RuleAnswer(
        **facts | {"target": str(rule.target), "window": rule.window and str(rule.window)},
        effective_from=to_datetime(rule.effective_from_ms),
    )
