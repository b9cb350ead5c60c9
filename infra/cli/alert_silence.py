"""Why a rule has not alerted: its counters had passed the threshold before it was effective."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from countledger.consumers.alerts.rule import Direction
from countledger.consumers.alerts.silence import is_past, silence_of
from countledger.consumers.name_pages import NamesPage
from countledger.infra.cli.output import notice
from countledger.ledger.amount import add, negated, to_text
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import CountledgerError

if TYPE_CHECKING:
    from countledger import CountLedger, Rule
    from countledger.consumers.alerts.silence import SilentCounter

# Of a prefix, so many counters are looked at, and so many are named.
_COUNTERS_MAX: Final = 1_000
_NAMED_MAX: Final = 3


def explain_silence(client: CountLedger, rule: Rule) -> None:
    """Say why a rule does not alert for counters that had passed its threshold before.

    Of a rule on one counter half a read unit, and half of one if it is beyond. Of a prefix the same
    for each of up to 1,000 counters, and their search: half a read unit for each 4 KB of the table
    `counters`, in up to 20 requests.
    """
    try:
        if rule.window is not None:
            _explain_window(client, rule)
        else:
            _explain_totals(client, rule)
    except CountledgerError:
        return  # the rule was shown; other commands report what is wrong with the counter


def _explain_totals(client: CountLedger, rule: Rule) -> None:
    page = NamesPage(() if rule.counter is None else (rule.counter,), None, 0)
    if rule.prefix is not None:
        page = client.names_page(rule.prefix, limit=_COUNTERS_MAX)
    reader = silence_of(client.connection)
    silent = sorted(
        reader.silent([(rule, name) for name in page.names]), key=lambda one: one.counter
    )
    for one in silent[:_NAMED_MAX]:
        notice(_reason(one))
    if len(silent) > _NAMED_MAX:
        notice(f"the same is so of {len(silent) - _NAMED_MAX} more counters of rule {rule.name}")
    if page.after is not None:
        notice(f"looked at {len(page.names)} counters of rule {rule.name}; there are more")
    if silent:
        notice(f"`countledger alert set {rule.name} --now` alerts at once")


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


def _explain_window(client: CountLedger, rule: Rule) -> None:
    """Of one counter: whether its current window had passed the threshold."""
    if rule.counter is None or rule.window is None:
        return
    now_ms = client.connection.clock.now_ms()
    since = to_datetime(now_ms - 1)
    current = client.windows(
        rule.counter, str(rule.window), since=since, until=to_datetime(now_ms)
    )[-1]
    reader = silence_of(client.connection)
    if is_past(rule, current.value) and not reader.is_logged(rule, rule.counter, current.name):
        passed = to_text(rule.threshold)
        notice(
            f"{rule.counter} is at {to_text(current.value)} in {rule.window} {current.name}, and "
            f"rule {rule.name} has not alerted: it was past {passed} before {_effective(rule)}, "
            "when the rule becomes effective. The next window can alert"
        )


def _effective(rule: Rule) -> str:
    return f"{to_datetime(rule.effective_from_ms):%Y-%m-%d %H:%M:%S}Z"
