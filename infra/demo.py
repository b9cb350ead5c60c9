"""The demo's run: a repository's history goes in, and every number is checked against git.

One region is the case without a partition. Of several the last one is cut off midway.
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from itertools import chain, islice, pairwise, takewhile
from statistics import median
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

from countledger import Buffering, CountledgerError, Event, Receipt, counter_name
from countledger.compaction.compactor import Compactor
from countledger.compaction.plan import AgeLimit
from countledger.compaction.report import RunOutcome
from countledger.consumers.alerts.service import wait_until_effective
from countledger.consumers.record import LedgerStream, made_at_ms
from countledger.ledger.errors import SetupError
from countledger.ledger.limits import SECOND_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from countledger import Amount, CountLedger, ExactSum, Total
    from countledger.consumers.alerts.rule import Rule, RuleSpec
    from countledger.infra.local.stack import LocalStack
    from countledger.producers.kinesis import Sent


# A git repository as a stream of counter events, and what its last tree and log add up to.
#
# docs/demo.md says what is counted. What git prints depends on more than the history:
# configuration, attributes, mail maps, grafts, replacement refs and the environment. A count must
# not. So git prints only names of objects, their bytes, authors and dates; lines are counted here.


LINES: Final = "lines"
COMMITS: Final = "commits"
# The changes of so many commits are in memory at once; a history may be larger than memory.
_COMMITS_AT_ONCE: Final = 100
_SNIFFED_BYTES: Final = 8_000
# The modes of a submodule, and of nothing.
_WITHOUT_CONTENT: Final = (b"160000", b"000000")
_NEEDED: Final = (
    "needed is a repository with a commit at HEAD and all its objects; in a partial clone, "
    "`git fetch --refetch --no-filter` brings the missing ones"
)
# The variables of git that may stay: where it is installed, configured, and looks for repositories.
_KEPT: Final = ("GIT_EXEC_PATH", "GIT_CONFIG", "GIT_CEILING", "GIT_DISCOVERY")
# Neither replacement refs nor grafts alter the history, and no object is fetched on the way.
_SET: Final = {"GIT_GRAFT_FILE": "", "GIT_ALLOW_PROTOCOL": "", "LC_ALL": "C"}
_CHANGES: Final = (
    "diff-tree --stdin --root --always -r -z --raw --encoding=UTF-8 --format=>%H%x00%an%x00%at"
)
_AUTHORS: Final = "rev-list --first-parent --encoding=UTF-8 --format=>%an"


class History(NamedTuple):
    """The history of a repository's HEAD.

    Attributes:
        commits: along the first parent, in hex, oldest first.
        shallow: whether the repository is a shallow clone, which begins at a boundary.
        reader: `git cat-file --batch`, which prints the objects whose names it reads.
    """

    root: Path
    commits: Sequence[str]
    shallow: bool
    reader: subprocess.Popen[bytes]

    def lines(self, mode: bytes, oid: bytes) -> int:
        """The lines of an object with this mode in a tree; 0 if it is binary.

        A last line counts without a newline as well. The object is in memory as a whole.
        """
        if mode in _WITHOUT_CONTENT:
            return 0
        names, objects = (cast("IO[bytes]", o) for o in (self.reader.stdin, self.reader.stdout))
        with suppress(BrokenPipeError):  # a reader that has ended prints nothing
            os.write(names.fileno(), oid + b"\n")
        _, _, size = objects.readline().partition(b" blob ")  # no size if it is missing
        content, end = (objects.read(int(size)), objects.read(1)) if size else (b"", b"")
        if not end:
            raise SetupError(f"{oid.decode()} is missing or damaged in {self.root} ({_NEEDED})")
        if b"\0" in content[:_SNIFFED_BYTES]:
            return 0
        return content.count(b"\n") + (content[-1:] not in (b"\n", b""))


@contextmanager
def open_repository(path: Path) -> Iterator[History]:
    """The history of the repository of a path, bare or not, from any of its directories."""
    commits = _output(path, "rev-list --first-parent --reverse HEAD --").decode().split()
    shallow = _output(path, "rev-parse --is-shallow-repository") == b"true\n"
    with _git(path, "cat-file --batch") as reader:
        yield History(path, commits, shallow, reader)


def _output(path: Path, command: str, stdin: str = "") -> bytes:
    """What a git command prints; if it fails, a `SetupError` in git's own words."""
    with _git(path, command) as process:
        output, errors = process.communicate(stdin.encode())
    if process.returncode:
        said = errors.decode(errors="replace").strip() or "git gave no reason"
        reason = said.splitlines()[0].removeprefix("fatal: ")
        raise SetupError(f"git {command.partition(' ')[0]} failed in {path}: {reason} ({_NEEDED})")
    return output


