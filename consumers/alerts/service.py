"""The alerts of a stack for users: rules, tests, the alert log, dead letters.

Counters that had passed a threshold before their rule was effective.

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
from typing import TYPE_CHECKING, Final, Unpack

from countledger.consumers.alerts.crossing import (
    TotalChange,
    is_beyond,
    is_publishable,
    last_passed,
)
from countledger.consumers.alerts.delivery import (
    AlertLog,
    QueueDeadLetters,
    Resender,
    ServicePublisher,
    Targets,
)
from countledger.consumers.alerts.evaluator import ChainEvaluator, Link, Notifier
from countledger.consumers.alerts.message import checked_incarnation, trial_alert
from countledger.consumers.alerts.rule import (
    Direction,
    changed_rule,
    check_watched,
    refuse_now,
    rule_of,
)
from countledger.consumers.alerts.rules import RecentRules, Rules
from countledger.consumers.alerts.state import decide_scan, decode_state, scan_write_of
from countledger.consumers.totals import TotalsReader, counters_beginning
from countledger.ledger import keys
from countledger.ledger.attributes import require_amount
from countledger.ledger.clock import show_duration
from countledger.ledger.errors import (
    BadRule,
    CorruptItem,
    CountledgerError,
    ServiceFailed,
    SetupError,
    TargetRefused,
    Throttled,
    WrongRegion,
)
from countledger.ledger.limits import (
    ALERT_RULE_DELAY_MS,
    ALERT_STATE_LIFE_MS,
    BATCH_GET_KEYS,
    MINUTE_MS,
    SECOND_MS,
)
from countledger.ledger.processes import made_once
from countledger.ledger.settings import SettingChange
from countledger.ledger.total import decode_total

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from countledger.consumers.alerts.delivery import DeadLetters, LoggedAlert, Resent
    from countledger.consumers.alerts.message import Alert, Publisher
    from countledger.consumers.alerts.rule import Rule, RuleSpec
    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Item, Key, OnCorrupt
    from countledger.ledger.clock import Clock
    from countledger.ledger.connection import Connection
    from countledger.ledger.operations import Put


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
    """

    connection: Connection
    publisher: Publisher
    dead_letters: DeadLetters

    def run(self, rule: Rule, rules: Rules) -> int:
        """Wait until a rule is effective, and alert for its counters that are beyond the threshold.

        One read unit for each counter, for a prefix also a scan of the table; four write units for
        each that is beyond; a read unit a second for changes of rules. The answer is the number of
        alerts published.

        `ServiceFailed`: some counters failed, and `alert set NAME --now` goes on; or another call
        changed or deleted the rule meanwhile. The rule itself was written in any case. A repeated
        scan of a revision alerts for the counters that were left.
        """
        wait_until_effective(rule, self.connection.clock)
        try:
            return self._scan(rule, RuleEnd(rule, RecentRules(rules)))
        except (SetupError, Throttled) as error:
            # These say that nothing was written, and the rule was.
            raise ServiceFailed(
                f"rule {rule.name!r} is stored, but its initial scan ended early ({error}): "
                f"`countledger alert set {rule.name} --now` goes on"
            ) from error

    def _scan(self, rule: Rule, end: RuleEnd) -> int:
        notifier = Notifier(self.connection, self.publisher, self.dead_letters)
        evaluator = ChainEvaluator(
            self.connection, notifier, _refuse, decide=decide_scan, write_of=scan_write_of
        )
        published = 0
        failed: dict[str, CountledgerError] = {}
        for item in self._totals(rule):
            end.check()
            at_ms = max(rule.effective_from_ms, self.connection.clock.now_ms())
            change = as_unchanged(item, at_ms)
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
        dynamo, table = self.connection.retrying, self.connection.counters
        names: Iterable[str] = [rule.counter] if rule.counter is not None else []
        if rule.prefix is not None:
            names = counters_beginning(dynamo, table, rule.prefix)
        feed = iter(names)
        while wanted := list(islice(feed, BATCH_GET_KEYS)):
            totals = [keys.total_key(name) for name in wanted]
            yield from dynamo.get_many(table, totals, consistent=True)


