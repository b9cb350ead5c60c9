"""The attempt driver: the one loop around requests to a service.

A protocol (record an entry, change a strict counter, take a claim, ...) is written in three parts,
none of which does I/O or waits:

`request(state)`
    The next request: `Send(operation)`.
`interpret(reply)`
    The protocol's answer table. A `Reply` is what the service returned, or the `CountledgerError`
    that came instead, with the state and `maybe_applied`. The result is one of four values:

    - `Done(value)`: the protocol ends with this value.
    - `Again(state)`: this attempt failed for now. Wait, then send `request(state)`.
    - `Recheck(state)`: send `request(state)` at once, for example a consistent read that makes a
      refusal final. It is no further attempt: it neither waits nor counts.
    - `GiveUp(error)`: no further attempt can help.

    A table lists the answers that mean something special and ends with `otherwise`, the rows that
    all tables share: a passing error is `Again`, any other error is raised.
`give_up(exhausted)`
    The value, or the error to raise, when no attempt is left.

`attempt` combines them and owns the rest: the waits (exponential back-off with jitter), the number
of attempts, and `maybe_applied`, which is true as soon as one write got no clear answer and may
have reached the service. It checks the deadline before each request, and again when the request is
signed and leaves (a process may be suspended between the two). A request that is too late is not
sent; its answer is the error of the check.

Example: put an item unless it exists, and report whether this call wrote it.

>>> def put_once(write: Put, attempts: Attempts) -> Steps[str]:
...     def request(state: None) -> Send:
...         return Send(write)
...
...     def interpret(reply: Reply[None]) -> Verdict[None, str]:
...         match reply:
...             case Reply(ConditionFailed(item=write.item), maybe_applied=True):
...                 return Done("written")  # by the attempt that got no answer
...             case Reply(ConditionFailed()):
...                 return Done("existed")
...             case Reply(CountledgerError()):
...                 return otherwise(reply)
...         return Done("written")
...
...     def give_up(exhausted: Exhausted[None]) -> str:
...         return "unknown" if exhausted.maybe_applied else "not written"
...
...     return attempt(None, request, interpret, give_up, attempts)

`attempt` returns a generator of steps, which `run` carries out. Protocols compose with `yield
from`: the steps of one may be part of another, and an `Attempts` that both share limits and
remembers the attempts of both. A single request beside the attempts, such as a read that decides
what a final answer means, is `answer = yield Send(operation)`; it raises what goes wrong. `Recheck`
is for a follow-up whose answer may lead to another attempt.

    run(put_once(write, Attempts(clock, random)), DynamoPerformer(dynamo, reads, clock))

Tests of a protocol need no service: call `interpret` with each answer, or drive the steps with a
function that returns prepared answers.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    NamedTuple,
    NoReturn,
    TypeAlias,
    TypeVar,
    assert_never,
)

from countledger.ledger.clock import Backoff
from countledger.ledger.departure import guarded
from countledger.ledger.entry import PutBatch
from countledger.ledger.errors import (
    ConditionFailed,
    CountledgerError,
    RequestRejected,
    Throttled,
    TokenMismatch,
    TransactionCancelled,
    Unclear,
    Unreachable,
)
from countledger.ledger.operations import (
    Delete,
    Get,
    GetMany,
    Put,
    Query,
    Scan,
    Transact,
    TransactGet,
    Update,
)
from countledger.ledger.suspension import Interrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from countledger.ledger.attributes import Item
    from countledger.ledger.clock import Clock
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.operations import Operation


# What a service returned, or the `CountledgerError` that came instead.
Answer: TypeAlias = Any
# After these errors another attempt may succeed. Only an `Unclear` one may have been applied.
PASSING: Final = (Throttled, Unclear, Unreachable)
# These say what became of a transaction.
_SAYS: Final = (TransactionCancelled, TokenMismatch)
_READS: Final = (Get, GetMany, TransactGet, Query, Scan)


class RetryPeriodOver(CountledgerError):
    """What makes a retry safe may be forgotten by now: the request was not sent (inner use)."""


def always() -> None:
    """The check of a request that may leave at any time."""


@dataclass(frozen=True, slots=True)
class Send:
    """One request, as the performer of the steps understands it.

    `before_send` is called when it leaves, and raises where it must not leave.
    """

    operation: Any
    before_send: Callable[[], None] = always

    @property
    def writes(self) -> bool:
        """Whether it may change anything: then no answer leaves a doubt."""
        return not isinstance(self.operation, _READS)


class Pause(NamedTuple):
    """Wait before the next step; the answer is whether the call may not go on instead.

    `made` counts the attempts of the call that failed so far; 0: the pause is no matter of
    attempts.
    """

    wait_ms: float
    made: int = 0
    since_ms: int = 0


class CallLimits(NamedTuple):
    """For how long and how often an app lets a call be tried; each protocol has its bound, too."""

    timeout_ms: int
    attempts: int

    def reached(self, pause: Pause, now_ms: int) -> bool:
        """Whether the attempt after a pause is one too many, or too late."""
        late = now_ms + pause.wait_ms - pause.since_ms >= self.timeout_ms
        return pause.made > 0 and (late or pause.made >= self.attempts)


_S = TypeVar("_S")
_T = TypeVar("_T")
Step: TypeAlias = Send | Pause
Steps: TypeAlias = Generator[Step, Answer, _T]


@dataclass(frozen=True, slots=True)
class Reply(Generic[_S]):
    """What came of one request: a row of an answer table is a pattern of it.

    `maybe_applied`: a write so far, this one included, got no clear answer and may have been
    applied, or may still be.
    """

    answer: Answer
    state: _S
    maybe_applied: bool


@dataclass(frozen=True, slots=True)
class Done(Generic[_T]):
    """The protocol ends with this value."""

    value: _T


class Again(NamedTuple, Generic[_S]):
    """The attempt failed for now.

    `error` says why, where the answer itself is no error or does not say it. `resolved`: no request
    sent so far can be applied any more, so `maybe_applied` is false again.
    """

    state: _S
    error: CountledgerError | None = None
    resolved: bool = False


class Recheck(NamedTuple, Generic[_S]):
    state: _S
    resolved: bool = False


class GiveUp(NamedTuple):
    error: CountledgerError


Verdict: TypeAlias = Again[_S] | Recheck[_S] | Done[_T] | GiveUp


class Exhausted(NamedTuple, Generic[_S]):
    """What is known when no attempt is left; the next one would go on from `state`."""

    state: _S
    attempts: int
    error: CountledgerError
    maybe_applied: bool


@dataclass(slots=True)
class Attempts:
    """The attempts of one call, over all its requests.

    `until_ms` is the deadline: when what makes another attempt safe may be forgotten; None: never.
    """

    clock: Clock
    random: Random
    backoff: Backoff = field(default_factory=Backoff)
    until_ms: int | None = None
    made: int = 0
    maybe_applied: bool = False
    _began_ms: int = field(init=False, repr=False)
    _waits_ms: Iterator[float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._began_ms = self.clock.now_ms()
        self._waits_ms = self.backoff.waits_ms(self.random)

    def pause(self) -> Pause | None:
        """The pause before the next attempt, or None where none is left."""
        self.made += 1
        wait_ms = next(self._waits_ms, None)
        return None if wait_ms is None else Pause(wait_ms, self.made, self._began_ms)

    def trusted(self, send: Send, answer: Answer) -> Answer:
        """The answer, unless it came so late that the service may have forgotten the token.

        A process that was suspended after it had sent a transaction may have sent it much later: an
        earlier attempt may have been applied, and this one again, or refused as if it were none.
        """
        if self.until_ms is None or not isinstance(send.operation, Transact):
            return answer
        says = not isinstance(answer, CountledgerError) or isinstance(answer, _SAYS)
        if says and self.clock.now_ms() > self.until_ms:
            return Unclear("the answer came when the token may be forgotten already")
        return answer

    def check(self) -> None:
        """Raise RetryPeriodOver after the deadline."""
        if self.until_ms is not None and self.clock.now_ms() > self.until_ms:
            raise RetryPeriodOver("this process was suspended for longer than the key is kept")


def attempt(
    state: _S,
    request: Callable[[_S], Send],
    interpret: Callable[[Reply[_S]], Verdict[_S, _T]],
    give_up: Callable[[Exhausted[_S]], _T],
    attempts: Attempts,
) -> Steps[_T]:
    """Send requests until one of them settles the matter, or no attempt is left.

    `before_send` of each is checked beside the deadline; `attempts` may be shared with other steps
    of the same call.
    """
    while True:
        send = _with_deadline(request(state), attempts)
        answer = yield from _answered(send, attempts)
        verdict = interpret(Reply(answer, state, attempts.maybe_applied))
        if isinstance(verdict, Done):
            return verdict.value
        if isinstance(verdict, GiveUp):
            return give_up(Exhausted(state, attempts.made, verdict.error, attempts.maybe_applied))
        if verdict.resolved:
            attempts.maybe_applied = False
        state = verdict.state
        if isinstance(verdict, Again):
            pause = attempts.pause()
            if pause is None or (yield pause):
                cause = verdict.error or answer
                return give_up(Exhausted(state, attempts.made, cause, attempts.maybe_applied))


def _answered(send: Send, attempts: Attempts) -> Steps[Answer]:
    answer: Answer
    try:
        send.before_send()
        answer = yield send
    except CountledgerError as error:
        answer = error
    except Interrupted as stop:
        attempts.maybe_applied = attempts.maybe_applied or (send.writes and stop.left)
        raise
    answer = attempts.trusted(send, answer)
    if send.writes and isinstance(answer, Unclear):
        attempts.maybe_applied = True
    return answer


def otherwise(reply: Reply[_S]) -> Again[_S] | GiveUp:
    """The last rows of every answer table.

        throttle, conflict, no answer       again
        deadline passed                     no further attempt
        any other error                     raised; while an earlier attempt may have been applied,
                                            no further attempt: the error would say: nothing written

    An action of a transaction that the service calls invalid is RequestRejected.
    """
    answer = reply.answer
    if isinstance(answer, PASSING):
        return Again(reply.state)
    if isinstance(answer, TransactionCancelled):
        if any(reason.passing for reason in answer.reasons):
            return Again(reply.state, Throttled(str(answer)))
        answer = RequestRejected(str(answer))
    if not isinstance(answer, CountledgerError):
        raise TypeError(f"no row of the answer table for {answer!r}")
    if reply.maybe_applied or isinstance(answer, RetryPeriodOver):
        return GiveUp(answer)
    raise answer


def raise_exhausted(exhausted: Exhausted[Any], what: str, advice: str) -> NoReturn:
    """End a call that was not done; `advice` is for a caller whose outcome stays unknown.

    Unclear if an attempt may have been applied, Throttled if each was clearly refused, Unreachable
    if nothing ever answered.
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


