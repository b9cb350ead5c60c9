"""What every method of a strict counter works with."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from countledger.ledger.attempts import (
    Attempts,
    Done,
    DynamoPerformer,
    Pause,
    Recheck,
    Reply,
    RetryPeriodOver,
    Send,
    attempt,
    otherwise,
    run,
    run_async,
)
from countledger.ledger.clock import Backoff, Clock, SystemClock
from countledger.ledger.errors import (
    CountledgerError,
    Throttled,
    TransactionCancelled,
    Unclear,
    Unreachable,
)
from countledger.ledger.ids import new_id
from countledger.ledger.limits import (
    CLOCK_SKEW_DEFAULT_MS,
    RELEASE_LEASE_MS,
    SECOND_MS,
    SIGNED_REQUEST_LIFE_MS,
    TOKEN_LIFE_MS,
)
from countledger.ledger.operations import Get
from countledger.producers.strict.fence import KnownFences, raise_fences, raising
from countledger.producers.strict.outcome import Contended, Duplicate, Unknown, Withdrawn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import Answer, Exhausted, Step, Steps, Verdict
    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.operations import Transact
    from countledger.producers.strict.definition import Definition
    from countledger.producers.strict.outcome import StrictOutcome

    _T = TypeVar("_T")

# How often a call is tried; a method that conflicts with others more often has its own policy.
POLICY: Final = Backoff(attempts=8, base_ms=25, cap_ms=1_000)
_LOOKS_KEPT: Final = 10_000


class Look(Enum):
    """Whether to look for expired holds of a counter."""

    NOW = "now"
    UNDER_WAY = "another thread looks"
    SINCE = "another thread has looked since the call was refused"
    NOTHING_EXPIRED = "nothing has expired since the last look"


@dataclass(slots=True)
class RecentLooks:
    """When this process looked for expired holds of each counter, and until when none expires.

    Attributes:
        begun: how many looks this process has begun.
    """

    begun: int = 0
    # Of each counter: when its last look began, as which one, and until when nothing expires (None:
    # it is under way).
    _last: OrderedDict[str, tuple[int, int, int | None]] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def begin(self, counter: str, now_ms: int, tried: int) -> Look:
        """Whether to look now. If so, `end` has to follow.

        Args:
            counter: its name.
            now_ms: the time.
            tried: how many looks had begun when the refused request was sent.
        """
        with self._lock:
            began_ms, number, quiet_until_ms = self._last.get(counter, (0, 0, 0))
            if quiet_until_ms is None and 0 <= now_ms - began_ms < RELEASE_LEASE_MS:
                return Look.UNDER_WAY
            if quiet_until_ms is not None and began_ms <= now_ms < quiet_until_ms:
                return Look.SINCE if number > tried else Look.NOTHING_EXPIRED
            self.begun += 1
            self._last[counter] = now_ms, self.begun, None
            self._last.move_to_end(counter)
            if len(self._last) > _LOOKS_KEPT:
                self._last.popitem(last=False)
            return Look.NOW

    def end(self, counter: str, quiet_until_ms: int | None) -> None:
        """A look is over.

        Args:
            counter: its name.
            quiet_until_ms: until when nothing more expires; None: not known, so look again.
        """
        with self._lock:
            began_ms, number, _ = self._last.pop(counter, (0, 0, None))
            if quiet_until_ms is not None:
                self._last[counter] = began_ms, number, quiet_until_ms


@dataclass(frozen=True, slots=True)
class MethodContext:
    """What a method works with.

    Attributes:
        dynamo: for writes; its SDK must not retry, or a lost answer would be hidden.
        reads: for reads, which the SDK may retry.
        table: the table of the counters.
        clock: the time, and waits.
        random: draws jitter and bins.
        new_id: makes an id for a millisecond.
        clock_skew_ms: how far clocks may differ.
        over_regions: whether the table has multi-region strong consistency. Such a table takes
            neither transactions nor a time to live.
        request_life_ms: for how long a request that has left may still be applied.
        looks: when this process looked for expired holds.
        fences: what this process knows of the fences of counters.
    """

    dynamo: DynamoClient
    reads: DynamoClient
    table: str
    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=Random)
    new_id: Callable[[int], str] = new_id
    clock_skew_ms: int = CLOCK_SKEW_DEFAULT_MS
    over_regions: bool = False
    request_life_ms: int = SIGNED_REQUEST_LIFE_MS
    looks: RecentLooks = field(default_factory=RecentLooks, repr=False)
    fences: KnownFences = field(default_factory=KnownFences, repr=False)

    def run(self, steps: Steps[_T]) -> _T:
        """Carry out the steps of a protocol in this thread."""
        return run(steps, DynamoPerformer(self.dynamo, self.reads, self.clock))

    async def run_async(self, steps: Steps[_T]) -> _T:
        """As `run`, in an event loop: each request runs in a thread, and waits take none."""
        perform = DynamoPerformer(self.dynamo, self.reads, self.clock)

        async def perform_async(step: Step) -> Answer:
            if isinstance(step, Pause):
                if perform.over(step):
                    return True
                return await asyncio.sleep(step.wait_ms / SECOND_MS)
            return await asyncio.to_thread(perform, step)

        return await run_async(steps, perform_async)

    @property
    def token_life_ms(self) -> int:
        """For how long the service surely remembers the client token of a key with a time."""
        return TOKEN_LIFE_MS - self.clock_skew_ms

    def outlives_requests(self, marker: Item) -> bool:
        """Whether a marker is stored until no request that was sent so far can arrive.

        Once it is deleted, a late request that it would have refused is applied.
        """
        expires_at = marker.get("expires_at")
        latest_ms = self.clock.now_ms() + self.request_life_ms + self.clock_skew_ms
        return expires_at is None or expires_at * SECOND_MS > latest_ms

    def decides(self, marker: Item, call: str, attempts: Attempts) -> bool:
        """Whether a marker that exists decides what became of a call.

        While a request of the call may be late, a marker of another call decides only if it
        outlives that request.
        """
        mine = marker.get("call") == call
        return mine or not attempts.maybe_applied or self.outlives_requests(marker)

    def met_by_withdrawal(
        self, marker: Item, what: str, change_id: str, advice: str
    ) -> Withdrawn | Duplicate | Unknown:
        """What the marker that a withdrawal found under its key says of the change."""
        if "void" not in marker:
            return Duplicate(what, None)
        # Any request of the change may be late, whichever call withdrew it.
        lasting = self.outlives_requests(marker)
        return Withdrawn(what, change_id) if lasting else Unknown(what, advice)

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

    def raise_fences(self, definition: Definition, places: Iterable[Key]) -> Steps[bool]:
        """Raise the fences of items of a counter: one write unit each; whether all are raised."""
        writes = [raising(self.table, key, definition.incarnation) for key in places]
        items = yield from raise_fences(writes, self.attempts())
        if items is None:
            return False
        for write, item in zip(writes, items, strict=True):
            if item is not None:
                self.fences.learn(write.key, definition.incarnation, item)
        return True

    def value_of(self, definition: Definition) -> Steps[Amount | None]:
        """The value after a transaction, whose answer has none: one read unit; none with bins."""
        if definition.bins > 1:
            return None
        try:
            item: Item | None = yield Send(Get(self.table, definition.main))
        except CountledgerError:
            # The change is applied; a read that fails must not make it look otherwise.
            return None
        # A counter that was recreated since has the value of other changes.
        return item.get("total") if item is not None and definition.is_of(item) else None


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


def withdrawal(
    context: MethodContext,
    definition: Definition,
    void: Transact,
    meaning: Callable[[Answer], StrictOutcome | Recheck[StrictOutcome | None] | None],
    *,
    until_ms: int | None,
    advice: str,
) -> Steps[StrictOutcome]:
    """Send a transaction that changes nothing but keeps a change from being applied later.

    Its last write checks the counter's incarnation. Nothing promises that a cancelled transaction
    names every condition that failed, so an outcome may have to be confirmed by a read of the
    incarnation: one read unit.

    Args:
        context: what to work with.
        definition: of the counter.
        void: the transaction.
        meaning: what an answer to it means: an outcome; an outcome to be confirmed; None: neither.
        until_ms: when what the change itself left may be forgotten; None: unknown.
        advice: what a caller can do when the outcome stays unknown.

    Raises:
        StaleDefinition: the counter was deleted or recreated.
    """
    counter = definition.counter

    # The state is the outcome that a read of the incarnation has to confirm, if any.
    def request(state: StrictOutcome | None) -> Send:
        return Send(void if state is None else Get(context.table, definition.main))

    def interpret(
        reply: Reply[StrictOutcome | None],
    ) -> Verdict[StrictOutcome | None, StrictOutcome]:
        match reply.answer:
            case TransactionCancelled(reasons=(*_, same)) if same.condition_failed:
                raise definition.stale() from reply.answer
            case RetryPeriodOver():
                return Done(Unknown(counter, advice))
        if reply.state is not None and not isinstance(reply.answer, CountledgerError):
            definition.expect(reply.answer)
            return Done(reply.state)
        found = meaning(reply.answer)
        if found is None:
            return otherwise(reply)
        return found if isinstance(found, Recheck) else Done(found)

    return attempt(
        None,
        request,
        interpret,
        lambda exhausted: end(exhausted, counter, advice),
        context.attempts(until_ms),
    )


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
