"""The simulated tables for many clients in virtual time, with lost answers and killed processes.

One thread runs at a time, so a million calls need no engine and no waiting. The index `due` lags
behind the table, items whose time to live is over go within a minute, and each request may be
throttled, refused by a conflict, lost before or after it is applied, applied late, or the last one
of its process.
"""

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Any, Final, NoReturn, TypeVar, cast

from countledger.infra.memory.client import TableClient, sdk_call
from countledger.infra.memory.tables import Change, Table, Transactions, key_of
from countledger.infra.memory.tables import Key as ItemKey
from countledger.ledger.attributes import Item
from countledger.ledger.errors import CountledgerError, Throttled, TransactionCancelled, Unclear
from countledger.ledger.errors import Reason as Cancelled
from countledger.ledger.limits import MINUTE_MS, SECOND_MS, TOKEN_LIFE_MS
from countledger.ledger.operations import Page, Query, Scan, Write
from tests.simulation.schedule import Killed, Schedule
from tests.simulation.table import SimulatedTable
from tests.simulation.transactions import SimulatedTransactions

_T = TypeVar("_T")
BEGIN_MS: Final = 1_800_000_000_000.0
_LATENCY_MS: Final = 6.0
_LATE_MS: Final = 8_000
_INDEX_LAG_MS: Final = 300


class Strike(StrEnum):
    """What strikes a request."""

    LOST = "lost"
    ANSWER_LOST = "answer lost"
    LATE = "late"
    THROTTLED = "throttled"
    CONFLICT = "conflict"
    KILLED = "killed before"
    KILLED_AFTER = "killed after"


_RATES: Final = {
    Strike.LOST: 0.005,
    Strike.ANSWER_LOST: 0.01,
    Strike.LATE: 0.005,
    Strike.THROTTLED: 0.01,
    Strike.CONFLICT: 0.01,
    Strike.KILLED: 0.0002,
    Strike.KILLED_AFTER: 0.0002,
}
_OF_READS: Final = frozenset({Strike.LOST, Strike.THROTTLED, Strike.KILLED})


@dataclass(eq=False)
class Tables:
    """The tables of one stack.

    Attributes:
        random: decides everything.
        schedule: virtual time.
        calm: nothing goes wrong any more.
        struck: how often each fault struck.
        requests: how many requests there were.
    """

    random: Random
    calm: bool = False
    struck: Counter[Strike] = field(default_factory=Counter)
    requests: int = 0

    def __post_init__(self) -> None:
        """Empty."""
        self.schedule = Schedule(self.random, now_ms=BEGIN_MS, steps_max=1 << 60)
        self.by_name = {name: SimulatedTable.of(name, "home") for name in ("ledger", "counters")}
        self.transactions = SimulatedTransactions.of(self.by_name, self.schedule)
        self._index: dict[str, list[tuple[int, ItemKey]]] = defaultdict(list)
        self._listed: dict[ItemKey, tuple[str, int]] = {}
        self.items.watchers.append(self._note)
        self.schedule.at(MINUTE_MS, self._tidy)

    @property
    def items(self) -> SimulatedTable:
        """The table `counters`."""
        return self.by_name["counters"]

    def strike(self, *, writes: bool) -> Strike | None:
        """What strikes the next request."""
        self.requests += 1
        draw = self.random.random()
        for strike, rate in _RATES.items():
            draw -= rate
            if draw < 0:
                if self.calm or not (writes or strike in _OF_READS):
                    return None
                self.struck[strike] += 1
                return strike
        return None

    def listed(self, read: Query) -> Page:
        """A page of the index `due`."""
        bucket, before = (one.value for one in cast("Any", read.condition).conditions)
        entries = self._index[bucket]
        start = 0
        if read.after is not None:
            last = read.after["due_at"], key_of(read.after)
            start = bisect_left(entries, cast("Any", last)) + 1
        found = [one for one in entries[start:] if one[0] < before]
        page = found[: read.page_size]
        rows: list[Item] = [
            {"counter": key[0], "part": key[1], "due_bucket": bucket, "due_at": due_at}
            for due_at, key in page
        ]
        return Page(rows, rows[-1] if len(page) < len(found) else None, len(rows))

    def _note(self, change: Change) -> None:
        names = ("due_bucket", "due_at")
        before, after = change.before or {}, change.after or {}
        if any(before.get(name) != after.get(name) for name in names):
            key = change.key
            self.schedule.at(self.random.random() * _INDEX_LAG_MS, lambda: self._list(key))

    def _list(self, key: ItemKey) -> None:
        old = self._listed.pop(key, None)
        if old is not None:
            entries = self._index[old[0]]
            del entries[bisect_left(entries, (old[1], key))]
        item = self.items.items.get(key, {})
        if "due_at" in item:
            self._listed[key] = item["due_bucket"], item["due_at"]
            insort(self._index[item["due_bucket"]], (item["due_at"], key))

    def _tidy(self) -> None:
        """Time to live; and what is too old to matter to anybody."""
        now_s = self.schedule.now_ms / SECOND_MS
        over = [k for k, item in self.items.items.items() if item.get("expires_at", now_s) < now_s]
        for key in over:
            self.items.store(key, None)
        self.items.earlier.clear()
        known = self.transactions.known  # its tokens are kept for ever
        oldest_ms = self.schedule.now_ms - TOKEN_LIFE_MS
        for token in [token for token, (_, ended_ms) in known.items() if ended_ms < oldest_ms]:
            del known[token]
        if not self.calm:
            self.schedule.at(MINUTE_MS, self._tidy)


