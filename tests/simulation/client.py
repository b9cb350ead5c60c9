"""A client: a process that uses the product, dies now and then, and comes back knowing nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from countledger.ledger.errors import ServiceFailed
from tests.simulation.ledger_account import DELTAS
from tests.simulation.product import Product
from tests.simulation.schedule import Killed

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping
    from random import Random

    from countledger.infra.portability.lines import CounterLine
    from countledger.ledger.entry import Entry
    from countledger.ledger.ids import IdempotencyKey
    from countledger.producers.claims.claim import Claim
    from countledger.producers.event import Event
    from countledger.producers.quotas.quota import Ticket
    from countledger.producers.sequences.sequences import PendingAppend
    from tests.simulation.auditor import Auditor
    from tests.simulation.hold_operations import Basket
    from tests.simulation.operation import Operation
    from tests.simulation.process import Process
    from tests.simulation.quota_account import QuotaCall
    from tests.simulation.world import World

# How often a client waits where others rest for hours or days.
_RESTING: Final = 0.95


@dataclass
class Exported:
    """What exports have found, and what imports were given of it.

    Attributes:
        lines: the last lines of each counter that an export wrote.
        offered: by import and counter, the values that it was given; more than one where a name
            was used again.
        last: by sequence that was moved, the highest number that an import has answered for.
    """

    lines: list[CounterLine] = field(default_factory=list)
    offered: dict[tuple[str, str], set[int]] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)


@dataclass
class Memory:
    """What all clients share outside of the product: their own records of what they did.

    Attributes:
        entries: every entry that was made and may be sent again, with its region.
        free: per ledger counter, the deltas that nobody has used.
        bare: per ledger counter, bare keys: their delta, region, and how often they may be new.
        strict: strict counters that are made, with method and bins.
        keyed: events with keys that went through a buffer.
        joint: changes of several strict counters whose fate is not known, by key.
        unnumbered: items of which nobody could tell whether they were put.
        message_ids: counters and ids of messages that were sent through Kinesis.
        streamed: entries that Kinesis may have or not, and when they were last sent.
        spools: per client and region, the file of its spool, or none.
        claims: claims that were looked up, which may be released by their ids.
        acquires: calls of quotas under a key.
        tickets: reservations that somebody was told of.
        wishes: keys under which the stock was to be set in a region, and to which values.
        open: changes of strict counters whose fate is not known: counter, key, delta.
        corrupt: of the counter that is malformed, the deltas that nobody has used.
        baskets: holds that somebody asked for.
        ruled: whether administrators have strict counters of their own.
        exported: what exports have found, and imports were given.
        malformed: what was written there by hand and not mended: the region, and the item.
    """

    entries: list[tuple[Entry, str]] = field(default_factory=list)
    free: dict[str, list[int]] = field(default_factory=dict)
    bare: dict[str, dict[str, tuple[int, str]]] = field(default_factory=dict)
    strict: dict[str, tuple[str, int]] = field(default_factory=dict)
    open: list[tuple[str, object, int]] = field(default_factory=list)
    corrupt: list[int] = field(default_factory=lambda: list(range(DELTAS)))
    malformed: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    joint: dict[IdempotencyKey, Mapping[str, int]] = field(default_factory=dict)
    unnumbered: list[PendingAppend] = field(default_factory=list)
    keyed: list[Event] = field(default_factory=list)
    message_ids: list[tuple[str, str]] = field(default_factory=list)
    streamed: list[tuple[Entry, int]] = field(default_factory=list)
    spools: dict[tuple[str, str], str] = field(default_factory=dict)
    claims: list[Claim] = field(default_factory=list)
    acquires: list[QuotaCall] = field(default_factory=list)
    tickets: list[Ticket] = field(default_factory=list)
    wishes: dict[tuple[str | IdempotencyKey, str], set[int]] = field(default_factory=dict)
    exported: Exported = field(default_factory=Exported)
    baskets: list[Basket] = field(default_factory=list)
    ruled: bool = False
    numbers: int = 0

    def number(self) -> int:
        """One that nobody else has."""
        self.numbers += 1
        return self.numbers


@dataclass(eq=False)
class Client:
    """One of them.

    Attributes:
        world: where it runs.
        region: which region.
        name: for messages.
        memory: shared with the others.
    """

    world: World
    region: str
    name: str
    memory: Memory

    def __post_init__(self) -> None:
        """The first process."""
        self._begin()

    def _begin(self) -> None:
        self.process: Process = self.world.process(self.region, self.name)
        self.product = Product(self.process)

    @property
    def random(self) -> Random:
        """Of the simulation."""
        return self.world.random

    @property
    def auditor(self) -> Auditor:
        """Of the simulation."""
        return self.world.auditor

    def live(
        self, operations: list[Operation], count: int, skipped: Container[int] = frozenset()
    ) -> None:
        """Carry out so many operations, with pauses in between; some only in mind."""
        weights = [self.world.shape.weights.get(one.name, 0) for one in operations]
        for number in range(count):
            self.world.schedule.draw_anew(f"{self.name}, operation {number}")
            gap_ms = self.random.expovariate(1) * self.world.shape.gap_ms
            self.world.schedule.pause(gap_ms)
            if any(weights):
                operation = self.random.choices(operations, weights)[0]
                if number == count // 3:
                    self._begin_lull()
                self._rest()
                if number not in skipped:
                    self.play(operation)

    def _begin_lull(self) -> None:
        deletions, lull_ms = self.auditor.deletions, self.world.shape.lull_ms
        if lull_ms and not deletions.wake_ms:
            deletions.wake_ms = self.world.schedule.now_ms + lull_ms

    def _rest(self) -> None:
        """While others rest most do, so that all meet again when they go on."""
        left_ms = self.auditor.deletions.wake_ms - self.world.schedule.now_ms
        if left_ms > 0 and self.random.random() < _RESTING:
            self.world.schedule.pause(left_ms)

    def play(self, operation: Operation) -> None:
        """Carry one out, however it ends."""
        if self.region in self.world.gone:
            self.tell("goes to another region")
            self.process.die()
            self.region = self.random.choice(self.world.regions)
            self._begin()
        elif self.process.dead:
            self.tell("had died meanwhile")
            self._begin()
        self.process.operation = operation.name
        try:
            operation.play(self)
        except ServiceFailed as error:
            self.tell(f"{operation.name}: {type(error).__name__}: {error}")
        except Killed:
            self.tell(f"{operation.name}: died")
            self.world.schedule.pause(self.random.random() * self.world.shape.gap_ms)
            self._begin()
        self.process.operation = "idle"

    def end(self, closes: Iterable[Operation]) -> None:
        """The process ends by itself."""
        for close in closes:
            self.play(close)
        self.process.die()

    def tell(self, text: str) -> None:
        """Note what happened."""
        self.world.tell(f"{self.name} in {self.region}: {text}")
