"""The world of one simulation: tables, streams, mappings, queue and schedules of every region."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, TypeVar

from botocore.exceptions import ClientError

from countledger.consumers.handler import answer_of, shard_of
from countledger.consumers.materializer import Materializer
from countledger.consumers.progress import PassedShards, ShardDirectory
from countledger.consumers.total_writer import (
    due_rule_of,
    new_due_rules,
    new_window_settings,
    windows_of,
)
from countledger.infra.local.mappings import record_filter
from countledger.infra.memory.tables import key_of
from countledger.infra.template import mapping_settings
from countledger.ledger import keys, quarantine
from countledger.ledger.departure import Deadline
from countledger.ledger.errors import CountledgerError
from countledger.ledger.limits import DAY_MS, MINUTE_MS
from countledger.ledger.quarantine import QuarantineSource
from tests.simulation.alert_account import AlertAccount
from tests.simulation.connection import connection_of
from tests.simulation.dynamo import SimulatedClient
from tests.simulation.evaluating import Alarms, evaluator_mapping, quarantine_of
from tests.simulation.mailbox import Mailbox
from tests.simulation.mapping import Mapping
from tests.simulation.number_account import POSTS
from tests.simulation.objects import Bucket
from tests.simulation.process import SDK_ATTEMPTS, Process
from tests.simulation.replication import Replicator
from tests.simulation.shape import COUNTERS, LEDGER, REGIONS, STRICT
from tests.simulation.stream import SimulatedStream
from tests.simulation.strong import StrongTable
from tests.simulation.sums import Wrong
from tests.simulation.table import SimulatedTable
from tests.simulation.targets import Targets
from tests.simulation.transactions import SimulatedTransactions

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Mapping as Map
    from random import Random

    from countledger.infra.memory.tables import Change, Key
    from countledger.ledger.indexes import DueRule
    from countledger.ledger.recent import Recent
    from countledger.ledger.windows import WindowSetting
    from tests.simulation.auditor import Auditor
    from tests.simulation.faults import Faults
    from tests.simulation.ingest import IngestWay
    from tests.simulation.queue import Queue, Scheduler
    from tests.simulation.schedule import Schedule
    from tests.simulation.shape import Shape

_T = TypeVar("_T")

BEGIN_MS: Final = 1_800_000_000_000.0
# No machine ends with a process, so its files need no disk.
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - of a simulation
_FREEZE_MS: Final = 40 * MINUTE_MS
_TTL_OLDEST_MS: Final = 5 * 365 * DAY_MS


class Service(Process):
    """What the services do among themselves: at once, and never wrong."""

    def read(self, what: str, request: Callable[[], _T], *, attempts: int = 1) -> _T:  # noqa: ARG002
        """At once."""
        return request()

    def write(self, what: str, request: Callable[[], _T], *, attempts: int = 1) -> _T:  # noqa: ARG002
        """At once."""
        return request()


@dataclass(eq=False)
class World:
    """All regions.

    Attributes:
        random: of the simulation.
        schedule: time.
        shape: what the seed drew.
        faults: what happens to calls.
        auditor: watches every write.
        moves: the stream of totals of each region.
        alarms: bus, topic and dead letters of each region.
        notices: the queue that tells of each region's quarantine.
        late: how many requests are on their way that nobody waits for.
        zombies: how many invocations go on that were given up, and forks.
        processes: how many were made.
        ingest: the way through Kinesis, where anybody uses it.
        rules: what the materializers of each region know of schedules.
        settings: what they know of windows.
        directories: the shards that the materializers of each region renewed.
        passed: what they know of shards whose watermarks can go.
        forgotten: what progress somebody deleted, by region and key.
        told: what happened, line by line.
        closing: what lets go of files at its end.
        bucket: where merged entries are archived.
        members: the replicas of the ledger, as its description lists them, with their status.
        gone: regions that do not answer, or are no replica any more.
        believers: regions whose stack names them home.
        joined_ms: when a region joined last.
    """

    random: Random
    schedule: Schedule
    shape: Shape
    faults: Faults
    auditor: Auditor
    queue: Queue
    scheduler: Scheduler
    copies: dict[str, dict[str, SimulatedTable]] = field(default_factory=dict)
    transactions: dict[str, SimulatedTransactions] = field(default_factory=dict)
    streams: dict[str, SimulatedStream] = field(default_factory=dict)
    mappings: list[Mapping] = field(default_factory=list)
    moves: dict[str, SimulatedStream] = field(default_factory=dict)
    alarms: dict[str, Alarms] = field(default_factory=dict)
    notices: dict[str, Mailbox] = field(default_factory=dict)
    late: int = 0
    zombies: int = 0
    processes: int = 0
    rules: dict[str, Recent[str, DueRule | None]] = field(default_factory=dict)
    settings: dict[str, Recent[str, tuple[WindowSetting, ...]]] = field(default_factory=dict)
    directories: dict[str, ShardDirectory] = field(default_factory=dict)
    passed: dict[str, PassedShards] = field(default_factory=dict)
    forgotten: set[tuple[str, Key]] = field(default_factory=set)
    told: list[str] = field(default_factory=list)
    ingest: IngestWay | None = None
    closing: list[Callable[[], object]] = field(default_factory=list)
    bucket: Bucket = field(default_factory=Bucket)
    members: dict[str, str] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    believers: set[str] = field(default_factory=set)
    joined_ms: float = 0.0
    _folder: TemporaryDirectory[str] | None = None

    def __post_init__(self) -> None:
        """Empty tables in every region, and what is between them."""
        self.schedule.now_ms = BEGIN_MS
        self.regions = list(REGIONS[: self.shape.regions])
        self.members = dict.fromkeys(self.regions, "ACTIVE")
        self.home = self.regions[0]
        self.believers = {self.home}
        self.service = Service(self, self.home, "service")
        self.strong = StrongTable.of(STRICT, "all")
        self.strong.busy_ms = 3 * self.shape.latency_ms
        self.strong.now_ms = lambda: self.schedule.now_ms
        self.strong.watchers.append(self.auditor.note)
        for region in self.regions:
            self._open(region)
        ledgers = {region: self.copies[region][LEDGER] for region in self.regions}
        self.replicator = Replicator(ledgers, self.schedule, self.shape.lag_ms)
        self.replicator.watch()

    def open(self, region: str) -> None:
        """A replica that is being created, and the regional stack beside it."""
        before = len(self.mappings)
        self._open(region)
        self.members[region] = "CREATING"
        self.replicator.join(region, self.copies[region][LEDGER])
        for mapping in self.mappings[before:]:
            mapping.start()

    def close(self, region: str) -> None:
        """Nothing runs there any more."""
        self.gone.add(region)
        self.regions.remove(region)
        for mapping in [one for one in self.mappings if one.region == region]:
            mapping.stop()
            self.mappings.remove(mapping)

    def _open(self, region: str) -> None:
        tables = {name: SimulatedTable.of(name, region) for name in (LEDGER, COUNTERS, POSTS)}
        self.copies[region] = {**tables, STRICT: self.strong}
        self.transactions[region] = SimulatedTransactions.of(
            tables, self.schedule, names_all=self.shape.names_all
        )
        stream = self.streams[region] = self._stream(region, LEDGER)
        moves = self.moves[region] = self._stream(region, COUNTERS)
        for table in tables.values():
            table.now_ms = lambda: self.schedule.now_ms
            table.watchers.append(self.auditor.note)
        tables[LEDGER].watchers.append(stream.note)
        tables[COUNTERS].watchers.append(self._expire)
        tables[COUNTERS].watchers.append(partial(_note_total, moves))
        self._open_alarms(region, tables[COUNTERS])
        self.mappings.append(self._materializer(region, stream))
        self.mappings.append(evaluator_mapping(self, region, moves))

    def _stream(self, region: str, table: str) -> SimulatedStream:
        arn = f"arn:aws:dynamodb:{region}:1:table/{table}/stream/{region}"
        lag_ms, by_item = self.shape.stream_lag_ms, self.shape.by_item
        stream = SimulatedStream.of(
            arn, self.random, lambda: self.schedule.now_ms, lag_ms, by_item=by_item
        )
        stream.open(self.shape.shards)
        return stream

    def _open_alarms(self, region: str, counters: SimulatedTable) -> None:
        account = self.auditor.alerts[region] = AlertAccount(
            region, self.schedule, life_ms=self.shape.life_ms
        )
        account.standing.skew_ms = self.shape.skew_ms
        self.alarms[region] = Alarms(Targets(account.take))
        self.notices[region] = Mailbox(partial(_check_copy, counters))
        counters.watchers.append(
            lambda change: account.changed(change, by_hand=self.auditor.by_hand)
        )

    def start(self) -> None:
        """Let the mappings deliver."""
        for mapping in self.mappings:
            mapping.start()

    # ---- processes ----

    def process(self, region: str, name: str, operation: str = "idle") -> Process:
        """A process with a clock of its own."""
        half_ms = self.shape.skew_ms // 2
        error_ms = self.random.randint(-half_ms, half_ms)
        self.processes += 1
        return Process(self, region, name, operation, error_ms=error_ms, number=self.processes)

    def dynamo(
        self,
        process: Process,
        *,
        retries: bool,
        region: str | None = None,
        salvages: bool = False,
    ) -> SimulatedClient:
        """A process's dynamo."""
        return SimulatedClient(
            process=process,
            region=region or process.region,
            attempts=SDK_ATTEMPTS if retries else 1,
            salvages=salvages,
            clock=process,
            random=self.random,
        )

    def new_id(self, at_ms: int) -> str:
        """An id that nobody else has, time in front."""
        time = f"{at_ms:012x}"
        return f"{time[:8]}-{time[8:]}-7000-8000-{self.random.getrandbits(48):012x}"

    def new_ids(self, at_ms: int, count: int) -> list[str]:
        """So many of them."""
        return [self.new_id(at_ms) for _ in range(count)]

    def folder(self) -> Path:
        """Where its processes keep files; it goes with the world."""
        if self._folder is None:
            self._folder = TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None)
        return Path(self._folder.name)

    def end(self) -> None:
        """Nothing is left of it outside of this process's memory."""
        for close in self.closing:
            close()
        if self._folder is not None:
            self._folder.cleanup()

    # ---- time ----

    def latency_ms(self) -> float:
        """How long a way takes."""
        return self.random.random() * 2 * self.shape.latency_ms

    def freeze_ms(self, operation: str) -> float:
        """How long a process stands still that stands still; a function is ended before long."""
        longest_ms = self.shape.freeze_ms if operation in self.shape.weights else _FREEZE_MS
        return self.random.random() ** 3 * longest_ms

    def land_late(self, request: Callable[[], object]) -> None:
        """Carry a request out later, while its signature is good; nobody waits for it."""
        self.late += 1

        def land() -> None:
            self.late -= 1
            try:
                request()
            except (CountledgerError, ClientError):
                return

        self.schedule.at(self.random.random() * self.shape.life_ms, land)

    def tell(self, text: str) -> None:
        """Note what happened."""
        if self._folder is not None:
            text = text.replace(self._folder.name, "folder")
        at_s = (self.schedule.now_ms - BEGIN_MS) / 1_000
        self.told.append(f"{at_s:>12.3f} s  step {self.schedule.steps:>6}  {text}")

    # ---- functions ----

    def _materializer(self, region: str, stream: SimulatedStream) -> Mapping:
        settings = mapping_settings()
        return Mapping(
            self,
            region,
            "materializer",
            stream,
            replace(settings, batch_size=self.shape.batch_size),
            record_filter(settings.filter_patterns),
            self._materialize,
        )

    def _materialize(self, event: dict[str, Any], process: Process) -> Map[str, Any]:
        # A warm function knows of a schedule what it read up to a minute ago.
        known = self.rules.setdefault(process.region, new_due_rules())
        connection = connection_of(process)
        materializer = Materializer(
            connection,
            quarantine_of(self, process, QuarantineSource.LEDGER),
            due_rule_of(connection, known),
            shards=self.directories.setdefault(process.region, ShardDirectory()),
            passed=self.passed.setdefault(process.region, self._new_passed()),
            windows=self._windows_of(process),
        )
        deadline = Deadline.within(process, None, self.shape.invocation_ms, margin_ms=0)
        records = event.get("Records") or []
        return answer_of(materializer.apply(records, shard_of(event), deadline), records)

    def _windows_of(self, process: Process) -> Callable[[str], tuple[WindowSetting, ...]] | None:
        if self.auditor.windows.settings is None:
            return None  # the calls of other seeds stay what they are
        known = self.settings.setdefault(process.region, new_window_settings())
        return windows_of(connection_of(process), known)

    def _new_passed(self) -> PassedShards:
        """Totals are cleaned up at once here, by what was read lately."""
        return PassedShards(self.shape.late_ms, enough=1, age_ms=self.shape.late_ms // 4)

    def _expire(self, change: Any) -> None:  # noqa: ANN401 - of a table
        """Time to live: some time within two days behind the moment, or never if it moved."""
        at_s = (change.after or {}).get("expires_at")
        if at_s is None or at_s == (change.before or {}).get("expires_at"):
            return
        if at_s * 1_000 < self.schedule.now_ms - _TTL_OLDEST_MS:
            return  # the service takes it for a mistake
        table, key = change.table, change.key

        def expire() -> None:
            there = table.items.get(key)
            if there is not None and there.get("expires_at") == at_s and key not in table.locked:
                table.store(key, None)

        late_ms = self.random.random() * self.shape.expiry_ms
        self.schedule.at(at_s * 1_000 - self.schedule.now_ms + late_ms, expire)


def _note_total(stream: SimulatedStream, change: Change) -> None:
    """Of the stream of `counters` only what its one mapping reads: the rest is left out by it."""
    if change.key[1].startswith((keys.TOTAL, keys.WINDOW_PREFIX)):
        stream.note(change)


def _check_copy(counters: SimulatedTable, body: str) -> None:
    """Nothing is in the quarantine's queue alone: each message names a copy that is there."""
    key = quarantine.key_of(json.loads(body)["quarantine_id"])
    if key_of(key) not in counters.items:
        raise Wrong(f"in a queue alone: {body}")
