"""Method `request_token`: a transaction of one write under a client request token. Two write units.

The service remembers a token for ten minutes after the first request with it was completed, and
carries a transaction out once, however often it is sent. All tables share one namespace of tokens.
A cancelled transaction leaves its token free. So the token is a hash of the counter, its
incarnation and the key, and nothing in the request may differ between two tries of a key, in
whatever process: no time, no random value. A key with a time is refused when it is too old to be
remembered. A bare key has no age: used again more than ten minutes after its first try, it counts
again, and nothing can detect that.

"Bound reached" is not final while a request of this call got no answer: it may still be applied,
and find headroom. Then the token is used up for a transaction that changes nothing. The first of
the two takes the token: if it was ours, the late request is refused; if not, ours is, and the
change is applied. The answer tables are in `transact_parts` and `use_up`.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from countledger.ledger.attempts import (
    PASSING,
    Done,
    Recheck,
    Reply,
    Send,
    attempt,
    otherwise,
)
from countledger.ledger.errors import (
    TokenMismatch,
    TransactionCancelled,
    Unreachable,
)
from countledger.ledger.operations import Check, Transact
from countledger.producers.strict.bins import Part
from countledger.producers.strict.change import refused_among, update_of
from countledger.producers.strict.context import end, withdrawal
from countledger.producers.strict.definition import StaleDefinition
from countledger.producers.strict.outcome import Applied, Duplicate, Unknown, Withdrawn
from countledger.producers.strict.state import of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.attempts import Answer, Attempts, Steps, Verdict
    from countledger.producers.strict.change import StrictChange
    from countledger.producers.strict.context import MethodContext
    from countledger.producers.strict.definition import Definition
    from countledger.producers.strict.outcome import Refusal, StrictOutcome

_ADVICE: Final = (
    "no attempt got a clear answer: repeat the change with the same key within ten minutes of the "
    "first try, then it cannot count twice; later, whether it counted is unknown"
)
_WITHDRAW_ADVICE: Final = "no attempt to withdraw the change got a clear answer: withdraw it again"


@dataclass(slots=True)
class RequestTokenChange:
    """One change by method request_token."""

    context: MethodContext
    definition: Definition
    change: StrictChange
    attempts: Attempts

    @classmethod
    def begin(
        cls, context: MethodContext, definition: Definition, change: StrictChange
    ) -> RequestTokenChange:
        """Nothing sent yet.

        Raises:
            KeyExpired, ClockSkew: its key is too old, or dated too far ahead.
        """
        life_ms = context.token_life_ms
        change.check_age(context.clock.now_ms(), life_ms, context.clock_skew_ms)
        attempts = context.attempts(change.remembered_until(life_ms))
        return cls(context, definition, change, attempts)

    def at(self, parts: Sequence[Part]) -> Steps[StrictOutcome]:
        """Apply it to these items: two write units each, and one read unit for the value.

        Raises:
            IdempotencyKeyReused: the key was used with another delta.
            TokenMismatch: the same for a counter with bins, where another bin may have taken it.
            StaleDefinition: the counter was deleted or recreated.
        """
        token = token_of(self.definition, self.change.id)
        try:
            outcome, fresh = yield from transact_parts(
                self.context,
                self.definition,
                parts,
                token,
                self.attempts,
                advice=_ADVICE,
                now_ms=None,
            )
        except TokenMismatch:
            if self.definition.bins > 1:
                raise
            return (yield from self._taken())
        except StaleDefinition:
            if not self.attempts.maybe_applied:
                raise
            return self._unknown
        mine = fresh or self.attempts.maybe_applied or self.change.key is None
        if isinstance(outcome, Applied) and not mine:
            return Duplicate(outcome.counter, outcome.value)
        return outcome

    def confirm_refusal(self, refused: Refusal) -> Steps[StrictOutcome]:
        """Use the token up if a request with it may still be applied: two write units."""
        if not self.attempts.maybe_applied:
            return refused
        ended = yield from self._withdrawing()
        if isinstance(ended, Withdrawn):
            return refused
        if not isinstance(ended, Duplicate):
            # The token could not be used up: the old request may still be applied.
            return self._unknown
        if self.definition.bins == 1:
            # The late request was applied: repeated, it answers for itself.
            return (yield from self.at([Part(self.definition.main, self.change.delta)]))
        if self.change.key is None:
            return Applied(self.change.counter, None)
        return self._unknown

    def _withdrawing(self) -> Steps[StrictOutcome]:
        until_ms = self.attempts.until_ms
        try:
            return (yield from withdraw(self.context, self.definition, self.change.id, until_ms))
        except Unreachable:
            if not self.attempts.maybe_applied:
                raise
            return self._unknown

    def _taken(self) -> Steps[StrictOutcome]:
        """The token stands for other writes: for none, if the key was withdrawn."""
        ended = yield from self._withdrawing()
        if isinstance(ended, Withdrawn):
            return ended
        if isinstance(ended, Duplicate):
            raise self.change.reused("another amount")
        return self._unknown

    @property
    def _unknown(self) -> Unknown:
        return Unknown(self.change.counter, _ADVICE)


def transact_parts(
    context: MethodContext,
    definition: Definition,
    parts: Sequence[Part],
    token: str,
    attempts: Attempts,
    *,
    advice: str,
    now_ms: int | None,
) -> Steps[tuple[StrictOutcome, bool]]:
    """Apply a change under a token: two write units for each part.

    Args:
        context: what to work with.
        definition: of the counter.
        parts: which item takes how much.
        token: the same for every try.
        attempts: of the call.
        advice: what a caller can do when the outcome stays unknown.
        now_ms: the time to write, or None where a retry by another call must send the same.

    Returns:
        The outcome, and whether the last request itself was carried out.

    Raises:
        TokenMismatch: the token stands for other writes.
        StaleDefinition: the counter was deleted or recreated. The service answers a remembered
            token without evaluating conditions, so the counter is read then: one read unit.
    """
    counter = definition.counter
    writes = [update_of(context.table, definition, part, now_ms) for part in parts]

    def interpret(reply: Reply[None]) -> Verdict[None, StrictOutcome | bool]:
        match reply.answer:
            case bool(fresh):  # applied by this request, or by an earlier one with the token
                return Done(fresh)
            case TokenMismatch():
                raise reply.answer
            case TransactionCancelled(reasons=reasons):
                refused = refused_among(definition, parts, reasons)
                return otherwise(reply) if refused is None else Done(refused)
        return otherwise(reply)

    ended = yield from attempt(
        None,
        lambda _: Send(Transact(writes, token)),
        interpret,
        lambda exhausted: end(exhausted, counter, advice),
        attempts,
    )
    if ended is True:
        return Applied(counter, (yield from context.value_of(definition))), True
    if ended is not False:
        return ended, True
    try:
        item = yield from context.read_incarnation(definition)
    except PASSING:
        return Unknown(counter, advice), False
    return Applied(counter, None if definition.bins > 1 else item.get("total")), False


def token_of(definition: Definition, change_id: str) -> str:
    """The token of a change: 32 characters, of the 36 that the service allows."""
    scope = f"{definition.counter}#{definition.incarnation}#{change_id}"
    return blake2b(scope.encode(), digest_size=16, person=b"token").hexdigest()


def withdraw(
    context: MethodContext, definition: Definition, change_id: str, until_ms: int | None = None
) -> Steps[StrictOutcome]:
    """Use up the token of a change, as `use_up`."""
    return use_up(context, definition, token_of(definition, change_id), until_ms)


def use_up(
    context: MethodContext, definition: Definition, token: str, until_ms: int | None = None
) -> Steps[StrictOutcome]:
    """Use up a token for a transaction that changes nothing: two write units.

    Args:
        context: what to work with.
        definition: of the counter.
        token: of the change.
        until_ms: when a change that was applied under it may be forgotten; None: unknown.

    Returns:
        `Withdrawn`: the change is not applied, and will not be while the token is remembered.
        `Duplicate`: the token is taken, the change is applied. `Unknown`: no clear answer.

    Raises:
        StaleDefinition: the counter was deleted or recreated.
    """
    counter = definition.counter
    void = Transact([Check(context.table, definition.main, of(definition.incarnation))], token)
    withdrawn, duplicate = Withdrawn(counter, token), Duplicate(counter, None)

    def meaning(answer: Answer) -> StrictOutcome | Recheck[StrictOutcome | None] | None:
        match answer:
            case True:
                return withdrawn
            case False:  # by an earlier request, without evaluating conditions
                return Recheck(withdrawn)
            case TokenMismatch():  # the token stands for a change
                return Recheck(duplicate)
        return None

    # After `until_ms` a change may be applied and forgotten.
    return withdrawal(
        context, definition, void, meaning, until_ms=until_ms, advice=_WITHDRAW_ADVICE
    )
