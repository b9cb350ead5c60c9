"""The materializer's side of rankings: new totals get their place in the update that makes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

from countledger.consumers.ttl_cache import TtlCache
from countledger.ledger import keys
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.errors import CorruptItem
from countledger.ledger.limits import RANK_RULE_LIFE_MS
from countledger.ledger.ranking import clauses_for, is_on

if TYPE_CHECKING:
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.expressions import Clause


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
