"""What every method of a strict counter works with."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from countledger.ledger.attempts import Attempts, Backoff, Send, run
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.errors import (
    CountledgerError,
    Throttled,
    Unclear,
    Unreachable,
)
from countledger.ledger.ids import new_id
from countledger.ledger.limits import CLOCK_SKEW_DEFAULT_MS, TOKEN_LIFE_MS
from countledger.ledger.operations import Get
from countledger.ledger.performer import DynamoPerformer
from countledger.producers.strict.outcome import Contended, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import Exhausted, Steps
    from countledger.ledger.attributes import Item
    from countledger.ledger.dynamo import DynamoClient
    from countledger.producers.strict.definition import Definition

    _T = TypeVar("_T")

# How often a call is tried; a method that conflicts with others more often has its own policy.
POLICY: Final = Backoff(attempts=8, base_ms=25, cap_ms=1_000)


@dataclass(frozen=True, slots=True)
class MethodContext:
    """What a method works with.

    Attributes:
        dynamo: for writes; its SDK must not retry, or a lost answer would be hidden.
        reads: for reads, which the SDK may retry.
        table: the table `counters`.
        clock: the time, and waits.
        random: draws jitter and bins.
        new_id: makes an id for a millisecond.
        clock_skew_ms: how far clocks may differ.
    """

    dynamo: DynamoClient
    reads: DynamoClient
    table: str
    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=Random)
    new_id: Callable[[int], str] = new_id
    clock_skew_ms: int = CLOCK_SKEW_DEFAULT_MS

    def run(self, steps: Steps[_T]) -> _T:
        """Carry out the steps of a protocol in this thread."""
        return run(steps, DynamoPerformer(self.dynamo, self.reads, self.clock))

    @property
    def token_life_ms(self) -> int:
        """For how long the service surely remembers the client token of a key with a time."""
        return TOKEN_LIFE_MS - self.clock_skew_ms

    def attempts(self, until_ms: int | None = None, policy: Backoff = POLICY) -> Attempts:
        """The attempts of one call.

        Args:
            until_ms: when what makes another attempt safe may be forgotten, or None. A process
                that was suspended and wakes later must not send again.
            policy: how often, and how long to wait.
        """
        return Attempts(self.clock, self.random, policy, until_ms)

    def read_incarnation(self, definition: Definition) -> Steps[Item]:
        """A counter's main item, if its incarnation is still the definition's: one read unit.

        Raises:
            StaleDefinition: it was deleted or recreated: its markers and tokens mean nothing.
        """
        return definition.expect((yield Send(Get(self.table, definition.main))))

    def value_of(self, definition: Definition) -> Steps[Amount | None]:
        """The value after a transaction, whose answer has none: one read unit; none with bins."""
        if definition.bins > 1:
            return None
        try:
            item: Item | None = yield Send(Get(self.table, definition.main))
        except CountledgerError:
            # The change is applied; a read that fails must not make it look otherwise.
            return None
        return (item or {}).get("total")


def end(exhausted: Exhausted[Any], counter: str, advice: str) -> Unknown | Contended:
    """What a method ends with when no attempt is left.

    Args:
        exhausted: what is known of the attempts.
        counter: its name.
        advice: what a caller can do when the outcome stays unknown.

    Raises:
        Unreachable: nothing ever answered, so nothing was sent.
    """
    if exhausted.maybe_applied:
        return Unknown(counter, advice)
    if isinstance(exhausted.error, Unreachable):
        raise exhausted.error
    return Contended(counter, exhausted.attempts, str(exhausted.error))


def raise_exhausted(exhausted: Exhausted[Any], what: str, advice: str) -> NoReturn:
    """End a call that was not done.

    Args:
        exhausted: what is known of its attempts.
        what: what was to be done, for the message.
        advice: what a caller can do when the outcome stays unknown.

    Raises:
        Unclear: an attempt may have been applied.
        Throttled: each attempt was clearly refused.
        Unreachable: nothing ever answered.
    """
    error = exhausted.error
    if exhausted.maybe_applied:
        raise Unclear(
            f"{what}: no clear answer in {exhausted.attempts} attempts; {advice}"
        ) from error
    if isinstance(error, Unreachable):
        raise error
    raise Throttled(
        f"{what}: nothing was written in {exhausted.attempts} attempts ({error}); try again later"
    ) from error
