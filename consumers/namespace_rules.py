"""What a namespace's schedule and ranking add to the writes of a total; read at most once a minute.

A counter with enough entries is put into the due index, from which the dispatcher compacts it. A
total of a ranked namespace gets its position on the board in the update that creates the total.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

from countledger.ledger import keys
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.due import mark_of, rule_in, standing_in
from countledger.ledger.errors import ConditionFailed, CorruptItem, RequestRejected
from countledger.ledger.limits import DUE_RULE_LIFE_MS, RANK_RULE_LIFE_MS
from countledger.ledger.ranking import clauses_for, is_on

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.ledger.attributes import Item
    from countledger.ledger.due import DueRule
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.expressions import Clause

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class TtlCache(Generic[Value]):
    """What was read for each namespace, and when.

    Of several threads that ask at once, each may read; who minds lets one at a time ask.

    Attributes:
        life_ms: from which age on it is read anew.
    """

    life_ms: int
    _known: dict[str, tuple[int, Value]] = field(default_factory=dict, repr=False)

    def of(self, namespace: str, now_ms: int, read: Callable[[str], Value]) -> Value:
        """What a namespace says, read unless that was done lately; what `read` raises passes."""
        known = self._known.get(namespace)
        if known is None or now_ms - known[0] >= self.life_ms:
            known = self._known[namespace] = now_ms, read(namespace)
        return known[1]


def new_memory() -> TtlCache[DueRule | None]:
    """Nothing known yet; of a schedule that is new or changed nobody hears for a minute."""
    return TtlCache(DUE_RULE_LIFE_MS)


@dataclass(frozen=True, slots=True)
class DueRules:
    """When counters are worth compacting, by their namespaces' schedules.

    Attributes:
        dynamo: a DynamoDB client.
        table: the table `counters`.
        clock: tells when a rule has to be read anew.
        known: those that were read; shared, they are read once for all.
    """

    dynamo: DynamoClient
    table: str
    clock: Clock = field(default_factory=SystemClock)
    known: TtlCache[DueRule | None] = field(default_factory=new_memory, repr=False)

    def of(self, namespace: str) -> DueRule | None:
        """The rule of a namespace; None: nobody made a schedule. Half a read unit a minute."""
        return self.known.of(namespace, self.clock.now_ms(), self._read)

    def _read(self, namespace: str) -> DueRule | None:
        try:
            return rule_in(self.dynamo.get(self.table, keys.schedule_key(namespace)))
        except CorruptItem:
            # The dispatcher, which works for this schedule alone, is where that is reported.
            return None


@dataclass(frozen=True, slots=True)
class DueMarker:
    """Puts the counters of one batch into the index.

    Attributes:
        dynamo: a DynamoDB client; the SDK may retry, a second mark is refused.
        table: the table `counters`.
        rules: of the namespaces.
        now_ms: the time of the batch.
    """

    dynamo: DynamoClient
    table: str
    rules: DueRules
    now_ms: int

    def mark(self, total: Item) -> None:
        """Put a counter into the index if enough entries wait and it is not there.

        Two write units where it does, none where it does not.

        Raises:
            ServiceFailed: it could not be told or written; the batch has to come again.
        """
        rule = self.rules.of(keys.namespace_of(total["counter"]))
        if rule is None:
            return
        try:
            update = mark_of(self.table, standing_in(total), rule, self.now_ms)
            if update is not None:
                self.dynamo.update(update)
        except (ConditionFailed, CorruptItem, RequestRejected):
            # Marked meanwhile, or corrupt by hand: asking again would block the stream for nothing.
            return


@dataclass(frozen=True, slots=True)
class RankRules:
    """Which namespaces are ranked.

    Attributes:
        dynamo: a DynamoDB client.
        table: the table `counters`.
        clock: tells when a rule has to be read anew.
    """

    dynamo: DynamoClient
    table: str
    clock: Clock = field(default_factory=SystemClock)
    _known: TtlCache[bool | None] = field(
        default_factory=lambda: TtlCache(RANK_RULE_LIFE_MS), repr=False
    )
    _lock: Lock = field(default_factory=Lock, repr=False)

    def clauses(self, counter: str) -> tuple[Clause, ...]:
        """What the update of a total also does. Half a read unit a minute for each namespace.

        Raises:
            ServiceFailed: the rule cannot be read now; the counter's changes have to come again.
        """
        return clauses_for(counter, on=self._of(keys.namespace_of(counter)))

    def _of(self, namespace: str) -> bool | None:
        # The writers of a batch ask all at once; one of them reads.
        with self._lock:
            return self._known.of(namespace, self.clock.now_ms(), self._read)

    def _read(self, namespace: str) -> bool | None:
        try:
            return is_on(self.dynamo.get(self.table, keys.ranking_key(namespace)))
        except CorruptItem:
            # Who asks for the top of that namespace is told; totals are not to wait for it.
            return None
