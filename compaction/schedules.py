"""The schedules of a stack: users create, change, read and delete them.

A schedule has two parts: its item in `counters`, which says how to compact, and its trigger at
EventBridge Scheduler, which says when. Item first, then trigger: a crash in between leaves a
schedule that does not run yet, or a trigger that finds nothing to do, and repeating the call
completes it. A write names the revision that it read, and so never meets one created since.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Unpack

from countledger.compaction.schedule import (
    Schedule,
    ScheduleSpec,
    age_ms_in,
    changed_meanwhile,
    changed_schedule,
    decode_schedule,
    encode_schedule,
    exists_already,
    is_still,
    new_schedule,
    no_schedule,
    refuse_elsewhere,
    refuse_region_of,
    taken_over,
    unswept_since_ms,
)
from countledger.ledger import keys
from countledger.ledger.attributes import Item, decoded
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.errors import ConditionFailed, ServiceFailed, TransactionCancelled
from countledger.ledger.expressions import Compare
from countledger.ledger.ids import new_id
from countledger.ledger.operations import Delete, Put, Query
from countledger.ledger.performer import wrote
from countledger.ledger.settings import SettingChange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from countledger.compaction.lease import Epoch
    from countledger.compaction.plan import AgeLimit
    from countledger.compaction.trigger import Triggers
    from countledger.ledger.attributes import OnCorrupt
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.namespace import Namespace, Namespaces

# Only another process that changes the same schedule at the same time defeats an attempt.
_ATTEMPTS: Final = 10


@dataclass(frozen=True, slots=True)
class Schedules:
    """The schedules of a stack.

    Attributes:
        dynamo: a DynamoDB client; every write here carries a condition.
        table: the table `counters`.
        triggers: the stack's schedules at EventBridge Scheduler.
        namespaces: kind and horizon of each namespace.
        limit: how old an entry of a namespace must be.
        region: where this process runs.
        home_region: where counters are compacted.
        clock: the time.
        new_id: makes the id of a revision.
    """

    dynamo: DynamoClient
    table: str
    triggers: Triggers
    namespaces: Namespaces
    limit: Callable[[Namespace], AgeLimit]
    region: str
    home_region: str
    clock: Clock = field(default_factory=SystemClock)
    new_id: Callable[[int], str] = new_id

    def create(self, namespace: str, **spec: Unpack[ScheduleSpec]) -> Schedule:
        """Create the schedule of a namespace; creating an equal one again changes nothing.

        One write unit, and two calls of EventBridge Scheduler.

        Args:
            namespace: whose counters to compact; it must exist, and be of kind `ledger`.
            **spec: `every_ms` or `cron`, and every value other than the default.

        Raises:
            BadSetting: a value breaks its rule; a minimum age below the limit with the arithmetic.
            NamespaceUnknown, WrongKind: the namespace cannot be compacted.
            WrongRegion: this is not the home region.
            ScheduleExists: it has another schedule.
        """
        wanted = self._checked(new_schedule(namespace, self.home_region, spec))
        found = self._find(namespace)
        if found is None:
            return self._write(wanted, None)
        if decode_schedule(found) != wanted:
            raise exists_already(decode_schedule(found))
        self._trigger(namespace, wanted)
        return wanted

    def set(self, namespace: str, **spec: Unpack[ScheduleSpec]) -> Schedule:
        """Change the schedule of a namespace; values that are not given stay. As `create`.

        Raises:
            As `create`, and NoSuchSchedule if it has none.
        """
        found = self._existing(namespace)
        wanted = self._checked(changed_schedule(decode_schedule(found), spec))
        return self._write(wanted, found)

    def apply(self, specs: Mapping[str, ScheduleSpec]) -> Iterator[tuple[Schedule, SettingChange]]:
        """Make these schedules equal to the given ones; all other schedules stay.

        All are checked before the first is written, those that are stored as well. Applying the
        same again changes nothing.

        Raises:
            As `create`, for the first that breaks a rule.
            CorruptItem: a stored one cannot be read: delete it, and apply again.
        """
        wanted = [
            self._checked(new_schedule(namespace, self.home_region, spec))
            for namespace, spec in specs.items()
        ]
        stored = [self._find(schedule.namespace) for schedule in wanted]
        before = [None if found is None else decode_schedule(found) for found in stored]
        for schedule, found, there in zip(wanted, stored, before, strict=True):
            if there == schedule:
                self._trigger(schedule.namespace, schedule)
                yield schedule, SettingChange.UNCHANGED
            else:
                self._write(schedule, found)
                yield schedule, SettingChange.CREATED if found is None else SettingChange.CHANGED

    def take_over(self, namespace: str, item: Item, epoch: Epoch) -> Schedule | None:
        """Make a schedule of the home before one of this home, and sweep its counters.

        This region's due index lacks them. A promotion takes a schedule over once: it stays as it
        is here, also if it was changed or deleted since. Four write units, three read units, and
        a call or two of EventBridge Scheduler.

        Args:
            namespace: whose it is.
            item: the schedule, as the home before stores it.
            epoch: of the promotion.

        Returns:
            The schedule; None if it was taken over before and deleted since.

        Raises: as `create`, and CorruptItem.
        """
        if not self._copy(item, self._find(namespace), taken_over(self.table, namespace, epoch)):
            raise changed_meanwhile(namespace)
        self._trigger(namespace, taken := self.find(namespace))
        return taken

    def create_once(self, namespace: str, item: Item, mark: Put) -> None:
        """Create a schedule in one transaction with a mark, which shows for ever that it was.

        If the mark or a schedule exists, what is stored stays, also nothing. Four write units, two
        read units, a call or two of EventBridge Scheduler; if a schedule exists a write unit more.

        Args:
            namespace: whose it is.
            item: the schedule, as another table stores it.
            mark: puts an item, unless it exists.

        Raises: as `create`, and CorruptItem.
        """
        if not self._copy(item, None, mark):
            wrote(self.dynamo, mark)  # else a late request creates it, once this one is deleted
        self._trigger(namespace, self.find(namespace))

    def get(self, namespace: str) -> Schedule:
        """The schedule of a namespace. One read unit.

        Raises:
            NoSuchSchedule: it has none.
            CorruptItem: it cannot be read.
        """
        return decode_schedule(self._existing(namespace))

    def find(self, namespace: str) -> Schedule | None:
        """The schedule of a namespace, or None. One read unit.

        Raises:
            CorruptItem: it cannot be read.
        """
        found = self._find(namespace)
        return None if found is None else decode_schedule(found)

    def list(self, *, on_corrupt: OnCorrupt | None = None) -> list[Schedule]:
        """All schedules, by namespace: half a read unit for each namespace of the stack.

        Args:
            on_corrupt: called with the error of each schedule that cannot be read; it is left out.

        Raises:
            CorruptItem: one cannot be read, and `on_corrupt` is not given.
        """
        # By the keys alone: the settings of a namespace need not be readable for this.
        listed = Compare("directory", "=", keys.DIRECTORY)
        read = Query(self.namespaces.table, listed, index=keys.NAMESPACES_INDEX)
        namespaces = (item["counter"] for page in self.dynamo.pages(read) for item in page)
        wanted = [{"counter": name, "part": keys.SCHEDULE} for name in namespaces]
        found = self.dynamo.get_many(self.table, wanted)
        return sorted(decoded(found, decode_schedule, on_corrupt), key=lambda one: one.namespace)

    def state(self, namespace: str) -> str:
        """Whether a schedule runs: `enabled`, `disabled`, or `missing` at EventBridge Scheduler."""
        return self.triggers.state(namespace)

    def delete(self, namespace: str) -> bool:
        """Delete the schedule of a namespace: its counters are no longer compacted.

        Two read units, one write unit, and a call of EventBridge Scheduler.

        Returns:
            True if it existed. Deleting none is not an error.

        Raises:
            WrongRegion: this is not the home region.
            ScheduleExists: it was changed, or created again, after this call had read it.
        """
        refuse_elsewhere(self.region, self.home_region)
        found = self._find(namespace)
        delete = Delete(self.table, keys.schedule_key(namespace), is_still(found))
        # False and none there: by an attempt that got no answer, or by another process.
        if found and not wrote(self.dynamo, delete) and self._find(namespace):
            raise changed_meanwhile(namespace)
        self._trigger(namespace, None)
        return found is not None

    def _checked(self, schedule: Schedule) -> Schedule:
        """The schedule, if it can work in this stack."""
        refuse_elsewhere(self.region, self.home_region)
        refuse_region_of(schedule, self.home_region)
        self._age_ms(schedule)
        return schedule

    def _age_ms(self, schedule: Schedule) -> int:
        return age_ms_in(self.namespaces.get(schedule.namespace), schedule, self.limit)

    def _write(self, wanted: Schedule, found: Item | None) -> Schedule:
        """Write the item, then its trigger; return it."""
        try:
            self.dynamo.put(self._put(wanted, found))
        except ConditionFailed as failed:
            # The wanted one itself: an attempt without an answer wrote it, which the SDK repeated.
            if failed.item is None or decode_schedule(failed.item) != wanted:
                raise changed_meanwhile(wanted.namespace) from failed
        self._trigger(wanted.namespace, wanted)
        return wanted

    def _put(self, wanted: Schedule, found: Item | None, *, sweep: bool = False) -> Put:
        since_ms = None if found is None else unswept_since_ms(found)
        if found is None or sweep or decode_schedule(found).min_entries > wanted.min_entries:
            since_ms = self.clock.now_ms()
        age_ms, revision = self._age_ms(wanted), self.new_id(self.clock.now_ms())
        item = encode_schedule(wanted, age_ms, revision, since_ms)
        return Put(self.table, item, is_still(found))

    def _copy(self, item: Item, found: Item | None, mark: Put) -> bool:
        """Put a schedule of another table and a mark, unless that is there. False: not as found."""
        wanted = self._checked(replace(decode_schedule(item), region=self.home_region))
        put = self._put(wanted, found, sweep=True)
        try:
            self.dynamo.transact((put, mark), self.new_id(self.clock.now_ms()))
        except TransactionCancelled as cancelled:
            if not cancelled.condition_failed:
                raise
            return cancelled.reasons[1].condition_failed
        return True

    def _trigger(self, namespace: str, written: Schedule | None) -> None:
        """Make the trigger follow the item, even if another process changes that meanwhile."""
        for _ in range(_ATTEMPTS):
            if written is None:
                self.triggers.delete(namespace)
            else:
                self.triggers.put(namespace, written.expression)
            stored = decode_schedule(found) if (found := self._find(namespace)) else None
            if (stored and stored.expression) == (written and written.expression):
                return
            written = stored
        raise ServiceFailed(f"the schedule of namespace {namespace!r} keeps changing; try again")

    def _existing(self, namespace: str) -> Item:
        found = self._find(namespace)
        if found is None:
            raise no_schedule(namespace)
        return found

    def _find(self, namespace: str) -> Item | None:
        namespace = keys.check_namespace(namespace)
        key = keys.schedule_key(namespace)
        return self.dynamo.get(self.table, key, consistent=True)
