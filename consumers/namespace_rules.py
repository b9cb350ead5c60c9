"""What a namespace's schedule, ranking and windows add to the writes of a counter's total.

Each is read at most once a minute.

A counter with enough entries is put into the due index, from which the dispatcher compacts it. A
total of a ranked namespace gets its position on the board in the update that creates the total. The
windows of a counter are written after its total.

The modules of schedules, rankings and windows are loaded at the first namespace that has one: most
functions start without.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

from countledger.ledger import keys
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.errors import ConditionFailed, CorruptItem, NewerFormat, RequestRejected
from countledger.ledger.limits import DUE_RULE_LIFE_MS, RANK_RULE_LIFE_MS, WINDOWS_LIFE_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.ledger.attributes import Item, OnCorrupt
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.indexes import DueRule
    from countledger.ledger.operations import Clause
    from countledger.ledger.windows import WindowSetting

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class TtlCache(Generic[Value]):
    """A value for each namespace, reused for a while.

    If several threads miss at once, each reads; a caller with a lock lets one of them read.

    Attributes:
        life_ms: how long a value is reused.
    """

    life_ms: int
    _known: dict[str, tuple[int, Value]] = field(default_factory=dict, repr=False)

    def of(self, namespace: str, now_ms: int, read: Callable[[str], Value]) -> Value:
        """A namespace's value, read if it is too old. Errors of `read` are raised."""
        known = self._known.get(namespace)
        if known is None or now_ms - known[0] >= self.life_ms:
            known = self._known[namespace] = now_ms, read(namespace)
        return known[1]


def new_memory() -> TtlCache[DueRule | None]:
    """An empty cache: a new or changed schedule is seen after a minute at the latest."""
    return TtlCache(DUE_RULE_LIFE_MS)


@dataclass(frozen=True, slots=True)
class DueRules:
    """The number of entries from which counters are compacted, by namespace schedule.

    Attributes:
        dynamo: a DynamoDB client.
        table: the table `counters`.
        clock: the time.
        known: the cache; several readers may share it.
    """

    dynamo: DynamoClient
    table: str
    clock: Clock = field(default_factory=SystemClock)
    known: TtlCache[DueRule | None] = field(default_factory=new_memory, repr=False)

    def of(self, namespace: str) -> DueRule | None:
        """The rule of a namespace; None: it has no schedule. Half a read unit a minute."""
        return self.known.of(namespace, self.clock.now_ms(), self._read)

    def _read(self, namespace: str) -> DueRule | None:
        schedule = self.dynamo.get(self.table, keys.schedule_key(namespace))
        if schedule is None:
            return None
        from countledger.ledger.indexes import rule_in  # noqa: PLC0415 - at the first schedule
        from countledger.ledger.tombstones import present  # noqa: PLC0415 - the same

        if present(schedule) is None:
            return None
        try:
            return rule_in(schedule)
        except CorruptItem:
            # The dispatcher reports it, when it runs for this schedule.
            return None


@dataclass(frozen=True, slots=True)
class DueMarker:
    """Puts the counters of one batch into the index.

    Attributes:
        dynamo: a DynamoDB client; the SDK may retry, because a second mark is refused.
        table: the table `counters`.
        rules: of the namespaces.
        now_ms: the time of the batch, ms since the epoch.
    """

    dynamo: DynamoClient
    table: str
    rules: DueRules
    now_ms: int

    def mark(self, total: Item) -> None:
        """Put a counter into the index if it has enough entries and is not in it: two write units.

        Raises:
            ServiceFailed: the rule could not be read, or the mark not written; the batch must be
                delivered again.
        """
        rule = self.rules.of(keys.namespace_of(total["counter"]))
        if rule is None:
            return
        from countledger.ledger.indexes import due_state_of, mark_of  # noqa: PLC0415 - the same

        try:
            update = mark_of(self.table, due_state_of(total), rule, self.now_ms)
            if update is not None:
                self.dynamo.update(update)
        except (ConditionFailed, CorruptItem, RequestRejected):
            # Marked meanwhile, or corrupted by hand: a retry would block the stream for nothing.
            return


@dataclass(frozen=True, slots=True)
class RankRules:
    """Which namespaces are ranked.

    Attributes:
        dynamo: a DynamoDB client.
        table: the table `counters`.
        clock: the time.
    """

    dynamo: DynamoClient
    table: str
    clock: Clock = field(default_factory=SystemClock)
    _known: TtlCache[int | None] = field(
        default_factory=lambda: TtlCache(RANK_RULE_LIFE_MS), repr=False
    )
    _lock: Lock = field(default_factory=Lock, repr=False)

    def clauses(self, counter: str) -> tuple[Clause, ...]:
        """The clauses to add to the update of a total. Half a read unit a minute per namespace.

        Raises:
            ServiceFailed: the rule could not be read; the changes must be delivered again.
        """
        partitions = self._of(keys.namespace_of(counter))
        if partitions is None:
            return ()
        from countledger.ledger.indexes import clauses_for  # noqa: PLC0415 - at the first ranking

        return clauses_for(counter, partitions)

    def _of(self, namespace: str) -> int | None:
        # The writers of a batch call this at once; one of them reads.
        with self._lock:
            return self._known.of(namespace, self.clock.now_ms(), self._read)

    def _read(self, namespace: str) -> int | None:
        ranking = self.dynamo.get(self.table, keys.ranking_key(namespace))
        if ranking is None:
            return None
        from countledger.ledger.indexes import partitions_to_write  # noqa: PLC0415 - as above

        return partitions_to_write(ranking)


@dataclass(frozen=True, slots=True)
class WindowRules:
    """Which windows the counters of a namespace have.

    Attributes:
        dynamo: a DynamoDB client.
        table: the table `counters`.
        clock: the time.
        known: the cache; several readers may share it.
        on_corrupt: called with the error of settings that cannot be read, at each read.
    """

    dynamo: DynamoClient
    table: str
    clock: Clock = field(default_factory=SystemClock)
    known: TtlCache[tuple[WindowSetting, ...]] = field(
        default_factory=lambda: TtlCache(WINDOWS_LIFE_MS), repr=False
    )
    on_corrupt: OnCorrupt = lambda _: None
    _lock: Lock = field(default_factory=Lock, repr=False)

    def of(self, counter: str) -> tuple[WindowSetting, ...]:
        """The settings of a counter's namespace. A read unit a minute per namespace.

        Settings that cannot be read give no windows: the totals of all namespaces go on, and those
        of this one are rebuilt from the ledger once the settings are corrected.

        Raises:
            ServiceFailed: they could not be read; the changes must be delivered again.
            NewerFormat: the same. Nothing is written until this release is replaced by the later
                one, which the settings are from.
        """
        with self._lock:
            return self.known.of(keys.namespace_of(counter), self.clock.now_ms(), self._read)

    def _read(self, namespace: str) -> tuple[WindowSetting, ...]:
        item = self.dynamo.get(self.table, keys.windows_key(namespace), consistent=True)
        if item is None:
            return ()
        from countledger.ledger.windows import decode_settings  # noqa: PLC0415 - at first windows

        try:
            return decode_settings(item)
        except NewerFormat:
            raise
        except CorruptItem as error:
            self.on_corrupt(error)
            return ()
