"""Counters that had passed a threshold before their rule was effective.

The initial scan alerts for them when the rule is created. Without it a rule is silent for such a
counter until it crosses the threshold again. `SilenceReader` finds the silent ones:

    total       at or beyond the threshold, or a step, of the rule
    state       none of this revision, and no alert for that threshold by an earlier revision
    alert log   of a rule that is older than states are kept: no alert of this revision either

A rule for both directions has no side on which a counter is beyond its threshold, so it is left
out. Of a rule with windows the command line looks at the current window of each counter.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from countledger.consumers.alerts.chain import ChainEvaluator, Link, Notifier
from countledger.consumers.alerts.crossing import (
    TotalChange,
    is_beyond,
    is_publishable,
    last_passed,
)
from countledger.consumers.alerts.delivery import AlertLog
from countledger.consumers.alerts.message import checked_incarnation
from countledger.consumers.alerts.rule import Direction
from countledger.consumers.alerts.state import decide_scan, decode_state, scan_write_of
from countledger.consumers.totals import counters_beginning
from countledger.ledger import keys
from countledger.ledger.attributes import require_amount
from countledger.ledger.clock import Clock, SystemClock, show_duration
from countledger.ledger.errors import (
    CorruptItem,
    CountledgerError,
    ServiceFailed,
    SetupError,
    Throttled,
)
from countledger.ledger.limits import (
    ALERT_RULES_AGE_MS,
    ALERT_STATE_LIFE_MS,
    BATCH_GET_KEYS,
    MINUTE_MS,
    SECOND_MS,
)
from countledger.ledger.total import decode_total

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from countledger.consumers.alerts.delivery import DeadLetters
    from countledger.consumers.alerts.message import Publisher
    from countledger.consumers.alerts.rule import Rule
    from countledger.consumers.alerts.rules import Rules
    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Item
    from countledger.ledger.connection import Connection
    from countledger.ledger.dynamo import DynamoClient


# If clocks agree, a rule is effective within seconds.
_WAIT_MAX_MS: Final = MINUTE_MS
# The alerts of a counter that are looked through.
_LOGGED_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class InitialScan:
    """Alerts for totals that are beyond the threshold of a new rule.

    The evaluator sees changes only, and such a total need not change. So the scan waits until the
    rule is effective, when every later change will be evaluated, and reads the counters then. A
    total that was beyond the threshold before is still beyond it, or a change that the evaluator
    sees brought it back. The alert state decides which came first, so a counter alerts once.

    A rule that another call changes or deletes meanwhile ends for the scan as for an evaluator: the
    scan knows every change of the rules that is older than `ALERT_RULES_AGE_MS`.

    Attributes:
        dynamo: a DynamoDB client; the SDK may retry, a second application is refused.
        table: the table `counters`.
        publisher: sends alerts to their targets.
        dead_letters: stores alerts that were not taken.
        clock: the time.
    """

    dynamo: DynamoClient
    table: str
    publisher: Publisher
    dead_letters: DeadLetters
    clock: Clock = field(default_factory=SystemClock)

    def run(self, rule: Rule, rules: Rules) -> int:
        """Wait until a rule is effective, and alert for its counters that are beyond the threshold.

        One read unit for each counter, for a prefix also a scan of the table; four write units for
        each that is beyond; a read unit a second for changes of rules. A repeated scan of a
        revision alerts for the counters that were left.

        Args:
            rule: that was created or changed.
            rules: the stored rules.

        Returns:
            The number of alerts published.

        Raises:
            ServiceFailed: some counters failed, and `alert set NAME --now` goes on; or another call
                changed or deleted the rule meanwhile. The rule itself was written in any case.
        """
        wait_until_effective(rule, self.clock)
        try:
            return self._scan(rule, RuleEnd(rules, rule, self.clock))
        except (SetupError, Throttled) as error:
            # These say that nothing was written, and the rule was.
            raise ServiceFailed(
                f"rule {rule.name!r} is stored, but its initial scan ended early ({error}): "
                f"`countledger alert set {rule.name} --now` goes on"
            ) from error

    def _scan(self, rule: Rule, end: RuleEnd) -> int:
        notifier = Notifier(self.publisher, self.dead_letters, self.dynamo, self.table, self.clock)
        evaluator = ChainEvaluator(
            self.dynamo, self.table, notifier, _refuse, decide=decide_scan, write_of=scan_write_of
        )
        published = 0
        failed: dict[str, CountledgerError] = {}
        for item in self._totals(rule):
            end.check()
            change = as_unchanged(item, max(rule.effective_from_ms, self.clock.now_ms()))
            if change is None:
                continue
            outcome = evaluator.evaluate([Link(change.seen_by(rule), rule)])
            published += outcome.published
            if outcome.error is not None:
                failed[change.counter] = outcome.error
        if failed:
            counter, error = next(iter(failed.items()))
            raise ServiceFailed(
                f"rule {rule.name!r} is stored, but {len(failed)} of its counters failed in the "
                f"initial scan, such as {counter!r} ({error}): `countledger alert set {rule.name} "
                "--now` goes on"
            )
        return published

    def _totals(self, rule: Rule) -> Iterator[Item]:
        """The totals that a rule watches, strongly consistent."""
        names: Iterable[str] = [rule.counter] if rule.counter is not None else []
        if rule.prefix is not None:
            names = counters_beginning(self.dynamo, self.table, rule.prefix)
        feed = iter(names)
        while wanted := list(islice(feed, BATCH_GET_KEYS)):
            yield from self.dynamo.get_many(
                self.table, [keys.total_key(name) for name in wanted], consistent=True
            )


@dataclass(slots=True)
class RuleEnd:
    """Whether a revision of a rule has ended, known as an evaluator knows it.

    Attributes:
        rules: the stored rules.
        rule: the revision.
        clock: the time.
    """

    rules: Rules
    rule: Rule
    clock: Clock
    _read_at_ms: int | None = None
    _number: int | None = None
    _until_ms: int | None = None

    def check(self) -> None:
        """Free for a second after each look; then a read unit, and more if a rule has changed.

        Raises:
            ServiceFailed: another call has changed or deleted the rule, and that is effective.
        """
        now_ms = self.clock.now_ms()
        if self._read_at_ms is None or not 0 <= now_ms - self._read_at_ms < ALERT_RULES_AGE_MS:
            self._refresh()
            # The time before the read: a later change may be missing.
            self._read_at_ms = now_ms
        if self._until_ms is not None and now_ms >= self._until_ms:
            raise ServiceFailed(
                f"rule {self.rule.name!r} was changed or deleted by another call during its "
                "initial scan: the scan has ended"
            )

    def _refresh(self) -> None:
        number = self.rules.number()
        if number == self._number:
            return
        snapshot = self.rules.read()
        known = [*snapshot.past, *snapshot.current.values()]
        found = [one for one in known if one.revision == self.rule.revision]
        self._until_ms = found[0].effective_until_ms if found else self.rule.effective_from_ms
        self._number = snapshot.number if snapshot.is_whole else None


def wait_until_effective(rule: Rule, clock: Clock) -> None:
    """Wait until a rule evaluates what is written from now on.

    Raises:
        ServiceFailed: by this machine's clock that is too long to wait for.
    """
    # A second more, for the clock by which the stream stamps its records.
    wait_ms = rule.effective_from_ms + SECOND_MS - clock.now_ms()
    if wait_ms > _WAIT_MAX_MS:
        raise ServiceFailed(
            f"rule {rule.name!r} is effective in {show_duration(wait_ms)} only, by this "
            f"machine's clock: run `countledger alert set {rule.name} --now` then"
        )
    if wait_ms > 0:
        clock.sleep_ms(wait_ms)


def as_unchanged(item: Item, now_ms: int) -> TotalChange | None:
    """A total as a change from its value to the same; None if no rule evaluates it."""
    try:
        total = decode_total(item)
        held = require_amount(item, "held") if "held" in item else 0
        incarnation = checked_incarnation(item.get("incarnation"))
    except (CorruptItem, ValueError):
        # Its next record goes to the quarantine, where it is reported.
        return None
    if total.bins > 1 or not is_publishable(total.value, total.version):
        return None
    at_ms = now_ms // SECOND_MS * SECOND_MS
    return TotalChange(
        0,
        total.counter,
        total.value,
        total.value,
        total.version,
        at_ms,
        (held, held),
        incarnation=incarnation,
    )


def _refuse(_sequence: int, reason: str) -> None:
    raise ServiceFailed(reason)


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
