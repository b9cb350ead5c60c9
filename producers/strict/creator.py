"""Makes counters, moves their bounds, deletes them: rare calls.

Each is one transaction under one token; on a table that takes none, its writes go `in_turn`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from countledger.ledger import keys
from countledger.ledger.errors import (
    BadBounds,
    CounterExists,
    CountledgerError,
    Throttled,
    TransactionCancelled,
)
from countledger.ledger.ranking import is_on
from countledger.producers.last_word import raise_end
from countledger.producers.strict import stepwise
from countledger.producers.strict.bins import whole_of
from countledger.producers.strict.bounds import (
    KEEP,
    Bounds,
    Keep,
    check_amount,
    plan_bounds,
    targets,
)
from countledger.producers.strict.context import (
    PASSING,
    POLICY,
    Attempts,
    MethodContext,
    RetryPeriodOver,
)
from countledger.producers.strict.creation import plan_creation, plan_deletion
from countledger.producers.strict.definition import Definition, define
from countledger.producers.strict.sending import check_passing
from countledger.producers.strict.spread import read_states
from countledger.producers.strict.tokens import life_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Item
    from countledger.ledger.errors import Reason
    from countledger.ledger.operations import Put, Update, Write
    from countledger.producers.strict.placement import Placement
    from countledger.producers.strict.state import StrictState


_ADVICE: Final = "it may have been done: look at the counter before you call again"
_FORCE: Final = (
    "`force` (on the command line --force) sets the bound all the same, and changes towards it are "
    "refused until the value is back inside"
)
# Each bin would have its share of the room that is missing; what a change the other way gives back
# to one of them would be given out again there, while the others are still over theirs.
_NOT_SPREAD: Final = (
    "not even with `force`, for its value lies in bins: bring it inside first, by changes or by "
    "setting it"
)


@dataclass(frozen=True, slots=True)
class NewCounter:
    """What a caller wants made; valid at birth."""

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
        """Its definition under the id of this incarnation.

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


def create(context: MethodContext, order: NewCounter, placement: Placement) -> Definition:
    """Make a counter.

    Raises:
        CounterExists: there is one of that name.
        Unclear: no attempt got a clear answer.
        Throttled: every attempt was refused.
    """
    now_ms = context.clock.now_ms()
    definition = order.definition(context.new_id(now_ms))
    rule = context.reads.get(context.table, keys.ranking_key(keys.namespace_of(order.counter)))
    writes = plan_creation(
        context.table,
        definition,
        order.bounds,
        order.opening,
        now_ms,
        ranked=bool(is_on(rule)),
    )
    refused, there = _make(context, writes, definition.incarnation, placement)
    if refused and (there is None or there.get("incarnation") != definition.incarnation):
        raise CounterExists(
            f"strict counter {order.counter!r} exists, of method {(there or {}).get('method')}: "
            "delete it first, or take another name"
        )
    return definition


def _make(
    context: MethodContext, writes: Sequence[Put], incarnation: str, placement: Placement
) -> tuple[bool, Item | None]:
    """Whether it was refused, and the main item that is there."""
    if placement.strong:
        failed = stepwise.make(context, *writes)
        return failed is not None, failed.item if failed else None
    what = f"to make strict counter {writes[1].item['counter']!r}"
    reasons = _transact(context, what, writes, incarnation)
    # The directory's entry is put in any case; the main item, which comes next, decides.
    return reasons is not None, reasons[1].item if reasons else None


def delete(context: MethodContext, definition: Definition, placement: Placement) -> None:
    """Delete a counter. One that is gone, or of another incarnation, is left as it is.

    Raises:
        Unclear: no attempt got a clear answer.
        Throttled: every attempt was refused.
    """
    writes = plan_deletion(context.table, definition, in_turn=placement.strong)
    if placement.strong:
        stepwise.remove(context, *writes)
    else:
        what = f"to delete strict counter {definition.counter!r}"
        _transact(context, what, writes, context.new_id(context.clock.now_ms()))


def set_bounds(
    context: MethodContext,
    definition: Definition,
    lower: Amount | Keep | None,
    upper: Amount | Keep | None,
    *,
    force: bool,
    placement: Placement,
) -> None:
    """Move bounds.

    Raises:
        BadBounds: they cross; or the value lies outside of them and force is not given, or there
            are bins.
        StaleDefinition: the counter is not the one that was read.
        Throttled: changes were in the way of every attempt.
        Unclear: no attempt got a clear answer.
    """
    waits_ms = POLICY.waits_ms(context.random)
    while True:
        states = read_states(context, definition)
        bounds, total = _wanted(states, lower, upper)
        forced = force and definition.bins == 1
        if not forced:
            bounds.check_inside(total, _FORCE if definition.bins == 1 else _NOT_SPREAD)
        writes = [
            plan_bounds(context.table, place, state, target, force=forced)
            for place, state, target in zip(
                definition.places, states, targets(states, bounds), strict=True
            )
        ]
        if _move(context, definition.counter, writes, placement):
            return
        # The value or a bound moved since they were read.
        wait_ms = next(waits_ms, None)
        if wait_ms is None:
            raise Throttled(f"strict counter {definition.counter!r} changed too often meanwhile")
        context.clock.sleep_ms(wait_ms)


def _move(
    context: MethodContext, counter: str, writes: Sequence[Update], placement: Placement
) -> bool:
    if placement.strong:
        return stepwise.move(context, *writes)
    what = f"to move the bounds of strict counter {counter!r}"
    return _transact(context, what, writes, context.new_id(context.clock.now_ms())) is None


def _wanted(
    states: Sequence[StrictState], lower: Amount | Keep | None, upper: Amount | Keep | None
) -> tuple[Bounds, Amount]:
    whole = whole_of(states)
    return Bounds(
        whole.lower if lower is KEEP else lower, whole.upper if upper is KEEP else upper
    ), whole.total


def _transact(
    context: MethodContext, what: str, writes: Sequence[Write], token: str
) -> Sequence[Reason] | None:
    """Write all or nothing; None: done. Else why a condition refused it.

    Nothing leaves once the token may be forgotten: a counter that was deleted since would be made
    a second time under its old id, and a bound that was moved back since would move again.

    Raises:
        Unclear: an attempt may have been carried out.
        Throttled, Unreachable: no attempt went through.
    """
    until_ms = context.clock.now_ms() + life_ms(context)
    attempts = Attempts(context, POLICY, _ADVICE, until_ms=until_ms)
    while True:
        failure: CountledgerError
        try:
            with attempts.sending():
                context.dynamo.transact(writes, token)
        except RetryPeriodOver as late:
            raise_end(attempts, what, late)
        except TransactionCancelled as cancelled:
            if any(reason.condition_failed for reason in cancelled.reasons):
                return cancelled.reasons
            check_passing(cancelled.reasons)
            failure = Throttled(str(cancelled))
        except PASSING as error:
            failure = error
        else:
            return None
        if not attempts.again(failure):
            raise_end(attempts, what, failure)
