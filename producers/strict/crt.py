"""Method `crt`: a transaction of one write under a client request token. Two write units.

The token is made of the counter, its making and the key, for the service knows one room of tokens
for all tables. It remembers one for ten minutes after the first request with it was completed; a
cancelled transaction leaves it free. An answer means:

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
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from countledger.ledger.errors import CountledgerError, TokenMismatch, TransactionCancelled
from countledger.ledger.limits import TOKEN_LIFE_MS
from countledger.ledger.operations import Check
from countledger.ledger.retry import Backoff
from countledger.producers.strict.means import PASSING, Attempts, Means, Redefined
from countledger.producers.strict.outcome import Applied, Duplicate, GivenUp
from countledger.producers.strict.sending import Part, refused_among, update_of
from countledger.producers.strict.state import of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.producers.strict.change import Change
    from countledger.producers.strict.definition import Definition
    from countledger.producers.strict.outcome import Outcome, Refusal

_POLICY: Final = Backoff(attempts=8, base_ms=25, cap_ms=1_000)
_ADVICE: Final = (
    "no attempt got a clear answer: repeat the change with the same key within ten minutes of the "
    "first try, it cannot count twice; later, nobody can tell"
)


def transact_parts(
    means: Means,
    definition: Definition,
    parts: Sequence[Part],
    *,
    token: str,
    attempts: Attempts,
    now_ms: int | None,
) -> tuple[Outcome, bool]:
    """Bring a change in under a token: two write units for each part.

    Args:
        means: what to work with.
        definition: of the counter.
        parts: which item takes how much.
        token: what a retry repeats.
        attempts: of the call.
        now_ms: the time to write, or None where a retry by another call must not differ.

    Returns:
        The outcome, and whether the very last request carried it out.

    Raises:
        TokenMismatch: the token stands for other writes.
        Redefined: the counter is not the one that was read.
    """
    writes = [update_of(means.table, definition, part, now_ms) for part in parts]
    counter = definition.counter
    while True:
        failure: CountledgerError
        try:
            fresh = means.door.transact(writes, token)
        except TransactionCancelled as cancelled:
            refused = refused_among(definition, parts, cancelled.reasons)
            if refused is not None:
                return refused, True
            failure = cancelled
        except PASSING as error:
            failure = error
        else:
            value = None if definition.bins > 1 else means.value_after(definition.main)
            return Applied(counter, value), fresh
        if not attempts.again(failure):
            return attempts.end(counter, failure), True


def token_of(definition: Definition, change_id: str) -> str:
    """The token of a change: 32 characters, of which the service takes 36."""
    scope = f"{definition.counter}#{definition.made}#{change_id}"
    return blake2b(scope.encode(), digest_size=16, person=b"token").hexdigest()


def life_ms(means: Means) -> int:
    """For how long a key with a time can be told to be remembered."""
    return TOKEN_LIFE_MS - means.clock_skew_ms


@dataclass(slots=True)
class CrtSending:
    """A change on its way by method crt."""

    means: Means
    definition: Definition
    change: Change
    attempts: Attempts

    @classmethod
    def begin(cls, means: Means, definition: Definition, change: Change) -> CrtSending:
        """Nothing sent yet.

        Raises:
            KeyExpired, ClockSkew: its key was made too long ago, or lies ahead.
        """
        change.check_age(means.clock.now_ms(), life_ms(means), means.clock_skew_ms)
        until_ms = change.remembered_until(life_ms(means))
        attempts = Attempts(means, _POLICY, _ADVICE, until_ms=until_ms)
        return cls(means, definition, change, attempts)

    def at(self, parts: Sequence[Part]) -> Outcome:
        """Bring it in at these items: two write units each, and one read unit for the value.

        Raises:
            IdempotencyKeyReused: the key was used with another delta, or given up.
            TokenMismatch: the same of a counter with bins, where another bin may have taken it.
            Redefined: the counter is not the one that was read.
        """
        try:
            outcome, fresh = transact_parts(
                self.means,
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
        except Redefined:
            if not self.attempts.doubtful:
                raise
            return self.attempts.unknown(self.change.counter)
        mine = fresh or self.attempts.doubtful or self.change.key is None
        if isinstance(outcome, Applied) and not mine:
            return Duplicate(outcome.counter, outcome.value)
        return outcome

    def settle(self, refused: Refusal) -> Outcome:
        """Use the token up, if a request under it may still land: two write units."""
        if not self.attempts.doubtful:
            return refused
        ended = give_up(self.means, self.definition, self.change.id)
        if isinstance(ended, GivenUp):
            return refused
        if not isinstance(ended, Duplicate):
            return ended
        if self.definition.bins == 1:
            # The late request has landed, and answers for itself now.
            return self.at([Part(self.definition.main, self.change.delta)])
        if self.change.key is None:
            return Applied(self.change.counter, None)
        return self.attempts.unknown(self.change.counter)

    def _taken(self) -> Outcome:
        """The token stands for another body: for none, if the key was given up."""
        ended = give_up(self.means, self.definition, self.change.id)
        if isinstance(ended, GivenUp):
            return ended
        raise self.change.reused("another amount")


def give_up(means: Means, definition: Definition, change_id: str) -> Outcome:
    """Use the token of a change up, as `use_up`."""
    return use_up(means, definition, token_of(definition, change_id))


def use_up(means: Means, definition: Definition, token: str) -> Outcome:
    """Use a token up for a transaction that changes nothing: two write units.

    Returns:
        `GivenUp`: the change is not in and will not be, for as long as the token is remembered.
        `Duplicate`: the token is taken, the change is in. `Unknown`: no clear answer.

    Raises:
        Redefined: the counter is not the one that was read.
    """
    attempts = Attempts(means, _POLICY, _ADVICE)
    void = Check(means.table, definition.main, of(definition.made))
    while True:
        failure: CountledgerError
        try:
            means.door.transact([void], token)
        except TokenMismatch:
            return Duplicate(definition.counter, None)
        except TransactionCancelled as cancelled:
            if any(reason.condition_failed for reason in cancelled.reasons):
                raise Redefined("the counter was deleted or made again") from cancelled
            failure = cancelled
        except PASSING as error:
            failure = error
        else:
            return GivenUp(definition.counter, token)
        if not attempts.again(failure):
            return attempts.end(definition.counter, failure)