def ask(
    operation: Any,  # noqa: ANN401 - as of `Send`
    attempts: Attempts,
    give_up: Callable[[Exhausted[None]], Answer],
) -> Steps[Answer]:
    """Send one operation until the service answers it; the answer."""

    def interpret(reply: Reply[None]) -> Verdict[None, Answer]:
        failed = isinstance(reply.answer, CountledgerError)
        return otherwise(reply) if failed else Done(reply.answer)

    return attempt(None, lambda _: Send(operation), interpret, give_up, attempts)


def run(steps: Steps[_T], perform: Callable[[Step], Answer]) -> _T:
    """Carry the steps out in this thread, one after the other; what they end with, or raise."""
    answer: Answer = None
    while True:
        try:
            step = _next_step(steps, answer)
        except StopIteration as end:
            outcome: _T = end.value
            return outcome
        try:
            answer = perform(step)
        except (CountledgerError, Interrupted) as error:
            answer = error


def _next_step(steps: Steps[_T], answer: Answer) -> Step:
    if isinstance(answer, CountledgerError | Interrupted):
        return steps.throw(answer)
    return steps.send(answer)


def _with_deadline(send: Send, attempts: Attempts) -> Send:
    if attempts.until_ms is None:
        return send

    def check() -> None:
        attempts.check()
        send.before_send()

    return Send(send.operation, check)


