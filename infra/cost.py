"""What a month costs at list prices, and which setting would save most. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from math import ceil
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from countledger.compaction.regions import survey_of
from countledger.compaction.report import Retire
from countledger.consumers.record import LedgerStream, made_at_ms
from countledger.infra.template import load_template
from countledger.ledger.clock import SystemClock
from countledger.ledger.errors import BadSetting
from countledger.ledger.limits import DAY_MS, HOUR_MS
from countledger.ledger.service_errors import translated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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


# Of which region they are, and when they were looked up; those of DynamoDB have been these since
# 2024-11-01.
PRICES_OF: Final = "us-east-1"
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
    """How many entries come, and what each takes: write units in all, and updates of totals."""

    entries_per_day: float
    total_units: float
    updates: float


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
    units, updates = (sum(one.write_units for one in whole), sum(one.updates for one in whole))
    return Pace(records * DAY_MS / span_ms, units / records, updates / records)


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


def parameters_of(client: CountLedger) -> dict[str, str]:
    """The parameters of the stack. One DescribeStacks call."""
    connection, name = client.connection, client.connection.settings.stack_name
    with translated(f"DescribeStacks of {name!r}"):
        (found,) = connection.stacks().describe_stacks(StackName=name)["Stacks"]
    return {
        one["ParameterKey"]: one.get("ParameterValue", "") for one in found.get("Parameters", [])
    }


def _left_out(_error: CorruptItem) -> None:
    """`schedule list` names it; an estimate goes without it."""


def retire_of(client: CountLedger) -> Retire | None:
    """How most schedules delete merged entries, of two alike the safer; None: no schedule.

    Half a read unit for each namespace.
    """
    ways = [schedule.retire for schedule in client.schedules.list(on_corrupt=_left_out)]
    return max(Retire, key=ways.count) if ways else None


# What one partition of a table takes, in write units a second.
PARTITION_UNITS: Final = 1_000
# Of one whole processor, by `make bench`: to decode and fold a record, and to update a total.
RECORD_MS: Final = 0.005
UPDATE_MS: Final = 0.33
MERGE_UNITS: Final = {None: 0.0, Retire.DELETE: BY_DELETES, Retire.TRANSACTION: BY_TRANSACTIONS}
DAYS: Final = 30
COALESCED: Final = 10
# The stream of a new on-demand table has at least so many shards, and a batch is of one shard.
SHARDS: Final = 4
_DAY_S: Final = 86_400
_GIGABYTE: Final = 10**9
_COUNT_MAX: Final = 10**15
_REGIONS_MAX: Final = 100
_COUNTS: Final = (
    "events_per_day",
    "reads_per_day",
    "strict_changes_per_day",
    "http_requests_per_day",
)
_READ_UNITS: Final = 0.5
# An entry without key and note, with what the service adds to each item.
_ENTRY_BYTES: Final = 250
# With the shortest age at which an entry may be merged, by default, and half a day until a run.
_MERGED_AFTER_DAYS: Final = 1.5
# Of a batch, besides its records and updates: three requests one after the other, so that a batch
# of 1,000 records and 64 counters takes the 60 ms of BATCH_GB_SECONDS. Of an evaluation: a guess.
_BATCH_MS: Final = 34.0
_EVALUATION_GB_SECONDS: Final = 0.010
# A window of the mapping ends every 15 minutes, with one more invocation of each shard.
_WINDOWS_A_DAY: Final = 96
# What CloudWatch takes for a batch (its lines, its metrics, and three lines of Lambda's), for an
# entry that is named in it, and for an evaluation. A test measures the functions' own part.
BATCH_LOG_BYTES: Final = 1_900
ENTRY_LOG_BYTES: Final = 36
EVALUATION_LOG_BYTES: Final = 1_500
_LOGS_GB: Final = 0.50
_ALARM_METRIC: Final = 0.10
_DASHBOARD: Final = 3.00
_CUSTOM_METRIC: Final = 0.30
# Of the materializer and the evaluator, of Lambda for each mapping of a stream; of compaction.
STREAM_METRICS: Final = 9 + 7 + 2 * 6
COMPACTION_METRICS: Final = 2 + 5
RELEASER_METRICS: Final = 3
# The conditions that hold for a stack with default parameters.
_BY_DEFAULT: Final = ("IsHome", "ReleasesHolds")
_RUNS: Final = DAYS * 1_440
# 0.3 s and 2 s at 512 MB, each minute.
_RELEASER_RUN: Final = LAMBDA_REQUEST + 0.15 * LAMBDA_GB_SECOND
_PROBE_RUN: Final = LAMBDA_REQUEST + 1.0 * LAMBDA_GB_SECOND
# Its metric, its alarm and its logs, and what its entries make functions and tables do.
_PROBE_REST: Final = 0.83


class Batches(NamedTuple):
    """What an entry takes: updates of totals, and batches of the materializer."""

    updates: float
    batches: float


_AS_MODELLED: Final = Batches(1.0, 1.0)


def batches_of(
    entries_s: float, counters: int | None, window_s: float, shards: int = SHARDS
) -> Batches:
    """Updates and batches for an entry, of entries that come at chance over the shards.

    A batch begins with its first record and gathers for the batching window. `counters`: over how
    many counters the entries are spread; None: each is of another one.
    """
    busy = shards if counters is None else min(shards, counters)
    records = min(BATCH_RECORDS, 1 + entries_s / busy * window_s)
    if counters is None:
        return Batches(1.0, 1 / records)
    held = counters / busy
    # How many different ones of so many counters are expected among so many records.
    different = held * (1 - float((1 - 1 / held) ** records))
    return Batches(different / records, 1 / records)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is counted, and how.

    Attributes:
        counters: over how many counters events are spread; None: each is of another one.
        batching_s: the stack's BatchingWindowSeconds.
        measured: how many times the updates and the batches of the model a stack was seen to make.
        retire: how merged entries are deleted; None: nothing is compacted.
        average_use: the used share of provisioned capacity, 0 to 1; None: capacity on demand.
        strict_regions: how many regions store these counters; a witness stores none.
        memory_mb: of the materializer. Above 1,769 MB it costs more and is no faster; below, it
            takes longer, and costs the same.
        window_items: how many items of windows a counter's batch touches, of events on time.
        probe: whether the stack has its probe.
    """

    events_per_day: float
    events_per_entry: float = 1.0
    counters: int | None = None
    batching_s: float = 1.0
    measured: Batches = _AS_MODELLED
    reads_per_day: float = 0.0
    regions: int = 1
    retire: Retire | None = None
    average_use: float | None = None
    strict_changes_per_day: float = 0.0
    strict_regions: int = 3
    http_requests_per_day: float = 0.0
    memory_mb: int = WHOLE_PROCESSOR_MB
    window_items: int = 0
    probe: bool = False

    def __post_init__(self) -> None:
        if self.average_use is not None and not 0 < self.average_use <= 1:
            raise BadSetting(f"average use: {self.average_use:g} is not above 0 and at most 1")
        for name, least, most in (
            *((name, 0, _COUNT_MAX) for name in _COUNTS),
            ("events_per_entry", 1, _COUNT_MAX),
            ("batching_s", 0, 300),
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

    @property
    def entries_s(self) -> float:
        return self.events_per_day / self.events_per_entry / _DAY_S

    @property
    def shards(self) -> int:
        """Of the ledger's stream: one for each partition that the entries need, at least four."""
        units_s = self.entries_s * (1 + MERGE_UNITS[self.retire])
        return max(SHARDS, ceil(units_s / PARTITION_UNITS))

    @property
    def batches(self) -> Batches:
        """For an entry: updates of totals, and batches, of which an entry has one at most."""
        model = batches_of(self.entries_s, self.counters, self.batching_s, self.shards)
        return Batches(
            model.updates * self.measured.updates, min(1.0, model.batches * self.measured.batches)
        )

    @property
    def evaluations(self) -> float:
        """Batches of the evaluator for an entry.

        The updates of a batch arrive together; what a shard of the totals gathers in a window is of
        the batches of different shards of the ledger, since those of one are further apart.
        """
        updates, batches = self.batches
        if not self.entries_s:
            return 0.0
        changes = updates * (1 + self.window_items)
        busy = SHARDS if self.counters is None else min(SHARDS, self.counters)
        reached = 1 - float((1 - 1 / busy) ** max(1.0, updates / batches))
        arrivals_s = self.entries_s * batches * reached
        sources = self.shards if self.counters is None else min(self.shards, self.counters / busy)
        gathered = 1 + arrivals_s * (1 - 1 / sources) * self.batching_s
        return max(busy * arrivals_s / gathered / self.entries_s, changes / BATCH_RECORDS)


def as_measured(load: Workload, pace: Pace) -> Workload:
    """The load as a stack was seen to handle it; other settings change what the model says.

    Each batch writes its progress, one unit, and updates a total, unless all of it is quarantined.
    """
    model = load.batches
    batches = max(1 / BATCH_RECORDS, min(pace.updates, pace.total_units - pace.updates))
    totals = max(0.0, pace.total_units - batches)
    return replace(load, measured=Batches(totals / model.updates, batches / model.batches))


def alarm_metrics(template: Mapping[str, Any]) -> int:
    """How many metrics the alarms of a stack with default parameters look at: each is paid for."""
    alarms = [
        one["Properties"].get("Metrics", [{}])
        for one in template["Resources"].values()
        if one["Type"] == "AWS::CloudWatch::Alarm" and one.get("Condition", "IsHome") in _BY_DEFAULT
    ]
    return sum(
        stat.get("Fn::If", ["IsHome"])[0] in _BY_DEFAULT
        for metrics in alarms
        for stat in metrics
        if "Expression" not in stat
    )


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
    entries, regions, use = load.entries_a_month, load.regions, load.average_use
    merged = MERGE_UNITS[load.retire]
    each, days = load.batches, DAYS if load.retire is None else _MERGED_AFTER_DAYS
    stored_gb = entries / DAYS * days * _ENTRY_BYTES * regions / _GIGABYTE
    strict = load.strict_changes_per_day * DAYS * load.strict_regions
    http = load.http_requests_per_day * DAYS
    return [
        _written("entries", entries * regions, use),
        _written("totals", entries * each.updates * regions, use),
        _written("progress of the shards", entries * each.batches * regions, use),
        _written("windows", entries * load.window_items * each.updates * regions, use),
        _written("compaction", entries * merged * regions, use),
        _read("reads of the functions", _functions_read(load) * regions, use),
        _read("reads of totals", load.reads_per_day * DAYS * _READ_UNITS, use),
        *_functions(load),
        BillItem("storage", stored_gb, "GB", stored_gb * STORAGE_GB_MONTH),
        # Their table is on demand, whatever the capacity of the others.
        *([_written("strict over regions", strict, None)] if strict else []),
        *([BillItem("HTTP API", http, "requests", http_dollars(http))] if http else []),
        *_fixed(load),
    ]


def _functions_read(load: Workload) -> float:
    """The progress for each batch, and the number of the rules, once a second and shard at most."""
    evaluations = load.entries_a_month * load.evaluations
    rules = min(evaluations, SHARDS * DAYS * float(_DAY_S))
    return load.entries_a_month * load.batches.batches + rules


def _functions(load: Workload) -> Iterator[BillItem]:
    """The invocations by the streams, and what they log."""
    entries, regions = load.entries_a_month, load.regions
    updates, each = load.batches
    batches, evaluations = entries * each, entries * load.evaluations
    invocations = batches + min(batches, load.shards * DAYS * _WINDOWS_A_DAY)
    busy_ms = batches * _BATCH_MS + entries * RECORD_MS
    busy_ms += entries * updates * (1 + load.window_items) * UPDATE_MS
    gb = max(load.memory_mb, WHOLE_PROCESSOR_MB) / 1_024
    materializer = invocations * LAMBDA_REQUEST + busy_ms / 1_000 * gb * LAMBDA_GB_SECOND
    evaluator = evaluations * (LAMBDA_REQUEST + _EVALUATION_GB_SECONDS * LAMBDA_GB_SECOND)
    logged = invocations * BATCH_LOG_BYTES + entries * ENTRY_LOG_BYTES
    logged_gb = (logged + evaluations * EVALUATION_LOG_BYTES) * regions / _GIGABYTE
    yield BillItem("materializer", invocations * regions, "invocations", materializer * regions)
    yield BillItem("evaluator", evaluations * regions, "invocations", evaluator * regions)
    yield BillItem("logs", logged_gb, "GB", logged_gb * _LOGS_GB)


def _fixed(load: Workload) -> Iterator[BillItem]:
    """What a stack with default parameters costs without entries, at most, in each region."""
    alarms = alarm_metrics(load_template()) * load.regions
    streams = STREAM_METRICS if load.events_per_day else 0
    compaction = COMPACTION_METRICS if load.retire else 0
    metrics = (streams + compaction + RELEASER_METRICS) * load.regions
    reads = 8 * _RUNS * READ_UNITS_MILLION / MILLION
    yield BillItem("alarms", alarms, "metrics", alarms * _ALARM_METRIC)
    yield BillItem("dashboard", load.regions, "dashboards", load.regions * _DASHBOARD)
    yield BillItem("custom metrics", metrics, "metrics", metrics * _CUSTOM_METRIC)
    yield BillItem("releaser of holds", _RUNS, "invocations", _RUNS * _RELEASER_RUN + reads)
    if load.probe:
        yield BillItem("probe", _RUNS, "invocations", _RUNS * _PROBE_RUN + _PROBE_REST)


def dollars(load: Workload) -> float:
    return sum(item.dollars for item in bill(load))


def savings(load: Workload) -> list[Saving]:
    """What other settings would save, the largest first; none that would save nothing."""
    now = dollars(load)
    found = (Saving(setting, now - dollars(other)) for setting, other in _others(load))
    return sorted((one for one in found if one.dollars > 0), key=lambda one: -one.dollars)


def _others(load: Workload) -> Iterator[tuple[str, Workload]]:
    for window_s in (10, 60):
        if load.batching_s < window_s:
            yield (
                f"BatchingWindowSeconds={window_s}: totals and alerts come so much later",
                replace(load, batching_s=window_s),
            )
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
