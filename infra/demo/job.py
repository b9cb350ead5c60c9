"""The main job: a repository's history goes in, and every total is checked against git.

    rule         a file that passes 1,000 lines alerts
    emit         every event through the producer, every tenth a second time, later
    wait         until the totals have all of them, or nothing moves any more
    check        every counter of the history and of git's truth; every alert

Whoever runs it sees how far it is through `Stage` values; clock and pause are handed in.
"""

from __future__ import annotations

from collections import Counter, deque
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from countledger import CountledgerError, Event, Receipt
from countledger.infra.demo.history import LINES, count_commits, read_steps
from countledger.infra.demo.lag import Lag
from countledger.infra.demo.long_files import AlertCheck, LongFiles
from countledger.infra.demo.report import Report, Wrong
from countledger.infra.demo.resends import Resend, with_resends
from countledger.infra.demo.truth import read_truth
from countledger.infra.demo.ways import DIRECT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from countledger import CountLedger, Total
    from countledger.infra.demo.git import View
    from countledger.infra.demo.history import Step
    from countledger.infra.demo.ways import Way
    from countledger.ledger.clock import Clock
    from countledger.producers.kinesis.sender import Sent

# A look at the materializer's progress costs a few reads.
_LOOK_EVERY_S: Final = 0.5
_WAIT_MS: Final = 100
# Nothing moved for so long: the materializer stands still, and waiting does not help.
_STALLED_S: Final = 60.0
_LARGEST: Final = 8


class Stage(NamedTuple):
    """How far a run is."""

    commits: int
    commits_in_all: int
    emitted: int
    recorded: int
    materialized: int


class Handled(NamedTuple):
    """What the materializer had done at some moment, over all stream shards."""

    records: int
    write_units: float


