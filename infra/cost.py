"""What a month costs at list prices, and which setting would save most. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from countledger.compaction.report import Retire
from countledger.infra.prices import (
    BATCH_GB_SECONDS,
    BATCH_RECORDS,
    BATCH_UNITS,
    BY_DELETES,
    BY_TRANSACTIONS,
    LAMBDA_GB_SECOND,
    LAMBDA_REQUEST,
    MILLION,
    READ_CAPACITY_HOUR,
    READ_UNITS_MILLION,
    STORAGE_GB_MONTH,
    WHOLE_PROCESSOR_MB,
    WRITE_CAPACITY_HOUR,
    WRITE_UNITS_MILLION,
    http_dollars,
)
from countledger.ledger.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Iterator

DAYS: Final = 30
COALESCED: Final = 10
_GB: Final = 10**9
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
        events_per_day: how many events apps emit.
        events_per_entry: how many of them share one entry; 1 = they are not coalesced.
        total_units: write units for each entry, of totals and of the progress.
        reads_per_day: how many totals are read.
        regions: over how many regions the ledger spans.
        retire: how merged entries are deleted; None: nothing is compacted.
        average_use: the used share of provisioned capacity, 0 to 1; None: capacity on demand.
        strict_changes_per_day: how many changes of strict counters over regions.
        strict_regions: how many regions store these counters; a witness stores none.
        http_requests_per_day: how many requests the HTTP API gets.
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
    http_requests_per_day: float = 0.0
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
