"""What every method works with, and the attempts of one call."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from countledger.ledger import attempts as driver
from countledger.ledger.attempts import PASSING as PASSING  # noqa: PLC0414 - for its importers
from countledger.ledger.attempts import Backoff, Send, run
from countledger.ledger.attempts import RetryPeriodOver as RetryPeriodOver  # noqa: PLC0414
from countledger.ledger.before_send import guarded
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.errors import CountledgerError, Throttled, Unclear, Unreachable
from countledger.ledger.ids import new_id
from countledger.ledger.limits import CLOCK_SKEW_DEFAULT_MS
from countledger.ledger.operations import Get
from countledger.ledger.performer import DynamoPerformer
from countledger.producers.strict.outcome import Contended, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import Exhausted, Steps
    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.dynamo import DynamoClient
    from countledger.producers.strict.definition import Definition
    from countledger.producers.strict.outcome import StrictOutcome

_T = TypeVar("_T")

# How often a call is tried; a method that meets others more often has a policy of its own.
POLICY: Final = Backoff(attempts=8, base_ms=25, cap_ms=1_000)


class StaleDefinition(CountledgerError):
    """The counter is not the one that was read: it was deleted or recreated (inner use)."""


@dataclass(frozen=True, slots=True)
class MethodContext:
    """What a method works with.

    Attributes:
        dynamo: for writes; its SDK must not retry, or what happened can no longer be told.
        reads: for reads, which the SDK may retry.
        table: the table `counters`.
        clock: tells the time and waits.
        random: what jitter and bins are drawn from.
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
        """Carry the steps of a protocol out in this thread."""
        return run(steps, DynamoPerformer(self.dynamo, self.reads, self.clock))

    def read(self, key: Key) -> Item:
        """An item as it is now: one read unit for each 4 KB.

        Raises:
            StaleDefinition: it is not there.
        """
        item = self.reads.get(self.table, key, consistent=True)
        if item is None:
            raise StaleDefinition("the counter is gone")
        return item

    def read_incarnation(self, key: Key, incarnation: str) -> Item:
        """A counter's main item, if it is still of that incarnation: one read unit.

        Raises:
            StaleDefinition: it was recreated, or is gone: what its markers and tokens say is void.
        """
        item = self.read(key)
        if item.get("incarnation") != incarnation:
            raise StaleDefinition("the counter was recreated")
        return item

    def reading(self, definition: Definition) -> Steps[Item]:
        """A counter's main item, if its incarnation is still that of the definition: one read unit.

        Raises:
            StaleDefinition: it was deleted or recreated: its markers and tokens mean nothing.
        """
        item: Item | None = yield Send(Get(self.table, definition.main))
        if item is None or item.get("incarnation") != definition.incarnation:
            raise StaleDefinition(f"counter {definition.counter!r} was deleted or recreated")
        return item

    def value_after(self, key: Key) -> Amount | None:
        """The value right after a transaction, which answers with none: one read unit."""
        try:
            value: Amount | None = self.read(key).get("total")
        except CountledgerError:
            # The change is in; that its effect cannot be shown must not make it look otherwise.
            return None
        return value


class Attempts(driver.Attempts):
    """The attempts of one call, for a method whose loop is written by hand."""

    def __init__(
        self, context: MethodContext, backoff: Backoff, advice: str, *, until_ms: int | None = None
    ) -> None:
        """None made yet.

        Args:
            context: clock and randomness.
            backoff: the method's policy.
            advice: what a caller can do when the outcome stays unknown.
            until_ms: when what makes another attempt safe may be forgotten. A process that was
                frozen and wakes later must not send again.
        """
        super().__init__(context.clock, context.random, backoff, until_ms)
        self._advice = advice

    def again(self, error: CountledgerError) -> bool:
        """Note a failure and wait before the next attempt; False: there is none left."""
        self.maybe_applied = self.maybe_applied or isinstance(error, Unclear)
        wait_ms = self.next_wait_ms()
        if wait_ms is None:
            return False
        self.clock.sleep_ms(wait_ms)
        try:
            self.check()
        except RetryPeriodOver:
            return False
        return True

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Look once more as the request leaves: a process may stand still anywhere, for hours.

        Raises:
            RetryPeriodOver: it is too late for this one; it was not sent.
        """
        with guarded(self.check):
            yield

    def fenced(self, counter: str, fence: Callable[[], StrictOutcome]) -> StrictOutcome:
        """What closing the way of a request in doubt came to.

        Args:
            counter: its name.
            fence: gives the change up.

        Returns:
            What that says; `Unknown` where nothing answers any more. For the fence that is to say
            that nothing was sent, but something was before it.

        Raises:
            Unreachable: the same where nothing is in doubt.
        """
        try:
            return fence()
        except Unreachable:
            if not self.maybe_applied:
                raise
            return self.unknown(counter)

    def end(self, counter: str, error: CountledgerError) -> Unknown | Contended:
        """What is left to say when no attempt is.

        Raises:
            Unreachable: nothing ever answered, so nothing was sent.
        """
        if self.maybe_applied:
            return self.unknown(counter)
        if isinstance(error, Unreachable):
            raise error
        return Contended(counter, self.made, str(error))

    def unknown(self, counter: str) -> Unknown:
        """The method cannot tell."""
        return Unknown(counter, self._advice)


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
