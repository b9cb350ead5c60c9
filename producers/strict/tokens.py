"""StrictTransactions under a client request token: carried out once, however often they are sent.

The service remembers a token for ten minutes after the first request with it was completed, for all
tables in one room; a cancelled transaction leaves it free.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from countledger.ledger.errors import (
    CountledgerError,
    TokenMismatch,
    TransactionCancelled,
)
from countledger.ledger.limits import TOKEN_LIFE_MS
from countledger.ledger.operations import Check
from countledger.producers.strict.context import (
    PASSING,
    POLICY,
    Attempts,
    MethodContext,
    RetryPeriodOver,
    StaleDefinition,
)
from countledger.producers.strict.outcome import Applied, Duplicate, Withdrawn
from countledger.producers.strict.sending import refused_among, update_of
from countledger.producers.strict.state import of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.producers.strict.definition import Definition
    from countledger.producers.strict.outcome import StrictOutcome
    from countledger.producers.strict.sending import Part

_ADVICE: Final = "no attempt to give the change up got a clear answer: ask again"


def transact_parts(
    context: MethodContext,
    definition: Definition,
    parts: Sequence[Part],
    *,
    token: str,
    attempts: Attempts,
    now_ms: int | None,
) -> tuple[StrictOutcome, bool]:
    """Bring a change in under a token: two write units for each part.

    Args:
        context: what to work with.
        definition: of the counter.
        parts: which item takes how much.
        token: what a retry repeats.
        attempts: of the call.
        now_ms: the time to write, or None where a retry by another call must not differ.

    Returns:
        The outcome, and whether the very last request carried it out.

    Raises:
        TokenMismatch: the token stands for other writes.
        StaleDefinition: the counter is not the one that was read. The service answers a remembered
            token without checking conditions, so this function reads the counter then: one read
            unit.
    """
    writes = [update_of(context.table, definition, part, now_ms) for part in parts]
    counter = definition.counter
    while True:
        failure: CountledgerError
        try:
            with attempts.sending():
                fresh = context.dynamo.transact(writes, token)
        except RetryPeriodOver as late:
            return attempts.end(counter, late), True
        except TransactionCancelled as cancelled:
            refused = refused_among(definition, parts, cancelled.reasons)
            if refused is not None:
                return refused, True
            failure = cancelled
        except PASSING as error:
            failure = error
        else:
            if not fresh:
                return _remembered(context, definition, attempts), False
            value = None if definition.bins > 1 else context.value_after(definition.main)
            return Applied(counter, value), True
        if not attempts.again(failure):
            return attempts.end(counter, failure), True


def _remembered(
    context: MethodContext, definition: Definition, attempts: Attempts
) -> StrictOutcome:
    """What a request came to that was carried out before, if the counter is still that one."""
    try:
        there = context.read_incarnation(definition.main, definition.incarnation)
    except PASSING:
        return attempts.unknown(definition.counter)
    return Applied(definition.counter, None if definition.bins > 1 else there.get("total"))


def token_of(definition: Definition, change_id: str) -> str:
    """The token of a change: 32 characters, of which the service takes 36."""
    scope = f"{definition.counter}#{definition.incarnation}#{change_id}"
    return blake2b(scope.encode(), digest_size=16, person=b"token").hexdigest()


def life_ms(context: MethodContext) -> int:
    """For how long a key with a time can be told to be remembered."""
    return TOKEN_LIFE_MS - context.clock_skew_ms


def use_up(
    context: MethodContext, definition: Definition, token: str, until_ms: int | None = None
) -> StrictOutcome:
    """Use a token up for a transaction that changes nothing: two write units.

    Args:
        context: what to work with.
        definition: of the counter.
        token: of the change.
        until_ms: when the change that may be in under it may be forgotten; None: nobody can tell.

    Returns:
        `Withdrawn`: the change is not in and will not be, for as long as the token is remembered.
        `Duplicate`: the token is taken, the change is in. `Unknown`: no clear answer.

    Raises:
        StaleDefinition: the counter is not the one that was read.
    """
    attempts = Attempts(context, POLICY, _ADVICE, until_ms=until_ms)
    void = Check(context.table, definition.main, of(definition.incarnation))
    counter = definition.counter
    while True:
        failure: CountledgerError
        try:
            with attempts.sending():
                fresh = context.dynamo.transact([void], token)
            if not fresh:
                context.read_incarnation(definition.main, definition.incarnation)
        except RetryPeriodOver:
            return attempts.unknown(counter)
        except TokenMismatch:
            return _taken(context, definition, attempts)
        except TransactionCancelled as cancelled:
            if any(reason.condition_failed for reason in cancelled.reasons):
                raise StaleDefinition("the counter was deleted or recreated") from cancelled
            failure = cancelled
        except PASSING as error:
            failure = error
        else:
            return Withdrawn(counter, token)
        if not attempts.again(failure):
            return attempts.end(counter, failure)


def _taken(context: MethodContext, definition: Definition, attempts: Attempts) -> StrictOutcome:
    """The token stands for another body: a change that is in, if the counter is still that one."""
    try:
        context.read_incarnation(definition.main, definition.incarnation)
    except PASSING:
        return attempts.unknown(definition.counter)
    return Duplicate(definition.counter, None)
