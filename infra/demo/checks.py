"""What makes a run of the demo good, besides its totals: its alerts, and its days (docs/demo.md).

The alerts are compared with a second reading of the stream of `counters`, and the days of counters
with the dates of git's log. What is dated ahead counts when it is recorded, so all days from that
of the run on are compared as one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime
from itertools import chain, takewhile
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from countledger.consumers.alerts.service import wait_until_effective
from countledger.consumers.record import LedgerStream, made_at_ms
from countledger.infra.demo.history import COMMITS, LINES
from countledger.ledger.limits import SECOND_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from countledger import Amount, CountLedger, Event, Total
    from countledger.consumers.alerts.rule import Rule, RuleSpec

# Facts of a run by name, as `countledger demo --json` prints them; a list has a row for each thing.
Report: TypeAlias = dict[str, Any]

THRESHOLD: Final = 1_000
_PREFIX: Final = f"{LINES}:"
# The facts that must be 0 or empty, and what is wrong if one is not.
_PROBLEMS: Final = {
    "wrong_numbers": "{:,} numbers are not what git says",
    "wrong_days": "{:,} days are not what git's log says",
    "missing_events": "{:,} events did not reach their totals",
    "unrecognised_retries": "{:,} retries were not recognised",
    "missing_alerts": "{:,} alerts are missing",
    "unexpected_alerts": "{:,} alerts were not due",
    "long_files_without_alert": "{:,} long files never alerted",
    "partition_effects_unseen": "{:,} effects of the partition were not seen (too few files?)",
}


def problems(report: Report) -> list[str]:
    """What is wrong, a clause each; nothing for a good run."""
    return [
        clause.format(len(found) if isinstance(found, list) else found)
        for fact, clause in _PROBLEMS.items()
        if (found := report.get(fact))
    ]


def lag_facts(of: str, lags_s: Sequence[float]) -> Report:
    """The median lag and the longest one, None without any."""
    longest = max(lags_s, default=None)
    middle = median(lags_s) if lags_s else None
    return {f"median_lag_of_{of}_seconds": middle, f"longest_lag_of_{of}_seconds": longest}


def prepare(client: CountLedger, *, fresh: bool, days: bool) -> Rule:
    """Make the rule, unless it exists, and wait until it is effective; count by days if wanted."""
    alerts, settings = client.alerts, client.window_settings
    if fresh:  # nothing can know older settings, so new ones need no delay
        alerts = replace(alerts, rules=replace(alerts.rules, delay_ms=0))
        settings = replace(settings, delay_ms=0)
    for namespace in (COMMITS, LINES) if days else ():
        client.namespaces.create(namespace)
        settings.enable(namespace, by="day")
    spec: RuleSpec = {"prefix": _PREFIX, "threshold": THRESHOLD, "direction": "rising"}
    ((rule, _),) = alerts.apply({"demo-long-files": spec})
    wait_until_effective(rule, client.connection.clock)
    return rule


class TotalUpdate(NamedTuple):
    """An update of a file's total: the counter, the version after it, the old and new value."""

    counter: str
    version: int
    old: Amount
    new: Amount


def check_alerts(client: CountLedger, rule: Rule, totals: Iterable[Total]) -> Report:
    """Compare the rule's alerts with the stream, and with totals that must have alerted if long."""
    begun_ms, log = rule.effective_from_ms, client.alerts.log()
    since = takewhile(lambda one: one.alert.at_ms >= begun_ms, log)
    logged = [one for one in since if one.alert.revision == rule.revision]
    # The stream stamps its records with whole seconds.
    lags_s = [(one.published_at_ms - one.alert.at_ms) / SECOND_MS for one in logged]
    found = [one.alert for one in reversed(logged)]
    alerts = [TotalUpdate(one.counter, one.version, one.old, one.new) for one in found]
    to = client.connection
    stream = LedgerStream(to.streams(), to.setting("counters_stream_arn"))
    records = chain.from_iterable(stream.after(one.shard, None) for one in stream.shards())
    recent = (one for one in records if made_at_ms(one) >= begun_ms)
    return {
        "alerts": [one._asdict() for one in alerts],
        **lag_facts("alerts", lags_s),
        **compare(alerts, updates_in(recent), totals),
    }


def compare(
    alerts: Iterable[TotalUpdate], updates: Iterable[TotalUpdate], totals: Iterable[Total]
) -> Report:
    """What is wrong with alerts; silent are those of the totals that are long and never alerted."""
    due, alerted = {one for one in updates if one.old < THRESHOLD <= one.new}, {*alerts}
    long = {one.counter for one in totals if one.value >= THRESHOLD}
    silent = {name for name in long if name.startswith(_PREFIX)} - {one.counter for one in alerted}
    return {
        "missing_alerts": [one._asdict() for one in sorted(due - alerted)],
        "unexpected_alerts": [one._asdict() for one in sorted(alerted - due)],
        "long_files_without_alert": [{"counter": counter} for counter in sorted(silent)],
    }


def updates_in(records: Iterable[Mapping[str, Any]]) -> Iterator[TotalUpdate]:
    """The updates of files' totals in stream records, read without the evaluator."""
    for change in (one["dynamodb"] for one in records):
        counter, part = (change["Keys"][name]["S"] for name in ("counter", "part"))
        if part == "total" and "NewImage" in change and counter.startswith(_PREFIX):
            old, new = change.get("OldImage", {}), change["NewImage"]
            before, after = (int(one.get("total", {"N": "0"})["N"]) for one in (old, new))
            yield TotalUpdate(counter, int(new["version"]["N"]), before, after)


def check_days(
    client: CountLedger, log: Iterable[list[Event]], counters: Sequence[str], begun_s: float
) -> Report:
    """Compare the days of some counters with git's log, after a run that began at this time."""
    logged, counted = Counter[tuple[str, date]](), Counter[tuple[str, date]]()
    now = datetime.fromtimestamp(begun_s, UTC)
    for event in chain.from_iterable(log):
        if event.counter in counters:
            logged[event.counter, min(event.occurred_at or now, now).date()] += int(event.delta)
    for counter in counters:
        months = client.windows(counter, "month", since=datetime(1970, 1, 1, tzinfo=UTC))
        for year in {one.start.year for one in months if one.events}:
            since, until = (datetime(n, 1, 1, tzinfo=UTC) for n in (year, year + 1))
            for one in client.windows(counter, "day", since=since, until=until):
                counted[counter, min(one.start, now).date()] += int(one.value)
    wrong = [one for one in logged.keys() | counted.keys() if counted[one] != logged[one]]
    rows = [
        {"counter": one[0], "day": str(one[1]), "value": counted[one], "truth": logged[one]}
        for one in sorted(wrong)
    ]
    return {"days_checked": len(logged), "wrong_days": rows}
