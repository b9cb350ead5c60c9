"""Moves the bounds of a strict counter while other processes change it.

A bound moves by one update of each item: the update sets the bound and moves the headroom by the
same distance, on condition that the bound is still the one that was read and, unless forced, that
the headroom does not become negative. All updates are one transaction under one token. Over regions
there is one item and no token: each move has an id, which is stored, and is conditional on the id
of the move before. So a request that is applied late changes nothing after another move.

A bound that is forced past the value leaves a negative headroom: changes towards the bound are
refused until changes the other way have brought the value back inside.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal, cast

from countledger.ledger import amount
from countledger.ledger.attempts import Again, Done, Recheck, Reply, Send, attempt, otherwise
from countledger.ledger.attributes import optional
from countledger.ledger.errors import (
    ConditionFailed,
    CountledgerError,
    Throttled,
    TransactionCancelled,
)
from countledger.ledger.expressions import Add, AllOf, Assign, Compare, Drop, unchanged
from countledger.ledger.operations import Transact, Update
from countledger.producers.strict.bins import bounds_of_bins, whole_of
from countledger.producers.strict.context import raise_exhausted
from countledger.producers.strict.reader import read_of, states_of
from countledger.producers.strict.release import Releases
from countledger.producers.strict.state import KEEP, Bounds, of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import Steps, Verdict
    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.expressions import Clause, Condition
    from countledger.producers.strict.context import MethodContext
    from countledger.producers.strict.definition import Definition
    from countledger.producers.strict.state import Keep, StrictState

Side = Literal["lower", "upper"]

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
) -> Steps[None]:
    """Move bounds: two write units for each item; over regions one, in each region.

    Expired holds are released first where they keep the lower bound from moving.

    Raises:
        BadBounds: they cross; or the value is outside of them and force is not given, or the
            counter has bins.
        StaleDefinition: the counter was deleted or recreated.
        Throttled: changes were faster in every attempt, or expired holds could not be released.
        Unclear: no attempt got a clear answer.
    """
    releases = Releases(context)
    while True:
        held = yield from _move(context, definition, (lower, upper), force=force)
        if held is None:
            return
        whole, wanted = held
        if not (yield from releases.release(definition)):
            _check(definition, whole, wanted)


def _move(
    context: MethodContext,
    definition: Definition,
    bounds: tuple[Amount | Keep | None, Amount | Keep | None],
    *,
    force: bool,
) -> Steps[tuple[StrictState, Bounds] | None]:
    """Move bounds; or the state and the bounds between which only the held amounts are missing."""
    what = f"to move the bounds of strict counter {definition.counter!r}"
    busy = Throttled("its value or a bound changed each time since it was read")

    # The state is the planned write, or None to read the items first.
    def request(state: Transact | Update | None) -> Send:
        return Send(state or read_of(context, definition))

    def interpret(
        reply: Reply[Transact | Update | None],
    ) -> Verdict[Transact | Update | None, tuple[StrictState, Bounds] | None]:
        match reply:
            case Reply(ConditionFailed()):
                return Again(None, busy)
            case Reply(TransactionCancelled()) if reply.answer.condition_failed:
                return Again(None, busy)
            case Reply(CountledgerError()):
                return otherwise(reply)
            case Reply(answer, None):
                return _planned(context, definition, answer, bounds, force=force)
        return Done(None)

    until_ms = context.clock.now_ms() + context.token_life_ms
    return (
        yield from attempt(
            None,
            request,
            interpret,
            lambda exhausted: raise_exhausted(exhausted, what, _ADVICE),
            context.attempts(until_ms),
        )
    )


def _planned(
    context: MethodContext,
    definition: Definition,
    answer: Item | Sequence[Item | None] | None,
    bounds: tuple[Amount | Keep | None, Amount | Keep | None],
    *,
    force: bool,
) -> Verdict[Transact | Update | None, tuple[StrictState, Bounds] | None]:
    """The write that moves the bounds from what was read."""
    states = states_of(definition, answer)
    whole = whole_of(states)
    lower, upper = bounds
    wanted = Bounds(
        whole.lower if lower is KEEP else lower, whole.upper if upper is KEEP else upper
    )
    force = force and definition.bins == 1
    if not force and wanted.lower is not None and whole.available < wanted.lower <= whole.total:
        return Done((whole, wanted))
    if not force:
        _check(definition, whole, wanted)
    writes = [
        plan_bounds(context.table, place, state, target, force=force)
        for place, state, target in zip(
            definition.places, states, bounds_of_bins(states, wanted), strict=True
        )
    ]
    token = context.new_id(context.clock.now_ms())
    if context.over_regions:
        before = optional(cast("Item", answer), "bounds_id", str)
        return Recheck(_once(writes[0], before, token))
    return Recheck(Transact(writes, token))


def _check(definition: Definition, whole: StrictState, wanted: Bounds) -> None:
    advice = _FORCE if definition.bins == 1 else _NOT_SPREAD
    wanted.check_inside(whole.total, advice, whole.held)


def _once(write: Update, before: str | None, move: str) -> Update:
    """A move of bounds that can be applied only before every other move that began later."""
    same = unchanged("bounds_id", before)
    clauses = (*write.clauses, Assign("bounds_id", move))
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
