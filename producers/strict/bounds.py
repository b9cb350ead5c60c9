"""Moves the bounds of a strict counter while other processes change it.

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
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, cast

from countledger.ledger import amount
from countledger.ledger.attempts import (
    Again,
    Done,
    GiveUp,
    Recheck,
    Reply,
    Send,
    attempt,
    otherwise,
)
from countledger.ledger.errors import (
    BadBounds,
    ConditionFailed,
    CountledgerError,
    Throttled,
    TransactionCancelled,
)
from countledger.ledger.operations import (
    Add,
    AllOf,
    Assign,
    Compare,
    Drop,
    Transact,
    Update,
    unchanged,
)
from countledger.producers.strict.change import raise_exhausted
from countledger.producers.strict.definition import KEEP, Bounds, bounds_of_bins, of, whole_of
from countledger.producers.strict.reader import read_of, states_of
from countledger.producers.strict.release import Releases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import Attempts, Steps, Verdict
    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.operations import Clause, Condition, Get, TransactGet
    from countledger.producers.strict.change import MethodContext
    from countledger.producers.strict.definition import Definition, Keep, StrictState

Side = Literal["lower", "upper"]

_MOVES: Final = "moves"
_MOVED_BY: Final = "moved_by"
_BUSY: Final = Throttled("its value or a bound changed each time since it was read")
_OTHERS: Final = Throttled("others moved its bounds since")
_ADVICE: Final = "the bounds may have moved: show the counter before you call again"
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
    context: MethodContext,
    definition: Definition,
    lower: Amount | Keep | None,
    upper: Amount | Keep | None,
    *,
    force: bool,
) -> Steps[StrictState]:
    """Move bounds: one write unit; with bins two for each.

    Expired holds are released first where they keep the lower bound from moving.

    Returns:
        The counter with its new bounds, as it was read before it was written.

    Raises:
        BadBounds: they cross; or the value is outside of them and force is not given, or the
            counter has bins.
        StaleDefinition: the counter was deleted or recreated.
        Throttled: changes were faster in every attempt, or expired holds could not be released.
        Unclear: no attempt got a clear answer.
    """
    releases, move = (
        Releases(context),
        _BoundsMove.begin(context, definition, (lower, upper), force),
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
    """A write, and what it makes of the counter.

    Attributes:
        write: what is sent.
        moves: the number of moves that it is conditional on.
        after: the counter with the new bounds.
    """

    write: Transact | Update
    moves: int
    after: StrictState


@dataclass(slots=True)
class _BoundsMove:
    """One call that moves bounds.

    Attributes:
        context: what to work with.
        definition: of the counter.
        bounds: the wanted ones, lower and upper.
        force: whether the value may be outside of them.
        call: its id.
        attempts: of the call.
        last: what was planned last.
    """

    context: MethodContext
    definition: Definition
    bounds: tuple[Amount | Keep | None, Amount | Keep | None]
    force: bool
    call: str
    attempts: Attempts
    last: _PlannedMove | None = None

    @classmethod
    def begin(
        cls,
        context: MethodContext,
        definition: Definition,
        bounds: tuple[Amount | Keep | None, Amount | Keep | None],
        force: bool,  # noqa: FBT001 - of the caller
    ) -> _BoundsMove:
        """Nothing sent yet."""
        now_ms = context.clock.now_ms()
        attempts = context.attempts(now_ms + context.token_life_ms)
        return cls(context, definition, bounds, force, context.new_id(now_ms), attempts)

    def apply(self) -> Steps[StrictState | _HeldBack]:
        """Move the bounds; or the state from which only held amounts keep them."""
        what = f"to move the bounds of strict counter {self.definition.counter!r}"
        return attempt(
            None,
            lambda planned: Send(planned.write if planned else self._read),
            self._interpret,
            lambda exhausted: raise_exhausted(exhausted, what, _ADVICE),
            self.attempts,
        )

    @property
    def _read(self) -> Get | TransactGet:
        return read_of(self.context, self.definition)

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
        """Keep the requests of this call from being applied: one write unit; whether one was.

        Raises:
            Unclear: it is unknown.
        """
        counter, last = self.definition.counter, self.last
        if last is None:
            raise AssertionError("a request was sent")
        key = self.definition.places[0]
        same = of(self.definition.incarnation, unchanged(_MOVES, last.moves or None))
        fence = Update(self.context.table, key, (Add(_MOVES, 1), Add("version", 1)), same)

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
        attempts = self.context.attempts()
        attempts.maybe_applied = True
        return (
            yield from attempt(
                None,
                lambda _: Send(fence),
                interpret,
                lambda exhausted: raise_exhausted(exhausted, what, _ADVICE),
                attempts,
            )
        )

    def _plan(self, states: Sequence[StrictState], moves: int) -> _PlannedMove | _HeldBack:
        """The write that moves the bounds from what was read.

        Raises:
            BadBounds: the counter refuses them.
        """
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
            plan_bounds(self.context.table, place, state, target, force=force)
            for place, state, target in zip(
                definition.places, states, bounds_of_bins(states, wanted), strict=True
            )
        ]
        writes[0] = _numbered(writes[0], moves, self.call)
        after = replace(whole, lower=wanted.lower, upper=wanted.upper)
        if len(writes) == 1:
            return _PlannedMove(writes[0], moves, after)
        token = self.context.new_id(self.context.clock.now_ms())
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
