"""Method `set`: the counter's own item holds all its changes. Only changes of +1 and -1.

One update adds the change's token to the set and moves the value, on condition that the set has no
token of that key and is not full, and that the headroom suffices. A withdrawn key is a token of
zero. A key is known as long as the counter exists. The price: every change writes the whole item,
one write unit for each KB, about one more with every 25 changes. The set never shrinks, so a full
set takes no new change. A withdrawn key takes a place in it as a change does; in a full set it
needs none.

"Bound reached" is not final while a request of this call got no answer: it may still be applied,
and find headroom. Then a token of zero is written first. The answer tables are in `SetChange.at`
and `withdraw`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from countledger.ledger.attempts import PASSING, Done, Reply, Send, attempt, otherwise
from countledger.ledger.errors import BadDelta, ConditionFailed, CountledgerError, Unreachable
from countledger.ledger.operations import Add, Lacks, SizeAtMost, Update
from countledger.producers.strict.change import end, refused_by
from countledger.producers.strict.definition import decode_state, has_headroom, moved, of
from countledger.producers.strict.outcome import Applied, Duplicate, SetFull, Unknown, Withdrawn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.attempts import Attempts, Steps, Verdict
    from countledger.ledger.attributes import Item
    from countledger.ledger.operations import Condition
    from countledger.producers.strict.change import MethodContext, StrictChange
    from countledger.producers.strict.definition import Definition, Part
    from countledger.producers.strict.outcome import Refusal, StrictOutcome

_ADVICE: Final = (
    "no attempt got a clear answer: repeat the change with the same key, it cannot count twice; or "
    "withdraw the key, which returns whether it counted"
)
_VOID: Final = "0"
_APPLIED: Final = ("1", "-1")
_DELTAS: Final = (*_APPLIED, _VOID)


def seed(incarnation: str) -> set[str]:
    """The first set: a set cannot be empty, so it contains the incarnation of the counter."""
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
    """The write that keeps a change out for ever; a full set keeps it out by itself.

    So the item never holds more tokens than a change may leave in it.
    """
    return Update(
        table,
        definition.main,
        (Add("tokens", {f"{change_id}={_VOID}"}), Add("version", 1)),
        of(definition.incarnation, *none_of(change_id), _not_full(definition)),
    )


def _not_full(definition: Definition) -> Condition:
    """The set has a place for one more token, beside the seed."""
    return SizeAtMost("tokens", definition.max_tokens or 0)


@dataclass(slots=True)
class SetChange:
    """One change by method set."""

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
        return cls(context, definition, change, context.attempts())

    def at(self, parts: Sequence[Part]) -> Steps[StrictOutcome]:
        """Apply it: one write unit for each KB of the item.

        Raises:
            IdempotencyKeyReused: the key was used with the other delta.
            StaleDefinition: the counter was deleted or recreated.
        """
        counter = self.change.counter
        write = plan_change(self.context.table, self.definition, self.change)

        def interpret(reply: Reply[None]) -> Verdict[None, StrictOutcome]:
            match reply.answer:
                case ConditionFailed(item=item):
                    return Done(self._refused(parts[0], item, maybe_applied=reply.maybe_applied))
                case CountledgerError():
                    return otherwise(reply)
            return Done(Applied(counter, reply.answer["total"]))

        return attempt(
            None,
            lambda _: Send(write),
            interpret,
            lambda exhausted: end(exhausted, counter, _ADVICE),
            self.attempts,
        )

    def _refused(self, part: Part, item: Item | None, *, maybe_applied: bool) -> StrictOutcome:
        """What the item says that failed the condition."""
        change, counter = self.change, self.change.counter
        if item is None or not self.definition.is_of(item):
            if maybe_applied:
                return self._unknown
            raise self.definition.stale()
        state = decode_state(item)
        if f"{change.id}={_VOID}" in state.tokens:
            return Withdrawn(counter, change.id)
        if change.remembered_in(state.tokens):
            mine = maybe_applied or change.key is None
            return (Applied if mine else Duplicate)(counter, state.total)
        limit = self.definition.max_tokens or 0
        if len(state.tokens) > limit:
            return SetFull(counter, state.total, limit)
        return refused_by(self.definition, part, item)

    def confirm_refusal(self, refused: Refusal) -> Steps[StrictOutcome]:
        """Write a token of zero if a request may still be applied: one more write.

        One read unit for each 4 KB if the set has a token of the key already.
        """
        if not self.attempts.maybe_applied or isinstance(refused, SetFull):
            return refused
        try:
            ended = yield from withdraw(self.context, self.definition, self.change.id)
        except Unreachable:
            return self._unknown
        if isinstance(ended, Withdrawn):
            return refused
        if not isinstance(ended, Duplicate):
            # No token of zero could be written: the old request may still be applied.
            return self._unknown
        # The token may be of this change or of another one under the same key.
        try:
            item = yield from self.context.read_incarnation(self.definition)
        except PASSING:
            return self._unknown
        state = decode_state(item)
        applied = self.change.remembered_in(state.tokens)
        return Applied(self.change.counter, state.total) if applied else self._unknown

    @property
    def _unknown(self) -> Unknown:
        return Unknown(self.change.counter, _ADVICE)


def withdraw(
    context: MethodContext, definition: Definition, change_id: str
) -> Steps[StrictOutcome]:
    """Write a token of zero where a change would write its own: one write unit for each KB.

    Nothing is written to a full set: no change under a new key can be applied any more.

    Returns:
        `Withdrawn`: the change is not applied and never will be. `Duplicate`: it is applied.
        `Unknown`: no clear answer.

    Raises:
        StaleDefinition: the counter was deleted or recreated.
    """
    counter = definition.counter

    def interpret(reply: Reply[None]) -> Verdict[None, StrictOutcome]:
        match reply.answer:
            case ConditionFailed(item=item):
                found = decode_state(definition.expect(item))
                if any(f"{change_id}={delta}" in found.tokens for delta in _APPLIED):
                    return Done(Duplicate(counter, found.total))
                # Its own token of zero is there, or the set is full for ever.
            case CountledgerError():
                return otherwise(reply)
        return Done(Withdrawn(counter, change_id))

    return attempt(
        None,
        lambda _: Send(plan_void(context.table, definition, change_id)),
        interpret,
        lambda exhausted: end(exhausted, counter, _ADVICE),
        context.attempts(),
    )
