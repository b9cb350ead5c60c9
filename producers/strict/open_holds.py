"""The open holds: listed, compared with what their counter holds, and released after their time.

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

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from countledger.ledger import amount, keys
from countledger.ledger.attempts import PASSING, Pause
from countledger.ledger.attributes import decoded
from countledger.ledger.errors import CorruptItem, NewerFormat, NoSuchCounter
from countledger.ledger.limits import MINUTE_MS, SECOND_MS, TIME_LIMIT_MS
from countledger.producers.strict.definition import Method, StaleDefinition, decode_state
from countledger.producers.strict.hold import (
    HoldState,
    all_buckets,
    bucket_query,
    buckets_of,
    decode_hold,
    is_hold,
)
from countledger.producers.strict.reader import Definitions, list_counters, read_bins
from countledger.producers.strict.release import change_id_of, is_copied_into, release_hold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import Steps
    from countledger.ledger.attributes import Item, OnCorrupt
    from countledger.ledger.suspension import Workers
    from countledger.producers.strict.change import MethodContext
    from countledger.producers.strict.definition import Definition
    from countledger.producers.strict.hold import Hold

# How long after a write the index may show it, with a wide margin.
_SETTLE_MS: Final = 5 * SECOND_MS
_RELEASED_PAGE: Final = 100
_THREADS: Final = 16


@dataclass(frozen=True, slots=True)
class HeldComparison:
    """What a counter holds, compared with its open holds.

    Attributes:
        counter: its name.
        held: what its items hold, together.
        reserved: what its open holds reserve, together.
        holds: how many these are.
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
    context: MethodContext,
    definition: Definition,
    on_corrupt: OnCorrupt | None = None,
    *,
    consistent: bool = False,
) -> list[Hold]:
    """The open holds of a counter by their time.

    Half a read unit for each, a whole one if consistent, and half of one for about 30 holds beside
    these in the index.

    Raises:
        CorruptItem: a hold cannot be read, and `on_corrupt` is not given.
    """
    reads, table, counter = context.reads, context.table, definition.counter
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


def compare_held(context: MethodContext, definition: Definition) -> Steps[HeldComparison]:
    """Compare what a counter holds with its open holds.

    Twice a read unit, with bins two for each, and a read unit for each open hold; up to three times
    that, and ten seconds, if they differ.

    Raises:
        StaleDefinition: the counter was deleted or recreated.
        CorruptItem: an item of it, or a hold, cannot be read.
    """
    before = yield from _items(context, definition)
    for settle_ms in (0, _SETTLE_MS, _SETTLE_MS):
        yield Pause(settle_ms)
        holds = open_holds(context, definition, consistent=True)
        after = yield from _items(context, definition)
        found = compared(context, definition, before, after, holds)
        if found.proven and (settle_ms or not found.differing):
            break
        before = after
    return found


def compared(
    context: MethodContext,
    definition: Definition,
    before: Sequence[Item],
    after: Sequence[Item],
    holds: Sequence[Hold],
) -> HeldComparison:
    """The comparison of items that were read before and after open holds. Pure but for the time."""
    released_before_ms = context.clock.now_ms() - context.clock_skew_ms
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


def counters_with_holds(context: MethodContext, namespaces: Iterable[str]) -> list[str]:
    """The counters of some namespaces that hold something, or for which a hold is in the index.

    Half a read unit for each counter of method marker and for each of its bins, and for about 30
    open holds.
    """
    wanted = set(namespaces)
    found = {
        one.counter
        for namespace in sorted(wanted)
        for one in list_counters(context, namespace, lambda _error: None)
        if one.method is Method.MARKER and one.held
    }
    for bucket in all_buckets():
        for page in context.reads.pages(bucket_query(context.table, bucket, TIME_LIMIT_MS, None)):
            names = {item["counter"].partition("#")[0] for item in page}
            found |= {name for name in names if keys.namespace_of(name) in wanted}
    return sorted(found)


def _items(context: MethodContext, definition: Definition) -> Steps[list[Item]]:
    if definition.bins == 1:
        return [(yield from context.read_incarnation(definition))]
    return (yield from read_bins(context, definition))


@dataclass(slots=True)
class ReleaseReport:
    """What a run did.

    Attributes:
        released: how many holds it released, or found released a moment before.
        overdue: how many it could not release, and at least one for each bucket without its turn.
        oldest_ms: for how long the oldest of these could have been released; 0 if there is none.
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

    Attributes:
        context: of the table `counters`.
        on_failure: called with the key and the error of a hold that could not be released.
    """

    context: MethodContext
    on_failure: Callable[[Item, Exception], object] = lambda _key, _error: None
    definitions: Definitions = field(init=False)

    def __post_init__(self) -> None:
        """No definition known yet."""
        object.__setattr__(self, "definitions", Definitions(self.context))

    def release(self, deadline_ms: int) -> ReleaseReport:
        """Release expired holds until the deadline; none while a restore copies items.

        Half a read unit for each bucket and for about 30 holds, a read unit for each hundred; for
        each hold two read units, and the write units of a cancellation.

        Args:
            deadline_ms: when no further hold is begun.

        Raises:
            ServiceFailed: the index cannot be read.
        """
        report = ReleaseReport()
        buckets = all_buckets()
        first = self.context.clock.now_ms() // MINUTE_MS % len(buckets)
        with self.context.dynamo.workers(_THREADS, "countledger-release") as pool:
            for bucket in [*buckets[first:], *buckets[:first]]:
                self._release_bucket(bucket, deadline_ms, report, pool)
        return report

    def oldest_ms(self) -> int:
        """For how long the oldest expired hold could have been released; 0 if there is none.

        Half a read unit for each bucket, eight together.

        Raises:
            ServiceFailed: the index cannot be read.
        """
        context = self.context
        before_ms = context.clock.now_ms() - context.clock_skew_ms
        pages = (
            next(context.reads.pages(bucket_query(context.table, bucket, before_ms, 1)), [])
            for bucket in all_buckets()
        )
        return max((before_ms - one["due_at"] for page in pages for one in page), default=0)

    def _release_bucket(
        self, bucket: str, deadline_ms: int, report: ReleaseReport, pool: Workers
    ) -> None:
        context = self.context
        before_ms = context.clock.now_ms() - context.clock_skew_ms
        late = context.clock.now_ms() >= deadline_ms
        page_size = 1 if late else _RELEASED_PAGE
        for page in context.reads.pages(bucket_query(context.table, bucket, before_ms, page_size)):
            # A hold that ends would stop the copy, which compares the items that it meets.
            deadline_ms = 0 if page and is_copied_into(context, self.on_failure) else deadline_ms
            done = pool.map(partial(self._release, deadline_ms), page)
            for one, released in zip(page, done, strict=True):
                if released:
                    report.released += 1
                else:
                    report.left(before_ms - one["due_at"])
            if page and context.clock.now_ms() >= deadline_ms:
                return

    def _release(self, deadline_ms: int, key: Item) -> bool:
        if self.context.clock.now_ms() >= deadline_ms:
            return False
        counter, change_id = key["counter"].partition("#")[0], change_id_of(key)
        try:
            definition, _ = self.definitions.get(counter)
            return self.context.run(release_hold(self.context, definition, change_id))
        except StaleDefinition:
            self.definitions.forget(counter)  # the next run reads it again
            return False
        except (CorruptItem, NewerFormat, NoSuchCounter, *PASSING) as error:
            self.on_failure(key, error)
            return False
