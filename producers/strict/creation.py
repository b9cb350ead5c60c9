"""Creates and deletes strict counters.

    (strict#<ns>, <counter>)     its entry in the directory, which no change writes
    (counter, total)             the definition; without bins also value, bounds, headroom, memory
    (<counter>#NN, bin)          each bin's share of value, bounds and headroom

Each call is one transaction. A deletion leaves a tombstone in the place of the directory's entry
(see `ledger/tombstones.py`), which costs what deleting the entry would: a creation that arrives
late is refused by it. A creation that meets a tombstone as new as itself is sent again and names
the tombstone. A tombstone of its own incarnation means that it was created, and deleted since.

A deletion is conditional on the fence of the main item. Before a deletion is refused, it raises the
fence if one of its requests got no answer. So does a creation before it says that the name is
taken: a deletion that was planned earlier, and leaves later, would leave a tombstone that is older
than the creation.

The table `strict`, over regions, supports no transactions and no time to live: there each call goes
step by step, write by write, on its one item and the directory's entry:

    create    the directory's entry, then the item, if no item has its name
    delete    the item, if it has the incarnation, then the directory's entry, if it has it

A crash between two writes leaves a directory entry without its item, which `list` skips. Nothing
keeps a late request from creating the item again once it was deleted. So a counter over regions
cannot be deleted before every request of its creation has expired (about 17 minutes; `created_at`);
and a creation does not say that the name is taken while one of its own requests may be applied.

Markers are not deleted: they belong to an incarnation, so a recreated counter ignores them, and
they expire. A version begins at the time of creation, in milliseconds: one item takes no more than
a thousand writes a second for long, so a recreated counter begins above its old version.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from countledger.ledger import keys
from countledger.ledger.attempts import (
    Done,
    Reply,
    Send,
    attempt,
    otherwise,
)
from countledger.ledger.errors import (
    BadBounds,
    ConditionFailed,
    CounterExists,
    CountledgerError,
    OpenHolds,
    Throttled,
    TransactionCancelled,
    Unclear,
)
from countledger.ledger.indexes import namespace_board, partitions_to_write
from countledger.ledger.operations import Absent, AllOf, AnyOf, Compare, Delete, Get, Put, Transact
from countledger.ledger.tombstones import removed_id, tombstone, vacant
from countledger.producers.strict import token
from countledger.producers.strict.change import (
    fence_of,
    raise_exhausted,
    raise_fences,
    raising,
    unraised,
)
from countledger.producers.strict.definition import (
    Bounds,
    Definition,
    Method,
    StrictState,
    check_value,
    deal_state,
    decode_definition,
    define,
    encode_definition,
    encode_state,
    of,
)
from countledger.producers.strict.reader import CREATION_SENT_MS
from countledger.producers.strict.release import Releases

if TYPE_CHECKING:
    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import Steps, Verdict
    from countledger.ledger.attributes import Item
    from countledger.ledger.operations import Write
    from countledger.producers.strict.change import MethodContext

# How often others may create and delete the counter while it is created.
_TRIES: Final = 5
_ADVICE: Final = "it may have been done: show the counter before you call again"


@dataclass(frozen=True, slots=True)
class NewCounter:
    """What a caller wants created. Validated when created."""

    counter: str
    method: str
    bounds: Bounds
    opening: Amount
    bins: int = 1
    history: int | None = None
    max_tokens: int | None = None
    window_ms: int | None = None

    def __post_init__(self) -> None:
        """Refuse an opening value outside of the bounds.

        Raises:
            BadBounds: naming the bound that it passes.
        """
        opening = check_value("opening value", self.opening)
        if opening is None:
            raise BadBounds("an opening value of None: leave it out to begin at 0")
        object.__setattr__(self, "opening", opening)
        self.bounds.check_inside(opening)

    def definition(self, incarnation: str) -> Definition:
        """Its definition.

        Raises:
            BadSetting: a choice breaks its rule, or is for another method.
        """
        return define(
            self.counter,
            incarnation,
            self.method,
            bins=self.bins,
            history=self.history,
            max_tokens=self.max_tokens,
            window_ms=self.window_ms,
        )


def create(context: MethodContext, new: NewCounter, definition: Definition) -> Steps[list[Item]]:
    """Create a counter: two write units for each item.

    Over regions one for each, in each region; and a read unit. In place of a counter that was
    deleted less than about a minute ago twice as much.

    Returns:
        Its main item and its bins, as they were created.

    Raises:
        CounterExists: a counter has that name.
        Unclear: no attempt got a clear answer.
        Throttled: every attempt was refused.
    """
    board = keys.ranking_key(keys.namespace_of(new.counter))
    rule = yield Send(Get(context.table, board, consistent=False))
    now_ms, partitions = context.clock.now_ms(), partitions_to_write(rule)
    items = plan_creation(
        context.table, definition, new.bounds, new.opening, now_ms, partitions=partitions
    )
    what = f"to create strict counter {new.counter!r}"
    if context.over_regions:
        existing = yield from _create_stepwise(context, what, items, now_ms)
    else:
        existing = yield from _create_together(context, definition, what, items, now_ms)
    if existing is not None and not definition.is_of(existing):
        raise CounterExists(
            f"strict counter {new.counter!r} exists, of method {existing.get('method')}: "
            "delete it first, or take another name"
        )
    return [put.item for put in items[1:]]


def _create_together(
    context: MethodContext, definition: Definition, what: str, items: list[Put], now_ms: int
) -> Steps[Item | None]:
    """Write all items in one transaction; or the main item that already has the name."""
    listed, met, doubtful = items[0], None, False
    for _ in range(_TRIES):
        free = vacant(now_ms, context.clock_skew_ms, removed_id(met))
        if met is not None and removed_id(met) is None:
            # An entry without its counter, as a restore to a moment in between may leave it.
            free = Compare("incarnation", "=", met["incarnation"])
        entry = replace(listed, condition=free)
        token = context.new_id(now_ms)
        creation = Transact([entry, *items[1:]], token)
        refused, maybe_applied = yield from _write(context, what, creation)
        if refused is None:
            return None
        doubtful = doubtful or maybe_applied
        found, main = refused.reasons[0].item, refused.reasons[1]
        if main.condition_failed or removed_id(found) == definition.incarnation:
            existing: Item = main.item or {"incarnation": definition.incarnation}
            if definition.is_of(existing) or not doubtful:
                return existing
            if (yield from _fenced(context, what, existing)):
                return existing
            found = None
        met = found
    raise Throttled(f"{what}: it kept being created and deleted by others; try again later")


def _fenced(context: MethodContext, what: str, existing: Item) -> Steps[bool]:
    """Raise the fence of the counter that has the name: one write unit. False: it is gone.

    Raises:
        Unclear: no clear answer.
    """
    counter = decode_definition(existing)
    raised = yield from raise_fences(
        [raising(context.table, counter.main, counter.incarnation)], context.attempts()
    )
    if raised is None:
        raise Unclear(f"{what}: no clear answer; {_ADVICE}")
    (item,) = raised
    if item is None:
        return False
    context.fences.learn(counter.main, counter.incarnation, item)
    return True


def _create_stepwise(
    context: MethodContext, what: str, items: list[Put], now_ms: int
) -> Steps[Item | None]:
    """Write both items; or the item that already has the name."""
    # Read first, so that a call with a name that exists does not write its directory entry.
    listed, main = items
    key = {name: main.item[name] for name in ("counter", "part")}
    existing: Item | None = yield Send(Get(context.table, key))
    if existing is not None:
        return existing
    until_ms = now_ms + CREATION_SENT_MS
    yield from _write(context, what, listed, until_ms)
    dated = Put(main.table, {**main.item, "created_at": now_ms}, main.condition)
    refused, maybe_applied = yield from _write(context, what, dated, until_ms)
    if refused is None:
        return None
    found = refused.item or {}
    if maybe_applied and found.get("incarnation") != main.item["incarnation"]:
        # It is the counter of another call. Once that is deleted, a late request of this call
        # would create the counter that was refused.
        raise Unclear(f"{what}: the name is taken, and a request is still under way; {_ADVICE}")
    return found


def delete(context: MethodContext, definition: Definition, main: Item) -> Steps[None]:
    """Delete a counter, unless it is gone or of another incarnation.

    Args:
        context: what to work with.
        definition: of the counter.
        main: its main item, as it was read.

    Raises:
        OpenHolds: some of it is held, also after the expired holds are released.
        Unclear: no attempt got a clear answer.
        Throttled: every attempt was refused, or expired holds could not be released.
    """
    what = f"to delete strict counter {definition.counter!r}"
    if context.over_regions:
        first, listed = plan_deletion(context.table, definition, fence_of(main))
        refused, maybe_applied = yield from _write(context, what, first)
        if refused is None or maybe_applied:
            yield from _write(context, what, listed)
        return
    refused, doubtful = yield from _delete_together(context, definition, what, fence_of(main))
    if refused is None:
        return
    if doubtful:
        # A late request would delete what changed since, acknowledged changes included.
        if not (yield from context.raise_fences(definition, [definition.main])):
            raise Unclear(f"{what}: no clear answer; {_ADVICE}") from refused
        if not definition.is_of((yield Send(Get(context.table, definition.main))) or {}):
            return
    raise refused


def _delete_together(
    context: MethodContext, definition: Definition, what: str, fence: int
) -> Steps[tuple[CountledgerError | None, bool]]:
    """Delete all items in one transaction; or why not, and whether a request may be applied yet."""
    releases, doubtful = Releases(context), False
    while True:
        now_ms = context.clock.now_ms()
        life_ms = context.request_life_ms + context.token_life_ms
        grave = tombstone(
            keys.strict_key(definition.counter),
            definition.incarnation,
            now_ms,
            context.clock_skew_ms,
            life_ms,
        )
        main, _, *bins = plan_deletion(context.table, definition, fence)
        writes: list[Write] = [main, Put(context.table, grave), *bins]
        refused, maybe_applied = yield from _write(
            context, what, Transact(writes, context.new_id(now_ms))
        )
        doubtful = doubtful or maybe_applied
        failed = [one.item for one in (refused.reasons if refused else ()) if one.condition_failed]
        if not any(map(definition.is_of, failed)):
            return None, False
        first = refused.reasons[0].item or {}
        if definition.is_of(first) and fence_of(first) != fence:
            # Another call raised it: none of the requests so far can be applied any more.
            fence, doubtful = fence_of(first), False
            continue
        try:
            again = yield from releases.release(definition)
        except Throttled as error:
            return error, doubtful
        if not again:
            open_holds = OpenHolds(
                f"strict counter {definition.counter!r} has open holds: cancel them, or wait "
                "until they have expired (`countledger strict holds` lists them)"
            )
            return open_holds, doubtful


def plan_creation(
    table: str,
    definition: Definition,
    bounds: Bounds,
    opening: Amount,
    now_ms: int,
    *,
    partitions: int | None = None,
) -> list[Put]:
    """All items of a new counter, if no counter has its name.

    The directory's entry comes first, then the main item, whose condition decides. In a ranked
    namespace the main item has its place on the board, if it holds the value: two write units more.
    """
    whole = StrictState(definition.incarnation, now_ms, opening, bounds.lower, bounds.upper)
    # A change by method request_token cannot store its time, so its counter has none.
    stamp = None if definition.method is Method.REQUEST_TOKEN else now_ms
    main: Item = {"updated_at": stamp, **encode_definition(definition)}
    shares: list[StrictState] = []
    if definition.bins == 1:
        main |= {**encode_state(whole), **_memory(definition)}
        if partitions:
            board = namespace_board(keys.namespace_of(definition.counter), partitions)
            main[board.attribute] = board.bucket_of(definition.counter)
    else:
        main["version"] = now_ms
        shares = deal_state(whole, definition.bins)
    listed: Item = {
        **keys.strict_key(definition.counter),
        "incarnation": definition.incarnation,
        "method": str(definition.method),
        "at": now_ms,
    }
    bins = (
        Put(table, {**key, **encode_state(share), "updated_at": stamp})
        for key, share in zip(definition.places, shares, strict=bool(shares))
    )
    return [Put(table, listed), Put(table, main, Absent("part")), *bins]


def plan_deletion(table: str, definition: Definition, fence: int) -> list[Delete]:
    """All items of a counter, if they are of its incarnation and hold nothing; main item first.

    The second is the directory's entry. `fence` is the number of the main item's fence.
    """
    condition = of(definition.incarnation)
    unheld = of(definition.incarnation, AnyOf(Absent("held"), Compare("held", "=", 0)))
    places = definition.places if definition.bins > 1 else []
    return [
        Delete(table, definition.main, AllOf(unheld, unraised(fence))),
        # Over regions the entry may be of a new incarnation by now; then it stays.
        Delete(table, keys.strict_key(definition.counter), condition),
        *(Delete(table, place, unheld) for place in places),
    ]


def _memory(definition: Definition) -> Item:
    """What the method remembers of a new counter."""
    tag = f"{definition.incarnation}=0"
    match definition.method:
        case Method.OCC:
            return {"tag": tag}
        case Method.HISTORY:
            return {"tags": [tag]}
        case Method.SET:
            return {"tokens": token.seed(definition.incarnation)}
        case _:
            return {}


def _write(
    context: MethodContext, what: str, operation: Transact | Write, until_ms: int | None = None
) -> Steps[tuple[Any, bool]]:
    """Write all or nothing: the error of the condition that refused it, or None.

    And whether an earlier attempt may be applied. Nothing is sent once the token may be forgotten:
    a counter that was deleted since would be created a second time under its old id.

    Raises:
        Unclear: an attempt may have been applied.
        Throttled, Unreachable: no attempt succeeded.
    """
    attempts = context.attempts(until_ms or context.clock.now_ms() + context.token_life_ms)

    def interpret(reply: Reply[None]) -> Verdict[None, CountledgerError | None]:
        match reply.answer:
            case ConditionFailed():
                return Done(reply.answer)
            case TransactionCancelled() if reply.answer.condition_failed:
                return Done(reply.answer)
            case CountledgerError():
                return otherwise(reply)
        return Done(None)

    refused = yield from attempt(
        None,
        lambda _: Send(operation),
        interpret,
        lambda exhausted: raise_exhausted(exhausted, what, _ADVICE),
        attempts,
    )
    return refused, attempts.maybe_applied
