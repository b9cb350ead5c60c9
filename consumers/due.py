"""The materializer's side of the due index: counters get into it, also when a batch comes again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from countledger.consumers.ttl_cache import TtlCache
from countledger.ledger import keys
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.due import mark_of, rule_in, standing_in
from countledger.ledger.errors import ConditionFailed, CorruptItem, RequestRejected
from countledger.ledger.limits import DUE_RULE_LIFE_MS

if TYPE_CHECKING:
    from countledger.ledger.attributes import Item
    from countledger.ledger.due import DueRule
    from countledger.ledger.dynamo import DynamoClient


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
