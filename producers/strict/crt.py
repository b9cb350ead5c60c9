"""Method `crt`: a transaction of one write under a client request token. Two write units.

The token is a hash of the counter, its incarnation and the key, because the service shares one
namespace of tokens between all tables. It remembers one for ten minutes after the first request
with it was completed; a cancelled transaction leaves it free. An answer means:

    done, write units               applied by this request
    done, read units                applied before: by a request of this call that got no answer,
                                    or under this key before this call (duplicate)
    token mismatch                  the key was used with another delta, or given up
    cancelled: condition failed     no room, as of now
    cancelled: conflict, throttle   not applied: sent again
    none                            sent again, with the same token

So nothing in the request may differ between two tries of a key, in whatever process: no time, no
random value. A key with a time is refused when it is too old to be remembered. A bare key has no
age: repeating it more than ten minutes after its first try counts again, and nobody can see that.

"No room" is not final while a request of this call got no answer: it may still land, and find room.
Then the token is used up for a transaction that changes nothing. Whichever comes first takes the
token: if it was ours, the late request meets a mismatch; if not, ours does, and the change is in.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from countledger.ledger.errors import TokenMismatch
from countledger.producers.strict.context import POLICY, Attempts, MethodContext, StaleDefinition
from countledger.producers.strict.outcome import Applied, Duplicate, Withdrawn
from countledger.producers.strict.sending import Part
from countledger.producers.strict.tokens import life_ms, token_of, transact_parts, use_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.producers.strict.change import StrictChange
    from countledger.producers.strict.definition import Definition
    from countledger.producers.strict.outcome import Refusal, StrictOutcome

_ADVICE: Final = (
    "no attempt got a clear answer: repeat the change with the same key within ten minutes of the "
    "first try, it cannot count twice; later, nobody can tell"
)


@dataclass(slots=True)
class CrtChange:
    """A change on its way by method crt."""

    context: MethodContext
    definition: Definition
    change: StrictChange
    attempts: Attempts

    @classmethod
    def begin(
        cls, context: MethodContext, definition: Definition, change: StrictChange
    ) -> CrtChange:
        """Nothing sent yet.

        Raises:
            KeyExpired, ClockSkew: its key was made too long ago, or lies ahead.
        """
        change.check_age(context.clock.now_ms(), life_ms(context), context.clock_skew_ms)
        until_ms = change.remembered_until(life_ms(context))
        attempts = Attempts(context, POLICY, _ADVICE, until_ms=until_ms)
        return cls(context, definition, change, attempts)

    def at(self, parts: Sequence[Part]) -> StrictOutcome:
        """Bring it in at these items: two write units each, and one read unit for the value.

        Raises:
            IdempotencyKeyReused: the key was used with another delta, or given up.
            TokenMismatch: the same of a counter with bins, where another bin may have taken it.
            StaleDefinition: the counter is not the one that was read.
        """
        try:
            outcome, fresh = transact_parts(
                self.context,
                self.definition,
                parts,
                token=token_of(self.definition, self.change.id),
                attempts=self.attempts,
                now_ms=None,
            )
        except TokenMismatch:
            if self.definition.bins > 1:
                raise
            return self._taken()
        except StaleDefinition:
            if not self.attempts.maybe_applied:
                raise
            return self.attempts.unknown(self.change.counter)
        mine = fresh or self.attempts.maybe_applied or self.change.key is None
        if isinstance(outcome, Applied) and not mine:
            return Duplicate(outcome.counter, outcome.value)
        return outcome

    def confirm_refusal(self, refused: Refusal) -> StrictOutcome:
        """Use the token up, if a request under it may still land: two write units."""
        if not self.attempts.maybe_applied:
            return refused
        ended = self._end()
        if isinstance(ended, Withdrawn):
            return refused
        if not isinstance(ended, Duplicate):
            # The way could not be closed: the old request may still land.
            return self.attempts.unknown(self.change.counter)
        if self.definition.bins == 1:
            # The late request has landed, and answers for itself now.
            return self.at([Part(self.definition.main, self.change.delta)])
        if self.change.key is None:
            return Applied(self.change.counter, None)
        return self.attempts.unknown(self.change.counter)

    def _end(self) -> StrictOutcome:
        until_ms = self.attempts.until_ms
        fence = partial(withdraw, self.context, self.definition, self.change.id, until_ms)
        return self.attempts.fenced(self.change.counter, fence)

    def _taken(self) -> StrictOutcome:
        """The token stands for another body: for none, if the key was given up."""
        ended = self._end()
        if isinstance(ended, Withdrawn):
            return ended
        if isinstance(ended, Duplicate):
            raise self.change.reused("another amount")
        return self.attempts.unknown(self.change.counter)


def withdraw(
    context: MethodContext, definition: Definition, change_id: str, until_ms: int | None = None
) -> StrictOutcome:
    """Use the token of a change up, as `use_up`."""
    return use_up(context, definition, token_of(definition, change_id), until_ms)
