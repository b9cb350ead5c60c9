"""`countledger demo --regions`: a repository counted from several regions, with a partition.

Each commit is counted in one of the regions. In the middle the last region is cut off: counting
goes on everywhere, and the compaction of the largest counters must wait. Once the partition is over
they are merged, and every total and every exact sum of every region must be what git says.

Entries are recorded by a clock that is two days late: younger entries are never merged.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from countledger import CountLedger, CountledgerError, Settings
from countledger.compaction.report import RunOutcome
from countledger.infra.demo.history import read_events, read_truth
from countledger.infra.demo.run import with_resends
from countledger.ledger.assembly import namespaces_of
from countledger.ledger.clock import SystemClock
from countledger.ledger.limits import DAY_MS, SECOND_MS
from countledger.producers.recorder import Recorder
from countledger.producers.sender import Sender

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from countledger import Event
    from countledger.infra.cli.demo import Summary
    from countledger.infra.demo.checks import Report
    from countledger.infra.demo.history import View
    from countledger.infra.local.stack import LocalStack

_AT_ONCE: Final = 1_500
_COMPACTED: Final = 5
_READERS: Final = 4
_MOST_RUNS: Final = 20
_NAMED_WRONG: Final = 20


class _LateClock(SystemClock):
    """The machine's clock, two days late."""

    def now_ms(self) -> int:
        return super().now_ms() - 2 * DAY_MS


