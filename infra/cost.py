"""What a month costs at list prices, and which setting would save most. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from math import ceil
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from countledger.compaction.regions import survey_of
from countledger.compaction.report import Retire
from countledger.consumers.record import LedgerStream, made_at_ms
from countledger.ledger.clock import SystemClock
from countledger.ledger.errors import BadSetting
from countledger.ledger.limits import DAY_MS, HOUR_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from countledger import CountLedger
    from countledger.consumers.progress import ShardProgress
    from countledger.ledger.clock import Clock
    from countledger.ledger.errors import CorruptItem


# List prices, and what a million events cost each way until their totals are right. Pure.
#
# Prices are of us-east-1, on demand, table class Standard, in US dollars, by
# https://aws.amazon.com/dynamodb/pricing/on-demand/, https://aws.amazon.com/lambda/pricing/,
# https://aws.amazon.com/kinesis/data-streams/pricing/ and https://aws.amazon.com/api-
# gateway/pricing/. A write that is replicated costs as much in each region as a write.


# When they were looked up; those of DynamoDB have been these since 2024-11-01.
AS_OF: Final = "2026-11-21"
MILLION: Final = 1_000_000
WRITE_UNITS_MILLION: Final = 0.625
READ_UNITS_MILLION: Final = 0.125
STORAGE_GB_MONTH: Final = 0.25
WRITE_CAPACITY_HOUR: Final = 0.00065
READ_CAPACITY_HOUR: Final = 0.00013
LAMBDA_REQUEST: Final = 0.20 / MILLION
LAMBDA_GB_SECOND: Final = 0.0000133334
# For one request of an HTTP API of API Gateway: of the first so many in a month, and of the others.
_GATEWAY_FIRST: Final = 300 * MILLION
_GATEWAY_REQUEST: Final = 1.00 / MILLION
_GATEWAY_FURTHER_REQUEST: Final = 0.90 / MILLION
# An assumption: 30 ms at 1,024 MB, the default of HttpMemoryMb.
_HTTP_GB_SECONDS: Final = 0.030
_SHARD_HOUR: Final = 0.015
_SHARD_BYTES_AN_HOUR: Final = 3_600 * 1_000_000
_PUT_UNITS_MILLION: Final = 0.014
_PUT_UNIT_BYTES: Final = 25_000
# A batch of the materializer as a test has it: 1,000 records of 64 counters cost 65 units.
BATCH_RECORDS: Final = 1_000
BATCH_UNITS: Final = 65
# Lambda gives a whole processor for 1,769 MB, and a part of it for a part of that.
WHOLE_PROCESSOR_MB: Final = 1_769
BATCH_GB_SECONDS: Final = WHOLE_PROCESSOR_MB / 1_024 * 0.060
# To merge an entry later, with its share of the heads, by each way to retire it.
BY_DELETES: Final = 1.06
BY_TRANSACTIONS: Final = 2.06
# What an event takes in an aggregated record, with a short name and no note.
KINESIS_BYTES: Final = 100


@dataclass(frozen=True, slots=True)
class Price:
    """What events cost one way.

    Attributes:
        entries: how many entries, or other writes of one unit, an event takes.
        totals: write units for each event, for totals and the progress of the shard.
        rest: dollars for a million events that are not for write units: Kinesis and Lambda.
        merges: whether its entries are compacted at some time.
    """

    way: str
    entries: float
    totals: float = 0.0
    rest: float = 0.0
    merges: bool = False

    @property
    def units(self) -> float:
        """Write units for each event until its total is right."""
        return self.entries + self.totals

    @property
    def dollars(self) -> float:
        """For a million events until their totals are right."""
        return self.units * WRITE_UNITS_MILLION + self.rest

    def compacted(self, units: float) -> float | None:
        """The same, and for merging their entries later at so many units each."""
        if not self.merges:
            return None
        return self.dollars + self.entries * units * WRITE_UNITS_MILLION


def price_of(way: str, entries: float, *, streamed: bool = False) -> Price:
    """One of our ways; `streamed`: through Kinesis, over shards that are kept full."""
    invocations = MILLION * entries / BATCH_RECORDS * (2 if streamed else 1)
    lambda_ = invocations * (LAMBDA_REQUEST + BATCH_GB_SECONDS * LAMBDA_GB_SECOND)
    kinesis = kinesis_dollars() if streamed else 0.0
    totals = entries * BATCH_UNITS / BATCH_RECORDS
    return Price(way, entries, totals, rest=lambda_ + kinesis, merges=True)


def kinesis_dollars() -> float:
    """What a stream of Kinesis takes for a million events, over shards that are kept full."""
    sent = MILLION * KINESIS_BYTES
    hours, put_units = sent / _SHARD_BYTES_AN_HOUR, sent / _PUT_UNIT_BYTES
    return hours * _SHARD_HOUR + put_units / MILLION * _PUT_UNITS_MILLION


def prices(uniform: float, zipf: float) -> list[Price]:
    """Every way, and two usual ones beside them.

    The arguments are entries for each event, coalesced: of counters that are all as likely, and of
    Zipf-distributed ones.
    """
    return [
        Price("an atomic counter (a retry counts twice)", 1.0),
        Price("a marker and a counter in one transaction", 4.0),
        price_of("`record`, `record_many`, buffered", 1.0),
        price_of("through Kinesis", 1.0, streamed=True),
        price_of("buffered, coalescing, uniform", uniform),
        price_of("buffered, coalescing, Zipf", zipf),
    ]


def http_dollars(requests: float) -> float:
    """What so many requests to the HTTP API take in a month, without their units of DynamoDB."""
    first = min(requests, _GATEWAY_FIRST)
    gateway = first * _GATEWAY_REQUEST + (requests - first) * _GATEWAY_FURTHER_REQUEST
    return gateway + requests * (LAMBDA_REQUEST + _HTTP_GB_SECONDS * LAMBDA_GB_SECOND)


# How many entries come to a stack, and how they are kept: what an estimate of its cost needs.


SPAN_MIN_MS: Final = HOUR_MS
# A stream shows its records for a day: of a shard that begins later it shows all.
_SHOWN_WHOLE_MS: Final = 23 * HOUR_MS


class Pace(NamedTuple):
    """How many entries come, and what each takes in write units of totals and progress."""

    entries_per_day: float
    total_units: float


def pace_of(
    progress: Sequence[ShardProgress],
    begun_ms: Mapping[str, int],
    now_ms: int,
    least_ms: int = SPAN_MIN_MS,
) -> Pace | None:
    """The pace of entries, from the progress of the stream's shards; None: too few data. Pure.

    Progress counts a shard from its beginning. Of those that began within the day all that they
    counted was made since the first of them began. `begun_ms` is when the first record was made
    that the stream still shows of a shard; a span under `least_ms` is too short.
    """
    whole = [one for one in progress if begun_ms.get(one.shard, 0) > now_ms - _SHOWN_WHOLE_MS]
    records = sum(one.records for one in whole)
    span_ms = max((now_ms - begun_ms[one.shard] for one in whole), default=0)
    if not records or span_ms < max(least_ms, 1):
        return None
    units = sum(one.write_units for one in whole)
    return Pace(records * DAY_MS / span_ms, units / records)


def measure(
    client: CountLedger, clock: Clock | None = None, least_ms: int = SPAN_MIN_MS
) -> Pace | None:
    """How many entries come to a stack: half a read unit and two calls for each stream shard."""
    now_ms = (clock or SystemClock()).now_ms()
    stream = LedgerStream(client.connection)
    begun_ms: dict[str, int] = {}
    for one in stream.shards():
        for record in islice(stream.after(one.shard, None), 1):
            begun_ms[str(one.shard)] = int(made_at_ms(record))
    return pace_of(client.freshness().shards, begun_ms, now_ms, least_ms)


def regions_of(client: CountLedger) -> int:
    """Over how many regions the ledger spans. One DescribeTable call."""
    connection = client.connection
    described = connection.dynamo("standard").describe(connection.setting("ledger_table"))
    return 1 + len(survey_of(described, connection.region).others)


def _left_out(_error: CorruptItem) -> None:
    """`schedule list` names it; an estimate goes without it."""


def retire_of(client: CountLedger) -> Retire | None:
    """How most schedules delete merged entries, of two alike the safer; None: no schedule.

    Half a read unit for each namespace.
    """
    ways = [schedule.retire for schedule in client.schedules.list(on_corrupt=_left_out)]
    return max(Retire, key=ways.count) if ways else None


# What a rate of events needs: partitions, shards, functions, units, dollars; and what limits it.
#
# A pure model of a running stack in a steady state: entries are written, applied to totals, and
# merged as fast as they come. The tests compare it with a simulation.


# What one partition of a table takes, in write units a second.
PARTITION_UNITS: Final = 1_000
# What a new on-demand table takes from the start, and the quota of a table.
NEW_TABLE_UNITS: Final = 4_000
TABLE_QUOTA_UNITS: Final = 40_000
# The quota of an account: concurrent invocations, MB/s of an on-demand stream of Kinesis.
CONCURRENCY: Final = 1_000
KINESIS_MB: Final = 4
SHARD_BYTES: Final = 1_000_000
WINDOW_S: Final = 1
# Of one whole processor, by `make bench`: to decode and fold a record, and to update a total.
RECORD_MS: Final = 0.005
UPDATE_MS: Final = 0.33
# What the ingest writes in a second with one processor, in batches.
INGEST_ENTRIES: Final = 20_000
# What one emitting process adds in a second while it coalesces.
PROCESS_EVENTS: Final = 50_000
_MERGE_UNITS: Final = {None: 0.0, Retire.DELETE: BY_DELETES, Retire.TRANSACTION: BY_TRANSACTIONS}
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
        return 1 + _MERGE_UNITS[self.retire]

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


DAYS: Final = 30
COALESCED: Final = 10
_GIGABYTE: Final = 10**9
_COUNT_MAX: Final = 10**15
_REGIONS_MAX: Final = 100
_COUNTS: Final = (
    "events_per_day",
    "total_units",
    "reads_per_day",
    "strict_changes_per_day",
    "http_requests_per_day",
)
# For each entry, of an item that each of 64 counters of a batch touches.
_ITEM_UNITS: Final = 64 / BATCH_RECORDS
_READ_UNITS: Final = 0.5
# An entry without key and note, with what the service adds to each item.
_ENTRY_BYTES: Final = 250
# With the shortest age at which an entry may be merged, by default, and half a day until a run.
_MERGED_AFTER_DAYS: Final = 1.5
_UNITS: Final = {Retire.TRANSACTION: BY_TRANSACTIONS, Retire.DELETE: BY_DELETES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is counted, and how.

    Attributes:
        total_units: write units for each entry, of totals and of the progress.
        retire: how merged entries are deleted; None: nothing is compacted.
        average_use: the used share of provisioned capacity, 0 to 1; None: capacity on demand.
        strict_regions: how many regions store these counters; a witness stores none.
        memory_mb: of the materializer. Above 1,769 MB it costs more and is no faster; below, it
            takes longer, and costs the same.
        window_items: how many items of windows a counter's batch touches, of events on time.
    """

    events_per_day: float
    events_per_entry: float = 1.0
    total_units: float = BATCH_UNITS / BATCH_RECORDS
    reads_per_day: float = 0.0
    regions: int = 1
    retire: Retire | None = Retire.TRANSACTION
    average_use: float | None = None
    strict_changes_per_day: float = 0.0
    strict_regions: int = 3
    http_requests_per_day: float = 0.0
    memory_mb: int = WHOLE_PROCESSOR_MB
    window_items: int = 0

    def __post_init__(self) -> None:
        if self.average_use is not None and not 0 < self.average_use <= 1:
            raise BadSetting(f"average use: {self.average_use:g} is not above 0 and at most 1")
        for name, least, most in (
            *((name, 0, _COUNT_MAX) for name in _COUNTS),
            ("events_per_entry", 1, _COUNT_MAX),
            ("regions", 1, _REGIONS_MAX),
            ("strict_regions", 2, 3),
            ("memory_mb", 128, 10_240),
            ("window_items", 0, 3),
        ):
            value = getattr(self, name)
            if not least <= value <= most:
                raise BadSetting(
                    f"{name.replace('_', ' ')}: {value:g} is not between {least} and {most:,}"
                )

    @property
    def entries_a_month(self) -> float:
        return self.events_per_day * DAYS / self.events_per_entry


