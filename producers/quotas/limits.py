"""The limits of counters as a process knows them: read, and used for a few seconds.

A quota is read before the limit of one of its counters, so that the later of the two revisions
names a limit that was valid at that revision. Every write names it: see `decision`.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from countledger.ledger import keys
from countledger.ledger.attempts import ask
from countledger.ledger.errors import NoSuchQuota
from countledger.ledger.expressions import AllOf, BeginsWith, Compare
from countledger.ledger.limits import QUOTA_LIMIT_LIFE_MS
from countledger.ledger.operations import Get, Query
from countledger.producers.quotas.quota import decode_quota, limit_of, of_counter
from countledger.producers.strict.context import raise_exhausted

if TYPE_CHECKING:
    from countledger.ledger.attempts import Attempts, Exhausted, Steps
    from countledger.ledger.attributes import Item
    from countledger.ledger.operations import Page
    from countledger.producers.quotas.quota import CounterLimit, Quota
    from countledger.producers.strict.context import MethodContext

# The least recently used limits beyond are read again.
_KEPT: Final = 10_000
_ADVICE: Final = "nothing was written; try again"


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of counters.

    Attributes:
        context: what to read with.
        life_ms: how long a limit is used after it was read.
    """

    context: MethodContext
    life_ms: int = QUOTA_LIMIT_LIFE_MS
    _known: OrderedDict[str, CounterLimit] = field(default_factory=OrderedDict, repr=False)
    _quotas: dict[str, tuple[int, list[Quota]]] = field(default_factory=dict, repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def of(self, counter: str, attempts: Attempts) -> Steps[CounterLimit]:
        """The limit of a counter: at most a read unit, and one if it may have its own limit.

        Nothing is read if this process has read both within `life_ms`.

        Raises:
            NoSuchQuota: no quota is for the counter.
            CorruptItem: a quota cannot be read.
        """
        now_ms = self.context.clock.now_ms()
        with self._lock:
            known = self._known.get(counter)
            if known is not None and self._is_fresh(known.read_at_ms, now_ms):
                self._known.move_to_end(counter)
                return known
        read_at_ms, quotas = yield from self._of_namespace(counter, now_ms, attempts)
        quota = of_counter(quotas, counter)
        own = None
        if quota.overridden:
            key = keys.quota_limit_key(quota.incarnation, counter)
            own = yield from self._read(Get(self.context.table, key), attempts)
        limit = limit_of(quota, own, counter, read_at_ms)
        if limit is None:
            self.forget(counter)
            return (yield from self.of(counter, attempts))
        with self._lock:
            self._known[counter] = limit
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return limit

    def forget(self, counter: str) -> None:
        """Read the limit of a counter again the next time."""
        with self._lock:
            self._known.pop(counter, None)
            self._quotas.pop(keys.namespace_of(counter), None)

    def is_fresh(self, limit: CounterLimit) -> bool:
        """Whether a limit may still be used."""
        return self._is_fresh(limit.read_at_ms, self.context.clock.now_ms())

    def _is_fresh(self, read_at_ms: int, now_ms: int) -> bool:
        return 0 <= now_ms - read_at_ms < self.life_ms

    def _of_namespace(
        self, counter: str, now_ms: int, attempts: Attempts
    ) -> Steps[tuple[int, list[Quota]]]:
        namespace = keys.namespace_of(counter)
        if ":" not in counter:
            raise NoSuchQuota(
                f"counter {counter!r} has no namespace: quotas are for names such as `llm:team-1`"
            )
        with self._lock:
            known = self._quotas.get(namespace)
        if known is not None and self._is_fresh(known[0], now_ms):
            return known
        condition = AllOf(
            Compare("counter", "=", keys.QUOTA_PREFIX), BeginsWith("part", f"{namespace}:")
        )
        items: list[Item] = []
        query: Query | None = Query(self.context.table, condition, consistent=True)
        while query is not None:
            page: Page = yield from self._read(query, attempts)
            items += page.items
            query = (
                Query(self.context.table, condition, consistent=True, after=page.after)
                if page.after
                else None
            )
        found = now_ms, [decode_quota(item) for item in items]
        with self._lock:
            self._quotas[namespace] = found
        return found

    def _read(self, operation: Get | Query, attempts: Attempts) -> Steps[Any]:
        def give_up(exhausted: Exhausted[None]) -> Any:  # noqa: ANN401 - it only raises
            raise_exhausted(exhausted, "to read a quota", _ADVICE)

        return ask(operation, attempts, give_up)
