"""What every method works with, and the attempts of one call."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from countledger.ledger.before_send import guarded
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.errors import CountledgerError, Throttled, Unclear, Unreachable
from countledger.ledger.ids import new_id
from countledger.ledger.limits import CLOCK_SKEW_DEFAULT_MS
from countledger.ledger.retry import Backoff
from countledger.producers.strict.outcome import Contended, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.dynamo import DynamoClient
    from countledger.producers.strict.outcome import StrictOutcome

# After these another attempt may go through. Only an `Unclear` one may have been carried out.
PASSING: Final = (Throttled, Unclear, Unreachable)
# How often a call is tried; a method that meets others more often has a policy of its own.
POLICY: Final = Backoff(attempts=8, base_ms=25, cap_ms=1_000)


class StaleDefinition(CountledgerError):
    """The counter is not the one that was read: it was deleted or recreated (inner use)."""


class RetryPeriodOver(CountledgerError):
    """What would make a request safe may be forgotten by now: it must not leave (inner use)."""


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

    def value_after(self, key: Key) -> Amount | None:
        """The value right after a transaction, which answers with none: one read unit."""
        try:
            value: Amount | None = self.read(key).get("total")
        except CountledgerError:
            # The change is in; that its effect cannot be shown must not make it look otherwise.
            return None
        return value


class Attempts:
    """The attempts of one call, at whatever place: how many, and whether one is in doubt.

    Attributes:
        made: attempts that failed so far.
        maybe_applied: whether one of them may have been carried out, or may still be.
        until_ms: when what makes another attempt safe may be forgotten, or None.
    """

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
        self.made = 0
        self.maybe_applied = False
        self._clock = context.clock
        self._waits_ms = backoff.waits_ms(context.random)
        self._advice = advice
        self.until_ms = until_ms

    def again(self, error: CountledgerError) -> bool:
        """Note a failure and wait before the next attempt; False: there is none left."""
        self.made += 1
        self.maybe_applied = self.maybe_applied or isinstance(error, Unclear)
        wait_ms = next(self._waits_ms, None)
        if wait_ms is None:
            return False
        self._clock.sleep_ms(wait_ms)
        return not self._late

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Look once more as the request leaves: a process may stand still anywhere, for hours.

        Raises:
            RetryPeriodOver: it is too late for this one; it was not sent.
        """
        with guarded(self._refuse_late):
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

    @property
    def _late(self) -> bool:
        return self.until_ms is not None and self._clock.now_ms() > self.until_ms

    def _refuse_late(self) -> None:
        if self._late:
            raise RetryPeriodOver("this process stood still for longer than the key is remembered")

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