@dataclass(frozen=True, slots=True)
class BillItem:
    """One position of the bill, in a month."""

    what: str
    amount: float
    unit: str
    dollars: float


@dataclass(frozen=True, slots=True)
class Saving:
    """What another setting would save in a month."""

    setting: str
    dollars: float


def bill(load: Workload) -> list[BillItem]:
    """The month's positions. Archive, Kinesis, point-in-time recovery and transfer are left out."""
    entries, regions = load.entries_a_month, load.regions
    merged = _UNITS[load.retire] if load.retire else 0.0
    batches = entries / BATCH_RECORDS * regions
    days = DAYS if load.retire is None else _MERGED_AFTER_DAYS
    stored_gb = entries / DAYS * days * _ENTRY_BYTES * regions / _GIGABYTE
    use = load.average_use
    memory = max(1.0, load.memory_mb / WHOLE_PROCESSOR_MB)
    invocation = LAMBDA_REQUEST + BATCH_GB_SECONDS * memory * LAMBDA_GB_SECOND
    strict = load.strict_changes_per_day * DAYS * load.strict_regions
    http = load.http_requests_per_day * DAYS
    return [
        _written("entries", entries * regions, use),
        _written("totals", entries * load.total_units * regions, use),
        _written("windows", entries * load.window_items * _ITEM_UNITS * regions, use),
        _written("compaction", entries * merged * regions, use),
        _read("reads of totals", load.reads_per_day * DAYS * _READ_UNITS, use),
        BillItem("materializer", batches, "invocations", batches * invocation),
        BillItem("storage", stored_gb, "GB", stored_gb * STORAGE_GB_MONTH),
        # Their table is on demand, whatever the capacity of the others.
        *([_written("strict over regions", strict, None)] if strict else []),
        *([BillItem("HTTP API", http, "requests", http_dollars(http))] if http else []),
    ]


