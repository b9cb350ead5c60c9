"""What a million events and a month cost at list prices, and which setting would save most. Pure.

Prices are of us-east-1, on demand, table class Standard, in US dollars, by
https://aws.amazon.com/dynamodb/pricing/on-demand/, https://aws.amazon.com/lambda/pricing/ and
https://aws.amazon.com/kinesis/data-streams/pricing/. A write that is replicated costs as much in
each region as a write.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from countledger.compaction.retire import Retire
from countledger.ledger.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Iterator

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
_SHARD_HOUR: Final = 0.015
_SHARD_BYTES_AN_HOUR: Final = 3_600 * 1_000_000
_PUT_UNITS_MILLION: Final = 0.014
_PUT_UNIT_BYTES: Final = 25_000
# A batch of the materializer as a test has it: 1,000 records of 64 counters cost 65 units.
BATCH_RECORDS: Final = 1_000
BATCH_UNITS: Final = 65
_ITEM_UNITS: Final = 64 / BATCH_RECORDS
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
        way: its name.
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
    """One of our ways.

    Args:
        way: its name.
        entries: how many entries an event takes.
        streamed: whether events come through Kinesis, over shards that are kept full.
    """
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

    Args:
        uniform: entries for each event, coalesced, of counters that are all as likely.
        zipf: the same, Zipf-distributed.
    """
    return [
        Price("an atomic counter (a retry counts twice)", 1.0),
        Price("a marker and a counter in one transaction", 4.0),
        price_of("`record`, `record_many`, buffered", 1.0),
        price_of("through Kinesis", 1.0, streamed=True),
        price_of("buffered, coalescing, uniform", uniform),
        price_of("buffered, coalescing, Zipf", zipf),
    ]


DAYS: Final = 30
COALESCED: Final = 10
_GB: Final = 10**9
_COUNT_MAX: Final = 10**15
_REGIONS_MAX: Final = 100
_COUNTS: Final = ("events_per_day", "total_units", "reads_per_day", "strict_changes_per_day")
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
        events_per_day: how many events apps emit.
        events_per_entry: how many of them share one entry; 1 = they are not coalesced.
        total_units: write units for each entry, of totals and of the progress.
        reads_per_day: how many totals are read.
        regions: over how many regions the ledger spans.
        retire: how merged entries are deleted; None: nothing is compacted.
        average_use: the used share of provisioned capacity, 0 to 1; None: capacity on demand.
        strict_changes_per_day: how many changes of strict counters over regions.
        strict_regions: how many regions store these counters; a witness stores none.
        memory_mb: of the materializer. Above 1,769 MB it costs more and is no faster; below, it
            takes longer, and costs the same.
        window_items: how many items of windows a counter's batch touches, of events on time.

    Raises:
        BadSetting: a number is out of range.
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
    memory_mb: int = WHOLE_PROCESSOR_MB
    window_items: int = 0

    def __post_init__(self) -> None:
        """Refuse a number that is out of range."""
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
        """How many entries are written."""
        return self.events_per_day * DAYS / self.events_per_entry


@dataclass(frozen=True, slots=True)
class BillItem:
    """One position of the bill.

    Attributes:
        what: its name.
        amount: how much of it in a month.
        unit: of what.
        dollars: what that costs.
    """

    what: str
    amount: float
    unit: str
    dollars: float


@dataclass(frozen=True, slots=True)
class Saving:
    """What another setting would save in a month.

    Attributes:
        setting: what to change, and what that means.
        dollars: what it saves.
    """

    setting: str
    dollars: float


def bill(load: Workload) -> list[BillItem]:
    """The month's positions. Archive, Kinesis, point-in-time recovery and transfer are left out."""
    entries, regions = load.entries_a_month, load.regions
    merged = _UNITS[load.retire] if load.retire else 0.0
    batches = entries / BATCH_RECORDS * regions
    days = DAYS if load.retire is None else _MERGED_AFTER_DAYS
    stored_gb = entries / DAYS * days * _ENTRY_BYTES * regions / _GB
    use = load.average_use
    memory = max(1.0, load.memory_mb / WHOLE_PROCESSOR_MB)
    invocation = LAMBDA_REQUEST + BATCH_GB_SECONDS * memory * LAMBDA_GB_SECOND
    strict = load.strict_changes_per_day * DAYS * load.strict_regions
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
    ]


def dollars(load: Workload) -> float:
    """The sum of the month."""
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
