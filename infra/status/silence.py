"""The rules on one counter that had crossed before they were effective, as facts of a stack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from countledger.consumers.alerts.service import silence_of
from countledger.ledger.errors import AccessDenied

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger import CountLedger
    from countledger.ledger.amount import Amount

RULES_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class SilentFact:
    """A counter that had passed the threshold of its rule before the rule became effective.

    Attributes:
        rule: the name of the rule, which is on this one counter.
        counter: its name.
        value: of what the rule watches.
        passed: the threshold, or the last step, that it has passed.
        effective_at_ms: since when the rule is effective, ms since the epoch.
    """

    rule: str
    counter: str
    value: Amount
    passed: Amount
    effective_at_ms: int


def silent_facts(client: CountLedger) -> tuple[SilentFact, ...] | None:
    """Those of the newest 100 rules on one counter; None: rules and totals may not be read.

    A read unit for each 4 KB of rules, and one for each of those. The stack's policy of status does
    not allow it, because it shows values of counters; those of readers and operators do.
    """
    try:
        return tuple(_silent(client))
    except AccessDenied:
        return None


def _silent(client: CountLedger) -> Iterator[SilentFact]:
    rules = client.alerts.list()
    watched = [(one, one.counter) for one in rules if one.counter is not None]
    newest = sorted(watched, key=lambda one: one[0].effective_from_ms)[-RULES_MAX:]
    for one in silence_of(client.connection).silent(newest):
        from_ms = one.rule.effective_from_ms
        yield SilentFact(one.rule.name, one.counter, one.value, one.passed, from_ms)
