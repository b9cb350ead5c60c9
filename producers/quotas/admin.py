"""Quotas are created, changed, listed and deleted; and what a process knows of their limits.

A limit is read, and used for a few seconds. A quota is read before the limit of one of its
counters, so that the later of the two revisions names a limit that was valid at that revision.
Every write names it: see `decision`.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from countledger.ledger import keys
from countledger.ledger.attempts import ask
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import NoSuchQuota, WrongRegion
from countledger.ledger.limits import QUOTA_LIMIT_LIFE_MS
from countledger.ledger.operations import AllOf, BeginsWith, Compare, Get
from countledger.producers.quotas.administration import (
    creating,
    deleting,
    limiting,
    read_all,
    reading,
)
from countledger.producers.quotas.quota import (
    Quota,
    check_amount,
    check_method,
    check_per,
    check_prefix,
    check_zone,
    decode_quota,
    limit_of,
    of_counter,
)
from countledger.producers.strict.context import raise_exhausted

if TYPE_CHECKING:
    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import Attempts, Exhausted, Steps
    from countledger.producers.quotas.quota import CounterLimit
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
            own = yield from ask(Get(self.context.table, key), attempts, _give_up)
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
        items = yield from read_all(self.context.table, condition, lambda: attempts, _give_up)
        found = now_ms, [decode_quota(item) for item in items]
        with self._lock:
            self._quotas[namespace] = found
        return found


def _give_up(exhausted: Exhausted[Any]) -> Any:  # noqa: ANN401 - it only raises
    raise_exhausted(exhausted, "to read a quota", _ADVICE)


@dataclass(frozen=True, slots=True)
class QuotaAdmin:
    """The quotas of a stack themselves.

    Attributes:
        context: clients, table, clock and randomness.
        region: where this process works.
        home_region: where quotas live.
        limits: those that this process has read.
    """

    context: MethodContext
    region: str
    home_region: str
    limits: Limits = field(init=False)

    def __post_init__(self) -> None:
        """Nothing read yet."""
        object.__setattr__(self, "limits", Limits(self.context))

    def create(
        self,
        prefix: str,
        *,
        limit: Amount,
        per: str,
        time_zone: str = "UTC",
        method: str = "marker",
    ) -> Quota:
        """Create the quota of every counter whose name begins with a prefix: one write unit.

        Args:
            prefix: at least a namespace and its colon, as `llm:`. If several quotas fit a counter,
                the one with the longest prefix holds.
            limit: how much each counter may use in one window, 0 or more.
            per: the kind of window: `minute` (of UTC), `hour`, `day` or `month` of the time zone.
            time_zone: a name of the IANA database.
            method: how `acquire` remembers a key: `request_token` for ten minutes, `marker`
                for at least a day.

        Raises:
            QuotaExists: a quota of that prefix exists.
            BadQuota: an argument breaks its rule.
            Unclear, Throttled: look with `list`, and call again.
            WrongRegion: this is not the home region.
        """
        self.refuse_elsewhere(prefix)
        prefix = check_prefix(prefix)
        now = to_datetime(self.context.clock.now_ms())
        fixed = (
            check_amount("limit", limit, zero=True),
            check_per(per),
            check_zone(time_zone),
            check_method(method),
        )
        return self.context.run(
            creating(self.context, lambda one: Quota(prefix, *fixed, 1, one, False, now))
        )

    def set_limit(self, prefix: str, limit: Amount) -> None:
        """Change the limit of a quota, also while it is used: a read unit and a write unit.

        Raises:
            NoSuchQuota: no quota has that prefix.
            Unclear: no clear answer. Also if another call has changed a limit since an attempt that
                got no answer: that change stays.
            BadQuota, Throttled, WrongRegion: as `create`.
        """
        self.refuse_elsewhere(prefix)
        amount = check_amount("limit", limit, zero=True)
        self.context.run(limiting(self.context, check_prefix(prefix), amount, None))

    def override(self, counter: str, limit: Amount | None) -> None:
        """Give one counter a limit of its own; None: that of its quota again.

        Two or three read units and four write units.

        Raises:
            NoSuchQuota: no quota is for the counter.
            Unclear: as `set_limit`.
            BadQuota, Throttled, WrongRegion: as `create`.
        """
        self.refuse_elsewhere(counter)
        amount = None if limit is None else check_amount("limit", limit, zero=True)
        counter = keys.check_counter(counter)
        self.limits.forget(counter)
        steps = self.limits.of(counter, self.context.attempts())
        prefix = self.context.run(steps).quota.prefix
        self.context.run(limiting(self.context, prefix, amount, counter))
        self.limits.forget(counter)

    def delete(self, prefix: str) -> None:
        """Delete a quota: a read unit, a write unit, and one for each counter's own limit.

        A process that has read the quota admits under it for up to five seconds more. What the
        windows have used expires by itself. A quota that is created again begins with empty
        windows, and remembers no key.

        Raises:
            NoSuchQuota: no quota has that prefix.
            Unclear, Throttled, WrongRegion: as `create`.
        """
        self.refuse_elsewhere(prefix)
        self.context.run(deleting(self.context, check_prefix(prefix)))

    def list(self) -> list[Quota]:
        """All quotas, by their prefixes: a read unit for each 4 KB.

        Raises:
            CorruptItem: one cannot be read.
            WrongRegion: this is not the home region.
        """
        self.refuse_elsewhere("all")
        items = self.context.run(reading(self.context, keys.QUOTA_PREFIX))
        return [decode_quota(item) for item in items]

    def overrides(self, quota: Quota) -> dict[str, Amount]:
        """The limits that counters of a quota have of their own: a read unit for each 4 KB."""
        self.refuse_elsewhere(quota.prefix)
        partition = keys.QUOTA_PREFIX + quota.incarnation
        items = self.context.run(reading(self.context, partition))
        return {item["part"]: item["limit"] for item in items if "limit" in item}

    def refuse_elsewhere(self, what: str) -> None:
        """Allow calls in the home region only.

        Raises:
            WrongRegion: this is another region.
        """
        if self.region != self.home_region:
            raise WrongRegion(
                f"{what!r}: quotas live in the home region {self.home_region} alone, where one "
                f"copy decides; this is {self.region}: call there"
            )
