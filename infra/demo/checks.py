"""What makes a run of the demo good; above all its alerts, checked against what totals did.

A rule alerts for files that pass 1,000 lines. The alerts are compared with a second reading of the
stream of `counters` since the rule is effective: each update from below the threshold to it or
above must have alerted, nothing else may have, and every file that ends above the threshold must.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from countledger.consumers.stream import LedgerStream, made_at_ms
from countledger.infra.demo.history import LINES
from countledger.ledger.limits import SECOND_MS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countledger import CountLedger, Total
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
    `silent` files that end above it and never alerted.
    """

    alerts: tuple[Alert, ...] = ()
    missing: tuple[TotalUpdate, ...] = ()
    unexpected: tuple[Alert, ...] = ()
    silent: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """Whether exactly those alerted that had to."""
        return not (self.missing or self.unexpected or self.silent)


class LongFiles:
    """The rule of one run, and what the run saw of it.

    `latencies_s` reach from the acknowledged event that passed the threshold to the alert. On a
    `fresh` stack, where nothing was ever counted, the rule may be effective at once, since no
    evaluator knows older rules; and every long file must alert.
    """

    def __init__(self, client: CountLedger, clock: Clock, *, fresh: bool) -> None:
        """Make the rule, unless it exists, and wait until it is effective."""
        self.client, self.fresh = client, fresh
        self._passed_s: dict[str, list[float]] = defaultdict(list)
        self._updates: list[TotalUpdate] = []
        self._read_to: dict[str, str] = {}
        alerts = client.alerts
        if fresh:
            alerts = replace(alerts, rules=replace(alerts.rules, delay_ms=0))
        ((self._rule, _),) = alerts.apply(
            {RULE: {"prefix": _PREFIX, "threshold": THRESHOLD, "direction": "rising"}}
        )
        # The stream's clock may be another one; on this machine it is ours.
        margin_ms = 0 if fresh else SECOND_MS
        clock.sleep_ms(max(self._rule.effective_from_ms + margin_ms - clock.now_ms(), 0))

    def acknowledged(self, counter: str, old: int, new: int, at_s: float) -> None:
        """An event was acknowledged that takes a counter from the old to the new value."""
        if counter.startswith(_PREFIX) and old < THRESHOLD <= new:
            self._passed_s[counter].append(at_s)

    def check(self, totals: Mapping[str, Total]) -> AlertCheck:
        """Compare the alerts so far with what the stream of totals shows by now."""
        begun_ms, log = self._rule.effective_from_ms, self.client.alerts.log()
        since = takewhile(lambda one: one.alert.at_ms >= begun_ms, log)
        logged = [one for one in since if one.alert.revision == self._rule.revision][::-1]
        self.latencies_s: list[float] = []
        for one in logged:
            at_s = one.published_at_ms / SECOND_MS
            passed_s = self._passed_s[one.alert.counter]
            self.latencies_s += [at_s - s for s in passed_s if s < at_s][-1:]
        # The stream is read on: every update of a file's total since the rule is effective.
        connection = self.client.connection
        stream = LedgerStream(connection.streams(), connection.setting("counters_stream_arn"))
        for shard in (one.shard for one in stream.shards()):
            for record in stream.after(shard, self._read_to.get(shard.id)):
                self._read_to[shard.id] = record["dynamodb"]["SequenceNumber"]
                update = update_in(record["dynamodb"])
                if update is not None and made_at_ms(record) >= begun_ms:
                    self._updates.append(update)
        long = [n for n, t in totals.items() if n.startswith(_PREFIX) and t.value >= THRESHOLD]
        return compare([one.alert for one in logged], self._updates, long, fresh=self.fresh)


def compare(
    alerts: Sequence[Alert], updates: Sequence[TotalUpdate], long: Sequence[str], *, fresh: bool
) -> AlertCheck:
    """Compare alerts with all updates of files' totals, and with the files that end long."""
    alerted = {(alert.counter, alert.version) for alert in alerts}
    below = {one.counter for one in updates if one.old < THRESHOLD}
    due = {(one.counter, one.version): one for one in updates if one.old < THRESHOLD <= one.new}
    # A file that was never seen below the threshold may have passed it before the rule.
    must = set(long) if fresh else below.intersection(long)
    return AlertCheck(
        alerts=tuple(alerts),
        missing=tuple(due[place] for place in sorted(due.keys() - alerted)),
        unexpected=tuple(one for one in alerts if (one.counter, one.version) not in due),
        silent=tuple(sorted(must - {counter for counter, _ in alerted})),
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
    silent, resent, known = len(report["alerts_silent"]), report["resent"], report["duplicates"]
    alerts = report["alerts_missing"], report["alerts_unexpected"], silent
    alerts_wrong = "{:,} alerts are missing, {:,} were not due, {:,} long files never alerted"
    found = {
        f"{report['wrong']:,} totals are not what git says": report["wrong"],
        f"{len(report['wrong_days']):,} days are not what git's log says": report["wrong_days"],
        f"{report['missing']:,} events did not reach their totals": report["missing"],
        alerts_wrong.format(*alerts): any(alerts),
        # Kinesis does not say which sendings the ledger knew.
        f"only {known} of {resent:,} retries were recognised": known is not None and known < resent,
    }
    return [clause for clause, holds in found.items() if holds]
