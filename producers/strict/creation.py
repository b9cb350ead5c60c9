"""Creates and deletes strict counters.

    (strict#<ns>, <counter>)     its entry in the directory, which no change writes
    (counter, total)             the definition; without bins also value, bounds, headroom, memory
    (<counter>#NN, bin)          each bin's share of value, bounds and headroom

Each call is one transaction under one token. The table `strict`, over regions, supports none: there
each call goes step by step, write by write, on its one item and the directory's entry:

    create    the directory's entry, then the item, if no item has its name
    delete    the item, if it has the incarnation, then the directory's entry, if it has it

A crash between two writes leaves a directory entry without its item, which `list` skips. A request
that got no answer is sent again, for a minute, and detects by the item's `incarnation` whether the
first one was applied. No token keeps the first one from being applied later; that would create a
counter again that was deleted meanwhile. So a counter cannot be deleted before every request of its
creation has expired (about 17 minutes; `created_at`).

Markers are not deleted: they belong to an incarnation, so a recreated counter ignores them, and
they expire. A version begins at the time of creation, in milliseconds: one item takes no more than
a thousand writes a second for long, so a recreated counter begins above its old version.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    TransactionCancelled,
)
from countledger.ledger.expressions import Absent, AnyOf, Compare
from countledger.ledger.operations import Delete, Get, Put, Transact
from countledger.ledger.ranking import namespace_board, partitions_to_write
from countledger.producers.strict import token_set
from countledger.producers.strict.bins import deal_state
from countledger.producers.strict.context import raise_exhausted
from countledger.producers.strict.definition import Definition, Method, define, encode_definition
from countledger.producers.strict.known import CREATION_SENT_MS
from countledger.producers.strict.release import Releases
from countledger.producers.strict.state import (
    Bounds,
    StrictState,
    check_amount,
    encode_state,
    of,
)

if TYPE_CHECKING:
    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import Steps, Verdict
    from countledger.ledger.attributes import Item
    from countledger.ledger.operations import Write
    from countledger.producers.strict.context import MethodContext

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
        opening = check_amount("opening value", self.opening)
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


def create(context: MethodContext, new: NewCounter, definition: Definition) -> Steps[None]:
    """Create a counter: two write units for each item.

    Over regions one for each, in each region; and a read unit.

    Raises:
        CounterExists: a counter has that name.
        Unclear: no attempt got a clear answer.
        Throttled: every attempt was refused.
    """
    board = keys.ranking_key(keys.namespace_of(new.counter))
    rule = yield Send(Get(context.table, board, consistent=False))
    now_ms, partitions = context.clock.now_ms(), partitions_to_write(rule)
    listed, main, *bins = plan_creation(
        context.table, definition, new.bounds, new.opening, now_ms, partitions=partitions
    )
    what = f"to create strict counter {new.counter!r}"
    if context.over_regions:
        existing = yield from _create_stepwise(context, what, listed, main, now_ms)
    else:
        transaction = Transact([listed, main, *bins], definition.incarnation)
        refused, _ = yield from _write(context, what, transaction)
        # The directory's entry is written in any case; the condition of the main item decides.
        existing = refused and (refused.reasons[1].item or {})
    if existing is not None and not definition.is_of(existing):
        raise CounterExists(
            f"strict counter {new.counter!r} exists, of method {existing.get('method')}: "
            "delete it first, or take another name"
        )


def _create_stepwise(
    context: MethodContext, what: str, listed: Put, main: Put, now_ms: int
) -> Steps[Item | None]:
    """Write both items; or the item that already has the name."""
    # Read first, so that a call with a name that exists does not write its directory entry.
    key = {name: main.item[name] for name in ("counter", "part")}
    existing: Item | None = yield Send(Get(context.table, key))
    if existing is not None:
        return existing
    until_ms = now_ms + CREATION_SENT_MS
    yield from _write(context, what, listed, until_ms)
    dated = Put(main.table, {**main.item, "created_at": now_ms}, main.condition)
    refused, _ = yield from _write(context, what, dated, until_ms)
    return refused and (refused.item or {})


def delete(context: MethodContext, definition: Definition) -> Steps[None]:
    """Delete a counter, unless it is gone or of another incarnation.

    Raises:
        OpenHolds: some of it is held, also after the expired holds are released.
        Unclear: no attempt got a clear answer.
        Throttled: every attempt was refused, or expired holds could not be released.
    """
    what, releases = f"to delete strict counter {definition.counter!r}", Releases(context)
    stepwise = context.over_regions
    main, listed, *bins = plan_deletion(context.table, definition, stepwise=stepwise)
    while not stepwise:
        token = context.new_id(context.clock.now_ms())
        refused, _ = yield from _write(context, what, Transact([main, listed, *bins], token))
        failed = [one.item for one in (refused.reasons if refused else ()) if one.condition_failed]
        if not any(map(definition.is_of, failed)):
            return
        if not (yield from releases.release(definition)):
            raise OpenHolds(
                f"strict counter {definition.counter!r} has open holds: cancel them, or wait "
                "until they have expired (`countledger strict holds` lists them)"
            )
    refused, maybe_applied = yield from _write(context, what, main)
    if refused is None or maybe_applied:
        yield from _write(context, what, listed)


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


def plan_deletion(table: str, definition: Definition, *, stepwise: bool = False) -> list[Delete]:
    """All items of a counter, if they are of its incarnation and hold nothing; main item first."""
    condition = of(definition.incarnation)
    unheld = of(definition.incarnation, AnyOf(Absent("held"), Compare("held", "=", 0)))
    places = definition.places if definition.bins > 1 else []
    return [
        Delete(table, definition.main, unheld),
        # Step by step, the entry may be of a new incarnation by now; then it stays.
        Delete(table, keys.strict_key(definition.counter), condition if stepwise else None),
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
            return {"tokens": token_set.seed(definition.incarnation)}
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