def dollars(load: Workload) -> float:
    return sum(item.dollars for item in bill(load))


def savings(load: Workload) -> list[Saving]:
    """What other settings would save, the largest first; none that would save nothing."""
    now = dollars(load)
    found = (Saving(setting, now - dollars(other)) for setting, other in _others(load))
    return sorted((one for one in found if one.dollars > 0), key=lambda one: -one.dollars)


def _others(load: Workload) -> Iterator[tuple[str, Workload]]:
    if load.events_per_entry < COALESCED:
        yield (
            f"Buffering(coalesce=True): {COALESCED} events to an entry, if not each is needed",
            replace(load, events_per_entry=float(COALESCED)),
        )
    if load.average_use is not None:
        yield "CapacityMode=on-demand", replace(load, average_use=None)
    if load.memory_mb > WHOLE_PROCESSOR_MB:
        yield (
            f"MaterializerMemoryMb={WHOLE_PROCESSOR_MB}: more is no faster",
            replace(load, memory_mb=WHOLE_PROCESSOR_MB),
        )
    if load.window_items > 1:
        yield "windows enable --by day, not finer", replace(load, window_items=1)
    if load.retire is Retire.TRANSACTION:
        yield (
            "schedule --retire delete: merged entries deleted one by one",
            replace(load, retire=Retire.DELETE),
        )
    if load.retire is not None:
        yield (
            "no schedule: entries are kept for ever; storage grows by as much with each month",
            replace(load, retire=None),
        )


def _written(what: str, units: float, use: float | None) -> BillItem:
    dollars_ = _capacity(units, use, WRITE_UNITS_MILLION, WRITE_CAPACITY_HOUR)
    return BillItem(what, units, "write units", dollars_)


def _read(what: str, units: float, use: float | None) -> BillItem:
    dollars_ = _capacity(units, use, READ_UNITS_MILLION, READ_CAPACITY_HOUR)
    return BillItem(what, units, "read units", dollars_)


def _capacity(units: float, use: float | None, million: float, hour: float) -> float:
    """Dollars for units on demand, or provisioned: an hour of capacity is 3,600 units if used."""
    return units / MILLION * million if use is None else units / 3_600 / use * hour