def _git(path: Path, command: str) -> subprocess.Popen[bytes]:
    """A git command in the repository at the path, its input and output as pipes."""
    plain = {n: one for n, one in os.environ.items() if n[:4] != "GIT_" or n.startswith(_KEPT)}
    try:
        return subprocess.Popen(  # noqa: S603 - arguments are ours, and no shell reads them
            ["git", "--no-replace-objects", "-C", str(path), *command.split()],  # noqa: S607 - from PATH
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=plain | _SET,
        )
    except OSError as error:
        reason = f"git cannot be started: {error.strerror}"
        raise SetupError(f"{reason} (install git if it is missing)") from error


def read_events(history: History) -> Iterator[list[Event]]:
    """The events of the history, oldest first, a commit at a time.

    Git prints, each with a NUL after it: `>commit`, author, its date; then for each changed path
    `:mode mode oid oid letter`, before and after (the first of a commit after a newline), and the
    path itself.
    """
    # A commit is compared with the one before, its first parent; the first one with nothing.
    commits = [f"{one} {parent}\n" for parent, one in pairwise(("", *history.commits))]
    for n in range(0, len(commits), _COMMITS_AT_ONCE):
        stdin = "".join(commits[n : n + _COMMITS_AT_ONCE])
        tokens = iter(_output(history.root, _CHANGES, stdin).split(b"\0"))
        token = next(tokens)
        while token:
            commit, author, seconds, written = token[1:].decode(), next(tokens), next(tokens), None
            with suppress(ValueError, OverflowError, OSError):  # git cannot read it, or nobody can
                written = datetime.fromtimestamp(int(seconds), UTC)
            found = [Event(counter_name(COMMITS, author), 1, commit, written)]
            while (token := next(tokens)) and not token.startswith(b">"):
                old_mode, mode, old, new, _ = token.lstrip(b"\n:").split(b" ")
                counter = counter_name(LINES, next(tokens))
                delta = history.lines(mode, new) - history.lines(old_mode, old)
                if delta:
                    # The counter's spelling of the path: valid in a key, and never too long.
                    key = f"{commit}:{counter[len(LINES) + 1 :]}"
                    found.append(Event(counter, delta, key, written))
            yield found


def read_truth(history: History) -> Counter[str]:
    """Every counter that is not zero at HEAD, and its value, by the last tree and the log alone."""
    root, head = history.root, history.commits[-1]
    log = _output(root, f"{_AUTHORS} {head}").split(b"\n")  # other lines name the commits
    truth = Counter(counter_name(COMMITS, one[1:]) for one in log if one.startswith(b">"))
    for token in _output(root, f"ls-tree -r -z --full-tree {head}").split(b"\0")[:-1]:
        facts, _, path = token.partition(b"\t")
        mode, _, oid = facts.split(b" ")
        truth[counter_name(LINES, path)] = history.lines(mode, oid)
    return +truth


# What makes a run of the demo good, besides its totals: its alerts, and its days (docs/demo.md).
#
# The alerts are compared with a second reading of the stream of `counters`, and the days of
# counters with the dates of git's log. What is dated ahead counts when it is recorded, so all days
# from that of the run on are compared as one.


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
        alerts, settings = replace(alerts, at_once=True), replace(settings, at_once=True)
    for namespace in (COMMITS, LINES) if days else ():
        client.namespaces.create(namespace)
        settings.enable(namespace, by="day")
    spec: RuleSpec = {"prefix": _PREFIX, "threshold": THRESHOLD, "direction": "rising"}
    ((rule, _),) = alerts.apply({"demo-long-files": spec})
    wait_until_effective(rule, client.connection.clock)
    return rule


class TotalUpdate(NamedTuple):
    """An update of a file's total, and its version after it."""

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
    stream = LedgerStream(to, "counters_stream_arn")
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
        stack: the stack, if it is the run's own and nothing was ever counted there.
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
        """Prepare the stack, count, wait, check."""
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
        compact = Compactor(self.clients[0].connection, age=_ANY_AGE).compact
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
