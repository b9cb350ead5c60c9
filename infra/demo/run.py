"""The demo's run: a repository's history goes in, and every number is checked against git.

One region is the case without a partition. Of several the last one is cut off midway.
"""

from __future__ import annotations

from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from countledger import Buffering, CountledgerError, Receipt
from countledger.compaction.compactor import Compactor
from countledger.compaction.plan import AgeLimit
from countledger.compaction.regions import Regions
from countledger.compaction.report import RunOutcome
from countledger.infra.demo.checks import check_alerts, check_days, lag_facts, prepare, problems
from countledger.infra.demo.history import COMMITS, read_events, read_truth
from countledger.ledger.limits import SECOND_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from countledger import CountLedger, Event, ExactSum, Total
    from countledger.infra.demo.checks import Report
    from countledger.infra.demo.history import History
    from countledger.infra.local.stack import LocalStack
    from countledger.producers.kinesis import Sent

# How many events are sent before the materializer's progress is read, which costs a few reads.
_AT_ONCE: Final = 500
_COALESCED_AT_ONCE: Final = 20_000
_RESENT: Final = slice(9, None, 10)
_WAIT_MS: Final = 100
# After so long without any movement the materializer has stopped, and waiting does not help.
_STALLED_S: Final = 60.0
_BUSIEST: Final = 12
_COMPACTED: Final = 5
# A compactor merges entries that can still be sent again only here: the run sends none again.
_ANY_AGE: Final = AgeLimit(0, 0, 0, 0)


