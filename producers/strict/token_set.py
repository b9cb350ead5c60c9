"""Method `set`: the counter's own item holds every change that was made. Changes of +1 and -1.

One update adds the change's token to the set and moves the value, if no token of that key is in it,
the set is not full, and there is room. The old item comes back with a failed condition:

    token there, same delta     applied by this call after a lost answer, else duplicate
    token there, other delta    the key was used for another change
    token there, of zero        given up
    set full                    no new change, ever: the set never shrinks. A key that is given up
                                takes a place in it as a change does; in a full set it needs none
    else                        no room, as of now
    no answer                   sent again: the set will tell
    throttle, conflict          not applied: sent again

A key is known for as long as the counter lives. The price is that every change writes the whole
item: one write unit for each KB, about one more with every 25 changes.

"No room" is not final while a request of this call got no answer: it may still land, and find room.
Then a token of zero is put in its way.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from countledger.ledger.errors import BadDelta, ConditionFailed
from countledger.ledger.expressions import Add, Lacks, SizeAtMost
from countledger.ledger.operations import Update
from countledger.producers.strict.context import (
    PASSING,
    POLICY,
    Attempts,
    MethodContext,
    StaleDefinition,
)
from countledger.producers.strict.outcome import Applied, Duplicate, SetFull, Withdrawn
from countledger.producers.strict.sending import Part, refused_by
from countledger.producers.strict.state import decode_state, has_headroom, moved, of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.attributes import Item
    from countledger.ledger.expressions import Condition
    from countledger.producers.strict.change import StrictChange
    from countledger.producers.strict.definition import Definition
    from countledger.producers.strict.outcome import Refusal, StrictOutcome

_ADVICE: Final = (
    "no attempt got a clear answer: repeat the change with the same key, it cannot count twice; or "
    "give the key up, which tells whether it counted"
)
_VOID: Final = "0"
_APPLIED: Final = ("1", "-1")
_DELTAS: Final = (*_APPLIED, _VOID)


def seed(incarnation: str) -> set[str]:
    """The first set: a set cannot be empty, so the incarnation of the counter is in it."""
    return {f"{incarnation}={_VOID}"}


def none_of(change_id: str) -> tuple[Condition, ...]:
    """No token of that key is in the set."""
    return tuple(Lacks("tokens", f"{change_id}={delta}") for delta in _DELTAS)


def plan_change(table: str, definition: Definition, change: StrictChange) -> Update:
    """The one write of a change."""
    return Update(
        table,
        definition.main,
        (*moved(change.delta, change.at_ms), Add("tokens", {change.tag})),
        of(
            definition.incarnation,
            *none_of(change.id),
            _not_full(definition),
            has_headroom(change.delta),
        ),
        returning="ALL_NEW",
    )


def plan_void(table: str, definition: Definition, change_id: str) -> Update:
    """The write that keeps a change out for good; a full set keeps it out by itself.

    So the item never holds more tokens than a change may leave in it.
    """
    return Update(
        table,
        definition.main,
        (Add("tokens", {f"{change_id}={_VOID}"}), Add("version", 1)),
        of(definition.incarnation, *none_of(change_id), _not_full(definition)),
    )


def _not_full(definition: Definition) -> Condition:
    """There is a place for one token more; the seed has one of its own."""
    return SizeAtMost("tokens", definition.max_tokens or 0)


@dataclass(slots=True)
class SetChange:
    """A change on its way by method set."""

    context: MethodContext
    definition: Definition
    change: StrictChange
    attempts: Attempts

    @classmethod
    def begin(
        cls, context: MethodContext, definition: Definition, change: StrictChange
    ) -> SetChange:
        """Nothing sent yet.

        Raises:
            BadDelta: it is neither +1 nor -1.
        """
        if change.delta not in {1, -1}:
            raise BadDelta(
                f"counter {change.counter!r} of method set takes changes of 1 and -1, not "
                f"{change.delta}"
            )
        return cls(context, definition, change, Attempts(context, POLICY, _ADVICE))

    def at(self, parts: Sequence[Part]) -> StrictOutcome:
        """Bring it in: one write unit for each KB of the item.

        Raises:
            IdempotencyKeyReused: the key was used with the other delta.
            StaleDefinition: the counter is not the one that was read.
        """
        write = plan_change(self.context.table, self.definition, self.change)
        while True:
            try:
                item = self.context.dynamo.update(write)
            except ConditionFailed as failed:
                return self._refused(parts[0], failed.item)
            except PASSING as error:
                if not self.attempts.again(error):
                    return self.attempts.end(self.change.counter, error)
            else:
                return Applied(self.change.counter, item["total"] if item else None)

    def _refused(self, part: Part, item: Item | None) -> StrictOutcome:
        if item is None or item.get("incarnation") != self.definition.incarnation:
            if self.attempts.maybe_applied:
                return self.attempts.unknown(self.change.counter)
            raise StaleDefinition(
                f"strict counter {self.change.counter!r} was deleted or recreated"
            )
        state = decode_state(item)
        if f"{self.change.id}={_VOID}" in state.tokens:
            return Withdrawn(self.change.counter, self.change.id)
        if self.change.remembered_in(state.tokens):
            mine = self.attempts.maybe_applied or self.change.key is None
            return (Applied if mine else Duplicate)(self.change.counter, state.total)
        limit = self.definition.max_tokens or 0
        if len(state.tokens) > limit:
            return SetFull(self.change.counter, state.total, limit)
        return refused_by(self.definition, part, item)

    def confirm_refusal(self, refused: Refusal) -> StrictOutcome:
        """Put a token of zero in the way of a request that may still land: one more write."""
        if not self.attempts.maybe_applied or isinstance(refused, SetFull):
            return refused
        fence = partial(withdraw, self.context, self.definition, self.change.id)
        ended = self.attempts.fenced(self.change.counter, fence)
        if isinstance(ended, Withdrawn):
            return refused
        if isinstance(ended, Duplicate):
            return Applied(ended.counter, ended.value)
        # The way could not be closed: the old request may still land.
        return self.attempts.unknown(self.change.counter)


def withdraw(context: MethodContext, definition: Definition, change_id: str) -> StrictOutcome:
    """Put a token of zero where a change would put its own: one write unit for each KB.

    Of a full set nothing is written: no change under a new key can come in any more.

    Returns:
        `Withdrawn`: the change is not in and never will be. `Duplicate`: it is in. `Unknown`: no
        clear answer.

    Raises:
        StaleDefinition: the counter is not the one that was read.
    """
    attempts = Attempts(context, POLICY, _ADVICE)
    while True:
        try:
            context.dynamo.update(plan_void(context.table, definition, change_id))
        except ConditionFailed as failed:
            if failed.item is None or failed.item.get("incarnation") != definition.incarnation:
                raise StaleDefinition("the counter was deleted or recreated") from failed
            state = decode_state(failed.item)
            applied = any(f"{change_id}={delta}" in state.tokens for delta in _APPLIED)
            if applied:
                return Duplicate(definition.counter, state.total)
            # Its own token of zero is there, or the set is full for good.
            return Withdrawn(definition.counter, change_id)
        except PASSING as error:
            if not attempts.again(error):
                return attempts.end(definition.counter, error)
        else:
            return Withdrawn(definition.counter, change_id)