# Carries out writes, and the steps of the attempt driver, through DynamoDB clients.


def write_one(dynamo: DynamoClient, write: Put | Update | Delete) -> Item | None:
    """Write one item: a unit for each KB, also if its condition fails. An update may return it."""
    if isinstance(write, Update):
        return dynamo.update(write)
    if isinstance(write, Put):
        dynamo.put(write)
    else:
        dynamo.delete(write)
    return None


def wrote(dynamo: DynamoClient, write: Put | Update | Delete) -> bool:
    """As `write_one`; whether it was carried out. False: its condition failed."""
    try:
        write_one(dynamo, write)
    except ConditionFailed:
        return False
    return True


@dataclass(frozen=True, slots=True)
class DynamoPerformer:
    """Carries out steps whose operations are those of `ledger.operations`.

    The SDK of `dynamo`, for writes, must not retry, or a lost answer would be hidden; that of
    `reads` may.
    """

    dynamo: DynamoClient
    reads: DynamoClient
    clock: Clock

    def __call__(self, step: Step) -> Answer:
        """The answer to a request, or None after a pause; True where the call must end instead."""
        if isinstance(step, Pause):
            if self.over(step):
                return True
            return self.clock.sleep_ms(step.wait_ms)
        with guarded(step.before_send):
            return self._answer(step.operation)

    def over(self, pause: Pause) -> bool:
        """Whether the limits of a call allow no attempt after a pause."""
        limits = self.dynamo.limits
        return limits is not None and limits.reached(pause, self.clock.now_ms())

    def _answer(self, operation: Operation) -> Answer:  # noqa: PLR0911 - one for each operation
        match operation:
            case Put() | Update() | Delete():
                return write_one(self.dynamo, operation)
            case Transact(writes, token):
                return self.dynamo.transact(writes, token)
            case PutBatch():
                return self.dynamo.put_entries(operation)
            case Get(table, key, consistent):
                return self.reads.get(table, key, consistent=consistent)
            case GetMany(table, keys, consistent):
                return self.reads.get_many(table, keys, consistent=consistent)
            case TransactGet(table, keys):
                return self.reads.transact_get(table, keys)
            case Query() | Scan():
                return self.reads.page(operation)
        assert_never(operation)
