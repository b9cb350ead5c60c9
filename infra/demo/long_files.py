"""The demo's alerts: a rule for files that pass 1,000 lines, checked against what totals did.

The evaluator's alerts are compared with a reading of its own: every record of the stream of
`counters` since the rule is in force, looked at one by one. Each that goes from below the threshold
to it or beyond must have alerted, and nothing else may have; and whatever file ends above it has.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from countledger.consumers.stream import LedgerStream
from countledger.infra.demo.history import LINES
from countledger.ledger.limits import SECOND_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from countledger import CountLedger, Rule, Total
    from countledger.consumers.alerts.alert import Alert
    from countledger.ledger.clock import Clock

RULE: Final = "demo-long-files"
THRESHOLD: Final = 1_000
_PREFIX: Final = f"{LINES}:"


class Step(NamedTuple):
    """One update of a total, as the stream shows it."""

    counter: str
    version: int
    old: int
    new: int

    @property
    def passes(self) -> bool:
        """Whether it goes from below the threshold to it, or beyond."""
        return self.old < THRESHOLD <= self.new


@dataclass(frozen=True)
class AlertCheck:
    """What the alerts of a run are worth.

    Attributes:
        alerts: those that were told, oldest first.
        missing: updates that passed the threshold and did not alert.
        unexpected: alerts of updates that did not.
        silent: files that end above the threshold and never alerted.
        latencies_s: for each alert, from the acknowledged event that passed to the alert told.
    """

    alerts: tuple[Alert, ...] = ()
    missing: tuple[Step, ...] = ()
    unexpected: tuple[Alert, ...] = ()
    silent: tuple[str, ...] = ()
    latencies_s: tuple[float, ...] = ()

    @property
    def good(self) -> bool:
        """Whether exactly those alerted that had to."""
        return not (self.missing or self.unexpected or self.silent)

    @property
    def latency_p50_s(self) -> float | None:
        """The median, or None without alerts."""
        return median(self.latencies_s) if self.latencies_s else None

    @property
    def latency_max_s(self) -> float | None:
        """The longest, or None without alerts."""
        return max(self.latencies_s, default=None)


@dataclass
class LongFiles:
    """The rule of one run, and what the run saw of it.

    Attributes:
        client: of the stack.
        clock: the run's.
        fresh: whether nothing was ever counted on the stack: no evaluator can know older rules
            then, so the rule may take effect at once, and every long file must alert.
    """

    client: CountLedger
    clock: Clock
    fresh: bool = False
    _passed_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    _rule: Rule | None = None
    _steps: list[Step] = field(default_factory=list)
    _read_to: dict[str, str] = field(default_factory=dict)

    def begin(self) -> None:
        """Make the rule, and wait until it is in force; one that is there already stays."""
        alerts = self.client.alerts
        if self.fresh:
            alerts = replace(alerts, rules=replace(alerts.rules, delay_ms=0))
        ((rule, _),) = alerts.apply(
            {RULE: {"prefix": _PREFIX, "threshold": THRESHOLD, "direction": "rising"}}
        )
        self._rule = rule
        # The stream's clock may be another one; on this machine it is ours.
        margin_ms = 0 if self.fresh else SECOND_MS
        wait_ms = rule.effective_from_ms + margin_ms - self.clock.now_ms()
        if wait_ms > 0:
            self.clock.sleep_ms(wait_ms)

    def acknowledged(self, counter: str, old: int, new: int, at_s: float) -> None:
        """An event was acknowledged that brings a counter from here to there."""
        if counter.startswith(_PREFIX) and old < THRESHOLD <= new:
            self._passed_s[counter].append(at_s)

    def check(self, totals: Mapping[str, Total]) -> AlertCheck:
        """Compare what was told with what the stream of totals shows by now."""
        rule = self._rule
        if rule is None:
            raise AssertionError("the run began with the rule")
        told = list(self._told(rule))
        self._read_on(rule)
        long = [n for n, t in totals.items() if n.startswith(_PREFIX) and t.total >= THRESHOLD]
        found = compare([alert for alert, _ in told], self._steps, long, fresh=self.fresh)
        return replace(found, latencies_s=tuple(self._latencies_s(told)))

    def _told(self, rule: Rule) -> list[tuple[Alert, float]]:
        """The alerts of this revision, oldest first, and when they were told."""
        found = []
        for logged in self.client.alerts.log():
            if logged.alert.at_ms < rule.effective_from_ms:
                break
            if logged.alert.revision == rule.revision:
                found.append((logged.alert, logged.published_at_ms / SECOND_MS))
        return found[::-1]

    def _read_on(self, rule: Rule) -> None:
        """Read the stream from where it was left: every update since the rule is in force."""
        connection = self.client.connection
        stream = LedgerStream(connection.streams(), connection.setting("counters_stream_arn"))
        for one in stream.shards():
            for record in stream.after(one.shard, self._read_to.get(one.shard.id)):
                change = record["dynamodb"]
                self._read_to[one.shard.id] = change["SequenceNumber"]
                step = step_of(change)
                made_ms = change["ApproximateCreationDateTime"].timestamp() * SECOND_MS
                if step is not None and made_ms >= rule.effective_from_ms:
                    self._steps.append(step)

    def _latencies_s(self, told: Iterable[tuple[Alert, float]]) -> Iterator[float]:
        """To each alert from the last event before it that brought its file past the threshold."""
        for alert, told_s in told:
            passed_s = self._passed_s.get(alert.counter, [])
            before = bisect_left(passed_s, told_s)
            if before:
                yield told_s - passed_s[before - 1]


def compare(
    alerts: Sequence[Alert], steps: Iterable[Step], long: Iterable[str], *, fresh: bool
) -> AlertCheck:
    """What alerts are worth.

    Args:
        alerts: those that were told, oldest first.
        steps: all that the totals did while the rule was in force.
        long: the files that end above the threshold.
        fresh: whether all of them began at nothing, and while the rule was in force.
    """
    told = {(alert.counter, alert.version) for alert in alerts}
    passed: dict[tuple[str, int], Step] = {}
    below: set[str] = set()
    for step in steps:
        if step.old < THRESHOLD:
            below.add(step.counter)
        if step.passes:
            passed[step.counter, step.version] = step
    known = {counter for counter, _ in told}
    return AlertCheck(
        alerts=tuple(alerts),
        missing=tuple(passed[place] for place in sorted(passed.keys() - told)),
        unexpected=tuple(a for a in alerts if (a.counter, a.version) not in passed),
        silent=tuple(n for n in sorted(long) if n not in known and (fresh or n in below)),
    )


def step_of(change: Mapping[str, Any]) -> Step | None:
    """The update in a record, or None where it is none of a file's lines."""
    key, new, old = change["Keys"], change.get("NewImage"), change.get("OldImage", {})
    counter = key["counter"]["S"]
    if key["part"]["S"] != "total" or new is None or not counter.startswith(_PREFIX):
        return None
    before = int(old["total"]["N"]) if "total" in old else 0
    return Step(counter, int(new["version"]["N"]), before, int(new["total"]["N"]))