@dataclass(frozen=True, slots=True)
class RuleEnd:
    """Whether a revision of a rule has ended, known as an evaluator knows it."""

    rule: Rule
    recent: RecentRules

    def check(self) -> None:
        """Refuse to go on once another call has changed or deleted the rule, and that is effective.

        Cost: as `RecentRules.snapshot`.
        """
        known = self.recent.snapshot().revisions.get(self.rule.name, ())
        found = [one for one in known if one.revision == self.rule.revision]
        until_ms = found[0].effective_until_ms if found else self.rule.effective_from_ms
        if until_ms is not None and self.recent.rules.connection.clock.now_ms() >= until_ms:
            raise ServiceFailed(
                f"rule {self.rule.name!r} was changed or deleted by another call during its "
                "initial scan: the scan has ended"
            )


def wait_until_effective(rule: Rule, clock: Clock) -> None:
    """Wait until a rule evaluates what is written from now on, unless that takes too long."""
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

    `passed` is the threshold, or the last step, that it has passed.
    """

    rule: Rule
    counter: str
    value: Amount
    passed: Amount


@dataclass(frozen=True, slots=True)
class SilenceReader:
    connection: Connection

    def silent(self, watched: Sequence[tuple[Rule, str]]) -> Iterator[SilentCounter]:
        """The silent ones of rules and counters that they watch.

        Half a read unit for each counter, and for each that is beyond the threshold; of a rule that
        is older than a week, and a counter without a state, half a unit for each 4 KB of up to 100
        of its alerts.
        """
        names = list(dict.fromkeys(counter for _, counter in watched))
        found = self._read([keys.total_key(name) for name in names])
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
        log = AlertLog(self.connection).newest(counter, on_corrupt=lambda _: None)
        return any(
            (one.alert.rule, one.alert.revision) == (rule.name, rule.revision)
            and (window is None or (one.alert.window and one.alert.window.name) == window)
            for one in islice(log, _LOGGED_MAX)
        )

    def _beyond(self, rule: Rule, item: Item) -> SilentCounter | None:
        change = as_unchanged(item, self.connection.clock.now_ms())
        if change is None or not has_a_side(rule) or rule.window is not None:
            return None
        value = change.seen_by(rule).new
        passed = last_passed(value, rule)
        if passed is None:
            return None
        return SilentCounter(rule, change.counter, value, passed.threshold)

    def _states(self, beyond: Iterable[SilentCounter]) -> dict[tuple[str, str], Item]:
        found = self._read([keys.alert_state_key(one.counter, one.rule.name) for one in beyond])
        return {
            (item["counter"], item["part"].removeprefix(keys.ALERT_PREFIX)): item for item in found
        }

    def _read(self, wanted: Sequence[Key]) -> list[Item]:
        return self.connection.retrying.get_many(self.connection.counters, wanted)

    def _is_logged(self, one: SilentCounter) -> bool:
        """Whether it has alerted so long ago that its state is gone."""
        age_ms = self.connection.clock.now_ms() - one.rule.effective_from_ms
        return age_ms > ALERT_STATE_LIFE_MS and self.is_logged(one.rule, one.counter)


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


@dataclass(frozen=True)
class ConnectedServices:
    """The services that the alerts of a stack use, each created at its first use."""

    connection: Connection

    @made_once
    def targets(self) -> Targets:
        connection = self.connection
        # A stack whose parameter names no topic has no such output.
        listed = connection.settings.alert_topic_arns
        if listed is None:
            listed = connection.outputs.get("AlertTopicArns", "")
        allowed = tuple(filter(None, (arn.strip() for arn in listed.split(","))))
        return Targets(self.publisher, allowed, connection.region, connection.partition)

    @made_once
    def publisher(self) -> ServicePublisher:
        to = self.connection
        bus = to.setting("alert_bus")
        return ServicePublisher(to.events(), to.topics(), bus, to.clock, to.random)

    @made_once
    def dead_letters(self) -> QueueDeadLetters:
        url = self.connection.setting("alert_dead_letter_queue_url")
        return QueueDeadLetters.at(self.connection.queues(), url)

    @made_once
    def resender(self) -> Resender:
        return Resender(self.dead_letters, self.publisher)

    @made_once
    def initial_scan(self) -> InitialScan:
        return InitialScan(self.connection, self.publisher, self.dead_letters)


@dataclass(frozen=True, slots=True)
class Alerts:
    """The alerts that are evaluated in one region.

    A change of a rule is effective five seconds after it was written, for updates made at that time
    or later: see `effective_from_ms` of the rule.

    Attributes:
        connection: to the region.
        services: the services that alerts use.
        at_once: whether a change of a rule is effective when it is written; only where no evaluator
            can know other rules.
        rules: the stored rules.
        totals: to read the counter that a rule names.
        alert_log: the published alerts.
    """

    connection: Connection
    services: ConnectedServices
    at_once: bool = False
    rules: Rules = field(init=False, repr=False)
    totals: TotalsReader = field(init=False, repr=False)
    alert_log: AlertLog = field(init=False, repr=False)

    def __post_init__(self) -> None:
        to = self.connection
        object.__setattr__(self, "rules", Rules(to, 0 if self.at_once else ALERT_RULE_DELAY_MS))
        object.__setattr__(self, "totals", TotalsReader(to))
        object.__setattr__(self, "alert_log", AlertLog(to))

    def create(
        self,
        name: str,
        *,
        wait: bool = False,
        now: bool = False,
        evaluate_in: str | None = None,
        **spec: Unpack[RuleSpec],
    ) -> Rule:
        """Create a rule. Four write units; a read unit, and one for each 4 KB of rules.

        A counter that is beyond the threshold already alerts only when it crosses it again. With
        `window`, each window alerts once, when its sum crosses the threshold.

        Args:
            name: 1 to 64 letters, digits, `.`, `_` and `-`.
            wait: return once the rule is effective, some six seconds later.
            now: the same, and alert for counters that are beyond the
                threshold then: one read unit for each, for a prefix also a scan of `counters`.
            evaluate_in: the region whose totals it watches, that of this client; None: the home.
            **spec: as `RuleSpec`.

        Raises:
            BadRule, BadCounterName, BadSetting: a value breaks its rule, or the topic is refused.
            RuleExists: a rule of that name exists.
            WrongKind, NoWindows: the counter has no single total, or no windows (`check_watched`).
            WrongRegion: `evaluate_in` is not the region of this client.
            TargetRefused: the bus or topic does not exist, or refuses.
            ServiceFailed: the rule was not written; or, with `now`, the initial scan is incomplete.
        """
        wanted = rule_of(name, self._evaluate_in(evaluate_in), spec)
        if now:
            refuse_now(wanted)
        check_watched(wanted, self.totals)
        self.services.targets.check(wanted.target)
        return self._written(self.rules.create(wanted), wait=wait, now=now)

    def create_once(self, name: str, mark: Put, **spec: Unpack[RuleSpec]) -> None:
        """Create a rule in one transaction with a mark, which shows for ever that it was created.

        If the mark or a rule exists, what is stored stays, also nothing. Six write units, and reads
        as `create`; if a rule exists a write unit.

        Args:
            name: of the rule.
            mark: puts an item, unless it exists.
            **spec: as of `create`.

        Raises: as `create`.
        """
        wanted = rule_of(name, self._evaluate_in(None), spec)
        check_watched(wanted, self.totals)
        self.services.targets.check(wanted.target)
        self.rules.create_once(wanted, mark)

    def set(
        self, name: str, *, wait: bool = False, now: bool = False, **spec: Unpack[RuleSpec]
    ) -> Rule:
        """Change a rule; values that are not given stay. Two read units and four write units.

        Its revisions of the last 30 hours are kept in its item: two write units more for each KB.

        Args:
            name: the name of the rule.
            wait: as for `create`.
            now: as for `create`.
            **spec: the new values.

        Raises:
            As `create`; NoSuchRule: no rule has that name.
        """
        wanted = changed_rule(self.rules.get(name), spec)
        if now:
            refuse_now(wanted)
        check_watched(wanted, self.totals)
        self.services.targets.check(wanted.target)
        changed = self.rules.set(name, lambda rule: changed_rule(rule, spec))
        return self._written(changed, wait=wait, now=now)

    def apply(self, specs: Mapping[str, RuleSpec]) -> Iterator[tuple[Rule, SettingChange]]:
        """Create or change rules to match their specs; other rules stay as they are.

        All specs are checked before the first rule is written. A second call changes nothing.

        Raises:
            As `create`, for the first invalid spec.
        """
        region = self._evaluate_in(self.connection.region)
        wanted = [rule_of(name, region, spec) for name, spec in specs.items()]
        there = self.rules.read()
        for rule in wanted:
            if rule.name in there.unreadable:
                there.rule(rule.name)
            check_watched(rule, self.totals)
        for target in {rule.target for rule in wanted}:
            self.services.targets.check(target)
        for rule in wanted:
            before = there.current.get(rule.name)
            if before is None:
                yield self.rules.create(rule), SettingChange.CREATED
            elif before.means_the_same_as(rule):
                yield before, SettingChange.UNCHANGED
            else:
                yield self.rules.set(rule.name, rule), SettingChange.CHANGED

    def get(self, name: str) -> Rule:
        """The current revision of a rule. One read unit.

        Raises:
            NoSuchRule, CorruptItem: no rule has that name, or it is corrupt.
        """
        return self.rules.get(name)

    def list(self) -> list[Rule]:
        """All rules that are not corrupt, by name. One read unit for each 4 KB."""
        return self.rules.list()

    def unreadable(self) -> dict[str, str]:
        """The corrupt rules, which are not evaluated: name and reason. Cost: as `list`."""
        return dict(sorted(self.rules.read().unreadable.items()))

    def delete(self, name: str) -> bool:
        """Delete a rule, if it exists; whether it did. A read unit and four write units.

        Raises:
            Unclear: no clear answer came, or another process changed it after an attempt of this
                call that got no answer.
        """
        return self.rules.delete(name)

    def test(self, name: str, counter: str) -> Alert:
        """Send a message for a counter, marked as a test, to the target of a rule.

        One call to the target; nothing is logged.

        Raises:
            NoSuchRule, BadCounterName, BadRule: the rule does not watch the counter.
            TargetRefused: the target did not accept the message in any attempt.
        """
        rule = self.get(name)
        counter = keys.check_counter(counter)
        if not rule.covers(counter):
            raise BadRule(f"rule {name!r} does not watch {counter!r}, so it never alerts for it")
        alert = trial_alert(rule, counter, self.connection.clock.now_ms())
        for refused in self.services.publisher.publish([alert], rule.target):
            raise TargetRefused(f"{rule.target} did not accept the message: {refused.reason}")
        return alert

    def log(
        self,
        counter: str | None = None,
        *,
        limit: int | None = None,
        on_corrupt: OnCorrupt | None = None,
    ) -> Iterator[LoggedAlert]:
        """The alerts of the last ninety days, newest first: half a read unit for each 4 KB.

        Args:
            counter: of one counter; None: of all.
            limit: the maximum number; None: all.
            on_corrupt: called with the error of each corrupt item; the item is skipped.

        Raises:
            BadCounterName, BadSetting: the counter name is invalid, or the limit is below 1.
            CorruptItem: an item is corrupt, without `on_corrupt`.
        """
        return self.alert_log.newest(counter, limit=limit, on_corrupt=on_corrupt)

    def resend(self, limit: int | None = None) -> Iterator[Resent]:
        """Send at most `limit` dead letters again: alerts that their target did not accept.

        Yields the result for each. An alert that is refused again stays a dead letter.
        """
        return self.services.resender.resend(limit)

    def initial_scan(self, rule: Rule) -> int:
        """Do what `create` does with `now`; the number of alerts published.

        `ServiceFailed`: some counters failed; a repeated call continues with them.
        """
        refuse_now(rule)
        return self.services.initial_scan.run(rule, self.rules)

    def _written(self, rule: Rule, *, wait: bool, now: bool) -> Rule:
        if wait:
            wait_until_effective(rule, self.connection.clock)
        if now:
            self.initial_scan(rule)
        return rule

    def _evaluate_in(self, region: str | None) -> str:
        wanted, here = region or self.connection.home_region, self.connection.region
        if wanted != here:
            raise WrongRegion(
                f"this client works in {here}, and a rule is kept where it is evaluated: use a "
                f"client of {wanted}, or give evaluate_in={here!r}"
            )
        return wanted
