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

    A change of a rule is effective five seconds after it was made, for updates that are made then
    or later: see `effective_from_ms` of the rule.

    Attributes:
        rules: as they are stored.
        services: that alerts take.
        totals: tell what kind of counter a rule names.
        alert_log: what was told.
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
        """Make a rule. Four write units; two read units, and one for each 4 KB of rules.

        A counter that is beyond the threshold already alerts only when it crosses it again.

        Args:
            name: 1 to 64 letters, digits, `.`, `_` and `-`.
            now: wait until the rule is effective, and alert for counters that are beyond then:
                one read unit for each, for a prefix also a scan of the table `counters`.
            evaluate_in: the region whose totals it watches; None: the home region. It must be the
                one that this client works in: rules are kept where they are evaluated.
            **spec: `counter` or `prefix`, `threshold` (or `step`) and `direction`, and what is not
                to be as by default.

        Raises:
            BadRule, BadCounterName: a value breaks its rule, or a topic is not for this evaluator.
            RuleExists: a rule of that name exists.
            WrongKind: a strict counter with bins, which has no single total.
            WrongRegion: it would be evaluated elsewhere.
            TargetRefused: the bus or topic does not exist, or refuses.
            ServiceFailed: it was not written; or, with `now`, the initial scan is incomplete.
        """
        wanted = self._checked(rule_of(name, self._evaluate_in(evaluate_in), spec))
        created = self.rules.create(wanted)
        if now:
            self.initial_scan(created)
        return created

    def set(self, name: str, *, now: bool = False, **spec: Unpack[RuleSpec]) -> Rule:
        """RuleChange a rule; what is not named stays. Six write units, and the reads of `create`.

        Args:
            name: of the rule.
            now: as for `create`.
            **spec: what is to be otherwise.

        Raises:
            As `create`, and NoSuchRule where there is none.
        """
        self._checked(changed_rule(self.rules.get(name), spec))
        changed = self.rules.set(name, lambda rule: changed_rule(rule, spec))
        if now:
            self.initial_scan(changed)
        return changed

    def apply(self, specs: Mapping[str, RuleSpec]) -> Iterator[tuple[Rule, RuleChange]]:
        """Make every rule what is wished, as a settings file does; others stay as they are.

        All are checked before the first is written. Doing it again changes nothing.

        Raises:
            As `create`, for the first that breaks a rule.
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
        """A rule in its newest revision. One read unit, and one for each 4 KB of rules.

        Raises:
            NoSuchRule: there is none of that name.
            CorruptItem: it cannot be read.
        """
        return self.rules.get(name)

    def list(self) -> list[Rule]:
        """All rules that can be read, by name. One read unit, and one for each 4 KB of them."""
        return self.rules.list()

    def unreadable(self) -> dict[str, str]:
        """Why a rule of that name cannot be read, and so is not evaluated. As `list`."""
        found = self.rules.read().unreadable
        return {name: found[name] for name in sorted(found)}

    def delete(self, name: str) -> bool:
        """Delete a rule. Six write units, and those to read all rules.

        Returns:
            Whether there was one. That there is none is no error.
        """
        return self.rules.delete(name)

    def test(self, name: str, counter: str) -> Alert:
        """Send a message that is marked as a test the way that a rule's alerts take.

        One call to the target; nothing is logged.

        Args:
            name: of the rule.
            counter: which one the message names; one that the rule watches.

        Raises:
            NoSuchRule, BadCounterName: there is no such rule, or no such counter.
            BadRule: the rule does not watch that counter.
            TargetRefused: the target did not take it, after all tries.
        """
        rule = self.rules.get(name)
        if not rule.covers(keys.check_counter(counter)):
            raise BadRule(f"rule {name!r} does not watch {counter!r}, so it never alerts for it")
        alert = trial_alert(rule, counter, self.rules.clock.now_ms())
        for refused in self.services.publisher.publish([alert], rule.target):
            raise TargetRefused(f"{rule.target} did not take the message: {refused.reason}")
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
            limit: how many at the most; None: all.
            on_corrupt: called with the error of each item that cannot be read, which is left out.

        Raises:
            BadCounterName, BadSetting: that is no counter, or no number of alerts.
            CorruptItem: an item cannot be read, and `on_corrupt` is not given.
        """
        return self.alert_log.newest(counter, limit=limit, on_corrupt=on_corrupt)

    def resend(self, limit: int | None = None) -> Iterator[Resent]:
        """Send alerts again that their target did not take; what it refuses again stays.

        Args:
            limit: how many at the most; None: all.

        Yields:
            What became of each.
        """
        return self.services.resender.resend(limit)

    def initial_scan(self, rule: Rule) -> int:
        """Wait until a rule is effective, and alert for counters that are beyond it then.

        As `create` with `now`; a repeated call goes on where the last one failed.

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
        """A rule whose counter and target are fit for it."""
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
    """Whatever is there, another rule."""
    return wanted


class TargetCheck(Protocol):
    """Tells whether alerts can reach a target."""

    def check(self, target: Target) -> None:
        """Return only if they can.

        Raises:
            BadRule, TargetRefused: they cannot.
        """


class AlertServices(Protocol):
    """The services that alerts take; each is made ready at its first use."""

    @property
    def targets(self) -> TargetCheck:
        """What may be told of alerts."""

    @property
    def publisher(self) -> Publisher:
        """Takes alerts to their targets."""

    @property
    def resender(self) -> Resender:
        """Sends dead letters again."""

    @property
    def initial_scan(self) -> InitialScan:
        """Tells of totals that are beyond a threshold already."""
