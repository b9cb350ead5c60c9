"""Counters that had passed a threshold before their rule was effective, so that it did not alert.

    total       at or beyond the threshold, or a step, of the rule
    state       none of this revision, and no alert for that threshold by an earlier revision
    alert log   of a rule that is older than states are kept: no alert of this revision either

A rule for both directions has no side on which a counter is beyond its threshold, so it is left
out. Of a rule with windows the command line looks at the current window of each counter.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from countledger.consumers.alerts.alert_log import AlertLog
from countledger.consumers.alerts.crossing import is_beyond, last_passed
from countledger.consumers.alerts.initial_scan import as_unchanged
from countledger.consumers.alerts.rule import Direction
from countledger.consumers.alerts.state_item import decode_state
from countledger.ledger import keys
from countledger.ledger.errors import CorruptItem
from countledger.ledger.limits import ALERT_STATE_LIFE_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from countledger.consumers.alerts.rule import Rule
    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Item
    from countledger.ledger.clock import Clock
    from countledger.ledger.connection import Connection
    from countledger.ledger.dynamo import DynamoClient

# The alerts of a counter that are looked through.
_LOGGED_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class SilentCounter:
    """A counter that a rule does not alert for until it crosses a threshold again.

    Attributes:
        rule: the rule.
        counter: its name.
        value: of what the rule watches.
        passed: the threshold, or the last step, that it has passed.
    """

    rule: Rule
    counter: str
    value: Amount
    passed: Amount


@dataclass(frozen=True, slots=True)
class SilenceReader:
    """Finds the silent counters of rules.

    Attributes:
        dynamo: a DynamoDB client.
        table: the table `counters`.
        clock: the time.
    """

    dynamo: DynamoClient
    table: str
    clock: Clock

    def silent(self, watched: Sequence[tuple[Rule, str]]) -> Iterator[SilentCounter]:
        """The silent ones of rules and counters that they watch.

        Half a read unit for each counter, and for each that is beyond the threshold; of a rule that
        is older than a week, and a counter without a state, half a unit for each 4 KB of up to 100
        of its alerts.
        """
        names = list(dict.fromkeys(counter for _, counter in watched))
        found = self.dynamo.get_many(self.table, [keys.total_key(name) for name in names])
        totals = {item["counter"]: item for item in found}
        beyond = [
            one
            for rule, counter in watched
            if counter in totals and (one := self._beyond(rule, totals[counter])) is not None
        ]
        states = self._states(beyond)
        for one in beyond:
            state = states.get((one.counter, one.rule.name))
            if not (_has_alerted(one, state) or (state is None and self._is_logged(one))):
                yield one

    def is_logged(self, rule: Rule, counter: str, window: str | None = None) -> bool:
        """Whether this revision of a rule has alerted for a counter, or for a window of it."""
        log = AlertLog(self.dynamo, self.table).newest(counter, on_corrupt=lambda _: None)
        return any(
            (one.alert.rule, one.alert.revision) == (rule.name, rule.revision)
            and (window is None or (one.alert.window and one.alert.window.name) == window)
            for one in islice(log, _LOGGED_MAX)
        )

    def _beyond(self, rule: Rule, item: Item) -> SilentCounter | None:
        change = as_unchanged(item, self.clock.now_ms())
        if change is None or not has_a_side(rule) or rule.window is not None:
            return None
        value = change.seen_by(rule).new
        passed = last_passed(value, rule)
        if passed is None:
            return None
        return SilentCounter(rule, change.counter, value, passed.threshold)

    def _states(self, beyond: Iterable[SilentCounter]) -> dict[tuple[str, str], Item]:
        wanted = [keys.alert_state_key(one.counter, one.rule.name) for one in beyond]
        found = self.dynamo.get_many(self.table, wanted)
        return {
            (item["counter"], item["part"].removeprefix(keys.ALERT_PREFIX)): item for item in found
        }

    def _is_logged(self, one: SilentCounter) -> bool:
        """Whether it has alerted so long ago that its state is gone."""
        age_ms = self.clock.now_ms() - one.rule.effective_from_ms
        return age_ms > ALERT_STATE_LIFE_MS and self.is_logged(one.rule, one.counter)


def silence_of(connection: Connection) -> SilenceReader:
    """The reader of a stack."""
    dynamo, table = connection.dynamo("standard"), connection.setting("counters_table")
    return SilenceReader(dynamo, table, connection.clock)


def has_a_side(rule: Rule) -> bool:
    """Whether a counter can be beyond the threshold of a rule: not if both directions alert."""
    return rule.direction is not Direction.BOTH


def is_past(rule: Rule, value: Amount) -> bool:
    """Whether a sum of a window is past the threshold of its rule."""
    return has_a_side(rule) and is_beyond(value, rule)


def _has_alerted(one: SilentCounter, item: Item | None) -> bool:
    """Whether a stored state shows that the rule has alerted for the threshold."""
    if item is None:
        return False
    try:
        state = decode_state(item)
    except CorruptItem:
        return True  # nothing is known of it; its next change is quarantined
    fired = state.firing
    crossings = () if fired is None else fired.crossings
    return state.revision == one.rule.revision or one.passed in [c.threshold for c in crossings]
