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

Moves the bounds of a strict counter while other processes change it.

A bound moves by one update of each item: the update sets the bound and moves the headroom by the
same distance, on condition that the bound is still the one that was read and, unless forced, that
the headroom does not become negative. With bins all updates are one transaction.

The first item has the number of moves so far (`moves`, absent as long as it is 0) and the id of the
call that made the last one (`moved_by`). Each move is conditional on the number that was read, and
raises it by one. So of all requests of a call one is applied, and only before every other move. If
the condition fails after a request without an answer, the item says what became of it:

    moved_by is this call's               applied
    the number is what was read           not yet: what is planned next has the same condition
    one more, by another call             not applied, for good: read and decide again
    more than one                         unknown: this call's may be among them

Before a refusal (the value is outside of the wanted bounds) a call that had a request without an
answer raises the number itself, by a write that moves nothing: one write unit.

A bound that is forced past the value leaves a negative headroom: changes towards the bound are
refused until changes the other way have brought the value back inside.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

from countledger.ledger import amount, keys
from countledger.ledger.attempts import (
    Again,
    Done,
    GiveUp,
    Recheck,
    Reply,
    Send,
    attempt,
    otherwise,
    raise_exhausted,
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
from countledger.ledger.operations import (
    Absent,
    Add,
    AllOf,
    AnyOf,
    Assign,
    Compare,
    Delete,
    Drop,
    Get,
    Put,
    Transact,
    Update,
    unchanged,
)
from countledger.ledger.tombstones import removed_id, tombstone, vacant
from countledger.producers.strict import token
from countledger.producers.strict.change import (
    KnownFences,
    fence_of,
    raise_each,
    raise_fences,
    raising,
    unraised,
)
from countledger.producers.strict.definition import (
    KEEP,
    Bounds,
    Definition,
    Method,
    StaleDefinition,
    StrictState,
    bounds_of_bins,
    check_value,
    deal_state,
    decode_definition,
    define,
    encode_definition,
    encode_state,
    of,
    whole_of,
)
from countledger.producers.strict.reader import CREATION_SENT_MS, read_of, states_of
from countledger.producers.strict.release import Releases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import Attempts, Steps, Verdict
    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.connection import Connection
    from countledger.ledger.operations import Clause, Condition, TransactGet, Write
    from countledger.producers.strict.definition import Keep


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
        opening = check_value("opening value", self.opening)
        if opening is None:
            raise BadBounds("an opening value of None: leave it out to begin at 0")
        object.__setattr__(self, "opening", opening)
        self.bounds.check_inside(opening)

    def definition(self, incarnation: str) -> Definition:
        return define(
            self.counter,
            incarnation,
            self.method,
            bins=self.bins,
            history=self.history,
            max_tokens=self.max_tokens,
            window_ms=self.window_ms,
        )


def create(connection: Connection, new: NewCounter, definition: Definition) -> Steps[list[Item]]:
    """Create a counter: two write units for each item; return its main item and its bins.

    Over regions one for each, in each region; and a read unit. In place of a counter that was
    deleted less than about a minute ago twice as much.
    """
    board = keys.ranking_key(keys.namespace_of(new.counter))
    rule = yield Send(Get(connection.counters, board, consistent=False))
    now_ms, partitions = connection.clock.now_ms(), partitions_to_write(rule)
    items = plan_creation(
        connection.counters, definition, new.bounds, new.opening, now_ms, partitions=partitions
    )
    what = f"to create strict counter {new.counter!r}"
    if connection.over_regions:
        existing = yield from _create_stepwise(connection, what, items, now_ms)
    else:
        existing = yield from _create_together(connection, definition, what, items, now_ms)
    if existing is not None and not definition.is_of(existing):
        raise CounterExists(
            f"strict counter {new.counter!r} exists, of method {existing.get('method')}: "
            "delete it first, or take another name"
        )
    return [put.item for put in items[1:]]


def _create_together(
    connection: Connection, definition: Definition, what: str, items: list[Put], now_ms: int
) -> Steps[Item | None]:
    """Write all items in one transaction; or the main item that already has the name."""
    listed, met, doubtful = items[0], None, False
    for _ in range(_TRIES):
        free = vacant(now_ms, connection.clock_skew_ms, removed_id(met))
        if met is not None and removed_id(met) is None:
            # An entry without its counter, as a restore to a moment in between may leave it.
            free = Compare("incarnation", "=", met["incarnation"])
        entry = replace(listed, condition=free)
        token = connection.ids.new_id(now_ms)
        creation = Transact([entry, *items[1:]], token)
        refused, maybe_applied = yield from _write(connection, what, creation)
        if refused is None:
            return None
        doubtful = doubtful or maybe_applied
        found, main = refused.reasons[0].item, refused.reasons[1]
        if main.condition_failed or removed_id(found) == definition.incarnation:
            existing: Item = main.item or {"incarnation": definition.incarnation}
            if definition.is_of(existing) or not doubtful:
                return existing
            if (yield from _fenced(connection, what, existing)):
                return existing
            found = None
        met = found
    raise Throttled(f"{what}: it kept being created and deleted by others; try again later")


def _fenced(connection: Connection, what: str, existing: Item) -> Steps[bool]:
    """Raise the fence of the counter that has the name: one write unit. False: it is gone."""
    counter = decode_definition(existing)
    raised = yield from raise_each(
        [raising(connection.counters, counter.main, counter.incarnation)], connection.attempts()
    )
    if raised is None:
        raise Unclear(f"{what}: no clear answer; {_ADVICE}")
    (item,) = raised
    if item is None:
        return False
    connection.shared(KnownFences).learn(counter.main, counter.incarnation, item)
    return True


def _create_stepwise(
    connection: Connection, what: str, items: list[Put], now_ms: int
) -> Steps[Item | None]:
    """Write both items; or the item that already has the name."""
    # Read first, so that a call with a name that exists does not write its directory entry.
    listed, main = items
    key = {name: main.item[name] for name in ("counter", "part")}
    existing: Item | None = yield Send(Get(connection.counters, key))
    if existing is not None:
        return existing
    until_ms = now_ms + CREATION_SENT_MS
    yield from _write(connection, what, listed, until_ms)
    dated = Put(main.table, {**main.item, "created_at": now_ms}, main.condition)
    refused, maybe_applied = yield from _write(connection, what, dated, until_ms)
    if refused is None:
        return None
    found = refused.item or {}
    if maybe_applied and found.get("incarnation") != main.item["incarnation"]:
        # It is the counter of another call. Once that is deleted, a late request of this call
        # would create the counter that was refused.
        raise Unclear(f"{what}: the name is taken, and a request is still under way; {_ADVICE}")
    return found


def delete(connection: Connection, definition: Definition, main: Item) -> Steps[None]:
    """Delete a counter, unless it is gone or of another incarnation.

    `main` is its main item, as it was read. `OpenHolds`: some of it is held, also after the expired
    holds are released.
    """
    what = f"to delete strict counter {definition.counter!r}"
    if connection.over_regions:
        first, listed = plan_deletion(connection.counters, definition, fence_of(main))
        refused, maybe_applied = yield from _write(connection, what, first)
        if refused is None or maybe_applied:
            yield from _write(connection, what, listed)
        return
    refused, doubtful = yield from _delete_together(connection, definition, what, fence_of(main))
    if refused is None:
        return
    if doubtful:
        # A late request would delete what changed since, acknowledged changes included.
        if not (yield from raise_fences(connection, definition, [definition.main])):
            raise Unclear(f"{what}: no clear answer; {_ADVICE}") from refused
        if not definition.is_of((yield Send(Get(connection.counters, definition.main))) or {}):
            return
    raise refused


def _delete_together(
    connection: Connection, definition: Definition, what: str, fence: int
) -> Steps[tuple[CountledgerError | None, bool]]:
    """Delete all items in one transaction; or why not, and whether a request may be applied yet."""
    releases, doubtful = Releases(connection), False
    while True:
        now_ms = connection.clock.now_ms()
        life_ms = connection.request_life_ms + connection.token_life_ms
        grave = tombstone(
            keys.strict_key(definition.counter),
            definition.incarnation,
            now_ms,
            connection.clock_skew_ms,
            life_ms,
        )
        main, _, *bins = plan_deletion(connection.counters, definition, fence)
        writes: list[Write] = [main, Put(connection.counters, grave), *bins]
        refused, maybe_applied = yield from _write(
            connection, what, Transact(writes, connection.ids.new_id(now_ms))
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
        except StaleDefinition:
            return None, False  # another call has deleted it meanwhile
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
    connection: Connection, what: str, operation: Transact | Write, until_ms: int | None = None
) -> Steps[tuple[Any, bool]]:
    """Write all or nothing: the error of the condition that refused it, or None.

    And whether an earlier attempt may be applied. Nothing is sent once the token may be forgotten:
    a counter that was deleted since would be created a second time under its old id.
    """
    attempts = connection.attempts(until_ms or connection.clock.now_ms() + connection.token_life_ms)

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


Side = Literal["lower", "upper"]

_MOVES: Final = "moves"
_MOVED_BY: Final = "moved_by"
_BUSY: Final = Throttled("its value or a bound changed each time since it was read")
_OTHERS: Final = Throttled("others moved its bounds since")
_BOUNDS_ADVICE: Final = "the bounds may have moved: show the counter before you call again"
_FORCE: Final = (
    "`force` (on the command line --force) sets the bound nevertheless, and changes towards it are "
    "refused until the value is back inside"
)
# Each bin would get its share of the missing headroom; what a change the other way gives back to
# one bin could be taken again there, while the others are still beyond their bounds.
_NOT_SPREAD: Final = (
    "with bins not even with `force`: bring the value inside first, by changes or by setting it"
)


def set_bounds(
    connection: Connection,
    definition: Definition,
    lower: Amount | Keep | None,
    upper: Amount | Keep | None,
    *,
    force: bool,
) -> Steps[StrictState]:
    """Move bounds: one write unit; with bins two for each.

    Expired holds are released first where they keep the lower bound from moving. The answer is the
    counter with its new bounds, as it was read before it was written.
    """
    releases, move = (
        Releases(connection),
        _BoundsMove.begin(connection, definition, (lower, upper), force),
    )
    refused: CountledgerError
    try:
        while True:
            moved = yield from move.apply()
            if not isinstance(moved, _HeldBack):
                return moved
            if not (yield from releases.release(definition)):
                _check(definition, moved.whole, moved.wanted)
    except (BadBounds, Throttled) as error:
        refused = error
    if move.attempts.maybe_applied and (yield from move.was_applied()):
        if move.last is None:
            raise AssertionError("a request was sent")
        return move.last.after
    raise refused


class _HeldBack(NamedTuple):
    """Only what is held keeps the lower bound of a counter from moving to where it is wanted."""

    whole: StrictState
    wanted: Bounds


class _PlannedMove(NamedTuple):
    """A write, conditional on a number of moves, and what it makes of the counter."""

    write: Transact | Update
    moves: int
    after: StrictState


@dataclass(slots=True)
class _BoundsMove:
    """One call that moves bounds; `force`: the value may be outside of them."""

    connection: Connection
    definition: Definition
    bounds: tuple[Amount | Keep | None, Amount | Keep | None]
    force: bool
    call: str
    attempts: Attempts
    last: _PlannedMove | None = None

    @classmethod
    def begin(
        cls,
        connection: Connection,
        definition: Definition,
        bounds: tuple[Amount | Keep | None, Amount | Keep | None],
        force: bool,  # noqa: FBT001 - of the caller
    ) -> _BoundsMove:
        now_ms = connection.clock.now_ms()
        attempts = connection.attempts(now_ms + connection.token_life_ms)
        return cls(connection, definition, bounds, force, connection.ids.new_id(now_ms), attempts)

    def apply(self) -> Steps[StrictState | _HeldBack]:
        """Move the bounds; or the state from which only held amounts keep them."""
        what = f"to move the bounds of strict counter {self.definition.counter!r}"
        return attempt(
            None,
            lambda planned: Send(planned.write if planned else self._read),
            self._interpret,
            lambda exhausted: raise_exhausted(exhausted, what, _BOUNDS_ADVICE),
            self.attempts,
        )

    @property
    def _read(self) -> Get | TransactGet:
        return read_of(self.connection, self.definition)

    def _interpret(
        self, reply: Reply[_PlannedMove | None]
    ) -> Verdict[_PlannedMove | None, StrictState | _HeldBack]:
        planned = reply.state
        match reply.answer:
            case ConditionFailed(item=item) if planned:
                return self._overtaken(planned, item, doubtful=reply.maybe_applied)
            case TransactionCancelled() if planned and reply.answer.condition_failed:
                # The reasons need not name the item that says who moved the bounds.
                return Again(None, _BUSY)
            case CountledgerError():
                return otherwise(reply)
        if planned:
            return Done(planned.after)
        return self._from_reading(reply.answer, doubtful=reply.maybe_applied)

    def _overtaken(
        self, planned: _PlannedMove, item: Item | None, *, doubtful: bool
    ) -> Verdict[_PlannedMove | None, StrictState | _HeldBack]:
        """The write of a single item failed: its own twin was faster, or another call."""
        if not doubtful:
            return Again(None, _BUSY)
        fate = self._fate(planned, self.definition.expect(item))
        return Done(planned.after) if fate is _Moved.MINE else self._after(fate)

    def _from_reading(
        self, answer: Item | Sequence[Item | None] | None, *, doubtful: bool
    ) -> Verdict[_PlannedMove | None, StrictState | _HeldBack]:
        states = states_of(self.definition, answer)
        first = answer if isinstance(answer, dict) else cast("list[Item]", answer)[0]
        resolved = False
        if doubtful and self.last is not None:
            fate = self._fate(self.last, first)
            if fate is _Moved.MINE:
                return Done(self.last.after)
            if fate is _Moved.UNKNOWN:
                return GiveUp(_OTHERS)
            resolved = fate is _Moved.OTHER
            self.attempts.maybe_applied = not resolved
        planned = self._plan(states, first.get(_MOVES, 0))
        if isinstance(planned, _HeldBack):
            return Done(planned)
        self.last = planned
        return Recheck(planned, resolved=resolved)

    def _fate(self, planned: _PlannedMove, first: Item) -> _Moved:
        """What became of the requests of this call, by the first item as it is now."""
        if first.get(_MOVED_BY) == self.call:
            return _Moved.MINE
        match first.get(_MOVES, 0) - planned.moves:
            case 0:
                return _Moved.NOT_YET
            case 1:
                return _Moved.OTHER
        return _Moved.UNKNOWN

    def _after(self, fate: _Moved) -> Again[_PlannedMove | None] | GiveUp:
        if fate is _Moved.UNKNOWN:
            return GiveUp(_OTHERS)
        return Again(None, _BUSY, resolved=fate is _Moved.OTHER)

    def was_applied(self) -> Steps[bool]:
        """Keep the requests of this call from being applied: one write unit; whether one was."""
        counter, last = self.definition.counter, self.last
        if last is None:
            raise AssertionError("a request was sent")
        key = self.definition.places[0]
        same = of(self.definition.incarnation, unchanged(_MOVES, last.moves or None))
        fence = Update(self.connection.counters, key, (Add(_MOVES, 1), Add("version", 1)), same)

        def interpret(reply: Reply[None]) -> Verdict[None, bool]:
            match reply.answer:
                case ConditionFailed(item=item):
                    if item is None or not self.definition.is_of(item):
                        return GiveUp(_OTHERS)
                    fate = self._fate(last, item)
                    # One more, by nobody else: an earlier attempt of this fence.
                    if fate in (_Moved.MINE, _Moved.OTHER):
                        return Done(fate is _Moved.MINE)
                    return GiveUp(_OTHERS)
                case CountledgerError():
                    return otherwise(reply)
            return Done(False)

        what = f"to move the bounds of strict counter {counter!r}"
        attempts = self.connection.attempts()
        attempts.maybe_applied = True
        return (
            yield from attempt(
                None,
                lambda _: Send(fence),
                interpret,
                lambda exhausted: raise_exhausted(exhausted, what, _BOUNDS_ADVICE),
                attempts,
            )
        )

    def _plan(self, states: Sequence[StrictState], moves: int) -> _PlannedMove | _HeldBack:
        """The write that moves the bounds from what was read, unless the counter refuses them."""
        definition, whole = self.definition, whole_of(states)
        lower, upper = self.bounds
        wanted = Bounds(
            whole.lower if lower is KEEP else lower, whole.upper if upper is KEEP else upper
        )
        force = self.force and definition.bins == 1
        if not force and wanted.lower is not None and whole.available < wanted.lower <= whole.total:
            return _HeldBack(whole, wanted)
        if not force:
            _check(definition, whole, wanted)
        writes = [
            plan_bounds(self.connection.counters, place, state, target, force=force)
            for place, state, target in zip(
                definition.places, states, bounds_of_bins(states, wanted), strict=True
            )
        ]
        writes[0] = _numbered(writes[0], moves, self.call)
        after = replace(whole, lower=wanted.lower, upper=wanted.upper)
        if len(writes) == 1:
            return _PlannedMove(writes[0], moves, after)
        token = self.connection.ids.new_id(self.connection.clock.now_ms())
        return _PlannedMove(Transact(writes, token), moves, after)


class _Moved(Enum):
    """What became of the requests of a call that moves bounds."""

    MINE = "one was applied"
    NOT_YET = "none was applied yet"
    OTHER = "none was applied, for good"
    UNKNOWN = "unknown"


def _check(definition: Definition, whole: StrictState, wanted: Bounds) -> None:
    advice = _FORCE if definition.bins == 1 else _NOT_SPREAD
    wanted.check_inside(whole.total, advice, whole.held)


def _numbered(write: Update, moves: int, call: str) -> Update:
    """A move of bounds that can be applied only before every other move that began later."""
    same = unchanged(_MOVES, moves or None)
    clauses = (*write.clauses, Add(_MOVES, 1), Assign(_MOVED_BY, call))
    unmoved = (same,) if write.condition is None else (write.condition, same)
    return replace(write, clauses=clauses, condition=AllOf(*unmoved))


def plan_bounds(
    table: str,
    key: Key,
    state: StrictState,
    target: tuple[Amount | None, Amount | None],
    *,
    force: bool,
) -> Update:
    """The write that moves an item's bounds if they are still what was read: one write unit."""
    clauses: list[Clause] = [Add("version", 1)]
    conditions: list[Condition] = []
    sides: tuple[tuple[Side, str, Amount | None, Amount | None, int], ...] = (
        ("lower", "headroom_down", state.lower, target[0], -1),
        ("upper", "headroom_up", state.upper, target[1], 1),
    )
    for side, headroom, old, new, sign in sides:
        distance = amount.add(new or 0, amount.negated(old or 0))
        gained = distance if sign > 0 else amount.negated(distance)
        clauses.append(Drop(side) if new is None else Assign(side, new))
        clauses.append(Add(headroom, gained))
        conditions.append(unchanged(side, old))
        if new is not None and not force:
            conditions.append(Compare(headroom, ">=", amount.negated(gained)))
    return Update(table, key, tuple(clauses), of(state.incarnation, *conditions))
