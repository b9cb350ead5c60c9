"""Whether the counters of a rule can be watched at all; checked when the rule is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from countledger.consumers.window_sums import check_per
from countledger.ledger import keys
from countledger.ledger.errors import BadRule, NoWindows, WrongKind
from countledger.ledger.window_items import decode_settings

if TYPE_CHECKING:
    from countledger.consumers.alerts.rule import Rule
    from countledger.consumers.totals import TotalsReader
    from countledger.ledger.total import Total


def check_watched(rule: Rule, totals: TotalsReader) -> None:
    """Refuse a rule for counters that no evaluator can watch in this way.

    One read unit for the total of a rule on one counter; with a window, half of one for the window
    settings of the namespace that the rule names.

    Raises:
        WrongKind: a strict counter with bins; or with a window any strict counter or sequence.
        NoWindows: the namespace has no windows.
        BadSetting: it has only coarser ones.
        RegionRebuilding: the totals of this region are incomplete.
    """
    if totals.strict is not None and ":" in (name := rule.counter or rule.prefix or ""):
        totals.strict.refuse([name], "no evaluator reads its table: compare each answer")
    totals.check_region()
    total = None if rule.counter is None else totals.read(rule.counter, consistent=True)
    if total is not None and total.bins > 1:
        raise WrongKind(
            f"counter {rule.counter!r} is a strict counter with {total.bins} bins: no update "
            "contains all of its value; create it without bins, or compare it where you read it"
        )
    if rule.window is not None:
        _check_window(rule, total, totals)


def refuse_now(rule: Rule) -> None:
    """Refuse the initial scan of a rule that watches windows.

    Raises:
        BadRule: it does.
    """
    if rule.window is not None:
        raise BadRule(
            f"rule {rule.name!r} watches windows, which no initial scan reads: leave out --now, or "
            "read the windows that have begun with `countledger windows show`"
        )


def _check_window(rule: Rule, total: Total | None, totals: TotalsReader) -> None:
    if total is not None and total.method is not None:
        raise WrongKind(
            f"counter {rule.counter!r} is a strict counter or a sequence, which has no windows: "
            "record what windows are wanted of in a ledger counter as well, and watch that"
        )
    name = rule.counter or rule.prefix or ""
    if rule.counter is None and ":" not in name:
        return  # counters of several namespaces; those without windows are not evaluated
    namespace = keys.namespace_of(name)
    item = totals.dynamo.get(totals.table, keys.windows_key(namespace))
    settings = decode_settings(item)
    if not settings or settings[-1].ended_ms is not None:
        raise NoWindows(
            f"namespace {namespace!r} has no windows: `countledger windows enable {namespace} "
            f"--by {'day' if rule.window == 'month' else rule.window}` switches them on"
        )
    check_per(str(rule.window), namespace, settings[-1:])