@dataclass
class RegionsRun:
    """One run over one repository, on a stack of its own.

    Attributes:
        stack: in several regions; nothing was counted on it yet.
        view: the repository.
        on_progress: called with the commits that were sent.
    """

    stack: LocalStack
    view: View
    on_progress: Callable[[int], None]
    _facts: Counter[str] = field(default_factory=Counter)
    _sent_of: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Open a client and a recorder in each region."""
        stacks = self.stack.stacks
        settings = Settings.of_stack(self.stack.name)
        self.clients = {
            region: CountLedger(settings, session=one.session(), endpoint_url=self.stack.url)
            for region, one in stacks.items()
        }
        self._home = self.clients[self.stack.home.region]
        self._recorders = {region: _recorder(one) for region, one in self.clients.items()}

    def report(self, started_s: float) -> Report:
        """Count one half, cut a region off, count the other half, heal, and check everything.

        Raises:
            CountledgerError: an event could not be recorded, or a number not be read.
        """
        commits = read_events(self.view)
        half = len(self.view.commits) // 2
        for namespace in ("commits", "lines"):
            self._home.namespaces.create(namespace)
        self.stack.drain()
        self._emit(islice(commits, half))
        self.stack.drain()
        cut = list(self.clients)[-1]
        self.stack.replicator.cut_off(cut)
        self._emit(commits)
        self.stack.drain()
        largest = [name for name, _ in self._sent_of.most_common(_COMPACTED)]
        with ThreadPoolExecutor(_COMPACTED) as pool:
            # Each waits for as long as it is patient.
            runs = list(pool.map(lambda name: self._home.compactor().compact(name), largest))
        waiting = sum(one.outcome is RunOutcome.WAITING for one in runs)
        merged = sum(one.merged for one in runs)
        self.stack.drain()
        apart = self._apart()
        self.stack.replicator.heal()
        self.stack.drain()
        merged += sum(self._compact(name) for name in largest)
        self.stack.drain()
        truth = read_truth(self.view)
        wrong = self._wrong(truth)
        return {
            "repo": str(self.view.root),
            "head": self.view.head,
            "regions": list(self.clients),
            "cut_off": cut,
            "commits": self._facts["commits"],
            "events": self._facts["events"],
            "resent": self._facts["resent"],
            "counters": len(truth.keys() | self._sent_of.keys()),
            "apart": apart,
            "compacted": len(largest),
            "waiting": waiting,
            "merged": merged,
            "wrong": len(wrong),
            "wrong_numbers": wrong,
            "seconds": round(SystemClock().now_ms() / SECOND_MS - started_s, 1),
            "good": not wrong and waiting == len(largest) and merged > 0 and apart > 0,
        }

    def _emit(self, commits: Iterable[list[Event]]) -> None:
        regions = list(self._recorders)
        with ThreadPoolExecutor(len(regions)) as pool:
            sending = with_resends(chain.from_iterable(commits))
            while sendings := list(islice(sending, _AT_ONCE)):
                parts: dict[str, list[Event]] = defaultdict(list)
                for event, again in sendings:
                    self._facts.update(resent=again, events=not again)
                    self._facts["commits"] += not again and event.counter.startswith("commits:")
                    self._sent_of[event.counter] += not again
                    # A commit is counted in one region, and its retries come there.
                    parts[regions[int(str(event.key)[:6], 16) % len(regions)]].append(event)
                list(pool.map(self._record, parts, parts.values()))
                self.on_progress(self._facts["commits"])

    def _record(self, region: str, events: list[Event]) -> None:
        for outcome in self._recorders[region].record_many(events):
            if isinstance(outcome, CountledgerError):
                raise outcome

    def _apart(self) -> int:
        """How many counters have different totals in the regions."""
        found = [one.totals(self._sent_of) for one in self.clients.values()]
        return sum(len({one[name].value for one in found}) > 1 for name in self._sent_of)

    def _compact(self, counter: str) -> int:
        """Merge all that can be merged; how many entries that were."""
        merged = 0
        for _ in range(_MOST_RUNS):
            report = self._home.compactor().compact(counter)
            merged += report.merged
            if report.outcome is RunOutcome.NOTHING:
                break
        return merged

    def _wrong(self, truth: dict[str, int]) -> list[dict[str, object]]:
        """Every number of every region that is not what git says."""
        names = sorted(truth.keys() | self._sent_of.keys())
        found: list[dict[str, object]] = []
        with ThreadPoolExecutor(_READERS) as pool:
            for region, client in self.clients.items():
                totals = client.totals(names)
                for name, exact in zip(names, pool.map(client.exact, names), strict=True):
                    numbers = totals[name].value, exact.value
                    if set(numbers) != {truth.get(name, 0)}:
                        row = dict(zip(("total", "exact"), numbers, strict=True))
                        found.append(
                            {"counter": name, "region": region, **row, "truth": truth.get(name, 0)}
                        )
        return found


def _recorder(client: CountLedger) -> Recorder:
    connection, clock = client.connection, _LateClock()
    namespaces = namespaces_of(connection)
    table = connection.setting("ledger_table")
    sender = Sender(connection.dynamo("none"), table, namespaces, clock=clock)
    return Recorder(sender, connection.region, clock)


def summary_of_regions(report: Report) -> Summary:
    """The report for people."""
    facts = {
        "repository": f"{report['repo']} at {report['head'][:12]}",
        "regions": f"{', '.join(report['regions'])}; {report['cut_off']} was cut off midway",
        "commits": f"{report['commits']:,}",
        "events": f"{report['events']:,}, {report['resent']:,} of them sent twice",
        "partition": f"{report['apart']:,} counters had different totals in the regions",
        "compaction": f"{report['waiting']} of {report['compacted']} runs had to wait meanwhile",
        "merged": f"{report['merged']:,} entries",
        "time": f"{report['seconds']} s",
    }
    line = "  wrong: {counter} in {region}: total {total}, exact sum {exact}, git says {truth}"
    details = [line.format(**one) for one in report["wrong_numbers"][:_NAMED_WRONG]]
    count = f"{report['counters']:,} counters in {len(report['regions'])} regions"
    verdict = (
        "Every number is what git says, but the partition was not tried: a compaction did not "
        "wait, or merged nothing, or no totals differed (the repository may be too small)."
    )
    if report["good"]:
        verdict = f"Every total and every exact sum of {count} is what git says."
    elif report["wrong"]:
        verdict = f"WRONG: {report['wrong']:,} numbers of {count} are not what git says."
    return facts, details, verdict
