"""One simulation: writers, readers and two compactors on one counter, all from one seed.

python -m tests.simulation.compaction SEED     replays one and tells what it did
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from countledger.compaction import plan
from countledger.compaction.compactor import Compactor
from countledger.compaction.deletion import DeletionMark, empty_head
from countledger.compaction.plan import AgeLimit
from countledger.compaction.regions import Regions
from countledger.compaction.report import CompactionReport, RunOutcome
from countledger.compaction.retire import Retire
from countledger.ledger import keys
from countledger.ledger.attempts import Backoff
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import BadInput, ConditionFailed, ServiceFailed
from countledger.ledger.exact import ExactReader
from countledger.ledger.head import decode_head, encode_head
from countledger.ledger.ids import IdempotencyKey
from countledger.ledger.limits import MINUTE_MS
from countledger.ledger.namespace import Namespace, Namespaces
from countledger.ledger.operations import Delete
from countledger.producers.event import Event, make_entry
from countledger.producers.sender import Sender
from tests.simulation.compaction.dynamo import ModelClient
from tests.simulation.compaction.schedule import ModelSchedule
from tests.simulation.compaction.world import ModelWorld
from tests.simulation.sums import Wrong, check_sum, deltas_of_any_size

if TYPE_CHECKING:
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.entry import Entry

COUNTER: Final = "n:c"
TABLE: Final = "ledger"
HORIZON_MS: Final = MINUTE_MS
SKEW_MS: Final = 400
REPLICATION_MS: Final = 1_000
REQUEST_LIFE_MS: Final = 2_000
_BEGIN_MS: Final = 1_800_000_000_000
# Four to the power of 62 still has 38 digits.
_DELTAS: Final = 62
# How often the name is one that is used again while its deletion ends.
_REUSED: Final = 0.4
# How often all begins just before an entry may not be sent any more.
_AT_THE_HORIZON: Final = 0.15


@dataclass
class SkewedClock:
    """A process's clock: its own error, and sleeps that let time pass for all."""

    world: ModelWorld
    schedule: ModelSchedule
    error_ms: int

    def now_ms(self) -> int:
        """The time as this process believes it to be."""
        return self.world.now_ms + self.error_ms

    def sleep_ms(self, duration_ms: float) -> None:
        """Others go on in the meantime."""
        wake_ms = self.world.now_ms + duration_ms
        self.schedule.pause()
        self.world.now_ms = max(self.world.now_ms, round(wake_ms))


