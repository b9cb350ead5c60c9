"""What a rate of events needs: partitions, shards, functions, units, dollars; what limits it first.

A pure model of a running stack in a steady state: entries are written, applied to totals, and
merged as fast as they come. The tests compare it with a simulation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from countledger.compaction.report import Retire
from countledger.infra.cost import (
    BATCH_RECORDS,
    KINESIS_BYTES,
    LAMBDA_GB_SECOND,
    LAMBDA_REQUEST,
    MERGE_UNITS,
    MILLION,
    PARTITION_UNITS,
    RECORD_MS,
    UPDATE_MS,
    WRITE_UNITS_MILLION,
    kinesis_dollars,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# What a new on-demand table takes from the start, and the quota of a table.
NEW_TABLE_UNITS: Final = 4_000
TABLE_QUOTA_UNITS: Final = 40_000
# The quota of an account: concurrent invocations, MB/s of an on-demand stream of Kinesis.
CONCURRENCY: Final = 1_000
KINESIS_MB: Final = 4
SHARD_BYTES: Final = 1_000_000
WINDOW_S: Final = 1
# What the ingest writes in a second with one processor, in batches.
INGEST_ENTRIES: Final = 20_000
# What one emitting process adds in a second while it coalesces.
PROCESS_EVENTS: Final = 50_000
_MEMORY_GB: Final = 1_769 / 1_024
_SPREADS: Final = (1, 16, 256)
_NO_WIDER: Final = "fewer entries, by Buffering(coalesce=True), or several counters for one"
_PRECISION: Final = 1.001


class Way(StrEnum):
    """How events come into the ledger."""

    DIRECT = "direct"
    COALESCED = "coalesced"
    KINESIS = "through Kinesis"


@dataclass(frozen=True, slots=True)
class Load:
    """Events a second, spread evenly over counters; None: each is of another counter."""

    events_s: float
    counters: int | None
    way: Way = Way.DIRECT

    @property
    def entries_s(self) -> float:
        """Entries a second: coalesced, one for each counter, process and second at most."""
        if self.way is not Way.COALESCED or self.counters is None:
            return self.events_s
        processes = ceil(self.events_s / PROCESS_EVENTS)
        return min(self.events_s, self.counters * processes / WINDOW_S)


@dataclass(frozen=True, slots=True)
class Setup:
    """What the stack and the account are set to.

    Attributes:
        retire: how merged entries are deleted; None: nothing is merged.
        ledger_units: what the ledger takes in a second, all partitions together.
        counters_units: what the table of the totals takes.
        kinesis_mb: what the stream of Kinesis takes, in MB a second.
        update_ms: processor time of the materializer for an update.
    """

    retire: Retire | None = Retire.DELETE
    spread: int = 1
    ledger_units: float = NEW_TABLE_UNITS
    counters_units: float = NEW_TABLE_UNITS
    concurrency: int = CONCURRENCY
    kinesis_mb: float = KINESIS_MB
    update_ms: float = UPDATE_MS

    @property
    def entry_units(self) -> float:
        """Write units of the ledger for an entry, with those for merging it later."""
        return 1 + MERGE_UNITS[self.retire]

    @property
    def partition_entries(self) -> float:
        return PARTITION_UNITS / self.entry_units


@dataclass(frozen=True, slots=True)
class Limit:
    """What is met first; `passed` is the setup with that setting, if any setup passes it."""

    what: str
    events_s: float
    setting: str
    passed: Setup | None


@dataclass(frozen=True, slots=True)
class Needs:
    """What a load needs.

    Attributes:
        partitions: of the ledger; its stream has as many shards, each read by one invocation.
        functions: invocations at the same time: materializer, evaluator and ingest.
        units_event: write units for an event: its entry, its total, its merge.
    """

    partitions: int
    counters_partitions: int
    kinesis_shards: int
    functions: int
    units_event: float
    dollars_million: float


def partitions_of(load: Load, setup: Setup) -> int:
    """How many partitions the ledger needs; each holds whole key ranges of counters."""
    if load.counters is None:
        return max(1, ceil(load.entries_s / setup.partition_entries))
    ranges = load.counters * setup.spread
    of_a_partition = max(1, int(setup.partition_entries * ranges / load.entries_s))
    return ceil(ranges / of_a_partition)


def updates_an_entry(load: Load, setup: Setup) -> float:
    """Updates of totals for an entry: one for each different counter in a batch of a shard."""
    if load.counters is None:
        return 1.0
    shards = partitions_of(load, setup)
    of_a_shard = max(1.0, load.counters * min(setup.spread, shards) / shards)
    batch = min(BATCH_RECORDS, max(1.0, load.entries_s / shards * WINDOW_S))
    # How many different ones of so many counters are expected among so many records.
    return float(of_a_shard * (1 - (1 - 1 / of_a_shard) ** batch)) / batch


def needs(load: Load, setup: Setup) -> Needs:
    shards = partitions_of(load, setup)
    per_entry = updates_an_entry(load, setup)
    batches_s = max(min(shards / WINDOW_S, load.entries_s), load.entries_s / BATCH_RECORDS)
    totals_s = load.entries_s * per_entry
    counters_partitions = max(1, ceil((totals_s + batches_s) / PARTITION_UNITS))
    streamed = load.way is Way.KINESIS
    kinesis_shards = ceil(load.events_s * KINESIS_BYTES / SHARD_BYTES) if streamed else 0
    units_s = load.entries_s * setup.entry_units + totals_s + batches_s
    busy_s = load.entries_s * (RECORD_MS + per_entry * setup.update_ms) / 1_000
    busy_s += load.events_s / INGEST_ENTRIES if streamed else 0
    dollars_s = units_s * WRITE_UNITS_MILLION / MILLION
    dollars_s += busy_s * _MEMORY_GB * LAMBDA_GB_SECOND + batches_s * LAMBDA_REQUEST
    return Needs(
        partitions=shards,
        counters_partitions=counters_partitions,
        kinesis_shards=kinesis_shards,
        functions=shards + counters_partitions + kinesis_shards,
        units_event=units_s / load.events_s,
        dollars_million=dollars_s / load.events_s * MILLION + streamed * kinesis_dollars(),
    )


def first_limit(load: Load, setup: Setup) -> Limit | None:
    """The limit that the load meets first while it grows; None: it meets none."""
    met = (_met(load, one) for one in _bounds(load, setup) if one.exceeded(load))
    return min(met, key=lambda one: one.events_s, default=None)


def settings_for(load: Load, setup: Setup) -> Iterator[Limit]:
    """Every limit that has to be passed, one after the other, up to one that no setup passes."""
    passed: Setup | None = setup
    while passed and (limit := first_limit(load, passed)):
        yield limit
        passed = limit.passed


def settled(load: Load, setup: Setup) -> Setup:
    """The setup with every limit passed that a setup can pass."""
    for limit in settings_for(load, setup):
        setup = limit.passed or setup
    return setup


class _Bound(NamedTuple):
    what: str
    exceeded: Callable[[Load], bool]
    setting: str
    passed: Setup | None


def _met(load: Load, bound: _Bound) -> Limit:
    """At which rate a load exceeds a bound while it grows."""
    low, high = 1.0, load.events_s
    while high / low > _PRECISION:
        middle = (low * high) ** 0.5
        if bound.exceeded(replace(load, events_s=middle)):
            high = middle
        else:
            low = middle
    return Limit(bound.what, high, bound.setting, bound.passed)


def _bounds(load: Load, setup: Setup) -> Iterator[_Bound]:
    yield _table_bound(load, setup, "ledger")
    yield _table_bound(load, setup, "totals")
    if load.counters is not None:
        ranges = load.counters * setup.spread
        wider = next((one for one in _SPREADS if one > setup.spread), None)
        yield _Bound(
            "one partition for each counter" if setup.spread == 1 else "spread of the counters",
            lambda grown: grown.entries_s > ranges * setup.partition_entries,
            f"a namespace with --spread {wider}" if wider else _NO_WIDER,
            replace(setup, spread=wider) if wider else None,
        )
    yield _Bound(
        "the materializer of a shard",
        lambda grown: _shard_entries(grown, setup) < min(setup.partition_entries, grown.entries_s),
        "the extra `fast` in the functions, MaterializerMemoryMb=1769",
        replace(setup, update_ms=UPDATE_MS),
    )
    wanted = needs(load, setup)
    functions, shards = wanted.functions, wanted.kinesis_shards
    yield _Bound(
        "the account's concurrency",
        lambda grown: needs(grown, setup).functions > setup.concurrency,
        f"a quota of {functions} concurrent executions",
        replace(setup, concurrency=functions),
    )
    if load.way is Way.KINESIS:
        yield _Bound(
            "the stream of Kinesis",
            lambda grown: grown.events_s * KINESIS_BYTES > setup.kinesis_mb * SHARD_BYTES,
            f"IngestStream=provisioned, IngestShards={shards}",
            replace(setup, kinesis_mb=shards),
        )


def _shard_entries(load: Load, setup: Setup) -> float:
    """How many entries a second the materializer of a shard applies."""
    return 1_000 / (RECORD_MS + updates_an_entry(load, setup) * setup.update_ms)


def _table_units(load: Load, setup: Setup, table: str) -> float:
    ledger_s = load.entries_s * setup.entry_units
    all_s = needs(load, setup).units_event * load.events_s
    return ledger_s if table == "ledger" else all_s - ledger_s


def _table_bound(load: Load, setup: Setup, table: Literal["ledger", "totals"]) -> _Bound:
    most = setup.ledger_units if table == "ledger" else setup.counters_units
    wanted = ceil(_table_units(load, setup, table) / NEW_TABLE_UNITS) * NEW_TABLE_UNITS
    quota = most >= TABLE_QUOTA_UNITS
    raised = wanted if quota else min(wanted, TABLE_QUOTA_UNITS)
    if table == "ledger":
        name, passed = "LedgerWarmWriteUnits", replace(setup, ledger_units=raised)
    else:
        name, passed = "CountersWarmWriteUnits", replace(setup, counters_units=raised)
    return _Bound(
        f"the quota of the table of the {table}" if quota else f"a new table of the {table}",
        lambda grown: _table_units(grown, setup, table) > most,
        f"a higher quota of units for a table, {name}={raised}" if quota else f"{name}={raised}",
        passed,
    )
