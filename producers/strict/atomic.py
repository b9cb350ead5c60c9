"""Method `atomic`: ADD, with the bound as its condition. One write unit, one round trip.

An answer context:

    done                              applied
    condition failed                  bound reached: not applied, final
    throttle, conflict                not applied: sent again
    none (500, time-out, reset)       nobody can know, now or later

After the last one the caller has to choose. `prefer="under"` (the default) sends nothing more and
says `Unknown`: the change counts once or not at all. `prefer="over"` sends again: it counts once or
more often. Keys mean nothing here, so they are refused.

A change that must be split over several bins is a transaction, and those may be sent again under
their token: there, an unclear answer is resolved.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final

from countledger.ledger.errors import ConditionFailed, Unclear
from countledger.producers.strict.context import (
    PASSING,
    POLICY,
    Attempts,
    MethodContext,
    StaleDefinition,
)
from countledger.producers.strict.outcome import Applied, BoundReached, Duplicate, Withdrawn
from countledger.producers.strict.sending import refused_by, update_of
from countledger.producers.strict.tokens import life_ms, transact_parts, use_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.producers.strict.change import StrictChange
    from countledger.producers.strict.definition import Definition
    from countledger.producers.strict.outcome import Refusal, StrictOutcome
    from countledger.producers.strict.sending import Part

_ADVICE: Final = (
    "method atomic cannot tell whether the change counted: repeat it and it may count twice, leave "
    "it and it may be missing; compare with your own records, or take another method"
)


class Prefer(StrEnum):
    """What a caller of method atomic would rather have after an unclear answer."""

    UNDER = "under"
    OVER = "over"


@dataclass(slots=True)
class AtomicChange:
    """A change on its way by method atomic."""

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
        # For a split, whose token is what makes another attempt safe.
        until_ms = change.remembered_until(life_ms(context))
        attempts = Attempts(context, POLICY, _ADVICE, until_ms=until_ms)
        return cls(context, definition, change, prefer, attempts)

    def at(self, parts: Sequence[Part]) -> StrictOutcome:
        """Bring it in at these items: one write unit; two for each item of a split.

        Raises:
            StaleDefinition: the counter is not the one that was read.
        """
        if len(parts) > 1:
            return self._split(parts)
        return self._at_one(parts[0])

    def _split(self, parts: Sequence[Part]) -> StrictOutcome:
        """A transaction, and a token that belongs to this very split."""
        token = self.context.new_id(self.change.at_ms)
        outcome, _ = transact_parts(
            self.context,
            self.definition,
            parts,
            token=token,
            attempts=self.attempts,
            now_ms=self.change.at_ms,
        )
        if not (isinstance(outcome, BoundReached) and self.attempts.maybe_applied):
            return outcome
        fence = partial(use_up, self.context, self.definition, token, self.attempts.until_ms)
        ended = self.attempts.fenced(self.change.counter, fence)
        if isinstance(ended, Duplicate):
            return Applied(self.change.counter, None)
        if isinstance(ended, Withdrawn):
            self.attempts.maybe_applied = False
            return outcome
        return self.attempts.unknown(self.change.counter)

    def _at_one(self, part: Part) -> StrictOutcome:
        write = update_of(self.context.table, self.definition, part, self.change.at_ms)
        while True:
            try:
                item = self.context.dynamo.update(write)
            except ConditionFailed as failed:
                return self._refused(part, failed)
            except PASSING as error:
                # Sent again, it may count twice: that is the caller's choice.
                unclear = isinstance(error, Unclear)
                if unclear and self.prefer is Prefer.UNDER:
                    return self.attempts.unknown(self.change.counter)
                if not self.attempts.again(error):
                    return self.attempts.end(self.change.counter, error)
            else:
                alone = self.definition.bins == 1
                return Applied(self.change.counter, item["total"] if item and alone else None)

    def _refused(self, part: Part, failed: ConditionFailed) -> StrictOutcome:
        """Refused; but an earlier attempt may be in, and may be what took the room."""
        try:
            refused = refused_by(self.definition, part, failed.item)
        except StaleDefinition:
            if not self.attempts.maybe_applied:
                raise
        else:
            if not self.attempts.maybe_applied:
                return refused
        return self.attempts.unknown(self.change.counter)

    def confirm_refusal(self, refused: Refusal) -> StrictOutcome:
        """A refusal is said only where no attempt is in doubt."""
        return refused
