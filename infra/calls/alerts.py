"""The calls of alerts: `countledger alert`, `/v1/alerts`."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field

from countledger import Rule
from countledger.consumers.alerts.delivery import LoggedAlert, Resent
from countledger.consumers.alerts.message import Alert, AlertMessage, message_of
from countledger.infra.calls.access import ScopeVerb
from countledger.infra.calls.call import READS_OR_EVERYTHING, Call, Calls, Param
from countledger.infra.calls.shapes import (
    AmountText,
    CounterText,
    LimitText,
    PerText,
    PrefixText,
    ShownTime,
    View,
)
from countledger.ledger import keys
from countledger.ledger.amount import from_number
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import CorruptItem
from countledger.ledger.limits import ALERT_RULE_NAME_MAX_BYTES

ALERTS: Final = Calls(
    "alert",
    """Alerts: every crossing of a threshold that a total makes, once.

    A rule watches one counter, or all whose names begin alike, of any kind: ledger, strict or
    sequence. Whenever a total goes from one side of a threshold to the other from one update to the
    next, an alert goes to the stack's event bus or to an SNS topic, at least once and always with
    the same id. docs/alerts.md describes the message.
    """,
    tag="alerts",
)

# ---- parameters ----

_NAME: Final = rf"^[A-Za-z0-9._-]{{1,{ALERT_RULE_NAME_MAX_BYTES}}}$"
RuleName = Annotated[
    str,
    Field(pattern=_NAME),
    Param("The rule: letters, digits, '.', '_' and '-'.", metavar="NAME"),
]

# ---- what is shown ----


class RuleView(View):
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
    to: str
    evaluate_in: str
    revision: str
    effective_from: ShownTime

    @classmethod
    def of_rule(cls, rule: Rule) -> "RuleView":
        facts = {name: getattr(rule, name) for name in cls.model_fields if hasattr(rule, name)}
        facts["window"] = rule.window and str(rule.window)
        effective_from = to_datetime(rule.effective_from_ms)
        return cls(**facts, to=str(rule.target), effective_from=effective_from)

    def row(self) -> dict[str, object]:
        """What ends in a star is a prefix."""
        return {
            "rule": self.name,
            "watches": self.counter if self.prefix is None else f"{self.prefix}*",
            "threshold": self.threshold,
            "direction": self.direction,
            "rearm": self.rearm,
            "step": self.step,
            "window": self.window,
            "of": self.of,
            "to": self.to,
            "evaluated in": self.evaluate_in,
            "effective from": self.effective_from,
        }


class DeletedRuleView(View):
    """Whether there was such a rule."""

    name: str
    deleted: bool


class AlertView(View):
    """An alert, as its target gets it."""

    alert: AlertMessage

    @classmethod
    def of(cls, alert: Alert) -> Self:
        return cls(alert=message_of(alert))

    def row(self) -> dict[str, object]:
        """Of a range from its first to its last threshold."""
        alert = self.alert
        crossed: object = from_number(alert.threshold)
        if alert.through is not None:
            crossed = f"{alert.threshold} to {alert.through} ({alert.count})"
        return {
            "at": alert.at,
            "rule": alert.rule,
            "counter": alert.counter,
            "direction": alert.direction,
            "crossed": crossed,
            "window": alert.window and alert.window.name,
            "old": from_number(alert.old),
            "new": from_number(alert.new),
        }


class SentView(AlertView):
    """A test message that was sent."""

    def row(self) -> dict[str, object]:
        return {"sent": True, "id": self.alert.id, **super().row()}


class LoggedView(AlertView):
    """An alert, when it was published, and why its target refused it."""

    published_at: ShownTime
    reason: str | None

    @classmethod
    def of_logged(cls, one: LoggedAlert) -> "LoggedView":
        return cls(alert=message_of(one.alert), published_at=one.published_at, reason=one.reason)

    def row(self) -> dict[str, object]:
        return {**super().row(), "dead letter": self.reason}


class ResentView(View):
    """An alert that was sent again, and why its target refused it again."""

    sent: bool
    alert: AlertMessage | None
    to: str | None
    failed_before: str | None
    reason: str | None

    @classmethod
    def of(cls, resent: Resent) -> "ResentView":
        letter = resent.dead_letter
        return cls(
            sent=resent.reason is None,
            alert=None if letter is None else message_of(letter.alert),
            to=None if letter is None else str(letter.target),
            failed_before=None if letter is None else letter.reason,
            reason=resent.reason,
        )

    def row(self) -> Mapping[str, object]:
        alert = self.alert and self.alert.id
        return {"sent": self.sent, "alert": alert, "to": self.to, "reason": self.reason}


# ---- the calls ----


@ALERTS.op(
    "create",
    "POST /v1/alerts/rules 201",
    costs="Four write units, a read unit, and one for each 4 KB of rules.",
    everywhere=ScopeVerb.ADMIN,
    command=False,
)
def create_rule(
    call: Call,
    name: RuleName,
    *,
    counter: CounterText | None = None,
    prefix: PrefixText | None = None,
    threshold: LimitText | None = None,
    direction: Literal["rising", "falling", "both"] | None = None,
    rearm: LimitText | None = None,
    step: LimitText | None = None,
    window: PerText | None = None,
    of: Literal["value", "available"] = "value",
    to: Annotated[str, Field(min_length=1, max_length=2_048)] = "bus",
) -> RuleView:
    """Create a rule, effective five seconds later; docs/alerts.md explains its fields."""
    given = {"counter": counter, "prefix": prefix, "threshold": threshold, "direction": direction}
    given |= {"rearm": rearm, "step": step, "window": window, "of": of, "to": to}
    spec: Any = {field: value for field, value in given.items() if value is not None}
    return RuleView.of_rule(call.ledger.alerts.create(name, **spec))


@ALERTS.op(
    "list",
    "GET /v1/alerts/rules",
    costs="One read unit for each 4 KB of rules.",
    everywhere=ScopeVerb.READ,
    command=False,
)
def list_rules(call: Call) -> Iterator[RuleView]:
    """List the rules of the stack, by name. A rule that cannot be read evaluates nothing."""
    return map(RuleView.of_rule, rules_of(call))


def rules_of(call: Call) -> list[Rule]:
    """The rules by name; those that cannot be read are noted."""
    found = call.ledger.alerts.rules.read()
    for name, reason in sorted(found.unreadable.items()):
        call.on_corrupt(CorruptItem(reason, keys.rule_key(name)))
    current = found.current
    return [current[name] for name in sorted(current)]


@ALERTS.op(
    "show",
    "GET /v1/alerts/rules/{name}",
    costs="One read unit.",
    everywhere=ScopeVerb.READ,
    command=False,
)
def show_rule(call: Call, name: RuleName) -> RuleView:
    """Show a rule in its newest revision."""
    return RuleView.of_rule(call.ledger.alerts.get(name))


@ALERTS.op(
    "delete",
    "DELETE /v1/alerts/rules/{name}",
    costs="A read unit and four write units.",
    everywhere=ScopeVerb.ADMIN,
)
def delete_rule(call: Call, name: RuleName) -> DeletedRuleView:
    """Delete a rule. It evaluates for five seconds more; that there is none is no error.

    Its alerts stay in the log.
    """
    return DeletedRuleView(name=name, deleted=call.ledger.alerts.delete(name))


@ALERTS.op("test", costs="One message to the target.", everywhere=ScopeVerb.ADMIN)
def send_test(
    call: Call,
    name: Annotated[str, Param("The rule whose target to test.", metavar="NAME")],
    counter: Annotated[
        CounterText,
        Param("The counter to name in the message; the rule must watch it.", metavar="COUNTER"),
    ],
) -> SentView:
    """Send a test message to the target of a rule.

    Its id begins with test/, and it carries "test": true. If the target refuses it, that is an
    error; nothing goes to the dead-letter queue.

    Examples:
      countledger alert test busy likes:post-1
    """
    return SentView.of(call.ledger.alerts.test(name, counter))


@ALERTS.op("log", "GET /v1/alerts/log", costs="Half a read unit for each 4 KB.")
def alert_log(
    call: Call,
    counter: Annotated[
        CounterText | None,
        Field(description="by default of all"),
        Param("Of one counter only.", metavar="[COUNTER]"),
        READS_OR_EVERYTHING,
    ] = None,
) -> Iterator[LoggedView]:
    """List the alerts of the last ninety days, newest first.

    An alert that its target refused has the reason, also after resend has sent it. An item that
    cannot be read is named, and the exit code is 1.

    Examples:
      countledger alert log --limit 20
      countledger alert log likes:post-1 --json
    """
    alerts = call.ledger.alerts
    for one in alerts.log(counter, limit=call.most, on_corrupt=call.on_corrupt):
        try:
            shown = LoggedView.of_logged(one)
        except CorruptItem as error:
            call.on_corrupt(error)
        else:
            yield shown