class Job:
    """One run over one repository."""

    def __init__(
        self,
        client: CountLedger,
        view: View,
        *,
        clock: Clock,
        on_stage: Callable[[Stage], None],
        way: Way = DIRECT,
        settle: Callable[[], None] = lambda: None,
        fresh: bool = False,
    ) -> None:
        """Describe a run; nothing is emitted yet.

        Args:
            client: of the stack to count on.
            view: the repository.
            clock: tells the time, and waits.
            on_stage: told how far it is.
            way: how events go into the ledger.
            settle: returns once nothing is on its way any more, where somebody can tell.
            fresh: whether nothing was ever counted on the stack.
        """
        self._client = client
        self._way = way
        self._settle = settle
        self._view = view
        self._clock = clock
        self._on_stage = on_stage
        self._commits_in_all = count_commits(view)
        self._commits = self._emitted = self._resent = self._recorded = self._duplicates = 0
        self._events_of: Counter[str] = Counter()
        self._sum_of: Counter[str] = Counter()
        self._sent: deque[Resend] = deque()
        self._entries: set[str] = set()
        self._lag = Lag()
        self._long_files = LongFiles(client, clock, fresh)
        self._before = self._handled()
        self._looked_s = 0.0

    def run(self, started_s: float) -> Report:
        """Make the rule, emit, wait, check.

        Args:
            started_s: when the user started waiting, on the job's clock.

        Raises:
            CountledgerError: an event could not be recorded.
        """
        self._long_files.begin()
        units_before = self._client.write_units
        begun_s = self._now_s()
        self._emit()
        emitted_s = self._now_s()
        self._await_totals()
        # What counted twice may be behind the last event that was missing.
        self._settle()
        totals = self._client.totals(self._events_of)
        arrived_s = self._now_s()
        truth = read_truth(self._view)
        totals |= self._client.totals(sorted(truth.keys() - totals.keys()))
        alerts = self._await_alerts(totals)
        return Report(
            repo=str(self._view.root),
            head=self._view.head,
            shallow=self._view.shallow,
            commits=self._commits,
            events=self._emitted,
            resent=self._resent,
            duplicates=self._duplicates if self._way.tells else None,
            via=str(self._way.via),
            entries=self._recorded if self._way.coalesces else None,
            counters=len(totals),
            wrong=find_wrong(totals, self._sum_of, truth),
            missing=self._missing(totals),
            emit_s=emitted_s - begun_s,
            end_to_end_s=arrived_s - begun_s,
            seconds=self._now_s() - started_s,
            lag_p50_s=self._lag.p50_s,
            lag_max_s=self._lag.max_s,
            producer_write_units=self._client.write_units - units_before,
            materializer_write_units=self._handled().write_units - self._before.write_units,
            largest=largest(totals),
            alerts=alerts,
        )

    def _emit(self) -> None:
        sendings = with_resends(self._steps())
        for outcome in self._way.send(self._client, map(self._event_of, sendings)):
            if isinstance(outcome, CountledgerError):
                raise outcome
            sending = self._sent.popleft()
            known = outcome.status == "duplicate" if isinstance(outcome, Receipt) else sending.again
            self._resent += sending.again
            self._duplicates += known
            self._recorded += not known and self._is_another(outcome)
            if not sending.again:
                self._emitted += 1
                self._count(sending.step)
            if self._now_s() - self._looked_s >= _LOOK_EVERY_S:
                self._look()
        self._look()

    def _count(self, step: Step) -> None:
        """An event of this run was acknowledged."""
        self._events_of[step.counter] += 1
        before = self._sum_of[step.counter]
        self._sum_of[step.counter] += step.delta
        now_s = self._now_s()
        self._long_files.acknowledged(step.counter, before, before + step.delta, now_s)

    def _is_another(self, outcome: Receipt | Sent) -> bool:
        """Whether an event is recorded by an entry of its own, or by one not met before."""
        if not self._way.coalesces:
            return True
        before = len(self._entries)
        self._entries.add(outcome.id)
        return len(self._entries) > before

    def _steps(self) -> Iterator[Step]:
        for steps in read_steps(self._view):
            self._commits += 1
            yield from steps

    def _event_of(self, sending: Resend) -> Event:
        """The event of one sending, remembered until its outcome comes."""
        self._sent.append(sending)
        step = sending.step
        return Event(step.counter, step.delta, key=step.key)

    def _await_totals(self) -> None:
        """Return once the totals have every event, or once nothing moves any more."""
        moved_s, last = self._now_s(), -1
        while self._now_s() - moved_s < _STALLED_S:
            arrived = self._look()
            # How many are new to the ledger, not every way tells.
            if arrived >= self._recorded or not self._way.tells:
                missing = self._missing(self._client.totals(self._events_of))
                if not missing:
                    return
                arrived = self._emitted - missing
            if arrived != last:
                moved_s, last = self._now_s(), arrived
            self._clock.sleep_ms(_WAIT_MS)

    def _await_alerts(self, totals: dict[str, Total]) -> AlertCheck:
        """What the alerts are worth once all are told, or once no more come."""
        moved_s, last = self._now_s(), -1
        while True:
            found = self._long_files.check(totals)
            if found.good or self._now_s() - moved_s >= _STALLED_S:
                return found
            if len(found.alerts) != last:
                moved_s, last = self._now_s(), len(found.alerts)
            self._clock.sleep_ms(_WAIT_MS)

    def _missing(self, totals: dict[str, Total]) -> int:
        """How many of this run's events are not in their totals."""
        return sum(
            max(events - totals[counter].events, 0) for counter, events in self._events_of.items()
        )

    def _look(self) -> int:
        """See how far the materializer is, tell, and return it."""
        materialized = self._handled().records - self._before.records
        self._looked_s = self._now_s()
        self._lag.acknowledged(self._recorded, self._looked_s)
        self._lag.materialized(materialized, self._looked_s)
        self._on_stage(
            Stage(self._commits, self._commits_in_all, self._emitted, self._recorded, materialized)
        )
        return materialized

    def _handled(self) -> Handled:
        shards = self._client.freshness().shards
        return Handled(
            sum(shard.records for shard in shards), sum(shard.write_units for shard in shards)
        )

    def _now_s(self) -> float:
        return self._clock.now_ms() / 1_000


def find_wrong(
    totals: dict[str, Total], emitted: Counter[str], truth: dict[str, int]
) -> tuple[Wrong, ...]:
    """Every total that is not what git says; what git does not know must be 0."""
    return tuple(
        Wrong(counter, total.total, emitted[counter], truth.get(counter, 0))
        for counter, total in sorted(totals.items())
        if total.total != truth.get(counter, 0)
    )


def largest(totals: dict[str, Total]) -> dict[str, int]:
    """The biggest totals: of files, then of authors."""
    by_size = sorted(totals.values(), key=lambda total: (-total.total, total.counter))
    files = [total for total in by_size if total.counter.startswith(f"{LINES}:")]
    authors = [total for total in by_size if not total.counter.startswith(f"{LINES}:")]
    return {
        total.counter: int(total.total)
        for total in chain(files[:_LARGEST], authors[: _LARGEST // 2])
    }
