"""Why a rule has not alerted: its counters had passed the threshold before it was effective."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from countledger.consumers.alerts.rule import Direction
from countledger.consumers.alerts.service import is_past, silence_of
from countledger.consumers.totals import NamesPage
from countledger.infra.cli.output import notice
from countledger.ledger.amount import add, negated, to_text
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import BadSetting, CountledgerError, NoWindows

if TYPE_CHECKING:
    from countledger import CountLedger, Rule
    from countledger.consumers.alerts.service import SilentCounter
    from countledger.ledger.calendar import Per

# So many counters of a prefix are looked at, so many with windows; and so many are named.
_COUNTERS_MAX: Final = 1_000
_WITH_WINDOWS_MAX: Final = 100
_NAMED_MAX: Final = 3


def explain_silence(client: CountLedger, rule: Rule) -> None:
    """Say why a rule does not alert for counters that had passed its threshold before.

    Of a rule on one counter half a read unit, and half of one if it is beyond. Of a prefix the same
    for each of up to 1,000 counters, and their search: half a read unit for each 4 KB of the table
    `counters`, in up to 20 requests. Of a rule with a window one read unit for each of up to 100
    counters, half of one for its namespace, and half a unit for each 4 KB of up to 100 alerts of
    each that is beyond.
    """
    try:
        if rule.window is not None:
            _explain_windows(client, rule, rule.window)
        else:
            _explain_totals(client, rule)
    except CountledgerError:
        return  # the rule was shown; other commands report what is wrong with the counter


def _explain_totals(client: CountLedger, rule: Rule) -> None:
    page = _watched(client, rule, _COUNTERS_MAX)
    reader = silence_of(client.connection)
    silent = reader.silent([(rule, name) for name in page.names])
    found = [_reason(one) for one in sorted(silent, key=lambda one: one.counter)]
    _say(rule, page, found)
    if found:
        notice(f"`countledger alert set {rule.name} --now` alerts at once")


def _watched(client: CountLedger, rule: Rule, limit: int) -> NamesPage:
    """The counters of a rule, or the first of them."""
    if rule.prefix is not None:
        return client.names_page(rule.prefix, limit=limit)
    return NamesPage(() if rule.counter is None else (rule.counter,), None, 0)


def _say(rule: Rule, page: NamesPage, found: list[str]) -> None:
    for reason in found[:_NAMED_MAX]:
        notice(reason)
    if len(found) > _NAMED_MAX:
        notice(f"the same is so of {len(found) - _NAMED_MAX} more counters of rule {rule.name}")
    if page.after is not None:
        notice(f"looked at {len(page.names)} counters of rule {rule.name}; there are more")


def _reason(one: SilentCounter) -> str:
    rule, passed = one.rule, to_text(one.passed)
    again = f"crosses {passed} again"
    if rule.step is not None:
        step = negated(rule.step) if rule.direction is Direction.FALLING else rule.step
        again = f"passes {to_text(add(one.passed, step))}, the next step"
    return (
        f"{one.counter} is at {to_text(one.value)}, and rule {rule.name} has not alerted: it was "
        f"past {passed} before {_effective(rule)}, when the rule becomes effective. It alerts when "
        f"the total {again}"
    )


def _explain_windows(client: CountLedger, rule: Rule, per: Per) -> None:
    """Of each counter: whether its current window had passed the threshold."""
    page = _watched(client, rule, _WITH_WINDOWS_MAX)
    reasons = (_reason_of_window(client, rule, per, name) for name in sorted(page.names))
    _say(rule, page, [one for one in reasons if one is not None])


def _reason_of_window(client: CountLedger, rule: Rule, per: Per, counter: str) -> str | None:
    now_ms = client.connection.clock.now_ms()
    since, until = to_datetime(now_ms - 1), to_datetime(now_ms)
    try:
        current = client.windows(counter, str(per), since=since, until=until)[-1]
    except (NoWindows, BadSetting):
        return None  # a prefix may reach into a namespace without windows of this kind
    reader = silence_of(client.connection)
    if not is_past(rule, current.value) or reader.is_logged(rule, counter, current.name):
        return None
    return (
        f"{counter} is at {to_text(current.value)} in {per} {current.name}, and rule {rule.name} "
        f"has not alerted: it was past {to_text(rule.threshold)} before {_effective(rule)}, when "
        "the rule becomes effective. The next window can alert"
    )


def _effective(rule: Rule) -> str:
    return f"{to_datetime(rule.effective_from_ms):%Y-%m-%d %H:%M:%S}Z"
