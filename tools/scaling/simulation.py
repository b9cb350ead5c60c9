"""Partitions, stream shards and batches, second by second: what saturates first as a load grows.

It knows nothing of the model's formulas. Keys lie in partitions, each partition takes a thousand
units a second, each shard is read by one invocation at a time, which takes time for each record and
each different counter, and merges follow the entries a second later.
"""

from dataclasses import dataclass, field
from math import ceil
from random import Random
from typing import Final

from countledger.infra.cost import PARTITION_UNITS, RECORD_MS
from countledger.infra.scaling import Load, Setup, Way

_SECONDS: Final = 12
_STEP: Final = 1.08
_SLOWEST: Final = 100.0
# All shards are alike: so many of them are played in detail.
_PLAYED: Final = 2
_MERGE: Final = {None: 0.0, "delete": 1.06, "transaction": 2.06}
_BATCH: Final = 1_000
_KINESIS_EVENT_BYTES: Final = 100


@dataclass(slots=True)
class Shard:
    """A stream shard, its partition, and the function that reads it."""

    counters: int
    arrivals: float
    backlog: int = 0
    updates: int = 0
    batches: int = 0
    left_ms: float = 0.0

    def second(self, random: Random, setup: Setup) -> None:
        """Records arrive; batches are applied for a second, one after the other."""
        self.backlog += _poisson(random, self.arrivals)
        # A batch that takes longer than its second takes it from the next one.
        self.left_ms = min(self.left_ms, 0.0) + 1_000.0
        while self.backlog and self.left_ms > 0:
            records = min(_BATCH, self.backlog)
            different = len({random.randrange(self.counters) for _ in range(records)})
            self.left_ms -= records * RECORD_MS + different * setup.update_ms
            self.backlog -= records
            self.updates += different
            self.batches += 1


@dataclass(slots=True)
class World:
    """A running stack under one load.

    Attributes:
        load: what comes.
        setup: what the stack is set to.
        random: the source of chance.
    """

    load: Load
    setup: Setup
    random: Random
    saturated: set[str] = field(default_factory=set)

    def run(self) -> set[str]:
        """What is overloaded after some seconds."""
        entries_s = self._entries_s()
        units = 1 + _MERGE[self.setup.retire and self.setup.retire.value]
        partitions = self._partitions(entries_s, units)
        shards = [
            Shard(max(1, len(keys)) if keys else 10**9, arrivals)
            for keys, arrivals in self._sample(partitions)
        ]
        for _ in range(_SECONDS):
            for shard in shards:
                shard.second(self.random, self.setup)
        self._check_ledger(entries_s, units)
        self._check_shards(shards, len(partitions))
        return self.saturated

    def _entries_s(self) -> float:
        load = self.load
        if load.way is Way.KINESIS:
            sent_mb = load.events_s * _KINESIS_EVENT_BYTES / 1e6
            if sent_mb > self.setup.kinesis_mb:
                self.saturated.add("kinesis")
        if load.way is not Way.COALESCED or load.counters is None:
            return load.events_s
        # Each emitting process sends one entry a second for each counter that it met.
        processes = ceil(load.events_s / 50_000)
        met = {
            (process, self.random.randrange(load.counters))
            for process in range(processes)
            for _ in range(min(int(load.events_s / processes), 20 * load.counters))
        }
        return float(len(met))

    def _partitions(self, entries_s: float, units: float) -> list[tuple[list[int], float]]:
        """The partitions with the counters in each, and the entries that arrive there a second.

        DynamoDB splits a partition until its load fits, or until it holds a single key range.
        """
        counters = self.load.counters
        if counters is None:
            number = max(1, ceil(entries_s * units / PARTITION_UNITS))
            return [([], entries_s / number)] * number
        ranges = [counter for counter in range(counters) for _ in range(self.setup.spread)]
        each = entries_s / len(ranges)
        if each * units > PARTITION_UNITS:
            self.saturated.add("key range")
        fit = max(1, int(PARTITION_UNITS / (each * units))) if each else len(ranges)
        self.random.shuffle(ranges)
        held = [ranges[start : start + fit] for start in range(0, len(ranges), fit)]
        return [(sorted(set(one)), each * len(one)) for one in held]

    def _sample(self, partitions: list[tuple[list[int], float]]) -> list[tuple[list[int], float]]:
        return self.random.sample(partitions, min(_PLAYED, len(partitions)))

    def _check_ledger(self, entries_s: float, units: float) -> None:
        if entries_s * units > self.setup.ledger_units:
            self.saturated.add("ledger")

    def _check_shards(self, shards: list[Shard], partitions: int) -> None:
        scale = partitions / len(shards)
        written = sum(shard.updates + shard.batches for shard in shards) * scale / _SECONDS
        if written > self.setup.counters_units:
            self.saturated.add("totals")
        behind = sum(shard.backlog for shard in shards)
        if behind > 0.05 * sum(shard.arrivals for shard in shards) * _SECONDS:
            self.saturated.add("materializer")
        readers = max(1, ceil(written / PARTITION_UNITS))
        streamed = self.load.way is Way.KINESIS
        ingests = ceil(self.load.events_s * _KINESIS_EVENT_BYTES / 1e6) if streamed else 0
        if partitions + readers + ingests > self.setup.concurrency:
            self.saturated.add("concurrency")


def _poisson(random: Random, mean: float) -> int:
    return max(0, round(random.gauss(mean, mean**0.5)))


def first_saturated(load: Load, setup: Setup) -> tuple[set[str], float] | None:
    """What saturates first as the load grows up to its rate, and at which rate; None: nothing."""
    random = Random(1)  # noqa: S311 - a simulation
    events_s = _SLOWEST
    while events_s <= load.events_s:
        grown = type(load)(events_s, load.counters, load.way)
        found = World(grown, setup, random).run()
        if found:
            return found, events_s
        events_s *= _STEP
    return None
