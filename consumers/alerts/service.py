"""The alerts of a stack for users: rules, tests, the alert log, dead letters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

from countledger.consumers.alerts.delivery import (
    AlertLog,
    QueueDeadLetters,
    Resender,
    ServicePublisher,
    Targets,
)
from countledger.consumers.alerts.initial_scan import InitialScan, wait_until_effective
from countledger.consumers.alerts.message import trial_alert
from countledger.consumers.alerts.rule import changed_rule, check_watched, refuse_now, rule_of
from countledger.consumers.alerts.rules import Rules
from countledger.consumers.over_regions import RegionStateStore
from countledger.consumers.totals import TotalsReader
from countledger.ledger import keys
from countledger.ledger.assembly import strict_regions_of
from countledger.ledger.errors import BadRule, TargetRefused, WrongRegion
from countledger.ledger.processes import made_once
from countledger.ledger.settings import SettingChange

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from countledger.consumers.alerts.delivery import LoggedAlert, Resent
    from countledger.consumers.alerts.message import Alert
    from countledger.consumers.alerts.rule import Rule, RuleSpec
    from countledger.ledger.attributes import OnCorrupt
    from countledger.ledger.connection import Connection
    from countledger.ledger.operations import Put


@dataclass(frozen=True)
class ConnectedServices:
    """The services that the alerts of a stack use, each created at its first use."""

    connection: Connection

    @made_once
    def targets(self) -> Targets:
        """Checks where the evaluator may publish alerts."""
        connection = self.connection
        # A stack whose parameter names no topic has no such output.
        listed = connection.settings.alert_topic_arns
        if listed is None:
            listed = connection.outputs.get("AlertTopicArns", "")
        allowed = tuple(filter(None, (arn.strip() for arn in listed.split(","))))
        return Targets(self.publisher, allowed, connection.region, connection.partition)

    @made_once
    def publisher(self) -> ServicePublisher:
        """Publishes alerts to their targets."""
        to = self.connection
        bus = to.setting("alert_bus")
        return ServicePublisher(to.events(), to.topics(), bus, to.clock, to.random)

    @made_once
    def dead_letters(self) -> QueueDeadLetters:
        """Stores alerts that their target did not accept."""
        url = self.connection.setting("alert_dead_letter_queue_url")
        return QueueDeadLetters.at(self.connection.queues(), url)

    @made_once
    def resender(self) -> Resender:
        """Sends dead letters again."""
        return Resender(self.dead_letters, self.publisher)

    @made_once
    def initial_scan(self) -> InitialScan:
        """Alerts for totals that are beyond a threshold already."""
        to = self.connection
        dynamo, table = to.dynamo("standard"), to.setting("counters_table")
        return InitialScan(dynamo, table, self.publisher, self.dead_letters, to.clock)


def alerts_of(connection: Connection) -> Alerts:
    """The alerts of a stack."""
    dynamo, table = connection.dynamo("standard"), connection.setting("counters_table")
    return Alerts(
        Rules(
            connection.dynamo("none"),
            table,
            connection.region,
            connection.clock,
            new_id=connection.ids.new_id,
            random=connection.random,
        ),
        ConnectedServices(connection),
        TotalsReader(dynamo, table, RegionStateStore.of(connection), strict_regions_of(connection)),
        AlertLog(dynamo, table),
        connection.setting("home_region"),
    )


@dataclass(frozen=True, slots=True)
class Alerts:
    """The alerts that are evaluated in one region.

    A change of a rule is effective five seconds after it was written, for updates made at that time
    or later: see `effective_from_ms` of the rule.

    Attributes:
        rules: the stored rules.
        services: the services that alerts use.
        totals: to read the counter that a rule names.
        alert_log: the published alerts.
        home_region: where rules are evaluated by default.
    """

    rules: Rules
    services: ConnectedServices
    totals: TotalsReader
    alert_log: AlertLog
    home_region: str

    def create(
        self,
        name: str,
        *,
        wait: bool = False,
        now: bool = False,
        evaluate_in: str | None = None,
        **spec: Unpack[RuleSpec],
    ) -> Rule:
        """Create a rule. Four write units; two read units, and one for each 4 KB of rules.

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
        """Create a rule in one transaction with a mark: six write units, and reads as `create`.

        Raises:
            As `create`; Throttled if the mark exists.
        """
        wanted = rule_of(name, self._evaluate_in(None), spec)
        check_watched(wanted, self.totals)
        self.services.targets.check(wanted.target)
        self.rules.create(wanted, mark)

    def set(
        self, name: str, *, wait: bool = False, now: bool = False, **spec: Unpack[RuleSpec]
    ) -> Rule:
        """Change a rule; values that are not given stay. Six write units, and reads as `create`.

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
        region = self._evaluate_in(self.rules.region)
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
        """The newest revision of a rule. One read unit, and one for each 4 KB of rules.

        Raises:
            NoSuchRule, CorruptItem: no rule has that name, or it is corrupt.
        """
        return self.rules.get(name)

    def list(self) -> list[Rule]:
        """All rules that are not corrupt, by name. One read unit, and one for each 4 KB."""
        return self.rules.list()

    def unreadable(self) -> dict[str, str]:
        """The corrupt rules, which are not evaluated: name and reason. Cost: as `list`."""
        return dict(sorted(self.rules.read().unreadable.items()))

    def delete(self, name: str) -> bool:
        """Delete a rule, if it exists; whether it did. Six write units, and reads as `list`.

        Raises:
            RuleExists: it was changed, or created again, after this call had read it.
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
        alert = trial_alert(rule, counter, self.rules.clock.now_ms())
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
            wait_until_effective(rule, self.rules.clock)
        if now:
            self.initial_scan(rule)
        return rule

    def _evaluate_in(self, region: str | None) -> str:
        wanted, here = region or self.home_region, self.rules.region
        if wanted != here:
            raise WrongRegion(
                f"this client works in {here}, and a rule is kept where it is evaluated: use a "
                f"client of {wanted}, or give evaluate_in={here!r}"
            )
        return wanted
