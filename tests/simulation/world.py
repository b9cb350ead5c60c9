"""The world of one simulation: tables, streams, mappings, queue and schedules of every region."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, TypeVar

from botocore.exceptions import ClientError

from countledger.consumers.due import DueRules
from countledger.consumers.handler import answer_of, shard_of
from countledger.consumers.materializer import Materializer
from countledger.infra.stream_filter import record_filter
from countledger.infra.template import mapping_settings
from countledger.ledger.errors import CountledgerError
from countledger.ledger.limits import DAY_MS
from tests.simulation.door import SimulatedDoor
from tests.simulation.mapping import Mapping
from tests.simulation.number_account import POSTS
from tests.simulation.process import SDK_ATTEMPTS, Process
from tests.simulation.replication import Replicator
from tests.simulation.shape import COUNTERS, LEDGER, REGIONS
from tests.simulation.stream import Stream
from tests.simulation.table import Table
from tests.simulation.transactions import Transactions

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Mapping as Map
    from random import Random

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
_FREEZE_MS: Final = 2_400_000
_TTL_OLDEST_MS: Final = 5 * 365 * DAY_MS
_TTL_LATE_MS: Final = 48 * 3_600_000


class Service(Process):
    """What the services do among themselves: at once, and never wrong."""

    def read(self, what: str, request: Callable[[], _T], *, attempts: int = 1) -> _T:  # noqa: ARG002
        """At once."""
        return request()

    def write(self, what: str, request: Callable[[], _T], *, attempts: int = 1) -> _T:  # noqa: ARG002
        """At once."""
        return request()


@dataclass(slots=True)
class Kept:
    """A quarantine: the records, and why."""

    reasons: list[str] = field(default_factory=list)

    def put(self, record: Map[str, Any], reason: str, shard: str) -> None:
        """Keep a record."""
        self.reasons.append(f"{reason} ({shard}: {record['dynamodb'].get('Keys')})")


@dataclass(eq=False)
class World:
    """All regions.

    Attributes:
        random: of the simulation.
        schedule: time.
        shape: what the seed drew.
        faults: what happens to calls.
        auditor: watches every write.
        late: how many requests are on their way that nobody waits for.
        zombies: how many invocations go on that were given up.
        ingest: the way through Kinesis, where anybody uses it.
        rules: what the materializers of each region know of schedules.
        told: what happened, line by line.
        closing: what lets go of files at its end.
    """

    random: Random
    schedule: Schedule
    shape: Shape
    faults: Faults
    auditor: Auditor
    queue: Queue
    scheduler: Scheduler
    copies: dict[str, dict[str, Table]] = field(default_factory=dict)
    transactions: dict[str, Transactions] = field(default_factory=dict)
    streams: dict[str, Stream] = field(default_factory=dict)
    mappings: list[Mapping] = field(default_factory=list)
    quarantines: dict[str, Kept] = field(default_factory=dict)
    late: int = 0
    zombies: int = 0
    rules: dict[str, Any] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    ingest: IngestWay | None = None
    ids: int = 0
    closing: list[Callable[[], object]] = field(default_factory=list)
    _folder: TemporaryDirectory[str] | None = None

    def __post_init__(self) -> None:
        """Empty tables in every region, and what is between them."""
        self.schedule.now_ms = BEGIN_MS
        self.regions = REGIONS[: self.shape.regions]
        self.home = self.regions[0]
        self.service = Service(self, self.home, "service")
        for region in self.regions:
            self._open(region)
        ledgers = {region: self.copies[region][LEDGER] for region in self.regions}
        self.replicator = Replicator(ledgers, self.schedule, self.shape.lag_ms)
        self.replicator.watch()

    def _open(self, region: str) -> None:
        tables = {name: Table(name, region) for name in (LEDGER, COUNTERS, POSTS)}
        self.copies[region] = tables
        self.transactions[region] = Transactions(tables, self.schedule, self.shape.names_all)
        self.quarantines[region] = Kept()
        arn = f"arn:aws:dynamodb:{region}:1:table/ledger/stream/{region}"
        stream = self.streams[region] = Stream(
            arn,
            self.random,
            lambda: self.schedule.now_ms,
            self.shape.stream_lag_ms,
            self.shape.by_item,
        )
        stream.open(self.shape.shards)
        for table in tables.values():
            table.now_ms = lambda: self.schedule.now_ms
            table.watchers.append(self.auditor.note)
        tables[LEDGER].watchers.append(stream.note)
        tables[COUNTERS].watchers.append(self._expire)
        self.mappings.append(self._materializer(region, stream))

    def start(self) -> None:
        """Let the mappings deliver."""
        for mapping in self.mappings:
            mapping.start()

    # ---- processes ----

    def process(self, region: str, name: str, operation: str = "idle") -> Process:
        """A process with a clock of its own."""
        half_ms = self.shape.skew_ms // 2
        return Process(
            self, region, name, operation, error_ms=self.random.randint(-half_ms, half_ms)
        )

    def door(self, process: Process, *, retries: bool, region: str | None = None) -> SimulatedDoor:
        """A process's door."""
        return SimulatedDoor(
            process=process,
            region=region or process.region,
            attempts=SDK_ATTEMPTS if retries else 1,
            clock=process,
            random=self.random,
        )

    def new_id(self, at_ms: int) -> str:
        """An id that nobody else has, time in front."""
        self.ids += 1
        time = f"{at_ms:012x}"
        return f"{time[:8]}-{time[8:]}-7000-8000-{self.ids:012x}"

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

    def freeze_ms(self) -> float:
        """How long a process stands still that stands still."""
        return self.random.random() ** 3 * _FREEZE_MS

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
        at_s = (self.schedule.now_ms - BEGIN_MS) / 1_000
        self.told.append(f"{at_s:>12.3f} s  step {self.schedule.steps:>6}  {text}")

    # ---- functions ----

    def _materializer(self, region: str, stream: Stream) -> Mapping:
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
        door = self.door(process, retries=True)
        # A warm function knows of a schedule what it read up to a minute ago.
        rules = DueRules(door, COUNTERS, process, self.rules.setdefault(process.region, {}))
        quarantine = self.quarantines[process.region]
        records = event.get("Records") or []
        materializer = Materializer(door, COUNTERS, quarantine, process, rules)
        return answer_of(materializer.apply(records, shard_of(event)), records)

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

        late_ms = self.random.random() * _TTL_LATE_MS
        self.schedule.at(at_s * 1_000 - self.schedule.now_ms + late_ms, expire)
