"""The alerts of a stack for users: rules, tests, the alert log, dead letters."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Protocol, Unpack

from countledger.consumers.alerts.alert import trial_alert
from countledger.consumers.alerts.rule import changed_rule, rule_of
from countledger.consumers.alerts.rules import found
from countledger.ledger import keys
from countledger.ledger.errors import (
    BadRule,
    TargetRefused,
    WrongKind,
    WrongRegion,
)
from countledger.ledger.total import decode_total

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from countledger.consumers.alerts.alert import Alert, Publisher
    from countledger.consumers.alerts.alert_log import AlertLog, LoggedAlert
    from countledger.consumers.alerts.dead_letters import Resender, Resent
    from countledger.consumers.alerts.initial_scan import InitialScan
    from countledger.consumers.alerts.rule import Rule, RuleSpec, Target
    from countledger.consumers.alerts.rules import Rules
    from countledger.consumers.totals import TotalsReader
    from countledger.ledger.attributes import OnCorrupt


class RuleChange(StrEnum):
    """What `apply` did to a rule."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Alerts:
    """The alerts that are evaluated in one region.

    A change of a rule is effective five seconds after it was written. It applies to updates made at
    or after that time: see `effective_from_ms` of the rule.

    Attributes:
        rules: the stored rules.
        services: the services that alerts use.
        totals: to read the counter that a rule names.
        alert_log: the published alerts.
        home_region: where rules are evaluated by default.
    """

    rules: Rules
    services: AlertServices
    totals: TotalsReader
    alert_log: AlertLog
    home_region: str

    def create(
        self,
        name: str,
        *,
        now: bool = False,
        evaluate_in: str | None = None,
        **spec: Unpack[RuleSpec],
    ) -> Rule:
        """Create a rule. Four write units; two read units, and one for each 4 KB of rules.

        A counter that is beyond the threshold already alerts only when it crosses it again.

        Args:
            name: 1 to 64 letters, digits, `.`, `_` and `-`.
            now: wait until the rule is effective, and alert for counters that are beyond the
                threshold then: one read unit for each, for a prefix also a scan of `counters`.
            evaluate_in: the region whose totals it watches; None: the home region. It must be the
                region of this client: a rule is stored in the region that evaluates it.
            **spec: `counter` or `prefix`, `threshold` (or `step`) and `direction`, and every
                other value that is not the default.

        Raises:
            BadRule, BadCounterName: a value breaks its rule, or the topic is not allowed.
            RuleExists: a rule of that name exists.
            WrongKind: a strict counter with bins, which has no single total.
            WrongRegion: `evaluate_in` is not the region of this client.
            TargetRefused: the bus or topic does not exist, or refuses.
            ServiceFailed: the rule was not written; or, with `now`, the initial scan is incomplete.
        """
        wanted = self._checked(rule_of(name, self._evaluate_in(evaluate_in), spec))
        created = self.rules.create(wanted)
        if now:
            self.initial_scan(created)
        return created

    def set(self, name: str, *, now: bool = False, **spec: Unpack[RuleSpec]) -> Rule:
        """Change a rule; values that are not given stay. Six write units, and reads as `create`.

        Args:
            name: the name of the rule.
            now: as for `create`.
            **spec: the new values.

        Raises:
            As `create`; NoSuchRule: no rule has that name.
        """
        self._checked(changed_rule(self.rules.get(name), spec))
        changed = self.rules.set(name, lambda rule: changed_rule(rule, spec))
        if now:
            self.initial_scan(changed)
        return changed

    def apply(self, specs: Mapping[str, RuleSpec]) -> Iterator[tuple[Rule, RuleChange]]:
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
                found(there, rule.name)
            self._check_counter(rule)
        for target in {rule.target for rule in wanted}:
            self.services.targets.check(target)
        for rule in wanted:
            before = there.current.get(rule.name)
            if before is None:
                yield self.rules.create(rule), RuleChange.CREATED
            elif before.means_the_same_as(rule):
                yield before, RuleChange.UNCHANGED
            else:
                yield self.rules.set(rule.name, partial(_instead, rule)), RuleChange.CHANGED

    def get(self, name: str) -> Rule:
        """The newest revision of a rule. One read unit, and one for each 4 KB of rules.

        Raises:
            NoSuchRule: no rule has that name.
            CorruptItem: the stored rule is corrupt.
        """
        return self.rules.get(name)

    def list(self) -> list[Rule]:
        """All rules that are not corrupt, by name. One read unit, and one for each 4 KB."""
        return self.rules.list()

    def unreadable(self) -> dict[str, str]:
        """The corrupt rules, which are not evaluated: name and reason. Cost: as `list`."""
        found = self.rules.read().unreadable
        return {name: found[name] for name in sorted(found)}

    def delete(self, name: str) -> bool:
        """Delete a rule. Six write units, and the read units of `list`.

        Returns:
            Whether the rule existed. Deleting a missing rule is no error.
        """
        return self.rules.delete(name)

    def test(self, name: str, counter: str) -> Alert:
        """Send a message that is marked as a test to the target of a rule.

        One call to the target; nothing is logged.

        Args:
            name: the name of the rule.
            counter: the counter in the message; the rule must watch it.

        Raises:
            NoSuchRule, BadCounterName: no rule has that name, or the counter name is invalid.
            BadRule: the rule does not watch that counter.
            TargetRefused: the target did not accept the message in any attempt.
        """
        rule = self.rules.get(name)
        if not rule.covers(keys.check_counter(counter)):
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
        """The alerts of the last ninety days, newest first. Half a read unit for each 4 KB.

        Args:
            counter: of one counter; None: of all.
            limit: the maximum number; None: all.
            on_corrupt: called with the error of each corrupt item; the item is skipped.

        Raises:
            BadCounterName, BadSetting: the counter name is invalid, or the limit is below 1.
            CorruptItem: an item is corrupt, and `on_corrupt` is not given.
        """
        return self.alert_log.newest(counter, limit=limit, on_corrupt=on_corrupt)

    def resend(self, limit: int | None = None) -> Iterator[Resent]:
        """Send the dead letters again: alerts that their target did not accept.

        An alert that is refused again stays a dead letter.

        Args:
            limit: the maximum number; None: all.

        Yields:
            The result for each dead letter.
        """
        return self.services.resender.resend(limit)

    def initial_scan(self, rule: Rule) -> int:
        """Wait until a rule is effective, and alert for counters beyond its threshold.

        As `create` with `now`. A repeated call continues where the last call failed.

        Returns:
            The number of alerts published.

        Raises:
            ServiceFailed: some counters failed.
        """
        return self.services.initial_scan.run(rule)

    def _evaluate_in(self, region: str | None) -> str:
        wanted = region or self.home_region
        if wanted != self.rules.region:
            raise WrongRegion(
                f"this client works in {self.rules.region}, and a rule is kept in the region that "
                f"evaluates it: use a client of {wanted}, or give evaluate_in={self.rules.region!r}"
            )
        return wanted

    def _checked(self, rule: Rule) -> Rule:
        """The rule, after its counter and its target were checked."""
        self._check_counter(rule)
        self.services.targets.check(rule.target)
        return rule

    def _check_counter(self, rule: Rule) -> None:
        if rule.counter is None:
            return
        item = self.totals.item(rule.counter)
        total = None if item is None else decode_total(item)
        if total is not None and total.bins > 1:
            raise WrongKind(
                f"counter {rule.counter!r} is a strict counter with {total.bins} bins: its value "
                "is spread over many items, and no update contains all of it; create it without "
                "bins, or compare it where you read it"
            )


def _instead(wanted: Rule, _there: Rule) -> Rule:
    """The wanted rule, whatever the current rule is."""
    return wanted


class TargetCheck(Protocol):
    """Checks whether alerts can reach a target."""

    def check(self, target: Target) -> None:
        """Return only if they can.

        Raises:
            BadRule, TargetRefused: they cannot.
        """


class AlertServices(Protocol):
    """The services that alerts use; each is created at its first use."""

    @property
    def targets(self) -> TargetCheck:
        """Checks targets."""

    @property
    def publisher(self) -> Publisher:
        """Publishes alerts to their targets."""

    @property
    def resender(self) -> Resender:
        """Sends dead letters again."""

    @property
    def initial_scan(self) -> InitialScan:
        """Alerts for totals that are beyond a threshold already."""
