"""What makes a run of the demo good; above all its alerts, checked against what totals did.

A rule alerts for files that pass 1,000 lines. The alerts are compared with a second reading of the
stream of `counters` since the rule is effective: each update from below the threshold to it or
above must have alerted, nothing else may have, and every file that ends above the threshold must.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from countledger.consumers.stream import LedgerStream
from countledger.infra.demo.history import LINES
from countledger.ledger.limits import SECOND_MS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countledger import CountLedger, Rule, Total
    from countledger.consumers.alerts.alert import Alert
    from countledger.ledger.clock import Clock

# What `countledger demo --json` prints: one flat object.
Report: TypeAlias = dict[str, Any]

RULE: Final = "demo-long-files"
THRESHOLD: Final = 1_000
_PREFIX: Final = f"{LINES}:"


class TotalUpdate(NamedTuple):
    """One update of a total, as the stream shows it."""

    counter: str
    version: int
    old: int
    new: int


class AlertCheck(NamedTuple):
    """The alerts of a run, oldest first, and what is wrong with them.

    `missing` are updates that passed the threshold without an alert, `unexpected` alerts of others,
    `silent` files that end above it and never alerted; `latencies_s` reach from the acknowledged
    event that passed the threshold to the alert.
    """

    alerts: tuple[Alert, ...] = ()
    missing: tuple[TotalUpdate, ...] = ()
    unexpected: tuple[Alert, ...] = ()
    silent: tuple[str, ...] = ()
    latencies_s: tuple[float, ...] = ()

    @property
    def good(self) -> bool:
        """Whether exactly those alerted that had to."""
        return not (self.missing or self.unexpected or self.silent)


@dataclass
class LongFiles:
    """The rule of one run, and what the run saw of it.

    On a `fresh` stack, where nothing was ever counted, the rule may be effective at once, since no
    evaluator knows older rules; and every long file must alert.
    """

    client: CountLedger
    clock: Clock
    fresh: bool = False
    _passed_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    _updates: list[TotalUpdate] = field(default_factory=list)
    _read_to: dict[str, str] = field(default_factory=dict)

    def begin(self) -> Rule:
        """Make the rule, unless it exists, and wait until it is effective."""
        alerts = self.client.alerts
        if self.fresh:
            alerts = replace(alerts, rules=replace(alerts.rules, delay_ms=0))
        ((rule, _),) = alerts.apply(
            {RULE: {"prefix": _PREFIX, "threshold": THRESHOLD, "direction": "rising"}}
        )
        # The stream's clock may be another one; on this machine it is ours.
        margin_ms = 0 if self.fresh else SECOND_MS
        self.clock.sleep_ms(max(rule.effective_from_ms + margin_ms - self.clock.now_ms(), 0))
        return rule

    def acknowledged(self, counter: str, old: int, new: int, at_s: float) -> None:
        """An event was acknowledged that takes a counter from the old to the new value."""
        if counter.startswith(_PREFIX) and old < THRESHOLD <= new:
            self._passed_s[counter].append(at_s)

    def check(self, rule: Rule, totals: Mapping[str, Total]) -> AlertCheck:
        """Compare the alerts so far with what the stream of totals shows by now."""
        alerts: list[Alert] = []
        latencies_s: list[float] = []
        for logged in self.client.alerts.log():
            if logged.alert.at_ms < rule.effective_from_ms:
                break
            if logged.alert.revision == rule.revision:
                alerts.insert(0, logged.alert)
                at_s = logged.published_at_ms / SECOND_MS
                passed_s = [s for s in self._passed_s[logged.alert.counter] if s < at_s]
                latencies_s += [at_s - s for s in passed_s[-1:]]
        self._read_on(rule)
        long = [n for n, t in totals.items() if n.startswith(_PREFIX) and t.total >= THRESHOLD]
        found = compare(alerts, self._updates, long, fresh=self.fresh)
        return found._replace(latencies_s=tuple(latencies_s))

    def _read_on(self, rule: Rule) -> None:
        """Read the stream on: every update of a file's total since the rule is effective."""
        connection = self.client.connection
        stream = LedgerStream(connection.streams(), connection.setting("counters_stream_arn"))
        for one in stream.shards():
            for record in stream.after(one.shard, self._read_to.get(one.shard.id)):
                change = record["dynamodb"]
                self._read_to[one.shard.id] = change["SequenceNumber"]
                made_ms = change["ApproximateCreationDateTime"].timestamp() * SECOND_MS
                update = update_in(change)
                if update is not None and made_ms >= rule.effective_from_ms:
                    self._updates.append(update)


def compare(
    alerts: Sequence[Alert], updates: Sequence[TotalUpdate], long: Sequence[str], *, fresh: bool
) -> AlertCheck:
    """Compare alerts with all updates of files' totals, and with the files that end long."""
    alerted = {(alert.counter, alert.version) for alert in alerts}
    below = {one.counter for one in updates if one.old < THRESHOLD}
    due = {(one.counter, one.version): one for one in updates if one.old < THRESHOLD <= one.new}
    # A file that nobody saw below the threshold may have passed it before the rule.
    must = [name for name in sorted(long) if fresh or name in below]
    return AlertCheck(
        alerts=tuple(alerts),
        missing=tuple(due[place] for place in sorted(due.keys() - alerted)),
        unexpected=tuple(one for one in alerts if (one.counter, one.version) not in due),
        silent=tuple(name for name in must if name not in {counter for counter, _ in alerted}),
    )


def update_in(change: Mapping[str, Any]) -> TotalUpdate | None:
    """The update in a stream record, or None if it is not one of a file's total."""
    key, new, old = change["Keys"], change.get("NewImage"), change.get("OldImage", {})
    counter = key["counter"]["S"]
    if key["part"]["S"] != "total" or new is None or not counter.startswith(_PREFIX):
        return None
    before = int(old["total"]["N"]) if "total" in old else 0
    return TotalUpdate(counter, int(new["version"]["N"]), before, int(new["total"]["N"]))


def problems(report: Report) -> list[str]:
    """What is wrong, a clause each; nothing for a good run."""
    found = []
    if report["wrong"]:
        found.append(f"{report['wrong']:,} totals are not what git says")
    if report["missing"]:
        found.append(f"{report['missing']:,} events did not reach their totals")
    alerts = report["alerts_missing"], report["alerts_unexpected"], len(report["alerts_silent"])
    if any(alerts):
        text = "{:,} alerts are missing, {:,} were not due, {:,} long files never alerted"
        found.append(text.format(*alerts))
    # Kinesis does not say which sendings the ledger knew.
    if report["duplicates"] is not None and report["duplicates"] < report["resent"]:
        known = report["duplicates"]
        found.append(f"only {known:,} of {report['resent']:,} retries were recognised")
    return found
