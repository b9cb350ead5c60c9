"""Checks of a request as it leaves, and the proof that a failed request never left.

A process may be suspended for hours at any point, also between a check and the request after it.
The service accepts a signed request for a quarter of an hour. So a request with a deadline is
checked *after* it is signed: if the process is suspended after this check, the service itself
refuses the request as too old.

An error says "nothing was sent" only by proof. The proof is where the error arose: inside the
function that makes the connection, which returns before the first byte of a request is written.
The SDK may try several times in one call; then each attempt needs its proof.

An invocation of a function has a deadline. It ends before its time is over instead of being stopped
in the middle: then it can report from which record on its batch must be delivered again, and its
earlier writes count. The rules of watermarks also depend on when the last write can leave: none
leaves after this moment.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol

from urllib3.connection import HTTPConnection, HTTPSConnection

from countledger.ledger.errors import CallCancelled, OutOfTime, SetupError
from countledger.ledger.limits import INVOCATION_MARGIN_MS, INVOCATION_TIME_MS, SECOND_MS
from countledger.ledger.processes import this_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from countledger.ledger.clock import Clock


# Of these answers of HTTP the service says that it refused the request.
_CLIENT_FAULT: Final = 400
_SERVER_FAULT: Final = 500
# An earlier request with the same token is under way.
_IN_PROGRESS: Final = "TransactionInProgressException"
_CONNECTING: Final = frozenset({HTTPConnection.connect.__code__, HTTPSConnection.connect.__code__})


@dataclass(slots=True)
class SentAttempts:
    """What is known of the attempts of one call of the SDK.

    Attributes:
        since_s: by a clock that only goes on.
        begun: whether one was handed to the network.
        maybe_applied: whether one may have reached the service. The last attempt of a call that
            raises does not count until the SDK has classified its error.
        unclear: whether one that the SDK made another one after got no clear answer.
        withdrawn: whether the call of an event loop was cancelled: nothing leaves any more.
    """

    since_s: float = field(default_factory=monotonic)
    begun: bool = False
    maybe_applied: bool = False
    unclear: bool = False
    withdrawn: bool = False


_ATTEMPTS: ContextVar[SentAttempts | None] = ContextVar("attempts", default=None)
_LOOK: ContextVar[Callable[[], None] | None] = ContextVar("look", default=None)


class guarded:  # noqa: N801 - a context manager
    """Let `look` refuse, by raising, each request of this thread as it leaves, in the block.

    (Not by a generator, which takes three times as long; every request has one.)
    """

    __slots__ = ("_before", "_look")

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look

    def __enter__(self) -> None:
        self._before = _LOOK.set(self._look)

    def __exit__(self, *_: object) -> None:
        _LOOK.reset(self._before)


class attempts_noted:  # noqa: N801 - likewise
    """Note the attempts of the one call that the block makes."""

    __slots__ = ("_before",)

    def __enter__(self) -> SentAttempts:
        attempts = SentAttempts()
        self._before = _ATTEMPTS.set(attempts)
        return attempts

    def __exit__(self, *_: object) -> None:
        _ATTEMPTS.reset(self._before)


def leave(**_: object) -> None:
    """Let a signed request leave, unless the look raises, or its call was cancelled."""
    look = _LOOK.get()
    if look is not None:
        look()
    attempts = _ATTEMPTS.get()
    if attempts is not None:
        # Noted first: the thread of the loop withdraws, and then reads the note. So a call never
        # says that nothing was sent of a request that leaves.
        attempts.begun = True
        if attempts.withdrawn:
            raise CallCancelled("the call was cancelled before its request left")


def _leave_from(process: tuple[int, int], **_: object) -> None:
    """`leave`, through a client of that process; another one's requests would mix (SetupError).

    A child that goes on with its parent's event loop has tasks that are about to send.
    """
    if process != this_process():
        raise SetupError("the client was made before this process was forked: make one here")
    leave()


def judge_attempt(
    timeout_ms: float,
    caught_exception: Exception | None,
    response: tuple[Any, Any] | None = None,
    **_: object,
) -> None:
    """An attempt has ended; botocore calls this before it decides about another one.

    None begins `timeout_ms` after the first: then what the attempt raised is raised.
    """
    attempts = _ATTEMPTS.get()
    if attempts is None:
        return
    attempts.unclear = attempts.unclear or not _refused(caught_exception, response)
    if caught_exception is None or not never_sent(caught_exception):
        attempts.maybe_applied = True
    if caught_exception is not None and monotonic() - attempts.since_s >= timeout_ms / SECOND_MS:
        raise caught_exception


def _refused(error: Exception | None, response: tuple[Any, Any] | None) -> bool:
    """Whether an attempt that has ended so changed nothing, and never will."""
    # Errors without an answer may have the attribute too: botocore's `HTTPClientError`.
    answer: Any = getattr(error, "response", None)
    if error is not None and not answer:
        return never_sent(error)
    answer = answer or (response[1] if response else {})
    status: int = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code = answer.get("Error", {}).get("Code")
    return _CLIENT_FAULT <= status < _SERVER_FAULT and code != _IN_PROGRESS


def never_sent(error: BaseException) -> bool:
    """Whether an error of one attempt proves that no byte of its request left.

    The SDK hides the first error in arguments of its own. `__context__` proves nothing: it may be
    an error of the caller, who records an event while that is handled.
    """
    left, seen = [error], set[int]()
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if _arose_while_connecting(one):
            return True
        hidden = (*one.args, *getattr(one, "kwargs", {}).values(), one.__cause__)
        left += [other for other in hidden if isinstance(other, BaseException)]
    return False


def _arose_while_connecting(error: BaseException) -> bool:
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in _CONNECTING:
            return True
        trace = trace.tb_next
    return False


def watch(client: Any, timeout_ms: float = inf) -> None:  # noqa: ANN401 - a client of any service
    """Check a client's requests before any other handler sees them leave or end.

    `timeout_ms` after the first attempt of a call the SDK begins no other one.
    """
    events = client.meta.events
    look, judge = partial(_leave_from, this_process()), partial(judge_attempt, timeout_ms)
    events.register_first("before-send", look, unique_id="countledger-departure")
    events.register_first("needs-retry", judge, unique_id="countledger-attempt")


class LambdaContext(Protocol):
    def get_remaining_time_in_millis(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Deadline:
    """The moment after which no write of an invocation begins, and no request of one leaves.

    `end_ms` is the same for what concludes the batch, once all other writes are done.
    """

    clock: Clock
    at_ms: int
    end_ms: int

    @classmethod
    def within(
        cls,
        clock: Clock,
        context: LambdaContext | None = None,
        longest_ms: int = INVOCATION_TIME_MS,
        margin_ms: int = INVOCATION_MARGIN_MS,
    ) -> Deadline:
        """The deadline of an invocation that begins now: what Lambda says is left, or `longest_ms`.

        `margin_ms` of it is left for requests under way at the deadline, and for the answer.
        """
        left_ms = longest_ms
        if context is not None:
            left_ms = min(context.get_remaining_time_in_millis(), longest_ms)
        now_ms = clock.now_ms()
        return cls(clock, now_ms + left_ms - margin_ms, now_ms + left_ms - margin_ms // 2)

    def concluding(self) -> Deadline:
        """The deadline of what concludes the batch: its progress."""
        return Deadline(self.clock, self.end_ms, self.end_ms)

    def check(self) -> None:
        """Raise OutOfTime once the deadline is over."""
        if self.clock.now_ms() >= self.at_ms:
            raise OutOfTime(
                "the time of the function's invocation is over: its records are delivered again"
            )

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Begin only before the deadline (OutOfTime); no request of this thread leaves after it.

        Each request is checked when it is signed already, each attempt of the SDK again.
        """
        self.check()
        with guarded(self.check):
            yield