@dataclass
class DemoRun:
    """One run over one repository.

    Attributes:
        clients: of the stack, one in each region, the home region's first.
        history: what is counted.
        stack: the stack, if it is the run's own and nothing was ever counted there.
        kinesis: whether events go through the stream of the stack.
        coalesce: whether events of one counter share an entry.
        on_progress: called with the commits sent, the events recorded and those materialized.
    """

    clients: Sequence[CountLedger]
    history: History
    stack: LocalStack | None = None
    kinesis: bool = False
    coalesce: bool = False
    on_progress: Callable[[int, int, int], None] = lambda *_: None
    _facts: Counter[str] = field(default_factory=Counter)
    _events_of: Counter[str] = field(default_factory=Counter)
    _sum_of: Counter[str] = field(default_factory=Counter)
    _waiting: deque[tuple[int, float]] = field(default_factory=deque)
    _lags_s: list[float] = field(default_factory=list)
    _sending_s: float = 0.0

    def report(self) -> Report:
        """Prepare the stack, count, wait, check.

        Raises:
            CountledgerError: an event could not be recorded, or a number not be read.
        """
        home, own = self.clients[0], self.stack is not None
        # An entry of coalesced events has no time of theirs.
        has_days = own and not self.coalesce
        rule = prepare(home, fresh=own, days=has_days)
        begun_s, self._before = self._now_s(), self._progress()
        partition = self._count()
        arrived = self._awaited(self._arrived)
        if self.stack:  # an event counted twice may come after the last event that was missing
            self.stack.drain()
        self._look()
        seconds, after = self._now_s() - begun_s, self._progress()
        events = self._events_of.total()
        producer, materializer = ((after[n] - self._before[n]) / events for n in (1, 2))
        self._truth = read_truth(self.history)
        names = sorted(self._truth.keys() | self._sum_of.keys())
        totals = [one.totals(names) for one in self.clients]
        busiest = [name for name, _ in self._events_of.most_common(_BUSIEST)]
        days = check_days(home, read_events(self.history), busiest, begun_s) if has_days else {}
        # On another stack a file may have been long before the rule.
        long = totals[0].values() if own else ()
        facts: Report = {
            "repository": str(self.history.root.absolute()),
            "head": self.history.commits[-1],
            "counted_from": self.history.commits[0] if self.history.shallow else None,
            "via": "kinesis" if self.kinesis else "dynamodb",
            "regions": [one.connection.region for one in self.clients],
            "commits": self._facts["commits"],
            "events": events,
            "entries": self._facts["recorded"] if self.coalesce else None,
            "retries": self._facts["retries"],
            # Kinesis does not say which sendings the ledger knew.
            "duplicates": None if self.kinesis else self._facts["duplicates"],
            "unrecognised_retries": None if self.kinesis else self._facts["unrecognised"],
            **partition,
            "counters_checked": len(names),
            "wrong_numbers": [*chain.from_iterable(map(self._wrong, self.clients, totals))],
            **days,
            **arrived,
            "events_sent_per_second": events / self._sending_s,
            "events_materialized_per_second": events / seconds,
            **lag_facts("totals", self._lags_s),
            **self._awaited(lambda: check_alerts(home, rule, long)),
            "write_units_per_event": None if self.kinesis else producer + materializer,
            "producer_write_units_per_event": None if self.kinesis else producer,
            "materializer_write_units_per_event": materializer,
            "busiest_counters": [{"counter": o, "total": totals[0][o].value} for o in busiest],
        }
        return {n: round(v, 3) if isinstance(v, float) else v for n, v in facts.items()}

    def _count(self) -> Report:
        """Send all events; of several regions the last one is cut off midway: what was seen."""
        commits, several = read_events(self.history), len(self.clients) > 1
        self._emit(islice(commits, len(self.history.commits) // 2 if several else None))
        if self.stack is None or not several:
            return {}
        cut_off = self.clients[-1].connection.region
        self.stack.replicator.cut_off(cut_off)
        self._emit(commits)
        self.stack.drain()
        counters = [name for name, _ in self._events_of.most_common(_COMPACTED)]
        to, namespaces = self.clients[0].connection, self.clients[0].namespaces
        compact = Compactor(Regions.of(to), namespaces, lambda _: _ANY_AGE).compact
        # A run waits for other regions for as long as it is patient.
        with ThreadPoolExecutor(_COMPACTED) as pool:
            waiting = [one.outcome is RunOutcome.WAITING for one in pool.map(compact, counters)]
            totals = [one.totals(self._sum_of) for one in self.clients]
            apart = sum(len({one[name].value for one in totals}) > 1 for name in self._sum_of)
            self.stack.replicator.heal()
            self.stack.drain()
            merged = sum(one.merged for one in pool.map(compact, counters))
        return {
            "cut_off_region": cut_off,
            "counters_apart": apart,
            "compactions": len(counters),
            "compactions_that_waited": sum(waiting),
            "entries_merged_later": merged,
            "partition_effects_unseen": (not apart) + (not all(waiting)) + (not merged),
        }

    def _emit(self, commits: Iterable[list[Event]]) -> None:
        """Send the events of commits; regions take turns."""
        events, regions = chain.from_iterable(commits), len(self.clients)
        with ThreadPoolExecutor(regions) as pool:
            while chunk := list(islice(events, _COALESCED_AT_ONCE if self.coalesce else _AT_ONCE)):
                begun_s = self._now_s()
                shares = [chunk[n::regions] for n in range(regions)]
                sent = chain.from_iterable(pool.map(self._sent, self.clients, shares))
                for outcome, retry in sent:
                    if isinstance(outcome, CountledgerError):
                        raise outcome
                    known = isinstance(outcome, Receipt) and outcome.status == "duplicate"
                    self._facts.update(retries=retry, duplicates=known, unrecognised=retry > known)
                    self._facts["recorded"] += not (known or retry)
                self._sending_s += self._now_s() - begun_s
                for event in chunk:
                    self._facts["commits"] += event.counter.startswith(f"{COMMITS}:")
                    self._events_of[event.counter] += 1
                    self._sum_of[event.counter] += int(event.delta)
                self._waiting.append((self._facts["recorded"], self._now_s()))
                self._look()

    def _sent(
        self, client: CountLedger, events: Sequence[Event]
    ) -> list[tuple[Receipt | Sent | CountledgerError, bool]]:
        """Send events in a region, every tenth again: what each entry came to, and if a retry."""
        if self.coalesce:
            # Without keys, which an entry of many events cannot have: that entry is sent again.
            with client.buffered(Buffering(coalesce=True)) as producer:
                pending = [producer.add(one.counter, one.delta) for one in events]
            again = [(client.resend(one.entry), True) for one in pending[_RESENT] if one.entry]
            return [*((one.wait(), False) for one in dict.fromkeys(pending)), *again]
        send = client.kinesis.send_many if self.kinesis else client.record_many
        parts = (events, False), (events[_RESENT], True)
        return [(outcome, retry) for part, retry in parts for outcome in send(part)]

    def _awaited(self, read: Callable[[], Report]) -> Report:
        """Read facts until they show no problem, or until the problems stay the same."""
        moved_s, last = self._now_s(), [""]
        while (found := problems(facts := read())) and self._now_s() - moved_s < _STALLED_S:
            if found != last:
                moved_s, last = self._now_s(), found
            self.clients[0].connection.clock.sleep_ms(_WAIT_MS)
        return facts

    def _arrived(self) -> Report:
        """How many of this run's events are not in their totals."""
        missing = self._facts["recorded"] - self._look()
        # What a stream took is not known to be new to the ledger.
        if missing <= 0 or self.kinesis:
            totals = self.clients[0].totals(self._events_of)
            missing = sum(max(n - totals[one].events, 0) for one, n in self._events_of.items())
        return {"missing_events": missing}

    def _wrong(self, client: CountLedger, totals: Mapping[str, Total]) -> list[Report]:
        """The numbers of a region that are not what git says; of several also the exact sums."""
        numbers: list[tuple[str, Total | ExactSum]] = [("total", one) for one in totals.values()]
        if len(self.clients) > 1:
            with ThreadPoolExecutor() as pool:
                numbers += [("exact sum", one) for one in pool.map(client.exact, totals)]
        return [
            {
                "counter": one.counter,
                "number": f"{kind} in {client.connection.region}",
                "value": one.value,
                "emitted": self._sum_of[one.counter],
                "truth": self._truth[one.counter],
            }
            for kind, one in numbers
            if one.value != self._truth[one.counter]
        ]

    def _look(self) -> int:
        """See how far the home region's materializer is, report it, and return it."""
        handled, now_s = self._progress()[0] - self._before[0], self._now_s()
        while self._waiting and self._waiting[0][0] <= handled:
            self._lags_s.append(now_s - self._waiting.popleft()[1])
        self.on_progress(self._facts["commits"], self._facts["recorded"], handled)
        return handled

    def _progress(self) -> tuple[int, float, float]:
        """Records handled in the home region; write units of producers and materializers."""
        shards = [one.freshness().shards for one in self.clients]
        producers = sum(one.write_units for one in self.clients)
        materializers = sum(one.write_units for one in chain.from_iterable(shards))
        return sum(one.records for one in shards[0]), producers, materializers

    def _now_s(self) -> float:
        return self.clients[0].connection.clock.now_ms() / SECOND_MS
