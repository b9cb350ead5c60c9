"""What makes a run of the demo good, besides its totals: its alerts, and its days.

A rule alerts for files that pass 1,000 lines. The alerts are compared with a second reading of the
stream of `counters` since the rule is effective: each update from below the threshold to it or
above must have alerted, nothing else may have, and every file that ends above the threshold must.

Every day of the largest counters is compared with the dates of git's log. A commit happened at its
author's date, long before it is counted. What is dated ahead counts when it is recorded, so all
days from that of the run on are compared as one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise, takewhile
from statistics import median
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from countledger.consumers.alerts.initial_scan import wait_until_effective
from countledger.consumers.stream import LedgerStream, made_at_ms
from countledger.infra.demo.history import COMMITS, LINES
from countledger.ledger.clock import to_datetime
from countledger.ledger.limits import SECOND_MS, WINDOWS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from countledger import CountLedger, Event
    from countledger.consumers.alerts.alert import Alert
    from countledger.consumers.alerts.rule import Rule
    from countledger.consumers.alerts.rule_spec import RuleSpec
    from countledger.ledger.clock import Clock

# Facts of a run by name, as `countledger demo --json` prints them; a list has facts of each thing.
Report: TypeAlias = dict[str, Any]
# One update of a total, as the stream shows it: the counter, its version, the old and new value.
TotalUpdate: TypeAlias = tuple[str, int, int, int]

THRESHOLD: Final = 1_000
_RULE: Final = "demo-long-files"
_PREFIX: Final = f"{LINES}:"
_FIRST: Final = datetime(1970, 1, 1, tzinfo=UTC)
# The facts that must be 0 or empty, and what is wrong if one is not.
_PROBLEMS: Final = {
    "wrong": "{:,} numbers are not what git says",
    "wrong_days": "{:,} days are not what git's log says",
    "missing": "{:,} events did not reach their totals",
    "unrecognised": "{:,} retries were not recognised",
    "alerts_missing": "{:,} alerts are missing",
    "alerts_unexpected": "{:,} alerts were not due",
    "alerts_silent": "{:,} long files never alerted",
    "untried": "{:,} effects of the partition were not seen: the repository may be too small",
}


def problems(report: Report) -> list[str]:
    """What is wrong, a clause each; nothing for a good run."""
    found = {clause: report.get(fact) for fact, clause in _PROBLEMS.items()}
    return [
        clause.format(len(fact) if isinstance(fact, list) else fact)
        for clause, fact in found.items()
        if fact
    ]


def new_rule(client: CountLedger, clock: Clock, *, fresh: bool) -> Rule:
    """Make the rule, unless it exists, and wait until it is effective.

    It is at once on a fresh stack, where no evaluator can know older rules.
    """
    alerts = client.alerts
    if fresh:
        alerts = replace(alerts, rules=replace(alerts.rules, delay_ms=0))
    spec: RuleSpec = {"prefix": _PREFIX, "threshold": THRESHOLD, "direction": "rising"}
    ((rule, _),) = alerts.apply({_RULE: spec})
    wait_until_effective(rule, clock)
    return rule


def check_alerts(client: CountLedger, rule: Rule, ends: Mapping[str, int]) -> Report:
    """Compare the rule's alerts with the stream of totals, and with how counters end.

    Those that end above the threshold must have alerted; on a stack that is not fresh, give none.
    """
    log = takewhile(lambda o: o.alert.at_ms >= rule.effective_from_ms, client.alerts.log())
    logged = [one for one in log if one.alert.revision == rule.revision][::-1]
    alerts = [one.alert for one in logged]
    long = [name for name, end in ends.items() if name.startswith(_PREFIX) and end >= THRESHOLD]
    # The stream stamps its records with whole seconds.
    latencies_s = [(one.published_at_ms - one.alert.at_ms) / SECOND_MS for one in logged]
    return {
        "alerts": len(alerts),
        "alerted": [{"counter": o.counter, "old": o.old, "new": o.new} for o in alerts],
        "alert_p50_seconds": median(latencies_s) if alerts else None,
        "alert_max_seconds": max(latencies_s, default=None),
        **compare(alerts, [*_updates(client, rule.effective_from_ms)], long),
    }


def compare(alerts: Sequence[Alert], updates: Iterable[TotalUpdate], long: Iterable[str]) -> Report:
    """Compare alerts with all updates of files' totals, and with files that must have alerted.

    Missing are updates that passed the threshold without an alert, unexpected the ids of other
    alerts, silent the files that never alerted.
    """
    due = {one[:2]: one for one in updates if one[2] < THRESHOLD <= one[3]}
    alerted = {(alert.counter, alert.version) for alert in alerts}
    return {
        "alerts_missing": [due[place] for place in sorted(due.keys() - alerted)],
        "alerts_unexpected": [one.id for one in alerts if (one.counter, one.version) not in due],
        "alerts_silent": sorted(set(long) - {counter for counter, _ in alerted}),
    }


def _updates(client: CountLedger, since_ms: int) -> Iterator[TotalUpdate]:
    """Every update of a file's total since then, read from the stream itself."""
    connection = client.connection
    stream = LedgerStream(connection.streams(), connection.setting("counters_stream_arn"))
    for record in (record for one in stream.shards() for record in stream.after(one.shard, None)):
        update = update_in(record["dynamodb"])
        if update is not None and made_at_ms(record) >= since_ms:
            yield update


def update_in(change: Mapping[str, Any]) -> TotalUpdate | None:
    """The update in a stream record, or None if it is not one of a file's total."""
    key, new, old = change["Keys"], change.get("NewImage"), change.get("OldImage", {})
    counter = key["counter"]["S"]
    if key["part"]["S"] != "total" or new is None or not counter.startswith(_PREFIX):
        return None
    before = int(old["total"]["N"]) if "total" in old else 0
    return counter, int(new["version"]["N"]), before, int(new["total"]["N"])


class Days:
    """The windows of a run on a stack where nothing was ever counted, and what they must show."""

    def __init__(self, client: CountLedger, clock: Clock) -> None:
        """Switch windows on for entries of that clock, at once: no other setting can be known."""
        self.client, now = client, to_datetime(clock.now_ms())
        self._today, self._end = now.date(), now + timedelta(days=1)
        self._logged: Counter[tuple[str, date]] = Counter()
        settings = replace(client.window_settings, delay_ms=0, clock=clock)
        for namespace in (COMMITS, LINES):
            client.namespaces.create(namespace)
            settings.enable(namespace, by="day")

    def add(self, event: Event) -> None:
        """An event of git's log."""
        at = event.occurred_at
        day = self._today if at is None else min(at.date(), self._today)
        self._logged[event.counter, day] += int(event.delta)

    def check(self, counters: Iterable[str]) -> Report:
        """Compare the days of some counters: for each a query for each 27 years."""
        logged, counted = Counter[tuple[str, date]](), Counter[tuple[str, date]]()
        starts = range(0, (self._end - _FIRST).days, WINDOWS_MAX)
        bounds = [*(_FIRST + timedelta(days=n) for n in starts), self._end]
        for counter in counters:
            logged.update({one: n for one, n in self._logged.items() if one[0] == counter})
            for since, until in pairwise(bounds):
                for one in self.client.windows(counter, "day", since=since, until=until):
                    if one.events:
                        counted[counter, min(one.start.date(), self._today)] += int(one.value)
        return {
            "days": len(logged),
            "wrong_days": [
                {"counter": of[0], "day": str(of[1]), "value": counted[of], "truth": logged[of]}
                for of in sorted(logged.keys() | counted.keys())
                if logged[of] != counted[of]
            ],
        }
