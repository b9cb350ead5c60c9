"""Method `atomic`: ADD on condition of the headroom. One write unit, one round trip.

Without an answer (500, time-out, reset) it is unknown whether the change was or will be applied.
So the caller chooses: `prefer="under"` (the default) sends nothing more and returns
`Unknown`: the change counts once or not at all. `prefer="over"` sends it again: it counts once or
more often. The method remembers no keys, so they are refused.

There is no fence: the outcome of a call without a clear answer names the time after which none of
its requests can be applied any more. A change that is split over several bins is one transaction,
and the same rules hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from countledger.ledger.attempts import Done, Reply, Send, attempt, otherwise
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import (
    ConditionFailed,
    CountledgerError,
    TransactionCancelled,
    Unclear,
)
from countledger.ledger.operations import Transact
from countledger.producers.strict.change import end, refused_by, update_of
from countledger.producers.strict.definition import StaleDefinition
from countledger.producers.strict.outcome import Applied, Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.attempts import Attempts, Steps, Verdict
    from countledger.ledger.attributes import Item
    from countledger.ledger.errors import Reason
    from countledger.producers.strict.change import MethodContext, StrictChange
    from countledger.producers.strict.definition import Definition, Part
    from countledger.producers.strict.outcome import Refusal, StrictOutcome

_ADVICE: Final = (
    "method atomic cannot know whether the change counted: if you repeat it, it may count twice, "
    "if not, it may be missing; compare with your own records, or take another method"
)


class Prefer(StrEnum):
    """Which miscount a caller of method atomic prefers after a lost answer."""

    UNDER = "under"
    OVER = "over"


@dataclass(slots=True)
class AtomicChange:
    """One change by method atomic."""

    context: MethodContext
    definition: Definition
    change: StrictChange
    prefer: Prefer
    attempts: Attempts

    @classmethod
    def begin(
        cls, context: MethodContext, definition: Definition, change: StrictChange, prefer: Prefer
    ) -> AtomicChange:
        """Nothing sent yet."""
        return cls(context, definition, change, prefer, context.attempts())

    def at(self, parts: Sequence[Part]) -> Steps[StrictOutcome]:
        """Apply it to these items: one write unit; two for each item of a split.

        Raises:
            StaleDefinition: the counter was deleted or recreated.
        """
        if len(parts) > 1:
            return self._split(parts)
        return self._at_one(parts[0])

    def _at_one(self, part: Part) -> Steps[StrictOutcome]:
        counter = self.change.counter
        write = update_of(self.context.table, self.definition, part, self.change.at_ms)

        def interpret(reply: Reply[None]) -> Verdict[None, StrictOutcome]:
            match reply.answer:
                case ConditionFailed(item=item):
                    return Done(self._refused(part, item, maybe_applied=reply.maybe_applied))
                case Unclear() if self.prefer is Prefer.UNDER:
                    return Done(self._unknown)
                case CountledgerError():  # after `Unclear` it may count twice, as preferred
                    return otherwise(reply)
            alone = self.definition.bins == 1
            return Done(Applied(counter, reply.answer["total"] if alone else None))

        return attempt(
            None,
            lambda _: Send(write),
            interpret,
            lambda exhausted: end(exhausted, counter, self._advice),
            self.attempts,
        )

    def _refused(self, part: Part, item: Item | None, *, maybe_applied: bool) -> StrictOutcome:
        """Unknown while an earlier attempt may be applied: it may have taken the headroom."""
        try:
            refused = refused_by(self.definition, part, item)
        except StaleDefinition:
            if not maybe_applied:
                raise
            return self._unknown
        return self._unknown if maybe_applied else refused

    def _split(self, parts: Sequence[Part]) -> Steps[StrictOutcome]:
        """A transaction of one write for each item; without an answer as at one item."""
        context, at_ms = self.context, self.change.at_ms
        writes = [update_of(context.table, self.definition, part, at_ms) for part in parts]
        transaction = Transact(writes, context.new_id(at_ms))

        def interpret(reply: Reply[None]) -> Verdict[None, StrictOutcome]:
            match reply.answer:
                case TransactionCancelled(reasons=reasons) if reply.answer.condition_failed:
                    return Done(self._refused_among(parts, reasons, reply.maybe_applied))
                case Unclear() if self.prefer is Prefer.UNDER:
                    return Done(self._unknown)
                case CountledgerError():
                    return otherwise(reply)
            return Done(Applied(self.change.counter, None))

        return attempt(
            None,
            lambda _: Send(transaction),
            interpret,
            lambda exhausted: end(exhausted, self.change.counter, self._advice),
            self.attempts,
        )

    def _refused_among(
        self,
        parts: Sequence[Part],
        reasons: Sequence[Reason],
        maybe_applied: bool,  # noqa: FBT001 - of the reply
    ) -> StrictOutcome:
        for part, reason in zip(parts, reasons, strict=True):
            if reason.condition_failed:
                return self._refused(part, reason.item, maybe_applied=maybe_applied)
        raise AssertionError("a condition failed")

    def confirm_refusal(self, refused: Refusal) -> Steps[StrictOutcome]:
        """Final as it is: while an attempt may be applied, `at` returns no refusal."""
        yield from ()
        return refused

    @property
    def _unknown(self) -> Unknown:
        return Unknown(self.change.counter, self._advice)

    @property
    def _advice(self) -> str:
        """With the time after which nothing of the call can be applied any more."""
        life_ms = self.context.request_life_ms + self.context.clock_skew_ms
        until = to_datetime(self.context.clock.now_ms() + life_ms)
        return f"{_ADVICE}; until {until.isoformat(timespec='seconds')} it may still be applied"
