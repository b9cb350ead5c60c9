"""One seed: its shape, its actors, its accidents, and its quiet end.

python -m tests.simulation SEED         replays one and tells what it did
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from countledger.ledger.limits import MINUTE_MS, SECOND_MS
from countledger.ledger.namespace import Kind
from tests.simulation import administrator_operations as administrators
from tests.simulation import alert_operations as alerts
from tests.simulation import hold_operations as holds
from tests.simulation import joint_operations as joint
from tests.simulation import regions_operations as regions
from tests.simulation import strict_operations as strict
from tests.simulation import window_account as windows
from tests.simulation import window_operations as repairs
from tests.simulation.accidents import ACCIDENTS
from tests.simulation.auditor import Auditor
from tests.simulation.client import Client, Memory
from tests.simulation.deletion_operations import leave_empty_head
from tests.simulation.draws import Draws, nothing_else
from tests.simulation.faults import Faults
from tests.simulation.ingest import REPLICATION_MS, IngestWay
from tests.simulation.kinesis_operations import INGESTING, small_records
from tests.simulation.ledger_account import DELTAS, MOVED
from tests.simulation.operations import CLOSE, OPERATIONS
from tests.simulation.pools import in_turn
from tests.simulation.process import Process
from tests.simulation.product import Product
from tests.simulation.queue import Queue, Scheduler
from tests.simulation.quiet import ENDS, calm_down, wait
from tests.simulation.redriving import mend_all, redrive_all
from tests.simulation.region_accidents import RegionAccidents
from tests.simulation.running_operations import NAMESPACE
from tests.simulation.schedule import Schedule
from tests.simulation.shape import OVER_REGIONS, REGIONS, Shape, are_used, drawn, late_focus
from tests.simulation.spool import SimulatedSpool
from tests.simulation.sums import deltas_of_any_size
from tests.simulation.threads import under
from tests.simulation.world import World

_WORKER_MS = 4 * MINUTE_MS
# How many calls one generation of a run may take.
_CALLS = 300


@dataclass
class Simulation:
    """One of them.

    Attributes:
        seed: decides everything.
        without: operations, faults and accidents that are left out, by name.
        clients: no more of them than this, or None.
        operations: no more for each than this, or None.
        focus: what it does alone, or None as the seed draws it.
        skipped: which operations are left out: the number of the client, and of its operation.
        memory: what its clients share.
        happened: how often each accident happened.
    """

    seed: int
    without: Iterable[str] = ()
    clients: int | None = None
    operations: int | None = None
    focus: str | None = None
    skipped: Iterable[tuple[int, int]] = ()
    memory: Memory = field(default_factory=Memory)
    happened: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Draw the shape, and make the world."""
        random = Draws(self.seed)
        out = set(self.without)
        focus = self.focus or late_focus(random.of("late focus"))
        shape = drawn(random, {one.name: one.weight for one in OPERATIONS}, focus)
        weights = {name: 0 if name in out else one for name, one in shape.weights.items()}
        self.shape: Shape = _limited(shape, self.clients, self.operations, weights)
        ingests = any(self.shape.weights.get(name) for name in INGESTING)
        if ingests:
            self.shape = replace(self.shape, replication_ms=REPLICATION_MS)
        schedule = Schedule(random)
        faults = Faults.drawn(random, shape.rates, out)
        auditor = Auditor(self.shape, schedule, REGIONS[0])
        self.world = World(random, schedule, self.shape, faults, auditor, Queue(), Scheduler())
        self.world.queue.world = self.world.scheduler.world = self.world
        self.world.queue.work = self._work
        self.world.scheduler.target = self._dispatch
        if ingests:
            self.world.ingest = IngestWay(self.world)
            self.world.mappings.append(self.world.ingest.mapping)
        auditor.ledger.copies = {
            region: tables["ledger"].items for region, tables in self.world.copies.items()
        }
        self._left = self.shape.clients
        self._windows = random.of("windows")
        own = random.of("regions")
        # Long enough for one generation, even if each call takes seconds.
        shortest = own.choice([10, 20] if self.shape.rivals else [20, 60])
        lease_ms = shortest * SECOND_MS + int(_CALLS * self.shape.latency_ms)
        self.world.shape = self.shape = replace(self.shape, lease_ms=lease_ms)
        self.regions = RegionAccidents(self.world, own, self.happened)

    def run(self) -> None:
        """All of it."""
        self.world.schedule.spawn("conductor", self._conduct)
        world = self.world
        ours = in_turn(world.random), under(world, SimulatedSpool), small_records(world.random)
        with ours[0], ours[1], ours[2], nothing_else(), deltas_of_any_size():
            try:
                world.schedule.run()
            finally:
                world.end()

    @property
    def steps(self) -> int:
        """How many times somebody stood still."""
        return self.world.schedule.steps

    def _conduct(self) -> None:
        world, random = self.world, self.world.random
        world.faults.calm = True
        world.start()
        windows.set_up(world, self._windows, self.focus)
        self._set_up()
        world.faults.calm = False
        for number in range(self.shape.clients):
            region = world.home if number == 0 else random.choice(world.regions)
            client = Client(world, region, f"client {number}", self.memory)
            skipped = {operation for one, operation in self.skipped if one == number}
            world.schedule.spawn(client.name, partial(self._live, client, skipped))
        span_ms = self.shape.operations * self.shape.gap_ms
        for _ in range(self.shape.accidents):
            name, at_ms = random.choice(list(ACCIDENTS)), random.random() * span_ms
            if name not in set(self.without):
                world.schedule.at(at_ms, partial(self._happen, name))
        if not {"regions"} & set(self.without):
            self.regions.plan(span_ms, always=self.focus is None)
        if are_used(self.shape.weights):
            for _ in range(self.shape.accidents // 3):
                world.schedule.at(random.random() * span_ms, partial(regions.lose, world))
        repairs.plan(world, self._windows, self.focus, span_ms)
        while self._left or world.auditor.windows.operators:
            world.schedule.pause(span_ms / 4 + 1_000)
        calm_down(world)
        self.regions.end()
        mend_all(world, self.memory)
        wait(world)
        for check in (redrive_all, *ENDS):
            check(world, self.memory)
        world.tell("all is well")
        world.schedule.stop()

    def _happen(self, name: str) -> None:
        if not self.world.faults.calm:
            self.happened[name] += 1
            ACCIDENTS[name](self.world)

    def _live(self, client: Client, skipped: set[int]) -> None:
        home = client.region == self.world.home
        possible = [one for one in OPERATIONS if home or not one.home]
        client.live(possible, self.shape.operations, skipped)
        client.end(CLOSE)
        self._left -= 1

    def _set_up(self) -> None:
        """Namespaces and strict counters are there before anything goes wrong."""
        world, random, memory = self.world, self.world.random, self.memory
        product = Product(world.process(world.home, "set-up"))
        product.namespaces.create(
            NAMESPACE, spread=self.shape.spread, horizon_ms=self.shape.horizon_ms
        )
        product.namespaces.create(strict.NAMESPACE, kind=Kind.STRICT)
        if are_used(self.shape.weights):
            product.namespaces.create(regions.NAMESPACE, kind=Kind.STRICT_REGIONS)
            regions.make_all(world, product, memory)
        product.namespaces.create("q", kind=Kind.SEQUENCE)
        product.namespaces.create(MOVED, horizon_ms=self.shape.horizon_ms)
        for number in range(self.shape.counters):
            counter = f"{NAMESPACE}:{number}"
            free = memory.free[counter] = list(range(DELTAS))
            memory.bare[counter] = {
                f"job {n}": (4 ** free.pop(), random.choice(world.regions)) for n in range(3)
            }
            if self.shape.reused:
                leave_empty_head(product, counter)
        strictly = {n: w for n, w in self.shape.weights.items() if n.startswith("strict")}
        if any(w for n, w in strictly.items() if not n.startswith(OVER_REGIONS)):
            self._make_strict(product)
        if any(w for name, w in self.shape.weights.items() if name.startswith("alert")):
            alerts.set_up(world, memory)
        if any(self.shape.weights.get(name, 0) for name in holds.OPERATIONS):
            holds.make(world, product, memory)
        if any(self.shape.weights.get(name, 0) for name in joint.JOINT):
            joint.make(product, memory)
        if any(self.shape.weights.get(name, 0) for name in administrators.OPERATIONS):
            administrators.make(product, memory)

    def _make_strict(self, product: Product) -> None:
        names: Mapping[str, tuple[str, int]] = {
            **{strict.plain(method): (method, 1) for method in strict.METHODS},
            **{strict.sharded(method): (method, strict.BINS) for method in strict.SHARDED},
            strict.over(): ("atomic", 1),
        }
        for counter, (method, bins) in names.items():
            self.memory.strict[counter] = method, bins
            self.world.auditor.strict.accounts[counter].opening = strict.OPENING
            strict.make(product, counter, method, bins)

    def _dispatch(self, event: dict[str, Any], process: Process) -> None:
        Product(process).dispatch(event["namespace"], event["revision"])

    def _work(self, messages: Mapping[str, str], process: Process) -> list[str]:
        product = Product(process)
        again = product.work(messages, process.now_ms() + _WORKER_MS)
        lost = self.world.auditor.deletions.lost
        for report in product.reports:
            self.world.tell(f"worker: {report.counter} {report.outcome} {report.detail}")
            if report.outcome == "tampered" and report.counter not in lost:
                raise AssertionError(f"{report}")
        return again


def _limited(
    shape: Shape, clients: int | None, operations: int | None, weights: dict[str, float]
) -> Shape:
    return replace(
        shape,
        clients=min(shape.clients, clients or shape.clients),
        operations=min(shape.operations, operations or shape.operations),
        weights=weights,
    )
