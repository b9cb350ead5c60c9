"""A schedule: when and how the counters of a namespace are compacted. Values, without a service."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypedDict

from countledger.compaction import trigger
from countledger.compaction.archive import ArchiveLocation
from countledger.compaction.report import Retire
from countledger.ledger import keys
from countledger.ledger.attributes import Item, check_format, optional, require
from countledger.ledger.clock import show_duration
from countledger.ledger.errors import (
    BadSetting,
    CorruptItem,
    NoSuchSchedule,
    ScheduleExists,
    Unclear,
    WrongKind,
    WrongRegion,
    shown,
)
from countledger.ledger.limits import MIN_ENTRIES_DEFAULT, MIN_ENTRIES_MAX, MIN_ENTRIES_MIN
from countledger.ledger.namespace import Kind
from countledger.ledger.operations import Absent, AnyOf, Compare, Put, unchanged
from countledger.ledger.tombstones import present, removed_id, was_removed

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.compaction.lease import Epoch
    from countledger.compaction.plan import AgeLimit
    from countledger.ledger.namespace import Namespace
    from countledger.ledger.operations import Condition


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When and how the counters of a namespace are compacted.

    Attributes:
        namespace: whose counters.
        expression: when: `rate(...)` or `cron(...)`, in UTC.
        region: where it runs, the home region.
        min_entries: from how many uncompacted entries on a counter is worth a run.
        min_age_ms: the minimum age of an entry; None: the limit of the namespace.
        retire: how merged entries are deleted.
        archive: where they are kept before that (`s3://bucket/prefix`); None: nowhere.
        revision: the id of the write that stored it; None: it was not read. Not compared.

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
    revision: str | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Validate every value."""
        keys.check_namespace(self.namespace)
        # Canonical, so that two expressions of one meaning are equal.
        object.__setattr__(self, "expression", trigger.check_expression(self.expression))
        if not MIN_ENTRIES_MIN <= self.min_entries <= MIN_ENTRIES_MAX:
            raise BadSetting(
                f"a minimum of {shown(self.min_entries)} entries is not between {MIN_ENTRIES_MIN} "
                f"and {MIN_ENTRIES_MAX}"
            )
        if self.min_age_ms is not None and self.min_age_ms <= 0:
            raise BadSetting(f"a minimum age of {show_duration(self.min_age_ms)} is not above zero")
        if self.retire not in list(Retire):
            raise BadSetting(f"retire {self.retire!r} is not one of {', '.join(Retire)}")
        if self.archive is not None:
            ArchiveLocation.parse(self.archive)

    def describe(self) -> str:
        """The schedule in a few words, for a message."""
        age = "" if self.min_age_ms is None else f", min-age {show_duration(self.min_age_ms)}"
        archive = "" if self.archive is None else f", archive {self.archive}"
        return (
            f"{self.expression}, min-entries {self.min_entries}{age}, retire {self.retire}{archive}"
        )


class ScheduleSpec(TypedDict, total=False):
    """What a user sets of a schedule; a missing value has its default, or stays.

    Attributes:
        every_ms: how often it runs, in whole minutes; or
        cron: when it runs: six fields, in UTC.
        min_entries: from how many uncompacted entries on a counter is worth a run.
        min_age_ms: the minimum age of an entry; None: the limit of the namespace.
        retire: how merged entries are deleted.
        archive: where they are kept before that (`s3://bucket/prefix`); None: nowhere.
    """

    every_ms: int
    cron: str
    min_entries: int
    min_age_ms: int | None
    retire: Retire
    archive: str | None


def new_schedule(namespace: str, region: str, spec: ScheduleSpec) -> Schedule:
    """A new schedule; `spec` must say when it runs.

    Raises:
        BadSetting: a value breaks its rule, or neither `every_ms` nor `cron` is given, or both.
    """
    if "every_ms" not in spec and "cron" not in spec:
        raise BadSetting(
            f"the schedule of namespace {namespace!r} needs an interval: every or cron"
        )
    default = Schedule(namespace=namespace, expression="rate(1 day)", region=region)
    return changed_schedule(default, spec)


def changed_schedule(schedule: Schedule, spec: ScheduleSpec) -> Schedule:
    """The schedule with the values of `spec`.

    Raises:
        BadSetting: a value breaks its rule, or two exclude each other.
    """
    changes: dict[str, Any] = {**spec}
    every_ms, cron = changes.pop("every_ms", None), changes.pop("cron", None)
    if every_ms is not None and cron is not None:
        raise BadSetting(
            "a schedule runs by an interval or by the calendar: not both every and cron"
        )
    if every_ms is not None:
        changes["expression"] = trigger.rate(every_ms)
    if cron is not None:
        changes["expression"] = trigger.cron(cron)
    return replace(schedule, **changes)


