"""The schedules of a stack: users create, change, read and delete them.

A schedule has two parts: its item in `counters`, which says how to compact, and its trigger at
EventBridge Scheduler, which says when. The item decides: it is a record (`ledger/records.py`). The
service of triggers has no conditions. So each revision has a trigger of its own, which is created
after the item, never changed, and does nothing once the item has another revision.

A crash between item and trigger leaves a new schedule that does not run yet, or a changed one that
runs at its times before; repeating the call completes it. A trigger that is left over is deleted by
the dispatcher at its next tick.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Unpack

from countledger.compaction.plan import limits_by
from countledger.compaction.schedule import (
    MISSING,
    Schedule,
    ScheduleSpec,
    Triggers,
    age_ms_in,
    changed_schedule,
    decode_schedule,
    encode_schedule,
    exists_already,
    new_schedule,
    no_schedule,
    refuse_region_of,
    revision_of,
    schedule_in,
    taken_over,
    unswept_since_ms,
)
from countledger.ledger import keys
from countledger.ledger.attempts import wrote
from countledger.ledger.attributes import Item, decoded
from countledger.ledger.errors import (
    CountledgerError,
    Unclear,
)
from countledger.ledger.namespace import Namespaces
from countledger.ledger.operations import Compare, Put, Query
from countledger.ledger.records import NotRead, Records, Replacement
from countledger.ledger.settings import SettingChange
from countledger.ledger.tombstones import present

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from countledger.compaction.lease import Epoch
    from countledger.ledger.attributes import OnCorrupt
    from countledger.ledger.connection import Connection
    from countledger.ledger.records import Decide, RecordWritten, Seen


_CHANGED: Final = "schedules are changed"


class Schedules:
    """The schedules of a stack."""

    def __init__(self, connection: Connection) -> None:
        """In a process; no call is made if the settings name the stack's resources.

        Raises:
            WrongRegion: the stack here has no schedules: they are in the home region.
        """
        self.connection = connection
        self.dynamo, self.table = connection.retrying, connection.counters
        self.namespaces = Namespaces(connection)
        self.triggers = Triggers(connection)
        self.limit = limits_by(connection)

    def create(self, namespace: str, **spec: Unpack[ScheduleSpec]) -> Schedule:
        """Create the schedule of a namespace; creating an equal one again changes nothing.

        One write unit, two read units, and a call of EventBridge Scheduler; if it was deleted
        less than a quarter of an hour ago, two calls.

        Args:
            namespace: whose counters to compact; it must exist, and be of kind `ledger`.
            **spec: `every_ms` or `cron`, and every value other than the default.

        Raises:
            BadSetting: a value breaks its rule; a minimum age below the limit with the arithmetic.
            NamespaceUnknown, WrongKind: the namespace cannot be compacted.
            WrongRegion: this is not the home region.
            ScheduleExists: it has another schedule.
            Unclear: no clear answer came, or another process changed it after an attempt of this
                call that got no answer.
        """
        wanted = self._checked(new_schedule(namespace, self.connection.home_region, spec))

        def decide(there: Item | None) -> Replacement | None:
            stored = schedule_in(there)
            if stored is None:
                return self._replacement(wanted, there)
            if stored != wanted:
                raise exists_already(stored)
            return None

        return self._started(namespace, self._write(namespace, decide))

    def set(self, namespace: str, **spec: Unpack[ScheduleSpec]) -> Schedule:
        """Change the schedule of a namespace; values that are not given stay.

        One write unit, two read units, and two calls of EventBridge Scheduler.

        Raises:
            As `create`, and NoSuchSchedule if it has none.
        """

        def decide(there: Item | None) -> Replacement:
            if there is None:
                raise no_schedule(namespace)
            wanted = self._checked(changed_schedule(decode_schedule(there), spec))
            return self._replacement(wanted, there)

        return self._started(namespace, self._write(namespace, decide))

    def apply(self, specs: Mapping[str, ScheduleSpec]) -> Iterator[tuple[Schedule, SettingChange]]:
        """Make these schedules equal to the given ones; all other schedules stay.

        All are checked before the first is written, those that are stored as well. Applying the
        same again changes nothing.

        Raises:
            As `create`, for the first that breaks a rule.
            CorruptItem: a stored one cannot be read: delete it, and apply again.
        """
        wanted = [
            self._checked(new_schedule(namespace, self.connection.home_region, spec))
            for namespace, spec in specs.items()
        ]
        stored = [self._read(schedule.namespace) for schedule in wanted]
        for found in stored:
            schedule_in(found)  # whether it can be read
        for schedule, found in zip(wanted, stored, strict=True):

            def decide(there: Item | None, wanted: Schedule = schedule) -> Replacement | None:
                return None if schedule_in(there) == wanted else self._replacement(wanted, there)

            written = self._write(schedule.namespace, decide, seen=found)
            change = SettingChange.UNCHANGED
            if written.changed:
                created = present(written.before) is None
                change = SettingChange.CREATED if created else SettingChange.CHANGED
            yield self._started(schedule.namespace, written), change

    def take_over(self, namespace: str, item: Item, epoch: Epoch) -> Schedule | None:
        """Make a schedule of the home before one of this home, and sweep its counters.

        This region's due index lacks them. A promotion takes a schedule over once: it stays as it
        is here, also if it was changed or deleted since. Four write units, three read units, and up
        to two calls of EventBridge Scheduler.

        Args:
            namespace: whose it is.
            item: the schedule, as the home before stores it.
            epoch: of the promotion.

        Returns:
            The schedule; None if it was taken over before and deleted since.

        Raises: as `create`, and CorruptItem.
        """
        mark, copy = taken_over(self.table, namespace, epoch), self._copy_of(item)
        written = self._write(
            namespace,
            lambda there: self._replacement(copy, there, sweep=True)._replace(beside=(mark,)),
        )
        return self._follow(namespace, written.before)

    def create_once(self, namespace: str, item: Item, mark: Put) -> None:
        """Create a schedule in one transaction with a mark, which shows for ever that it was.

        If the mark or a schedule exists, what is stored stays, also nothing. Four write units, two
        read units, a call of EventBridge Scheduler; if a schedule exists a write unit more.

        Args:
            namespace: whose it is.
            item: the schedule, as another table stores it.
            mark: puts an item, unless it exists.

        Raises: as `create`, and CorruptItem.
        """
        copy = self._copy_of(item)

        def decide(there: Item | None) -> Replacement | None:
            if there is not None:
                return None
            return self._replacement(copy, there, sweep=True)._replace(beside=(mark,))

        written = self._write(namespace, decide)
        if not (written.changed or written.refused):
            wrote(self.dynamo, mark)  # else a late request creates it, once this one is deleted
        self._follow(namespace, written.before)

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
        return schedule_in(self._read(namespace))

    def list(self, *, on_corrupt: OnCorrupt | None = None) -> list[Schedule]:
        """All schedules, by namespace: half a read unit for each namespace of the stack.

        Args:
            on_corrupt: called with the error of each schedule that cannot be read; it is left out.

        Raises:
            CorruptItem: one cannot be read, and `on_corrupt` is not given.
        """
        # By the keys alone: the settings of a namespace need not be readable for this.
        listed = Compare("directory", "=", keys.DIRECTORY)
        read = Query(self.namespaces.connection.ledger, listed, index=keys.NAMESPACES_INDEX)
        namespaces = (item["counter"] for page in self.dynamo.pages(read) for item in page)
        wanted = [{"counter": name, "part": keys.SCHEDULE} for name in namespaces]
        found = filter(present, self.dynamo.get_many(self.table, wanted))
        return sorted(decoded(found, decode_schedule, on_corrupt), key=lambda one: one.namespace)

    def state(self, schedule: Schedule | str) -> str:
        """Whether a schedule runs: `enabled`, `disabled`, or `missing` at EventBridge Scheduler.

        A call of EventBridge Scheduler. One read unit and another call if the trigger of the given
        schedule is missing, because the schedule may have been changed since it was read.

        Args:
            schedule: as it was read; or its namespace, for one read unit.
        """
        if isinstance(schedule, str):
            return self._state_of(schedule, revision_of(present(self._read(schedule))))
        namespace, revision = schedule.namespace, schedule.revision
        state = self._state_of(namespace, revision)
        if state != MISSING:
            return state
        now = revision_of(present(self._read(namespace)))
        return state if now == revision else self._state_of(namespace, now)

    def delete(self, namespace: str) -> bool:
        """Delete the schedule of a namespace: its counters are no longer compacted.

        One read unit, one write unit, and a call of EventBridge Scheduler.

        Returns:
            True if this call deleted it. That there is none is not an error.

        Raises:
            WrongRegion: this is not the home region.
            Unclear: no clear answer came, or another process changed it after an attempt of this
                call that got no answer.
        """
        self.connection.refuse_elsewhere(_CHANGED)
        written = self._write(namespace, lambda there: Replacement(None) if there else None)
        revision = revision_of(written.before)
        if revision is not None:
            with _triggering(namespace):
                self.triggers.delete(namespace, revision)
        return written.changed

    def _state_of(self, namespace: str, revision: str | None) -> str:
        return MISSING if revision is None else self.triggers.state(namespace, revision)

    def _checked(self, schedule: Schedule) -> Schedule:
        self.connection.refuse_elsewhere(_CHANGED)
        refuse_region_of(schedule, self.connection.home_region)
        self._age_ms(schedule)
        return schedule

    def _age_ms(self, schedule: Schedule) -> int:
        return age_ms_in(self.namespaces.get(schedule.namespace), schedule, self.limit)

    def _write(
        self, namespace: str, decide: Decide, *, seen: Seen = NotRead.READ_IT
    ) -> RecordWritten:
        """Write the item that is decided, and nothing of its trigger."""
        namespace = keys.check_namespace(namespace)
        records = Records(self.connection, self.table, "schedule of namespace")
        key = keys.schedule_key(namespace)
        return self.connection.run(records.write(namespace, key, decide, seen=seen))

    def _started(self, namespace: str, written: RecordWritten) -> Schedule:
        """The schedule that was written or left, once its trigger exists."""
        item: Item = written.item or {}
        self._start(namespace, item, revision_of(written.before) if written.changed else None)
        return decode_schedule(item)

    def _replacement(
        self, wanted: Schedule, there: Item | None, *, sweep: bool = False
    ) -> Replacement:
        since_ms = None if there is None else unswept_since_ms(there)
        if there is None or sweep or decode_schedule(there).min_entries > wanted.min_entries:
            since_ms = self.connection.clock.now_ms()
        return Replacement(encode_schedule(wanted, self._age_ms(wanted), since_ms))

    def _copy_of(self, item: Item) -> Schedule:
        """The schedule of another table, as it is of this home."""
        return self._checked(replace(decode_schedule(item), region=self.connection.home_region))

    def _start(self, namespace: str, item: Item, replaced: str | None = None) -> None:
        """Create the trigger of a stored schedule, then delete that of the revision before.

        Another call may have changed the schedule since, and may have failed before it created a
        trigger: then do the same for that revision. If another call has deleted the schedule,
        delete the trigger that this call created.
        """
        revision, found = revision_of(item), present(item)
        with _triggering(namespace):
            while found is not None and revision is not None:
                self.triggers.put(namespace, revision, decode_schedule(found).expression)
                if replaced is not None:
                    self.triggers.delete(namespace, replaced)
                found = self._stored_now(namespace, revision)
                replaced, revision = revision, revision_of(found)
                if revision == replaced:
                    return

    def _stored_now(self, namespace: str, revision: str) -> Item | None:
        """The schedule that is stored now; None: it is gone, and its trigger is deleted."""
        found = present(self._read(namespace))
        if found is None:
            self.triggers.delete(namespace, revision)
        return found

    def _follow(self, namespace: str, before: Item | None) -> Schedule | None:
        """Start the schedule that is stored now, and return it; None: there is none."""
        item = present(self._read(namespace))
        replaced = revision_of(before)
        if item is None:
            if replaced is not None:
                with _triggering(namespace):
                    self.triggers.delete(namespace, replaced)
            return None
        schedule = decode_schedule(item)
        own = revision_of(item)
        self._start(namespace, item, None if replaced == own else replaced)
        return schedule

    def _existing(self, namespace: str) -> Item:
        found = present(self._read(namespace))
        if found is None:
            raise no_schedule(namespace)
        return found

    def _read(self, namespace: str) -> Item | None:
        """The item of a schedule, or the tombstone of a deleted one."""
        namespace = keys.check_namespace(namespace)
        key = keys.schedule_key(namespace)
        return self.dynamo.get(self.table, key, consistent=True)


@contextmanager
def _triggering(namespace: str) -> Iterator[None]:
    """Calls of EventBridge Scheduler, after the item was written: no error says that none was."""
    try:
        yield
    except Unclear:
        raise
    except CountledgerError as error:
        raise Unclear(
            f"the schedule of namespace {namespace!r} is written, but not its trigger: {error}; "
            "then call again"
        ) from error