@dataclass(eq=False)
class Life:
    """A process, from its start until it is killed: a clock, and whether it lives.

    Attributes:
        tables: what it works with.
        error_ms: how far its clock is off.
        dead: whether it was killed.
    """

    tables: Tables
    error_ms: int
    dead: bool = False

    def now_ms(self) -> int:
        """The time by its clock."""
        return int(self.tables.schedule.now_ms) + self.error_ms

    def sleep_ms(self, duration_ms: float) -> None:
        """Others go on.

        Raises:
            Killed: the process was killed meanwhile.
        """
        self.tables.schedule.pause(duration_ms)
        if self.dead:
            raise Killed

    def kill(self) -> NoReturn:
        """It ends here, with all its threads."""
        self.dead = True
        raise Killed


@dataclass(frozen=True, slots=True, kw_only=True)
class StruckClient(TableClient):
    """The DynamoDB client of a process, whose requests are struck.

    Attributes:
        life: the process.
        attempts: how often its SDK sends a request.
    """

    life: Life
    attempts: int = 1

    def table(self, name: str) -> SimulatedTable:
        """One of the stack's."""
        return self.life.tables.by_name[name]

    def transactions(self) -> Transactions:
        """Those of the stack."""
        return self.life.tables.transactions

    @property
    def page_items(self) -> int:
        """A page has all that a query finds."""
        return 1 << 60

    def page_of(self, table: Table, read: Query | Scan) -> Page:
        """A page of a partition, or of the index."""
        if isinstance(read, Query) and read.index is not None:
            return self.life.tables.listed(read)
        return TableClient.page_of(self, table, read)

    def read(self, what: str, request: Callable[[], _T]) -> _T:  # noqa: ARG002 - of others
        """Its SDK sends a request that changes nothing."""
        return self._call(request, writes=False)

    def written(self, what: str, request: Callable[[], _T]) -> _T:  # noqa: ARG002 - of others
        """Its SDK sends a request that writes."""
        return self._call(request, writes=True)

    def transact(self, writes: Sequence[Write], token: str) -> bool:
        """All or nothing; each item changes at its own moment."""
        self.check_transaction(writes)
        codes = ["TransactionConflict", *["None"] * (len(writes) - 1)]
        conflict = TransactionCancelled(tuple(map(Cancelled, codes)))
        begin = self.life.tables.transactions.begin
        fresh, takes_ms = self._call(lambda: begin(writes, token), writes=True, conflict=conflict)
        if takes_ms:
            self.life.sleep_ms(takes_ms)
        return fresh

    def _call(
        self,
        request: Callable[[], _T],
        *,
        writes: bool,
        conflict: CountledgerError | None = None,
    ) -> _T:
        return sdk_call(self.attempts, lambda: self._send(request, conflict, writes=writes))

    def _send(
        self, request: Callable[[], _T], conflict: CountledgerError | None, *, writes: bool
    ) -> _T:
        life, tables = self.life, self.life.tables
        strike = tables.strike(writes=writes)
        life.sleep_ms(tables.random.expovariate(1 / _LATENCY_MS))
        match strike:
            case Strike.KILLED:
                life.kill()
            case Strike.THROTTLED:
                raise Throttled("throttled")
            case Strike.CONFLICT:
                raise conflict or Throttled("conflict")
            case Strike.LOST:
                raise Unclear("no answer")
            case Strike.LATE:
                tables.schedule.at(tables.random.random() * _LATE_MS, lambda: _land(request))
                raise Unclear("no answer")
            case Strike.ANSWER_LOST | Strike.KILLED_AFTER:
                _land(request)
                if strike is Strike.KILLED_AFTER:
                    life.kill()
                raise Unclear("no answer")
        answer = request()
        life.sleep_ms(tables.random.expovariate(1 / _LATENCY_MS))
        return answer


def _land(request: Callable[[], Any]) -> None:
    with suppress(CountledgerError):
        request()