def encode_schedule(
    schedule: Schedule, age_ms: int, revision: str, unswept_since_ms: int | None = None
) -> Item:
    """The schedule's item in `counters`.

    Args:
        schedule: the schedule.
        age_ms: how old an entry must be in total: the materializer, which knows no horizon, sets
            the due times by it.
        revision: the id of this write, which no other schedule of the namespace ever has.
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
            revision=optional(item, "revision", str),
        )
    except ValueError as error:
        raise CorruptItem(f"schedule of namespace {namespace!r}: {error}", item) from error


def schedule_in(item: Item | None) -> Schedule | None:
    """The schedule that was read; None: there was no item, or the tombstone of a deleted one.

    Raises:
        CorruptItem, NewerFormat: as `decode_schedule`.
    """
    found = present(item)
    return None if found is None else decode_schedule(found)


def revision_of(item: Item | None) -> str | None:
    """The revision of the stored schedule, or of the deleted schedule that this tombstone replaces.

    None: no item, or an item without a revision.

    Raises:
        CorruptItem: the revision is no text.
    """
    return None if item is None else removed_id(item) or optional(item, "revision", str)


def is_still(found: Item | None) -> Condition:
    """Nothing has changed since this was read: a schedule, a tombstone, or nothing.

    A write that is late meets another revision, or the tombstone of another one. DynamoDB may
    delete a tombstone once no request from before it can arrive.
    """
    if found is None:
        return Absent("part")
    if (removed := removed_id(found)) is not None:
        return AnyOf(Absent("part"), was_removed(removed))
    # None only if somebody edited the item.
    return unchanged("revision", found.get("revision"))


def taken_over(table: str, namespace: str, epoch: Epoch) -> Put:
    """Shows by which promotion a schedule came, also once it was deleted; each takes it once."""
    item = {**keys.taken_over_key(namespace), "epoch": epoch.number}
    return Put(table, item, AnyOf(Absent("epoch"), Compare("epoch", "<", epoch.number)))


def refuse_elsewhere(region: str, home_region: str) -> None:
    """Allow changes of schedules in the home region only.

    Raises:
        WrongRegion: this is another region.
    """
    if region != home_region:
        raise WrongRegion(
            f"this is {region}; counters are compacted in the home region {home_region} only: "
            "change schedules there"
        )


def refuse_region_of(schedule: Schedule, home_region: str) -> None:
    """A table restored in another region contains schedules of the region before.

    Raises:
        WrongRegion: the schedule is not for the home region.
    """
    if schedule.region != home_region:
        raise WrongRegion(
            f"the schedule of namespace {schedule.namespace!r} is for region {schedule.region}, "
            f"and this stack's home is {home_region}: delete it, and create it again"
        )


def age_ms_in(
    namespace: Namespace, schedule: Schedule, limit: Callable[[Namespace], AgeLimit]
) -> int:
    """How old an entry of a namespace must be under a schedule.

    Raises:
        BadSetting: its minimum age is below the limit.
        WrongKind: the namespace cannot be compacted.
    """
    if namespace.kind is not Kind.LEDGER:
        raise WrongKind(
            f"namespace {namespace.name!r} is of kind {namespace.kind}; only counters of kind "
            f"{Kind.LEDGER} have entries to compact"
        )
    return limit(namespace).with_min_age(schedule.min_age_ms).age_ms


def no_schedule(namespace: str) -> NoSuchSchedule:
    """The error of a call for the schedule of a namespace that has none."""
    return NoSuchSchedule(
        f"namespace {namespace!r} has no schedule: `countledger schedule create {namespace}` makes "
        "one"
    )


def exists_already(schedule: Schedule) -> ScheduleExists:
    """The error of a creation that finds another schedule."""
    return ScheduleExists(
        f"namespace {schedule.namespace!r} has a schedule ({schedule.describe()}): "
        f"`countledger schedule set {schedule.namespace}` changes it"
    )


def changed_meanwhile(namespace: str) -> ScheduleExists:
    """The error of a call that finds another schedule, or another revision, than it had read."""
    return ScheduleExists(
        f"the schedule of namespace {namespace!r} was changed by another process just now: read "
        "it, and try again"
    )


def changed_since(namespace: str) -> Unclear:
    """The error when an attempt got no answer and another call has changed the schedule since."""
    return Unclear(
        f"the schedule of namespace {namespace!r} was changed by another call, after an attempt of "
        "this one that got no answer: read it, and call again"
    )
