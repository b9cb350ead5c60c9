"""Releases expired holds where they keep a call from having its way.

A call that a lower bound has refused looks for expired holds of its counter, releases 25 of them
and is tried again, until there is enough or no expired hold is left (`Releases`): so an expired
hold makes no sale fail. It looks only where the refusal says that something is held. A look that
finds nothing is repeated a second later, or as soon as a hold expires that it has seen: what is
placed after the look lasts a second at least, and expires later. A short lease keeps other
processes from the same work; they wait and try again. Each release is conditional anyway. A call
that has no time left while expired holds are left is not refused: it is contended.

The open holds: listed, compared with what their counter holds, and released after their time.

The items of a counter store how much open holds reserve there. Each write of a hold is part of a
transaction that moves both, so the two agree, unless an item was changed by hand or a table was
restored to a moment inside such a transaction. Then an amount would stay reserved for ever, or a
hold could not be confirmed.

    1  read the items of the counter, as of one moment
    2  read its open holds, strongly consistent, as the index names them
    3  read the items again: with the same versions, no hold was placed or ended in between

The index may show a hold a moment late. So a difference counts only after a second comparison, made
after a pause.

All holds of a table whose time is over are released (`OverdueHolds`), whether a call needs them or
not. A run reads the buckets of the index, each from its oldest hold on, and releases what it finds
until its time is over. What it has released leaves the index, so the next run goes on where this
one ended; each begins at another bucket. A hold that cannot be released is passed over, counted,
and read again by the next run. Two runs at once do no harm: a hold ends once.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Final

from countledger.ledger import amount, keys
from countledger.ledger.attempts import PASSING, Pause, Send
from countledger.ledger.attributes import decoded
from countledger.ledger.connection import POLICY
from countledger.ledger.errors import (
    ConditionFailed,
    CorruptItem,
    NewerFormat,
    NoSuchCounter,
    NoSuchHold,
    Throttled,
)
from countledger.ledger.limits import (
    HOLD_MIN_MS,
    MINUTE_MS,
    RELEASE_LEASE_MS,
    RELEASE_TIME_MS,
    RELEASED_AT_ONCE,
    SECOND_MS,
    TIME_LIMIT_MS,
)
from countledger.ledger.operations import Absent, AnyOf, Compare, Delete, Put
from countledger.producers.strict.change import read_incarnation
from countledger.producers.strict.definition import Method, StaleDefinition, decode_state
from countledger.producers.strict.hold import (
    End,
    HoldState,
    Purpose,
    Resolution,
    all_buckets,
    bucket_query,
    buckets_of,
    decode_hold,
    is_hold,
)
from countledger.producers.strict.outcome import BoundReached, Contended, Unknown
from countledger.producers.strict.reader import (
    Definitions,
    list_counters,
    read_bins,
    split_over_bins,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TypeVar

    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import Steps
    from countledger.ledger.attributes import Item, Key, OnCorrupt
    from countledger.ledger.connection import Connection
    from countledger.ledger.operations import Page
    from countledger.ledger.suspension import Workers
    from countledger.producers.strict.definition import Definition, Part
    from countledger.producers.strict.hold import Hold
    from countledger.producers.strict.outcome import StrictOutcome


if TYPE_CHECKING:
    _T = TypeVar("_T")

# Between two attempts while another thread or process releases holds of the counter.
_WAIT_MS: Final = 100
# Of a page of the index: about three read units.
_PAGE_SIZE: Final = 100


# The least recently looked at counters beyond are looked at again.
_LOOKS_KEPT: Final = 10_000


class Look(Enum):
    """Whether to look for expired holds of a counter."""

    NOW = "now"
    UNDER_WAY = "another thread looks"
    SINCE = "another thread has looked since the call was refused"
    NOTHING_EXPIRED = "nothing has expired since the last look"


@dataclass(slots=True)
class RecentLooks:
    """When this process looked for expired holds of each counter, and until when none expires.

    `begun`: how many looks it has begun.
    """

    begun: int = 0
    # Of each counter: when its last look began, as which one, and until when nothing expires (None:
    # it is under way).
    _last: OrderedDict[str, tuple[int, int, int | None]] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def begin(self, counter: str, now_ms: int, tried: int) -> Look:
        """Whether to look now. If so, `end` has to follow.

        `tried`: how many looks had begun when the refused request was sent.
        """
        with self._lock:
            began_ms, number, quiet_until_ms = self._last.get(counter, (0, 0, 0))
            if quiet_until_ms is None and 0 <= now_ms - began_ms < RELEASE_LEASE_MS:
                return Look.UNDER_WAY
            if quiet_until_ms is not None and began_ms <= now_ms < quiet_until_ms:
                return Look.SINCE if number > tried else Look.NOTHING_EXPIRED
            self.begun += 1
            self._last[counter] = now_ms, self.begun, None
            self._last.move_to_end(counter)
            if len(self._last) > _LOOKS_KEPT:
                self._last.popitem(last=False)
            return Look.NOW

    def end(self, counter: str, quiet_until_ms: int | None) -> None:
        """A look is over; until then nothing more expires (None: not known, so look again)."""
        with self._lock:
            began_ms, number, _ = self._last.pop(counter, (0, 0, None))
            if quiet_until_ms is not None:
                self._last[counter] = began_ms, number, quiet_until_ms


@dataclass(slots=True)
class Releases:
    """What one call releases so that it is not refused. Made before its first request.

    From the first release on it waits until `until_ms` at least; `waits`: how often it has waited,
    for others or after an error. `handled`: the counters and ids of the keys of holds that it has
    released or found ended. `tried`: how many looks this process had begun when the last request of
    the call was sent.
    """

    connection: Connection
    until_ms: int | None = None
    waits: int = 0
    handled: set[tuple[str, str]] = field(default_factory=set)
    tried: int = field(init=False)

    def __post_init__(self) -> None:
        self.tried = self.connection.shared(RecentLooks).begun

    def for_refused(self, definition: Definition, refused: BoundReached) -> Steps[bool]:
        """Release expired holds of a counter that refused; whether to try again."""
        if refused.side != "lower" or not refused.held:
            return False
        return (yield from self.release(definition))

    def again(
        self,
        definition: Definition,
        ended: StrictOutcome | _T,
        attempt: Callable[[], Steps[StrictOutcome | _T]],
    ) -> Steps[StrictOutcome | _T]:
        """What an attempt ended with; after a refusal, what it ends with once nothing is expired.

        Costs what the attempts cost, and `release` before each of them. `Contended`: the time of
        the call is over, and expired holds may be left.
        """
        try:
            while isinstance(ended, BoundReached) and (
                yield from self.for_refused(definition, ended)
            ):
                ended = yield from attempt()
        except Throttled as error:
            return Contended(definition.counter, max(self.waits, 1), str(error))
        return ended

    def split(self, definition: Definition, delta: Amount) -> Steps[list[Part] | BoundReached]:
        """A change split over bins, once there is headroom for it or no expired hold is left."""
        while True:
            parts = yield from split_over_bins(self.connection, definition, delta)
            if not isinstance(parts, BoundReached) or not (
                yield from self.for_refused(definition, parts)
            ):
                return parts

    def release(self, definition: Definition) -> Steps[bool]:
        """Release up to 25 expired holds of a counter; whether to try again.

        Half a read unit for each page of each bucket (one bucket without bins, 16 at most); two
        write units for the lease if there is an expired hold, and a read unit and the units of a
        cancellation for each. `Throttled`: the time of the call is over, and expired holds may be
        left.
        """
        if (yield from self._look(definition)):
            self.tried = self.connection.shared(RecentLooks).begun
            return True
        return False

    def _look(self, definition: Definition) -> Steps[bool]:
        connection, counter = self.connection, definition.counter
        now_ms = connection.clock.now_ms()
        self.until_ms = self.until_ms or now_ms + RELEASE_TIME_MS
        look = connection.shared(RecentLooks).begin(counter, now_ms, self.tried)
        if look is Look.UNDER_WAY:
            yield from self._wait(counter)
        if look is not Look.NOW:
            return look is not Look.NOTHING_EXPIRED
        quiet_until_ms = None
        try:
            lapsed, quiet_until_ms = yield from _lapsed(connection, definition, self.handled)
            done = not lapsed or (yield from self._release(definition, lapsed))
        except PASSING:
            done = False
        finally:
            connection.shared(RecentLooks).end(counter, quiet_until_ms)
        if not done:
            yield from self._wait(counter)
        # Another process may have released what was in the way before this one looked.
        return True

    def _wait(self, counter: str) -> Steps[None]:
        self.waits += 1
        late = self.until_ms is not None and self.connection.clock.now_ms() >= self.until_ms
        if late and self.waits >= POLICY.attempts:
            raise Throttled(
                f"strict counter {counter!r} has expired holds that could not be released yet"
            )
        yield Pause(_WAIT_MS)

    def _release(self, definition: Definition, lapsed: Sequence[str]) -> Steps[bool]:
        """Release these holds; whether one of them ended, by this call or another one."""
        connection, owner = (
            self.connection,
            self.connection.ids.new_id(self.connection.clock.now_ms()),
        )
        try:
            yield Send(plan_lease(connection, definition, owner))
        except ConditionFailed:
            return False  # another process is at it
        done = False
        for change_id in lapsed:
            if (yield from release_hold(connection, definition, change_id)):
                done = True
                self.handled.add((definition.counter, change_id))
        with suppress(ConditionFailed, *PASSING):
            key = keys.release_key(definition.counter)
            yield Send(Delete(connection.counters, key, Compare("owner", "=", owner)))
        return done


def plan_lease(connection: Connection, definition: Definition, owner: str) -> Put:
    now_ms = connection.clock.now_ms()
    item = {
        **keys.release_key(definition.counter),
        "owner": owner,
        "until": now_ms + RELEASE_LEASE_MS,
        "expires_at": (now_ms + MINUTE_MS) // SECOND_MS,
    }
    return Put(connection.counters, item, AnyOf(Absent("part"), Compare("until", "<", now_ms)))


def _lapsed(
    connection: Connection, definition: Definition, handled: set[tuple[str, str]]
) -> Steps[tuple[list[str], int | None]]:
    """The holds of a counter that can be released, and until when no more can be.

    By the ids of their keys, 25 at most, as the index lists them, without those that are handled;
    and None if there is one: there may be more.
    """
    places = keys.marker_places(definition.counter, definition.bins)
    now_ms, skew_ms = connection.clock.now_ms(), connection.clock_skew_ms
    quiet_until_ms = now_ms + HOLD_MIN_MS
    found: list[str] = []
    for bucket in buckets_of(places):
        # Together with those that expire soon: until then another look finds nothing.
        query = bucket_query(connection.counters, bucket, quiet_until_ms - skew_ms, _PAGE_SIZE)
        while True:
            page: Page = yield Send(query)
            for item in page.items:
                one = definition.counter, change_id_of(item)
                if item["counter"] not in places or one in handled:
                    continue
                if item["due_at"] + skew_ms < now_ms:
                    found.append(one[1])
                else:
                    quiet_until_ms = min(quiet_until_ms, item["due_at"] + skew_ms + 1)
            if page.after is None or len(found) >= RELEASED_AT_ONCE:
                break
            query = replace(query, after=page.after)
    return found[:RELEASED_AT_ONCE], None if found else quiet_until_ms


def change_id_of(key: Key) -> str:
    """The id of the key of a hold, by the key of its item."""
    return key["part"].removeprefix(keys.MARKER_PREFIX)


def release_hold(connection: Connection, definition: Definition, change_id: str) -> Steps[bool]:
    """Release a hold whose time is over; whether it has ended, by this call or another one."""
    now_ms = connection.clock.now_ms()
    call, attempts = connection.ids.new_id(now_ms), connection.attempts()
    one = Resolution(connection, definition, change_id, Purpose.RELEASE, attempts, call)
    try:
        return not isinstance((yield from one.apply()), Unknown | Contended | End)
    except NoSuchHold:
        return True  # the index is a moment late


def is_copied_into(connection: Connection, on_failure: Callable[[Item, Exception], object]) -> bool:
    """Whether a restore copies items into the table now: one read unit.

    `on_failure` is called with the error of the read; then nothing should be released either.
    """
    key = keys.restore_key()
    try:
        record = connection.retrying.get(connection.counters, key, consistent=True)
    except PASSING as error:
        on_failure(key, error)
        return True
    return record is not None and "copied_at" not in record


# How long after a write the index may show it, with a wide margin.
_SETTLE_MS: Final = 5 * SECOND_MS
_RELEASED_PAGE: Final = 100
_THREADS: Final = 16


@dataclass(frozen=True, slots=True)
class HeldComparison:
    """What a counter holds, compared with its open holds.

    Attributes:
        held: what its items hold, together.
        overdue: how many of them could have been released by now.
        differing: the items that hold another amount than the open holds reserve there.
        proven: whether no hold was placed or ended during the comparison.
    """

    counter: str
    held: Amount
    reserved: Amount
    holds: int
    overdue: int
    differing: tuple[str, ...]
    proven: bool


def open_holds(
    connection: Connection,
    definition: Definition,
    on_corrupt: OnCorrupt | None = None,
    *,
    consistent: bool = False,
) -> list[Hold]:
    """The open holds of a counter by their time.

    Half a read unit for each, a whole one if consistent, and half of one for about 30 holds beside
    these in the index.
    """
    reads, table, counter = connection.retrying, connection.counters, definition.counter
    places = keys.marker_places(counter, definition.bins)
    found: list[dict[str, str]] = []
    for bucket in buckets_of(places):
        for page in reads.pages(bucket_query(table, bucket, TIME_LIMIT_MS, None)):
            ours = (one for one in page if one["counter"] in places)
            found += [{"counter": one["counter"], "part": one["part"]} for one in ours]
    items = reads.get_many(table, found, consistent=consistent)
    own = [item for item in items if is_hold(item) and definition.is_of(item)]
    holds = decoded(own, lambda item: decode_hold(counter, item), on_corrupt)
    stored = (hold for hold in holds if hold.state is HoldState.OPEN)
    return sorted(stored, key=lambda hold: (hold.lapses_at_ms, hold.id))


def compare_held(connection: Connection, definition: Definition) -> Steps[HeldComparison]:
    """Compare what a counter holds with its open holds.

    Twice a read unit, with bins two for each, and a read unit for each open hold; up to three times
    that, and ten seconds, if they differ.
    """
    before = yield from _items(connection, definition)
    for settle_ms in (0, _SETTLE_MS, _SETTLE_MS):
        yield Pause(settle_ms)
        holds = open_holds(connection, definition, consistent=True)
        after = yield from _items(connection, definition)
        found = compared(connection, definition, before, after, holds)
        if found.proven and (settle_ms or not found.differing):
            break
        before = after
    return found


def compared(
    connection: Connection,
    definition: Definition,
    before: Sequence[Item],
    after: Sequence[Item],
    holds: Sequence[Hold],
) -> HeldComparison:
    """The comparison of items that were read before and after open holds. Pure but for the time."""
    released_before_ms = connection.clock.now_ms() - connection.clock_skew_ms
    held = {item["counter"]: decode_state(item).held for item in after}
    reserved: dict[str, Amount] = {}
    for hold in holds:
        for key, share in hold.parts:
            reserved[key["counter"]] = amount.add(reserved.get(key["counter"], 0), share)
    places = dict.fromkeys([*held, *reserved])
    return HeldComparison(
        counter=definition.counter,
        held=amount.total_of(held.values()),
        reserved=amount.total_of(reserved.values()),
        holds=len(holds),
        overdue=sum(hold.lapses_at_ms < released_before_ms for hold in holds),
        differing=tuple(one for one in places if held.get(one, 0) != reserved.get(one, 0)),
        proven=[one["version"] for one in before] == [one["version"] for one in after],
    )


def counters_with_holds(connection: Connection, namespaces: Iterable[str]) -> list[str]:
    """The counters of some namespaces that hold something, or for which a hold is in the index.

    Half a read unit for each counter of method marker and for each of its bins, and for about 30
    open holds.
    """
    wanted = set(namespaces)
    found = {
        one.counter
        for namespace in sorted(wanted)
        for one in list_counters(connection, namespace, lambda _error: None)
        if one.method is Method.MARKER and one.held
    }
    for bucket in all_buckets():
        for page in connection.retrying.pages(
            bucket_query(connection.counters, bucket, TIME_LIMIT_MS, None)
        ):
            names = {item["counter"].partition("#")[0] for item in page}
            found |= {name for name in names if keys.namespace_of(name) in wanted}
    return sorted(found)


def _items(connection: Connection, definition: Definition) -> Steps[list[Item]]:
    if definition.bins == 1:
        return [(yield from read_incarnation(connection, definition))]
    return (yield from read_bins(connection, definition))


@dataclass(slots=True)
class ReleaseReport:
    """What a run did.

    `released` includes those that were released a moment before; `overdue` those that it could not
    release, and at least one for each bucket without its turn. The oldest of these could have been
    released for `oldest_ms`; 0 if there is none.
    """

    released: int = 0
    overdue: int = 0
    oldest_ms: int = 0

    def left(self, since_ms: int) -> None:
        """One hold is left that could have been released for that long."""
        self.overdue += 1
        self.oldest_ms = max(self.oldest_ms, since_ms)


@dataclass(frozen=True, slots=True)
class OverdueHolds:
    """The expired holds of the counters of a table.

    `on_failure` is called with the key and the error of a hold that could not be released.
    """

    connection: Connection
    on_failure: Callable[[Item, Exception], object] = lambda _key, _error: None
    definitions: Definitions = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "definitions", Definitions(self.connection))

    def release(self, deadline_ms: int) -> ReleaseReport:
        """Release expired holds until the deadline; none while a restore copies items.

        Half a read unit for each bucket and for about 30 holds, a read unit for each hundred; for
        each hold two read units, and the write units of a cancellation.
        """
        report = ReleaseReport()
        buckets = all_buckets()
        first = self.connection.clock.now_ms() // MINUTE_MS % len(buckets)
        with self.connection.unretried.workers(_THREADS, "countledger-release") as pool:
            for bucket in [*buckets[first:], *buckets[:first]]:
                self._release_bucket(bucket, deadline_ms, report, pool)
        return report

    def oldest_ms(self) -> int:
        """For how long the oldest expired hold could have been released; 0 if there is none.

        Half a read unit for each bucket, eight together.
        """
        connection = self.connection
        before_ms = connection.clock.now_ms() - connection.clock_skew_ms
        pages = (
            next(
                connection.retrying.pages(bucket_query(connection.counters, bucket, before_ms, 1)),
                [],
            )
            for bucket in all_buckets()
        )
        return max((before_ms - one["due_at"] for page in pages for one in page), default=0)

    def _release_bucket(
        self, bucket: str, deadline_ms: int, report: ReleaseReport, pool: Workers
    ) -> None:
        connection = self.connection
        before_ms = connection.clock.now_ms() - connection.clock_skew_ms
        late = connection.clock.now_ms() >= deadline_ms
        page_size = 1 if late else _RELEASED_PAGE
        for page in connection.retrying.pages(
            bucket_query(connection.counters, bucket, before_ms, page_size)
        ):
            # A hold that ends would stop the copy, which compares the items that it meets.
            deadline_ms = 0 if page and is_copied_into(connection, self.on_failure) else deadline_ms
            done = pool.map(partial(self._release, deadline_ms), page)
            for one, released in zip(page, done, strict=True):
                if released:
                    report.released += 1
                else:
                    report.left(before_ms - one["due_at"])
            if page and connection.clock.now_ms() >= deadline_ms:
                return

    def _release(self, deadline_ms: int, key: Item) -> bool:
        if self.connection.clock.now_ms() >= deadline_ms:
            return False
        counter, change_id = key["counter"].partition("#")[0], change_id_of(key)
        try:
            definition, _ = self.definitions.get(counter)
            return self.connection.run(release_hold(self.connection, definition, change_id))
        except StaleDefinition:
            self.definitions.forget(counter)  # the next run reads it again
            return False
        except (CorruptItem, NewerFormat, NoSuchCounter, *PASSING) as error:
            self.on_failure(key, error)
            return False
