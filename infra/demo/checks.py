"""What makes a run of the demo good, besides its totals: its alerts, and its windows.

A rule alerts for files that pass 1,000 lines. The alerts are compared with a second reading of the
stream of `counters` since the rule is effective: each update from below the threshold to it or
above must have alerted, nothing else may have, and every file that ends above the threshold must.

Every day of the largest counters is compared with the dates of git's log. A commit happened at its
author's date, long before it is counted. What is dated ahead counts when it is recorded, so all
days from that of the run on are compared as one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from countledger.consumers.stream import LedgerStream, made_at_ms
from countledger.infra.demo.history import COMMITS, LINES
from countledger.ledger.clock import to_datetime
from countledger.ledger.limits import SECOND_MS, WINDOWS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from countledger import CountLedger, Event, Total
    from countledger.consumers.alerts.alert import Alert
    from countledger.ledger.clock import Clock

# What `countledger demo --json` prints: one flat object.
Report: TypeAlias = dict[str, Any]

RULE: Final = "demo-long-files"
THRESHOLD: Final = 1_000
_PREFIX: Final = f"{LINES}:"
# One update of a total, as the stream shows it: the counter, its version, the old and new value.
TotalUpdate: TypeAlias = tuple[str, int, int, int]
_FIRST: Final = datetime(1970, 1, 1, tzinfo=UTC)


class LongFiles:
    """The rule of one run, its alerts (oldest first), and what is wrong with them.

    `latencies_s` reach from the acknowledged event that passed the threshold to the alert. On a
    `fresh` stack, where nothing was ever counted, the rule may be effective at once, since no
    evaluator knows older rules; and every long file must alert.
    """

    alerts: Sequence[Alert]
    wrong: dict[str, Sequence[object]]
    latencies_s: list[float]

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

    def check(self, totals: Mapping[str, Total]) -> int | None:
        """Compare the alerts with the stream of totals; their number, or None if all is right."""
        begun_ms, log = self._rule.effective_from_ms, self.client.alerts.log()
        since = takewhile(lambda one: one.alert.at_ms >= begun_ms, log)
        logged = [one for one in since if one.alert.revision == self._rule.revision][::-1]
        self.latencies_s = []
        for one in logged:
            at_s, passed_s = one.published_at_ms / SECOND_MS, self._passed_s[one.alert.counter]
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
        self.alerts = [one.alert for one in logged]
        self.wrong = compare(self.alerts, self._updates, long, fresh=self.fresh)
        return len(self.alerts) if any(self.wrong.values()) else None


def compare(
    alerts: Sequence[Alert], updates: Sequence[TotalUpdate], long: Sequence[str], *, fresh: bool
) -> dict[str, Sequence[object]]:
    """Compare alerts with all updates of files' totals, and with the files that end long.

    `missing` are updates that passed the threshold without an alert, `unexpected` alerts of others,
    `silent` files that end above it and never alerted.
    """
    alerted = {(alert.counter, alert.version) for alert in alerts}
    due = {one[:2]: one for one in updates if one[2] < THRESHOLD <= one[3]}
    below = {counter for counter, _, old, _ in updates if old < THRESHOLD}
    # A file that was never seen below the threshold may have passed it before the rule.
    must = set(long) if fresh else below.intersection(long)
    return {
        "missing": [due[place] for place in sorted(due.keys() - alerted)],
        "unexpected": [one for one in alerts if (one.counter, one.version) not in due],
        "silent": sorted(must - {counter for counter, _ in alerted}),
    }


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
        """Switch windows on, at once: no materializer can know an older setting."""
        self.client = client
        self._end = to_datetime(clock.now_ms()) + timedelta(days=1)
        self._today = to_datetime(clock.now_ms()).date()
        self._logged: dict[str, Counter[date]] = defaultdict(Counter)
        for namespace in (COMMITS, LINES):
            client.namespaces.create(namespace)
            replace(client.window_settings, delay_ms=0).enable(namespace, by="day")

    def add(self, event: Event) -> None:
        """An event of git's log."""
        at = event.occurred_at
        day = self._today if at is None else min(at.date(), self._today)
        self._logged[event.counter][day] += int(event.delta)

    def check(self, counters: Iterable[str]) -> tuple[int, list[str]]:
        """How many days were compared, and what of them is wrong: a query for each 27 years."""
        checked, wrong = 0, []
        for counter in counters:
            logged, counted = self._logged[counter], self._counted(counter)
            checked += len(logged)
            wrong += [
                f"{counter} on {day}: {counted[day]}, git says {logged[day]}"
                for day in sorted(logged.keys() | counted.keys())
                if counted[day] != logged[day]
            ]
        return checked, wrong

    def _counted(self, counter: str) -> Counter[date]:
        found: Counter[date] = Counter()
        step = WINDOWS_MAX - 1
        for first in range(0, (self._end - _FIRST).days + 1, step):
            since = _FIRST + timedelta(days=first)
            until = since + timedelta(days=step)
            for window in self.client.windows(counter, "day", since=since, until=until):
                if window.events:
                    found[min(window.start.date(), self._today)] += int(window.value)
        return found


def problems(report: Report) -> list[str]:
    """What is wrong, a clause each; nothing for a good run."""
    resent, known = report["resent"], report["duplicates"]
    found = {
        f"{report['wrong']:,} totals are not what git says": report["wrong"],
        f"{len(report['wrong_days']):,} days are not what git's log says": report["wrong_days"],
        f"{report['missing']:,} events did not reach their totals": report["missing"],
        f"{report['alerts_missing']:,} alerts are missing": report["alerts_missing"],
        f"{report['alerts_unexpected']:,} alerts were not due": report["alerts_unexpected"],
        f"{len(report['alerts_silent']):,} long files never alerted": report["alerts_silent"],
        # Kinesis does not say which sendings the ledger knew.
        f"only {known} of {resent:,} retries were recognised": known is not None and known < resent,
    }
    return [clause for clause, holds in found.items() if holds]