@dataclass
class ModelRun:
    """One seed's world and actors."""

    seed: int
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Draw the shape of it."""
        self.random = Random(self.seed)  # noqa: S311 - a simulation
        draw = self.random
        regions = ["home", "east", "west"][: draw.choice([1, 1, 2, 2, 3])]
        pace = draw.choice([0.03, 0.1, 0.3, 0.6])
        self.world = ModelWorld(draw, regions, _BEGIN_MS, HORIZON_MS, SKEW_MS, pace)
        self.schedule = ModelSchedule(draw, self.world.step)
        self.namespace = Namespace("n", spread=draw.choice([1, 1, 1, 16]), horizon_ms=HORIZON_MS)
        self.retire = draw.choice(list(Retire))
        self.covers_max = draw.randint(1, 5)
        self.free = list(range(_DELTAS))
        self.entries: list[Entry] = []
        self.bare = {f"job {n}": self.free.pop() for n in range(2)}
        self.runs = 0
        self.ids = 0

    @deltas_of_any_size()
    def run(self) -> None:
        """All of it.

        Raises:
            Wrong: a promise is broken.
        """
        draw, regions = self.random, self.world.regions
        for _ in range(draw.randint(2, 12)):
            self._write(draw.choice(regions))
            self.world.now_ms += draw.randrange(5_000)
        if draw.random() < _AT_THE_HORIZON:
            at_horizon_ms = min(entry.at_ms for entry in self.entries) + HORIZON_MS
            self.world.now_ms = max(self.world.now_ms, at_horizon_ms - draw.randrange(400))
        else:
            self.world.now_ms += draw.choice([0, 30_000, 58_000, 62_000, 70_000, 90_000])
        if len(regions) == 1 and draw.random() < _REUSED:
            self._use_again()
        for number in range(2):
            self.schedule.add(f"compactor {number}", self._compactor(number), mortal=True)
        for number in range(draw.randint(1, 3)):
            region = draw.choice(regions)
            self.schedule.add(f"reader {number} in {region}", partial(self._read_on, region))
        for number in range(draw.randint(1, 2)):
            region = draw.choice(regions)
            self.schedule.add(f"writer {number} in {region}", partial(self._write_on, region))
        self.schedule.run()
        self._check_the_end()

    def _use_again(self) -> None:
        """A counter of that name was deleted: its empty head is there, and is forgotten once."""
        mark = DeletionMark(counter=COUNTER, id="deletion", at_ms=_BEGIN_MS - 1)
        empty = empty_head(mark, self.random.randint(1, 3))
        home = self.world.regions[0]
        stored = {n: v for n, v in encode_head(COUNTER, empty).items() if v is not None}
        self.world.apply(home, keys.HEAD, stored)

        def forget() -> None:
            for _ in range(self.random.randrange(30)):
                self.schedule.pause()
            write = Delete(TABLE, keys.head_key(COUNTER), plan.is_still(empty))
            with suppress(ConditionFailed, ServiceFailed):
                self.dynamo(home).delete(write)
                self._tell("the empty head is forgotten")

        self.schedule.add("forgetter", forget)

    def dynamo(self, region: str) -> DynamoClient:
        """A client to a region."""
        return ModelClient(
            world=self.world,
            region=region,
            schedule=self.schedule,
            request_life_ms=REQUEST_LIFE_MS,
            random=self.random,
        )

    def clock(self) -> SkewedClock:
        """The clock of one process."""
        error_ms = self.random.randint(-SKEW_MS // 2, SKEW_MS // 2)
        return SkewedClock(self.world, self.schedule, error_ms)

    def namespaces(self, region: str) -> Namespaces:
        """They know the one namespace."""
        known = {"n": self.namespace}
        return Namespaces(self.dynamo(region), TABLE, region, self.world.regions[0], known)

    def compactor(self) -> Compactor:
        """A compactor's process."""
        home, clock = self.world.regions[0], self.clock()
        return Compactor(
            Regions(self.dynamo(home), TABLE, home, home, self.dynamo, clock),
            self.namespaces(home),
            lambda namespace: AgeLimit(
                namespace.horizon_ms, REPLICATION_MS, SKEW_MS, REQUEST_LIFE_MS
            ),
            self.retire,
            clock=clock,
            new_run=self._new_run,
            random=self.random,
            covers_max=self.covers_max,
            patience_ms=self.random.choice([0, 500, 3_000]),
            workers=1,
        )

    def _new_run(self) -> str:
        self.runs += 1
        return f"run {self.runs}"

    def _compactor(self, number: int) -> partial[None]:
        return partial(self._compact_on, self.compactor(), number)

    def _compact_on(self, compactor: Compactor, number: int) -> None:
        for _ in range(self.random.randint(1, 4)):
            deadline_ms = compactor.clock.now_ms() + self.random.choice([200, 10_000, 100_000])
            report = compactor.compact(COUNTER, deadline_ms=deadline_ms)
            self._accept(report)
            self._tell(f"compactor {number}: {report.outcome} {report.merged} {report.detail}")

    def _accept(self, report: CompactionReport) -> None:
        failed = report.outcome is RunOutcome.FAILED and not isinstance(report.error, ServiceFailed)
        if failed or report.outcome is RunOutcome.TAMPERED:
            raise Wrong(f"{report}")

    def _read_on(self, region: str) -> None:
        reader = ExactReader(self.dynamo(region), TABLE)
        for _ in range(self.random.randint(2, 8)):
            required = Counter(self.world.copies[region].shown.values())
            try:
                exact = reader.read(COUNTER)
            except ServiceFailed:
                continue
            replaced = Counter(self.world.copies[region].shown.values())
            allowed = Counter(self.world.made.values())
            self._tell(f"read in {region}: generation {exact.generation}")
            check_sum(int(exact.sum), required & replaced, allowed)

    def _write_on(self, region: str) -> None:
        for _ in range(self.random.randint(2, 8)):
            self._write(region)

    def _write(self, region: str) -> None:
        """A new entry, a bare key that others use as well, or an entry once more."""
        clock, draw = self.clock(), self.random
        sender = Sender(
            self.dynamo(region),
            TABLE,
            self.namespaces(region),
            clock,
            draw,
            Backoff(3, 10, 500),
            SKEW_MS,
        )
        kind = draw.random()
        if kind < 0.3 and self.entries:
            entry = self._one_more_time(clock)
        elif kind < 0.5:
            key = draw.choice(list(self.bare))
            entry = self._entry(Event(COUNTER, 4 ** self.bare[key], key), clock, region)
        elif self.free:
            at = to_datetime(clock.now_ms()) - timedelta(milliseconds=draw.choice([0, 0, 50_000]))
            timed = draw.random() < 0.5
            entry = self._entry(self._event(at if timed else None), clock, region)
        else:
            return
        self.entries.append(entry)
        try:
            receipt = sender.send(entry)
        except (BadInput, ServiceFailed) as error:
            self._tell(f"write in {region}: {type(error).__name__}")
        else:
            self._tell(f"write in {region}: {entry.id} {receipt.status}")

    def _one_more_time(self, clock: SkewedClock) -> Entry:
        """Any entry, or the oldest that may still be sent."""
        young = [e for e in self.entries if clock.now_ms() - e.at_ms <= HORIZON_MS]
        if young and self.random.random() < 0.5:
            return min(young, key=lambda entry: entry.at_ms)
        return self.random.choice(self.entries)

    def _event(self, at: datetime | None) -> Event:
        number = self.free.pop()
        return Event(COUNTER, 4**number, IdempotencyKey(f"key {number}", at) if at else None)

    def _entry(self, event: Event, clock: SkewedClock, region: str) -> Entry:
        return make_entry(event, now_ms=clock.now_ms(), origin=region, new_id=self._new_id)

    def _new_id(self, at_ms: int) -> str:
        self.ids += 1
        time = f"{at_ms:012x}"
        return f"{time[:8]}-{time[8:]}-7000-8000-{self.ids:012x}"

    def _tell(self, text: str) -> None:
        self.told.append(
            f"{self.world.now_ms - _BEGIN_MS:>8} ms  step {self.schedule.steps:>5}  {text}"
        )

    def _check_the_end(self) -> None:
        """All is delivered, one more run: nothing is lost, doubled, or left behind."""
        self.world.settle()
        self.world.now_ms += 10 * HORIZON_MS
        compactor = self.compactor()
        outcome = None
        while outcome not in {RunOutcome.NOTHING, RunOutcome.FAILED}:
            report = compactor.compact(COUNTER)
            outcome = report.outcome
            self._accept(report)
            self.world.settle()
        self._tell(f"at the end: {report.outcome} {report.detail}")
        if report.outcome is not RunOutcome.NOTHING:
            raise Wrong(f"at the end {report}")
        head = decode_head(self.world.home.items.get(keys.HEAD))
        left = [k for k, i in self.world.home.items.items() if i and k != keys.HEAD]
        if left or head.covers:
            raise Wrong(f"left behind: {left}, {head}")
        expected = Counter(self.world.home.shown.values())
        for region, copy in self.world.copies.items():
            exact = ExactReader(self.dynamo(region), TABLE).read(COUNTER)
            check_sum(int(exact.sum), expected, expected)
            if exact.entries != expected.total():
                raise Wrong(f"{exact.entries} entries in {region}, not {expected.total()}")
            if Counter(copy.shown.values()) != expected:
                raise Wrong(f"{region} has seen other entries than home")
            if copy.total + copy.missed != exact.sum:
                raise Wrong(f"the stream of {region} adds up to {copy.total}, not {exact.sum}")


def simulate(seed: int) -> ModelRun:
    """One simulation.

    Raises:
        Wrong: a promise is broken.
    """
    simulation = ModelRun(seed)
    simulation.run()
    return simulation
