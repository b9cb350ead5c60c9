"""A schedule: when and how the counters of a namespace are compacted. A value, valid at birth."""

from __future__ import annotations

from dataclasses import dataclass

from countledger.compaction.expression import check_expression
from countledger.compaction.retire import Retire
from countledger.compaction.s3_archive import ArchiveLocation
from countledger.ledger import keys
from countledger.ledger.attributes import Item, check_format, optional, require
from countledger.ledger.clock import show_duration
from countledger.ledger.errors import BadSetting, CorruptItem
from countledger.ledger.limits import MIN_ENTRIES_DEFAULT, MIN_ENTRIES_MAX, MIN_ENTRIES_MIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When and how the counters of a namespace are compacted.

    Attributes:
        namespace: whose counters.
        expression: when: `rate(...)` or `cron(...)`, in UTC.
        region: where it runs, the home region.
        min_entries: from how many entries not yet compacted on a counter is worth a run.
        min_age_ms: how old an entry has to be at least; None: no older than it must be.
        retire: how merged entries are deleted.
        archive: where they are kept before that (`s3://bucket/prefix`); None: nowhere.

    Raises:
        BadSetting: naming the value and the rule that it breaks.
    """

    namespace: str
    expression: str
    region: str
    min_entries: int = MIN_ENTRIES_DEFAULT
    min_age_ms: int | None = None
    retire: Retire = Retire.TRANSACTION
    archive: str | None = None

    def __post_init__(self) -> None:
        """Refuse what no schedule can be."""
        keys.check_namespace(self.namespace)
        # In its one spelling, so that two that mean the same are equal.
        object.__setattr__(self, "expression", check_expression(self.expression))
        if not MIN_ENTRIES_MIN <= self.min_entries <= MIN_ENTRIES_MAX:
            raise BadSetting(
                f"{self.min_entries} is no least number of entries: it lies between "
                f"{MIN_ENTRIES_MIN} and {MIN_ENTRIES_MAX}"
            )
        if self.min_age_ms is not None and self.min_age_ms <= 0:
            raise BadSetting(f"a minimum age of {show_duration(self.min_age_ms)} is not above zero")
        if self.retire not in list(Retire):
            raise BadSetting(f"retire {self.retire!r} is none of {', '.join(Retire)}")
        if self.archive is not None:
            ArchiveLocation.parse(self.archive)

    def describe(self) -> str:
        """It in a few words, for a message."""
        age = "" if self.min_age_ms is None else f", min-age {show_duration(self.min_age_ms)}"
        archive = "" if self.archive is None else f", archive {self.archive}"
        return (
            f"{self.expression}, min-entries {self.min_entries}{age}, retire {self.retire}{archive}"
        )


def encode_schedule(
    schedule: Schedule, age_ms: int, revision: int, unswept_since_ms: int | None = None
) -> Item:
    """Its item in `counters`.

    Args:
        schedule: the schedule.
        age_ms: how old an entry has to be, all told: the materializer, which knows no horizon, sets
            the due times by it.
        revision: how often it was written.
        unswept_since_ms: since when counters may be missing in the due index; None: none is.
    """
    return {
        **keys.schedule_key(schedule.namespace),
        "expression": schedule.expression,
        "region": schedule.region,
        "min_entries": schedule.min_entries,
        "min_age_ms": schedule.min_age_ms,
        "age_ms": age_ms,
        "retire": str(schedule.retire),
        "archive": schedule.archive,
        "revision": revision,
        "unswept_since": unswept_since_ms,
    }


def unswept_since_ms(item: Item) -> int | None:
    """Since when counters of a schedule may be missing in the due index; None: none is.

    Raises:
        CorruptItem: the attribute is of another type.
    """
    return optional(item, "unswept_since", int)


def decode_schedule(item: Item) -> Schedule:
    """The schedule in an item of `counters`.

    Raises:
        CorruptItem: an attribute is absent, of another type, or breaks its rule.
        NewerFormat: a later release wrote it.
    """
    check_format(item)
    namespace = require(item, "counter", str).removeprefix(keys.NAMESPACE_PREFIX)
    try:
        return Schedule(
            namespace=namespace,
            expression=require(item, "expression", str),
            region=require(item, "region", str),
            min_entries=require(item, "min_entries", int),
            min_age_ms=optional(item, "min_age_ms", int),
            retire=Retire(require(item, "retire", str)),
            archive=optional(item, "archive", str),
        )
    except ValueError as error:
        raise CorruptItem(f"schedule of namespace {namespace!r}: {error}", item) from error
