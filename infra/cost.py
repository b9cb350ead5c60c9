"""What a month costs at list prices, and which setting would save most. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from countledger.compaction.retire import Retire
from countledger.infra.prices import (
    BATCH_GB_SECONDS,
    BATCH_RECORDS,
    BATCH_UNITS,
    BY_DELETES,
    BY_TRANSACTIONS,
    LAMBDA_GB_SECOND,
    LAMBDA_REQUEST,
    MILLION,
    READ_UNITS_MILLION,
    STORAGE_GB_MONTH,
    WRITE_UNITS_MILLION,
)
from countledger.ledger.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Iterator

DAYS: Final = 30
COALESCED: Final = 10
_GB: Final = 10**9
_COUNT_MAX: Final = 10**15
_REGIONS_MAX: Final = 100
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

    Raises:
        BadSetting: a number cannot be.
    """

    events_per_day: float
    events_per_entry: float = 1.0
    total_units: float = BATCH_UNITS / BATCH_RECORDS
    reads_per_day: float = 0.0
    regions: int = 1
    retire: Retire | None = Retire.TRANSACTION

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        for name, least, most in (
            ("events_per_day", 0, _COUNT_MAX),
            ("events_per_entry", 1, _COUNT_MAX),
            ("total_units", 0, _COUNT_MAX),
            ("reads_per_day", 0, _COUNT_MAX),
            ("regions", 1, _REGIONS_MAX),
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
    return [
        _written("entries", entries * regions),
        _written("totals", entries * load.total_units * regions),
        _written("compaction", entries * merged * regions),
        _read("reads of totals", load.reads_per_day * DAYS * _READ_UNITS),
        BillItem(
            "materializer",
            batches,
            "invocations",
            batches * (LAMBDA_REQUEST + BATCH_GB_SECONDS * LAMBDA_GB_SECOND),
        ),
        _stored("storage", entries / DAYS * days * _ENTRY_BYTES * regions / _GB),
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
            f"Buffering(coalesce=True): {COALESCED} events to an entry, where nobody needs each",
            replace(load, events_per_entry=float(COALESCED)),
        )
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


def _written(what: str, units: float) -> BillItem:
    return BillItem(what, units, "write units", units / MILLION * WRITE_UNITS_MILLION)


def _read(what: str, units: float) -> BillItem:
    return BillItem(what, units, "read units", units / MILLION * READ_UNITS_MILLION)


def _stored(what: str, gigabytes: float) -> BillItem:
    return BillItem(what, gigabytes, "GB", gigabytes * STORAGE_GB_MONTH)
