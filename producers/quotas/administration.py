"""Quotas are created, changed, listed and deleted; and what a process knows of their limits.

A quota is a record (`ledger/records.py`). A limit is changed by the quota's next revision; the own
limit of a counter is written in one transaction with it.

A limit is read, and used for a few seconds. A quota is read before the limit of one of its
counters, so that the later of the two revisions names a limit that was valid at that revision.
Every write names it: see `acquiring`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from countledger.ledger import keys
from countledger.ledger.attempts import (
    Done,
    Send,
    ask,
    attempt,
    otherwise,
    raise_exhausted,
)
from countledger.ledger.errors import (
    BadQuota,
    ConditionFailed,
    CountledgerError,
    NoSuchQuota,
    QuotaExists,
)
from countledger.ledger.limits import DAY_MS, QUOTA_LIMIT_LIFE_MS, SECOND_MS
from countledger.ledger.operations import (
    AllOf,
    Assign,
    BeginsWith,
    Compare,
    Drop,
    Get,
    Query,
    Update,
)
from countledger.ledger.recent import Known, Recent
from countledger.ledger.records import NotRead, Records, Replacement
from countledger.ledger.tombstones import present
from countledger.producers.quotas.quota import (
    Quota,
    decode_quota,
    limit_of,
    name_of,
    of_counter,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import Attempts, Exhausted, Reply, Steps, Verdict
    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.calendar import Per
    from countledger.ledger.connection import Connection
    from countledger.ledger.operations import Condition, Page
    from countledger.ledger.records import Seen
    from countledger.producers.quotas.quota import CounterLimit


_LOOK_FIRST: Final = "look with `list`, and call again"


def _records(connection: Connection) -> Records:
    return Records(connection, connection.counters, "quota")


def creating(connection: Connection, item: Item) -> Steps[Quota]:
    name = name_of(item["prefix"], item["per"])

    def decide(there: Item | None) -> Replacement:
        if there is not None:
            raise QuotaExists(
                f"quota {name} exists: change its limit with `set_limit`, or delete it"
            )
        return Replacement(item)

    key = keys.quota_key(item["prefix"], item["per"])
    made = yield from _records(connection).write(name, key, decide, seen=NotRead.EXPECT_NOTHING)
    return _existing(name, made.item)


def _found(connection: Connection, prefix: str, per: Per | None) -> Steps[tuple[Per, Seen]]:
    """The quota of a prefix: of that kind of window, or the only one of the prefix."""
    if per is not None:
        return per, NotRead.READ_IT
    condition = AllOf(
        Compare("counter", "=", keys.QUOTA_PREFIX), BeginsWith("part", keys.quota_part(prefix))
    )
    items = yield from read_all(
        connection.counters, condition, connection.attempts, _give_up_changing
    )
    if not items:
        raise NoSuchQuota(f"no quota has the prefix {prefix!r}: `list` shows them")
    quotas = [decode_quota(item) for item in items]
    return only(quotas, f"prefix {prefix!r}").per, items[0]


def only(quotas: Sequence[Quota], whose: str) -> Quota:
    """The one quota that a call without a kind of window means."""
    if len(quotas) > 1:
        kinds = ", ".join(one.per for one in quotas)
        raise BadQuota(f"{whose} has several quotas: say which with per, one of: {kinds}")
    return quotas[0]


def limiting(
    connection: Connection,
    prefix: str,
    per: Per | None,
    limit: Amount | None,
    counter: str | None = None,
) -> Steps[None]:
    """Set the limit of a quota, or of one of its counters (None: that of the quota again)."""
    per, seen = yield from _found(connection, prefix, per)
    name = name_of(prefix, per)

    def decide(there: Item | None) -> Replacement:
        found = _existing(name, there)
        changed = {**(there or {}), "updated_at": connection.clock.now_ms()}
        if counter is None:
            return Replacement({**changed, "limit": limit})
        # The item stays when the limit is removed, so that a reader knows since when.
        clauses = (
            Assign("revision", found.revision + 1),
            Drop("limit") if limit is None else Assign("limit", limit),
        )
        key = keys.quota_limit_key(found.incarnation, counter)
        own = Update(connection.counters, key, clauses)
        return Replacement({**changed, "overridden": 1}, (own,))

    key = keys.quota_key(prefix, per)
    yield from _records(connection).write(name, key, decide, seen=seen)


def deleting(connection: Connection, prefix: str, per: Per | None) -> Steps[None]:
    """Delete a quota; what its windows have used goes by TTL, and no other quota meets it.

    So do the limits of its counters: a process that has read the quota, but not yet the lower limit
    of a counter, must find it.
    """
    per, seen = yield from _found(connection, prefix, per)
    name = name_of(prefix, per)

    def decide(there: Item | None) -> Replacement:
        _existing(name, there)
        return Replacement(None)

    key = keys.quota_key(prefix, per)
    deleted = yield from _records(connection).write(name, key, decide, seen=seen)
    incarnation = _existing(name, deleted.before).incarnation
    ended_at = (connection.clock.now_ms() + DAY_MS) // SECOND_MS
    for own in (yield from reading(connection, f"{keys.QUOTA_PREFIX}{incarnation}")):
        key = {name: own[name] for name in ("counter", "part")}
        known = Compare("revision", "=", own["revision"])
        ends = Update(connection.counters, key, (Assign("expires_at", ended_at),), known)
        yield from _end(ends, connection.attempts())


def _end(write: Update, attempts: Attempts) -> Steps[None]:
    def interpret(reply: Reply[None]) -> Verdict[None, None]:
        match reply.answer:
            case ConditionFailed():
                return Done(None)  # by an attempt without an answer, or by another call
            case CountledgerError():
                return otherwise(reply)
        return Done(None)

    return attempt(None, lambda _: Send(write), interpret, _give_up_changing, attempts)


def reading(connection: Connection, partition: str) -> Steps[list[Item]]:
    """All items of a partition: quotas, or the limits of counters. A read unit for each 4 KB."""
    condition = Compare("counter", "=", partition)
    return read_all(connection.counters, condition, connection.attempts, _give_up_changing)


def read_all(
    table: str,
    condition: Condition,
    attempts: Callable[[], Attempts],
    give_up: Callable[[Exhausted[Any]], Any],
) -> Steps[list[Item]]:
    """All items of a query, page by page, strongly consistent. A read unit for each 4 KB."""
    items: list[Item] = []
    after: Key | None = None
    while True:
        query = Query(table, condition, consistent=True, after=after)
        page: Page = yield from ask(query, attempts(), give_up)
        items += [item for item in page.items if present(item) is not None]
        after = page.after
        if after is None:
            return items


def _existing(name: str, item: Item | None) -> Quota:
    if item is None or present(item) is None:
        raise NoSuchQuota(f"there is no quota {name}: `list` shows them")
    return decode_quota(item)


def _give_up_changing(exhausted: Exhausted[Any]) -> Any:  # noqa: ANN401 - it only raises
    raise_exhausted(exhausted, "to read or change a quota", _LOOK_FIRST)


_TRY_AGAIN: Final = "nothing was written; try again"


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of counters; each is used for `life_ms` after it was read."""

    connection: Connection
    life_ms: int = QUOTA_LIMIT_LIFE_MS
    _known: Recent[str, tuple[CounterLimit, ...]] = field(init=False, repr=False)
    _quotas: Recent[str, list[Quota]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_known", Recent(self.life_ms))
        object.__setattr__(self, "_quotas", Recent(self.life_ms))

    def of(self, counter: str, attempts: Attempts) -> Steps[tuple[CounterLimit, ...]]:
        """The limits of a counter, the shortest window first.

        At most a read unit, and one for each quota whose counters may have their own limit. Nothing
        is read if this process has read all within `life_ms`.
        """
        now_ms = self.connection.clock.now_ms()
        known = self._known.get(counter, now_ms)
        if known is not None:
            return known.value
        read_at_ms, quotas = yield from self._of_namespace(counter, now_ms, attempts)
        limits = []
        for quota in of_counter(quotas, counter):
            own = None
            if quota.overridden:
                key = keys.quota_limit_key(quota.incarnation, counter)
                own = yield from ask(Get(self.connection.counters, key), attempts, _give_up_reading)
            limit = limit_of(quota, own, counter, read_at_ms)
            if limit is None:
                self.forget(counter)
                return (yield from self.of(counter, attempts))
            limits.append(limit)
        return self._known.keep(counter, tuple(limits), read_at_ms).value

    def forget(self, counter: str) -> None:
        self._known.forget(counter)
        self._quotas.forget(keys.namespace_of(counter))

    def is_fresh(self, limit: CounterLimit) -> bool:
        return self._known.is_fresh(limit.read_at_ms, self.connection.clock.now_ms())

    def _of_namespace(
        self, counter: str, now_ms: int, attempts: Attempts
    ) -> Steps[Known[list[Quota]]]:
        namespace = keys.namespace_of(counter)
        if ":" not in counter:
            raise NoSuchQuota(
                f"counter {counter!r} has no namespace: quotas are for names such as `llm:team-1`"
            )
        known = self._quotas.get(namespace, now_ms)
        if known is not None:
            return known
        condition = AllOf(
            Compare("counter", "=", keys.QUOTA_PREFIX), BeginsWith("part", f"{namespace}:")
        )
        items = yield from read_all(
            self.connection.counters, condition, lambda: attempts, _give_up_reading
        )
        return self._quotas.keep(namespace, [decode_quota(item) for item in items], now_ms)


def _give_up_reading(exhausted: Exhausted[Any]) -> Any:  # noqa: ANN401 - it only raises
    raise_exhausted(exhausted, "to read a quota", _TRY_AGAIN)
