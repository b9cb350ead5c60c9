"""The demo's run: a repository's history goes in, and every total is checked against git.

Each event is sent, every tenth a second time, later. When the totals have all of them, or nothing
moves any more, every counter of the history and of git's truth is checked, and every alert.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import chain, islice, tee
from statistics import median
from typing import TYPE_CHECKING, Final, TypeAlias

from countledger import Buffering, CountledgerError, Receipt
from countledger.infra.demo.checks import Days, LongFiles, Report, problems
from countledger.infra.demo.history import COMMITS, LINES, read_events, read_truth
from countledger.ledger.limits import SECOND_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from countledger import CountLedger, Event, PendingEntry, Total
    from countledger.infra.demo.history import View
    from countledger.ledger.clock import Clock
    from countledger.producers.kinesis.sender import Sent

    Sending: TypeAlias = tuple[Event, bool]
    Outcome: TypeAlias = Receipt | Sent | CountledgerError

# A look at the materializer's progress costs a few reads.
_LOOK_EVERY_S: Final = 0.5
_WAIT_MS: Final = 100
# After so long without any movement the materializer has stopped, and waiting does not help.
_STALLED_S: Final = 60.0
_LARGEST: Final = 8
# How many coalesced events are sent before they are waited for.
_AT_ONCE: Final = 20_000


@dataclass
class Lag:
    """Samples of the age of the oldest acknowledged event that is not in its total yet, or 0."""

    samples_s: list[float] = field(default_factory=list)
    _missing: deque[tuple[int, float]] = field(default_factory=deque)

    def sample(self, acknowledged: int, materialized: int, at_s: float) -> None:
        """By now so many events were acknowledged, and so many are in their totals."""
        self._missing.append((acknowledged, at_s))
        while self._missing and self._missing[0][0] <= materialized:
            self._missing.popleft()
        self.samples_s.append(at_s - self._missing[0][1] if self._missing else 0.0)


@dataclass
class DemoRun:
    """One run over one repository; `fresh` if nothing was ever counted on the stack.

    Events go into DynamoDB, or with `kinesis` into the stream of the stack. `on_progress` is called
    with the commits sent, the events recorded and those materialized. `drain` returns once nothing
    is on its way any more, where that can be known.
    """

    client: CountLedger
    view: View
    clock: Clock
    on_progress: Callable[[int, int, int], None] = lambda *_: None
    kinesis: bool = False
    coalesce: bool = False
    drain: Callable[[], None] = lambda: None
    fresh: bool = False
    _facts: Counter[str] = field(default_factory=Counter)
    _events_of: Counter[str] = field(default_factory=Counter)
    _sum_of: Counter[str] = field(default_factory=Counter)
    _lag: Lag = field(default_factory=Lag)
    _looked_s: float = 0.0

    def report(self, started_s: float) -> Report:
        """Make the rule, emit, wait, check; the user has waited since then, by the run's clock.

        Raises:
            CountledgerError: an event could not be recorded.
        """
        self._before = self._handled()
        self.long_files = LongFiles(self.client, self.clock, fresh=self.fresh)
        # An entry of coalesced events has no time of theirs.
        windowed = self.fresh and not self.coalesce
        self._days = Days(self.client, self.clock) if windowed else None
        units_before, begun_s = self.client.write_units, self._now_s()
        self._emit()
        emitted_s = self._now_s()
        self._await(self._totals_arrived)
        # An event counted twice may come after the last event that was missing.
        self.drain()
        totals = self.client.totals(self._events_of)
        arrived_s = self._now_s()
        truth = read_truth(self.view)
        totals |= self.client.totals(sorted(truth.keys() - totals.keys()))
        self._await(lambda: self.long_files.check(totals))
        days, wrong_days = self._days.check(largest(totals)) if self._days else (0, [])
        events = self._facts["events"]
        wrong = [
            {"counter": n, "total": one.value, "emitted": self._sum_of[n], "truth": truth.get(n, 0)}
            for n, one in sorted(totals.items())
            if one.value != truth.get(n, 0)
        ]
        producer = (self.client.write_units - units_before) / events
        materializer = (self._handled()[1] - self._before[1]) / events
        latencies_s, alerts = self.long_files.latencies_s, self.long_files.alerts
        report: Report = {
            "repo": str(self.view.root),
            "via": "kinesis" if self.kinesis else "dynamodb",
            "head": self.view.head,
            "shallow": self.view.shallow,
            **{name: self._facts[name] for name in ("commits", "events", "resent")},
            "entries": self._facts["recorded"] if self.coalesce else None,
            "duplicates": None if self.kinesis else self._facts["duplicates"],
            "counters": len(totals),
            "wrong": len(wrong),
            "wrong_totals": wrong,
            "missing": self._missing(totals),
            "emit_events_per_second": events / (emitted_s - begun_s),
            "end_to_end_events_per_second": events / (arrived_s - begun_s),
            "seconds": self._now_s() - started_s,
            "lag_p50_seconds": median(self._lag.samples_s),
            "lag_max_seconds": max(self._lag.samples_s),
            "write_units_per_event": producer + materializer,
            "producer_write_units_per_event": producer,
            "materializer_write_units_per_event": materializer,
            "days": days,
            "wrong_days": wrong_days,
            "largest": largest(totals),
            "alerts": len(alerts),
            "alert_ids": [alert.id for alert in alerts],
            "alerts_missing": len(self.long_files.wrong["missing"]),
            "alerts_unexpected": len(self.long_files.wrong["unexpected"]),
            "alerts_silent": self.long_files.wrong["silent"],
            "alert_p50_seconds": median(latencies_s) if latencies_s else None,
            "alert_max_seconds": max(latencies_s, default=None),
        }
        report["good"] = not problems(report)
        return {n: round(v, 3) if isinstance(v, float) else v for n, v in report.items()}

    def _emit(self) -> None:
        sent, sending = tee(with_resends(chain.from_iterable(read_events(self.view))))
        entries: set[str] = set()
        # One outcome for each sent event, in their order.
        for outcome, (event, again) in zip(self._outcomes(sending), sent, strict=False):
            if isinstance(outcome, CountledgerError):
                raise outcome
            known = outcome.status == "duplicate" if isinstance(outcome, Receipt) else again
            another = not known and outcome.id not in entries
            self._facts.update(resent=again, duplicates=known, recorded=another, events=not again)
            if self.coalesce:
                entries.add(outcome.id)
            if not again:
                name, before = event.counter, self._sum_of[event.counter]
                self._facts["commits"] += name.startswith(f"{COMMITS}:")
                self._events_of[name] += 1
                self._sum_of[name] += int(event.delta)
                self.long_files.acknowledged(name, before, self._sum_of[name], self._now_s())
                if self._days:
                    self._days.add(event)
            if self._now_s() - self._looked_s >= _LOOK_EVERY_S:
                self._look()
        self._look()

    def _outcomes(self, sending: Iterator[Sending]) -> Iterator[Outcome]:
        if self.coalesce:
            return self._coalesced(sending)
        send = self.client.kinesis.send_stream if self.kinesis else self.client.record_stream
        return send(event for event, _ in sending)

    def _coalesced(self, sending: Iterator[Sending]) -> Iterator[Outcome]:
        """Send events through a buffer, without their keys, which a coalesced entry cannot keep.

        An event that comes a second time is a retry: the very entry that holds it is sent again.
        """
        first: dict[object, PendingEntry] = {}
        with self.client.buffered(Buffering(coalesce=True)) as producer:
            while chunk := list(islice(sending, _AT_ONCE)):
                for event, again in chunk:
                    if not again:
                        first[event.key] = producer.add(event.counter, event.delta)
                producer.flush()
                for event, again in chunk:
                    pending = first[event.key]
                    outcome, entry = pending.wait(), pending.entry
                    yield self.client.resend(entry) if again and entry is not None else outcome

    def _await(self, arrived: Callable[[], int | None]) -> None:
        """Return once all has arrived (None), or once the number that has stays the same."""
        moved_s, last = self._now_s(), -1
        while self._now_s() - moved_s < _STALLED_S and (count := arrived()) is not None:
            if count != last:
                moved_s, last = self._now_s(), count
            self.clock.sleep_ms(_WAIT_MS)

    def _totals_arrived(self) -> int | None:
        arrived = self._look()
        # What a stream took is not known to be new to the ledger.
        if arrived < self._facts["recorded"] and not self.kinesis:
            return arrived
        missing = self._missing(self.client.totals(self._events_of))
        return self._facts["events"] - missing if missing else None

    def _missing(self, totals: dict[str, Total]) -> int:
        """How many of this run's events are not in their totals."""
        return sum(max(n - totals[name].events, 0) for name, n in self._events_of.items())

    def _look(self) -> int:
        """See how far the materializer is, report it, and return it."""
        materialized = self._handled()[0] - self._before[0]
        self._looked_s = self._now_s()
        self._lag.sample(self._facts["recorded"], materialized, self._looked_s)
        self.on_progress(self._facts["commits"], self._facts["recorded"], materialized)
        return materialized

    def _handled(self) -> tuple[int, float]:
        """The records that the materializer has handled, and their write units."""
        shards = self.client.freshness().shards
        return sum(one.records for one in shards), sum(one.write_units for one in shards)

    def _now_s(self) -> float:
        return self.clock.now_ms() / SECOND_MS


def with_resends(events: Iterable[Event], every: int = 10, of: int = 250) -> Iterator[Sending]:
    """All events in order; after so many, every so-many-th of them again, with true, as a retry."""
    feed = iter(events)
    while sent := list(islice(feed, of)):
        yield from ((event, False) for event in sent)
        yield from ((event, True) for event in sent[every - 1 :: every])


def largest(totals: dict[str, Total]) -> dict[str, int]:
    """The biggest totals: of files, then of authors."""
    by_size = sorted(totals.values(), key=lambda total: (-total.value, total.counter))
    files = [one for one in by_size if one.counter.startswith(f"{LINES}:")][:_LARGEST]
    authors = [one for one in by_size if one.counter.startswith(f"{COMMITS}:")]
    return {one.counter: int(one.value) for one in files + authors[: _LARGEST // 2]}
